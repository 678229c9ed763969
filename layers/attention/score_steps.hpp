// The usual steps from scores to scores: e becomes
//
//   soft_cap            cap tanh(e / cap)
//   bias                e + b[batch, head, query, key]
//   alibi               e - slope[head] |position - key|
//   relative_positions  e + table[head, key - position]
//
// where query i stands at position i + keys - queries. Scores are scaled already; the mask comes
// afterwards.
#pragma once

#include "layers/attention/score_step.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// No score exceeds cap in size. Throws ArgumentError unless cap is positive and finite. Source:
// Gemma 2, arXiv:2408.00118, section 2.
std::shared_ptr<const ScoreStep> soft_cap(double cap);

// b: (queries, keys), or (batch, heads, queries, keys) where a size of 1 stretches; it gets its
// gradient. -infinity hides a pair as a mask does, but not what is not a number there, and no tile
// is skipped: a Mask is for that. Throws ShapeError for another rank, and in use for sizes that do
// not fit.
std::shared_ptr<const ScoreStep> bias(const Variable& b);

// The slopes of ALiBi: 2^(-8 h / heads) for h = 1 ... heads, where heads is a power of two; else
// those of the power of two below, followed by every other slope of twice as many. Source: Press,
// Smith, Lewis, arXiv:2108.12409, section 3, and its published code.
std::vector<double> alibi_slopes(std::size_t heads);
// Attention with linear biases, as alibi(alibi_slopes(heads)). Throws ShapeError in use unless
// there is a slope for each head; ArgumentError unless all are finite.
std::shared_ptr<const ScoreStep> alibi(std::vector<double> slopes);

// Learned biases of relative positions: table is (heads or 1, 2 reach + 1), whose middle is
// distance 0 and whose last column is for keys that come `reach` or more later. It gets its
// gradient. Throws ShapeError for another rank or an even number of columns, and in use for another
// number of heads. Source: Raffel et al., "Exploring the limits of transfer learning", 2020,
// section 2.1, with one column for each distance.
std::shared_ptr<const ScoreStep> relative_positions(const Variable& table);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
