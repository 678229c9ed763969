// GELU of a sum with a row: the activation behind a linear map, with that map's bias.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// y = gelu(x + bias), the bias added to each row; formulas in elementwise.hpp. One pass over
// memory, and one back for both gradients. x: (..., width), bias: (width); y: shaped like x. Saves
// x and bias. Throws ShapeError for other shapes.
Variable bias_gelu(const Variable& x, const Variable& bias);
// The same with gelu_tanh.
Variable bias_gelu_tanh(const Variable& x, const Variable& bias);

// gelu or gelu_tanh of add(x, bias).
Variable composed_bias_gelu(const Variable& x, const Variable& bias);
Variable composed_bias_gelu_tanh(const Variable& x, const Variable& bias);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
