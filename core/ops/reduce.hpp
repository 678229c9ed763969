// Reductions over any set of axes, and running sums along one.
//
// In all of them `axes` is one axis, a list, or all where nothing is given; negative axes count
// from the back. A reduced axis goes, or stays with size 1 under Dims::keep. {} is nothing given,
// but a vector that is empty names no axis, so nothing is reduced. Throws ArgumentError for an axis
// outside x or named twice. Sums run in double, pairwise, whatever Real is.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// The sum; of nothing, 0.
Variable sum(const Variable& x, const Axes& axes = {}, Dims dims = Dims::drop);

// The mean; of nothing, NaN.
Variable mean(const Variable& x, const Axes& axes = {}, Dims dims = Dims::drop);

// The mean square distance from the mean:
//   y = sum (x - mean x)^2 / (count - correction)     correction is NumPy's ddof; 1 gives the
//   unbiased estimate
// NaN or infinite where count <= correction. The square root of a variance of 0 has an infinite
// slope: for a standard deviation add an epsilon first, or choose with where(greater(v, 0),
// sqrt(v), zero), whose gradient at 0 is 0. Throws ArgumentError unless correction >= 0.
Variable variance(const Variable& x, const Axes& axes = {}, Dims dims = Dims::drop,
                  Real correction = 0);

// The largest (smallest) element; NaN if there is one. Equal ones share the gradient evenly.
// Throws ArgumentError where there is no element to choose from.
Variable max(const Variable& x, const Axes& axes = {}, Dims dims = Dims::drop);
Variable min(const Variable& x, const Axes& axes = {}, Dims dims = Dims::drop);

// log sum exp x, without overflow. Where every x is -infinity, or there is none, it is -infinity
// with gradient 0.
Variable logsumexp(const Variable& x, const Axes& axes = {}, Dims dims = Dims::drop);

// The running sum along one axis, y[i] = x[0] + ... + x[i], carried in double. Saves nothing.
Variable cumsum(const Variable& x, std::ptrdiff_t axis);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
