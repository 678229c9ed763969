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
  Variable raw;      // scale Q K^T: (batch, heads, queries, keys), 0 where hidden
  Variable scores;   // E: the same after the score steps, before the mask
  Variable weights;  // A: the same shape, 0 where hidden; before dropout
  Variable output;   // Y: (batch, queries, heads * value width)
  Array log_sum_exp;
};
AttentionParts composed_attention_parts(const AttentionInputs& inputs,
                                        const AttentionOptions& options);
// The weights A alone, of which a kernel may keep nothing: before dropout, for which nothing is
// drawn, and not recorded.
Variable attention_weights(const AttentionInputs& inputs, AttentionOptions options);
// Parts of it, for kernels of other kinds: the softmax of each row over what is visible (all, if
// null) and the sink, and dropout. scores, weights: (batch, heads, queries, keys).
struct VisibleSoftmax {
  Variable weights;   // 0 where hidden
  Array log_sum_exp;  // (batch, heads, queries)
};
VisibleSoftmax visible_softmax(const Variable& scores, const Bools* visible,
                               const std::optional<Variable>& sink);
Variable composed_drop(const Variable& weights, const AttentionCall& call);
// Of a prepared call, with other Variables in the place of its parameters.
AttentionParts composed_call(const AttentionInputs& inputs, const AttentionCall& call,
                             const std::vector<Variable>& parameters);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
