// All fused ops of the library: those of core/ops and those of the layers.
#pragma once

#include "core/fused.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// attention and self_attention, over random sizes (one row, one head, queries and keys of different
// lengths), masks (causal with any offset, boolean arrays, fully masked rows) and scales, with NaN
// stored behind the mask; multi_token_attention, with any of its weights.
const std::vector<FusedOp>& attention_fused_ops();
// depth_mix, over one source or several, one of them perhaps twice, and any width and epsilon.
const std::vector<FusedOp>& residual_fused_ops();

std::vector<FusedOp> fused_ops();

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
