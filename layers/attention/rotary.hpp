// Rotary positions: each pair of numbers of a query or key turns by an angle that grows with its
// position, so that a score depends on how far apart the two are.
//
//   (x, y) -> (x cos a - y sin a, x sin a + y cos a),  a = position * base^(-2 k / width)
//
// for pair k of width / 2. Source: Su et al., "RoFormer", arXiv:2104.09864, section 3.2.
#pragma once

#include <memory>

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Which two numbers make pair k: numbers k and k + width / 2 of a head, as in GPT-NeoX and Hugging
// Face; or 2 k and 2 k + 1, as in the paper, GPT-J and Llama's own code. Weights made for one are
// wrong for the other.
enum class RotaryPairs { halves, neighbours };

// cos and sin of the angles: (positions, width / 2) each.
struct RotaryTable {
  Array cosine, sine;
};

// Angles are worked out in double, then rounded. position_scale multiplies positions: below 1 it
// stretches a context (Chen et al., arXiv:2306.15595); so does a larger base. Throws ArgumentError
// unless width is even and positive, base positive and both finite.
std::shared_ptr<const RotaryTable> rotary_table(std::size_t positions, std::size_t width,
                                                double base = 10000, double position_scale = 1);

// Turns heads that lie side by side, from the first column of x on; what lies behind them is
// copied, so the queries and keys of a packed projection turn in one pass. In each head the first
// 2 * (columns of the table) numbers turn, the others stay.
// x, y: (batch, time, columns), columns at least heads * head_width; positions: the row of the
// table for each, (time) or (batch, time). Throws ShapeError where these do not fit, ArgumentError
// for a position outside of the table.
Variable rotary(const Variable& x, std::size_t heads, std::size_t head_width,
                const std::shared_ptr<const RotaryTable>& table, RotaryPairs pairs,
                const Indices& positions);

// first, first + 1, ...
Indices positions_from(std::size_t first, std::size_t count);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
