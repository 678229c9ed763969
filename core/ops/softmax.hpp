// Softmax and its logarithm over one axis.
//
// Rows of -infinity only, such as a query that may see no key, are defined: they get no weight and
// pass no gradient on.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// y = exp(x) / sum exp(x) along the axis, without overflow; 0 all along where every x is -infinity.
// Saves x and y. Throws ArgumentError for an axis outside x.
Variable softmax(const Variable& x, std::ptrdiff_t axis = -1);

// y = x - log sum exp(x) along the axis; -infinity, with gradient 0, all along where every x is so.
// Saves x and y. Throws ArgumentError for an axis outside x.
Variable log_softmax(const Variable& x, std::ptrdiff_t axis = -1);

// The same from reductions and elementwise ops; over several axes too.
Variable composed_softmax(const Variable& x, const Axes& axes = -1);
Variable composed_log_softmax(const Variable& x, const Axes& axes = -1);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
