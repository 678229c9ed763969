// Attention of one query in each row, as a decoder asks it token by token: no tiles, no gradient.
//
// The keys are cut into pieces of decode_keys. Of each piece, for the group of query heads that
// share a head of keys, so that keys and values are read once:
//   e_j = scale q . k_j, and what the score steps and the mask make of it
//   top = max e,  p = exp(e - top),  total = sum p,  y = sum p_j v_j
// and the pieces, with the sink as one more of total 1 and y = 0, meet in
//   M = max top,  Y = sum exp(top - M) y / sum exp(top - M) total
// Pieces run on any thread, and where they are cut depends on the keys alone, so results have the
// same bits at any thread count. Where sets of tokens are given, only their keys are there, and the
// pieces are cut from the sets. Source: Dao et al., "Flash-Decoding for long-context inference",
// 2023.
#pragma once

#include "layers/attention/kernel.hpp"
#include "layers/attention/token_selection.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// A multiple of score_block_side, the most that a score step takes at a time.
inline constexpr std::size_t decode_keys = 4 * score_block_side;

// An AttentionKernel. Throws ShapeError for more than one query, TapeError while a Tape records,
// and ArgumentError where weights would be dropped.
AttentionOutput decode_attention(const AttentionInputs& inputs, const AttentionOptions& options);

// The same, and the scores that the softmax saw, (batch, heads, keys): -infinity where hidden.
struct ScoredAttention {
  AttentionOutput attention;
  Array scores;
};
ScoredAttention decode_with_scores(const AttentionInputs& inputs, const AttentionOptions& options);

// The same over the tokens of the sets alone: no other key or value is read, and those of a set
// that all heads share once for the heads that share them. Throws ShapeError too unless there are
// sets for each row of the batch, one or one a head, of tokens below the number of keys.
AttentionOutput sparse_decode_attention(const AttentionInputs& inputs,
                                        const AttentionOptions& options, const TokenSets& sets);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
