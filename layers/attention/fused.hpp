// Attention with an analytic backward in six steps, as a kernel over heads and as a whole layer
// over X, Wq, Wk and Wv.
//
// Forward, for each batch row and head:
//   E = scale Q K^T        (queries, keys)
//   A = softmax(E)         each row over its visible keys; 0 elsewhere
//   Y = A V                (queries, value width)
// Backward, from dY. A is kept from the forward pass; everything else is computed again or comes
// in:
//   1  dV = A^T dY
//   2  dA = dY V^T
//   3  dE = A * (dA - rowsum(A * dA))
//   4  dQ = scale dE K
//   5  dK = scale dE^T Q
//   6  dWq = X^T dQ, dWk = X^T dK, dWv = X^T dV,
//      dX = dQ Wq^T + dK Wk^T + dV Wv^T
// In step 3, a row of A sums to 1, so each entry's gradient loses the row's share. scale is
// 1 / sqrt(width of a query) unless given.
// Source: Vaswani et al., "Attention is all you need", 2017, section 3.2.
#pragma once

#include "layers/attention/composed.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Steps 1 to 5 as a kernel. Saves A, one (queries, keys) matrix for each batch row and head.
AttentionOutput fused_attention(const AttentionInputs& inputs, const AttentionOptions& options);

struct SelfAttentionInputs {
  Variable x;           // (batch, time, D_x)
  Variable wq, wk, wv;  // (D_x, heads * D_q), (D_x, heads * D_q), (D_x, heads * D_v)
  std::size_t heads;
};

// The whole layer with one analytic backward, all six steps: queries, keys and values are x wq, x
// wk and x wv. Returns (batch, time, heads * D_v). Throws ShapeError unless the shapes are as
// above.
Variable fused_self_attention(const SelfAttentionInputs& inputs, const AttentionOptions& options);

// The same from generic ops, with everything on the way.
struct SelfAttentionParts {
  Variable q, k, v;  // (batch, time, heads * width)
  AttentionParts attention;
};
SelfAttentionParts composed_self_attention_parts(const SelfAttentionInputs& inputs,
                                                 const AttentionOptions& options);
Variable composed_self_attention(const SelfAttentionInputs& inputs,
                                 const AttentionOptions& options);

// Every gradient of the six steps by its name, from the same code that the layer runs. `weights`
// and `scores` are zero where hidden. dY: (batch, time, heads * D_v).
struct SelfAttentionGradients {
  Array dv, weights, scores, dq, dk, dwq, dwk, dwv, dx;
};
SelfAttentionGradients fused_self_attention_gradients(const SelfAttentionInputs& inputs,
                                                      const AttentionOptions& options,
                                                      const Array& dy);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
