// Multi-token attention: what one query makes of one key may depend on the scores of the queries
// before it, of the keys beside it, and of other heads.
//
//   L = scale Q K^T, and 0 where hidden
//   C = key-query convolution of L, then head mixing
//   A = softmax of each row of C over the visible keys
//   W = key-query convolution of A, and 0 where hidden, then head mixing
//   Y = W V, of W with dropout
//
// Convolution, in each head with a kernel of its own, (c_q, c_k), c_k odd:
//   C[h, i, j] = sum over a < c_q, b < c_k of kernel[h, a, b] L[h, i + a - (c_q - 1), j + b - (c_k
//   - 1) / 2]
// which reads the query itself (a = c_q - 1) and those before it, and keys on both sides. A term
// counts only where its key is visible to both queries: under a causal mask that is the paper's
// form, which masks before the convolution and after it; and documents() stay apart. What a query
// does not see has no influence on it, but for one way: the weights of an earlier query were
// normalised over what that one saw, which a window may have left behind.
//
// Mixing, in groups of c neighbouring heads: C'[g c + o] = sum over i < c of mix[g, o, i] C[g c +
// i].
//
// Source: Golovneva et al., "Multi-token attention", 2025, arXiv:2504.00927, section 3.
#pragma once

#include "layers/attention/kernel.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// The weights of each step; one without a value leaves its step out. Without any it is plain
// attention.
struct TokenMixing {
  Variable key_query;        // (heads, c_q, c_k)
  Variable heads;            // (groups, c, c)
  Variable key_query_after;  // of the softmax; (heads, c_q, c_k)
  Variable heads_after;      // (groups, c, c)
};

// Y: (batch, queries, heads * value width). One op, which works on strips of queries with as many
// rows before them as the kernels reach, and computes them again in the backward pass: the memory
// it takes is linear in the length. Its identity kernels (1 at a = c_q - 1, b = (c_k - 1) / 2) and
// identity matrices give the same bits as no weights (beyond 64 queries, key_query_after's give
// gradients that are the same to rounding). Throws, before any work, ShapeError for
// weights of other shapes, ArgumentError for score steps and sinks, which it does not take.
Variable multi_token_attention(const AttentionInputs& inputs, const TokenMixing& mixing,
                               const AttentionOptions& options = {});

// The same from generic ops; with identity weights it has the bits of composed_attention.
Variable composed_multi_token_attention(const AttentionInputs& inputs, const TokenMixing& mixing,
                                        const AttentionOptions& options = {});

// W alone: (batch, heads, queries, keys), before dropout, for which nothing is drawn; not recorded.
Variable multi_token_weights(const AttentionInputs& inputs, const TokenMixing& mixing,
                             AttentionOptions options = {});

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
