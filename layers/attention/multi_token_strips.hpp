// The arithmetic of multi_token_attention, strip by strip of queries.
#pragma once

#include "layers/attention/multi_token.hpp"
#include "layers/attention/sources.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct MultiTokenCall {
  AttentionInputs inputs;
  AttentionCall call;
  TokenMixing mixing;
};

// Those of its weights that hold a value, in order.
std::vector<Variable*> weights_of(TokenMixing& mixing);

// Y (batch, queries, heads * value width).
Array multi_token_forward(const MultiTokenCall& call);
// Adds to the gradients; parameters: those of weights_of().
void multi_token_backward(const MultiTokenCall& call, const Array& dy, const GradientArrays& to);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
