// Attention made of generic ops on the tape: the reference that shares no derivative with any other
// kernel.
#pragma once

#include "layers/attention/kernel.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

AttentionOutput composed_attention(const AttentionInputs& inputs, const AttentionOptions& options);

// The same with everything on the way, for who wants to look at it or at its gradients
// (Tape::watch).
struct AttentionParts {
  Variable scores;   // E: (batch, heads, queries, keys), scaled, before the mask
  Variable weights;  // A: (batch, heads, queries, keys), 0 where hidden
  Variable output;   // Y: (batch, queries, heads * value width)
  Array log_sum_exp;
};
AttentionParts composed_attention_parts(const AttentionInputs& inputs,
                                        const AttentionOptions& options);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
