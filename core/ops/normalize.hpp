// Normalisation of rows: the last axis.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Normalises each row of x to mean 0 and variance 1, then scales and shifts it:
//   y = gain * (x - mean) / sqrt(variance + epsilon) + shift
// over the last axis; the variance is over width, not width - 1. Sums keep the digits of a row with
// a large mean. x: (..., width); gain: (width); shift: (width) or no value; y: shaped like x. Saves
// x and two numbers per row. With epsilon 0 a constant row gives NaN. Throws ShapeError for other
// shapes, ArgumentError unless epsilon >= 0. Source: Ba, Kiros, Hinton, "Layer Normalization",
// 2016, arXiv:1607.06450, section 3.
Variable layer_norm(const Variable& x, const Variable& gain, const Variable& shift,
                    Real epsilon = Real(1e-5));

// Both a + b and its layer norm, in one pass over memory: a residual sum and what the next layer
// reads of it. a, b: of one shape (..., width).
struct SumAndNorm {
  Variable sum, normed;
};
SumAndNorm add_layer_norm(const Variable& a, const Variable& b, const Variable& gain,
                          const Variable& shift, Real epsilon = Real(1e-5));

// The same without centring or shift:
//   y = gain * x / sqrt(mean(x^2) + epsilon)
// With epsilon 0 a row of zeros gives NaN.
// Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467,
// section 3.
Variable rms_norm(const Variable& x, const Variable& gain, Real epsilon = Real(1e-5));

// Both a + b and its RMS norm, as add_layer_norm.
SumAndNorm add_rms_norm(const Variable& a, const Variable& b, const Variable& gain,
                        Real epsilon = Real(1e-5));

// The same from reductions and elementwise ops. In float, rows beyond about 1e19 overflow here.
Variable composed_layer_norm(const Variable& x, const Variable& gain, const Variable& shift,
                             Real epsilon = Real(1e-5));
Variable composed_rms_norm(const Variable& x, const Variable& gain, Real epsilon = Real(1e-5));

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
