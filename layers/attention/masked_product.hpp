// Matrix products that skip hidden entries. Multiplying by zero would not do: 0 * NaN is NaN.
//
// The two are each other's derivatives, so both can be differentiated as often as one likes.
#pragma once

#include "core/ops/matmul.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// y_i = sum over visible (i, j) of a_ij b_j, in every matrix of a batch; transposed: y_j = sum over
// visible of a_ij b_i. a: (batch, heads, rows, columns), visible shaped like a; b: (batch, heads,
// columns or rows, width).
Variable masked_product(const Variable& a, Transpose transpose, const Variable& b,
                        const Bools& visible);

// y_ij = a_i . b_j where (i, j) is visible, else 0.
// a: (batch, heads, rows, width), b: (batch, heads, columns, width), visible: (batch, heads, rows,
// columns).
Variable masked_scores(const Variable& a, const Variable& b, const Bools& visible);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
