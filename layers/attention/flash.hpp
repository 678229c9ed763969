// Flash attention: the output and the gradients of attention without its weights in memory.
//
// Forward, for a tile of queries, over the tiles of keys that one of them sees:
//   S = scale Q K^T, and what the score steps and the mask make of it
//   P = exp(S - top), with top near the largest score of each row so far: no P exceeds exp(8)
//   Y = Y exp(old top - top) + P V,  total = total exp(old top - top) + rowsum(P)
// and Y / total at the end. A sink is there from the start: top is its score and total 1. Dropout
// acts on P before it meets V. Saved: Y, top and 1 / total; no matrix of queries by keys.
// Backward, from dY, with S and P = exp(S - top) / total computed again:
//   D  = rowsum(dY * Y)
//   dV = P^T dY
//   dS = P * (dY V^T - D), and back through the score steps
//   dQ = scale dS K
//   dK = scale dS^T Q
// With dropout, drawn again from its counter, dP = dY V^T and the P of dV are dropped; D stays.
// Sources: Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023, algorithms 1 and 2.
//
// Work is cut into (batch, head, tile of queries) in the forward pass, and in the backward pass
// into (batch, head, range of queries), each range with its own sum of dK and dV where there is
// more than one: no thread writes where another does. Gradients of small parameters have an array
// for each task; a bias that rows or heads share keeps those in one task. Tiles and ranges depend
// on the sizes and the mask alone, so results have the same bits at any thread count. Memory grows
// with the length, not with its square.
#pragma once

#include "layers/attention/kernel.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

AttentionOutput flash_attention(const AttentionInputs& inputs, const AttentionOptions& options);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
