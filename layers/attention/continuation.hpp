// Masks and score steps of queries that go on from keys of before, as a cache keeps them.
//
// They mean what they mean in a call with the whole sequence: row b of the batch is taken as the
// last counts[b] queries of past[b] + counts[b], so distances, windows and a score function's
// indices count slots of the cache, though rows have come to different lengths.
#pragma once

#include "layers/attention/score_step.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Of each row of the batch: how many keys there were, and how many queries, with keys of their own,
// came now.
struct Continuation {
  std::vector<std::size_t> past, counts;

  std::size_t length(std::size_t row) const { return past[row] + counts[row]; }
};

// The mask of a call with as many queries as the largest count and as many keys as the longest
// row: what it shows in a whole sequence, and nothing to queries and of keys beyond a row's own.
// Throws ArgumentError for a mask given pair by pair, which has one length and a cache none.
Mask continued(const Mask& mask, const Continuation& rows);
// The same for score steps.
ScoreSteps continued(const ScoreSteps& steps, const Continuation& rows);

// past[b] + t for query t of row b, (batch, time); at most `last`, for queries beyond a row's own.
Indices continued_positions(const Continuation& rows, std::size_t time, std::size_t last);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
