// All fused ops of the library: those of core/ops and those of the layers.
#pragma once

#include "core/fused.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// attention, flash_attention, self_attention and multi_token_attention, over random sizes (one row,
// one head, queries and keys of different lengths, tiles with every remainder), masks of every kind
// together, and scales, with NaN stored behind the mask; flash with score steps, sinks and dropout,
// multi-token with any of its weights.
const std::vector<FusedOp>& attention_fused_ops();
// Of the other layers: depth_mix, over one source or several, one of them perhaps twice, and any
// width and epsilon.
const std::vector<FusedOp>& layer_fused_ops();

std::vector<FusedOp> fused_ops();

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
