// The activation of a gated feed-forward layer.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// y = silu(first half of each row) * (second half), in one pass over memory and one back. x: (...,
// 2 width), y: (..., width). Saves x. Throws ShapeError for rows of odd length. Source: Shazeer,
// "GLU variants improve transformer", 2020, arXiv:2002.05202 (SwiGLU).
Variable silu_gate(const Variable& x);
// The same from generic ops.
Variable composed_silu_gate(const Variable& x);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
