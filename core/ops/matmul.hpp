// Matrix products: general, batched, and the linear map of a layer.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// The matrix product over the last two axes; the axes before them broadcast.
//   y[..., i, j] = sum_k a[..., i, k] b[..., k, j]
// a: (..., rows, inner), b: (..., inner, columns). By NumPy's rule a rank-1 a is one row and a
// rank-1 b one column, and that axis is dropped from y: two vectors give their dot product, of rank
// 0. An empty inner axis gives zeros. Throws ShapeError for rank 0, different inner sizes, or batch
// axes that do not broadcast.
Variable matmul(const Variable& a, const Variable& b);

// The linear map of a layer: y = x weight^T + bias, over the last axis of x.
// x: (..., in), weight: (out, in), bias: (out) or no value; y: (..., out). Saves x and weight only.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});

enum class Transpose { no, yes };
enum class Batch { keep, sum };
// The product that the derivatives of matmul are made of, closed under differentiation: a and b,
// each of rank 2 or more, may be read transposed (their last two axes), and the products of a batch
// may be summed into one matrix.
Variable contract(const Variable& a, Transpose transpose_a, const Variable& b,
                  Transpose transpose_b, Batch batch = Batch::keep);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
