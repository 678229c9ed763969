// Multi-token attention that goes on from a cache: what it must keep beside keys and values.
#pragma once

#include "layers/attention/continuation.hpp"
#include "layers/attention/multi_token.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// The scores, and the weights, of the last queries, which the convolutions of the next one read:
// (batch, heads, c_q - 1, capacity), 0 where there was no query and for keys it did not see.
struct TokenRows {
  Array scores, weights;

  TokenRows() = default;
  TokenRows(const TokenMixing& mixing, std::size_t batch, std::size_t heads, std::size_t capacity);
};

// multi_token_attention of new queries, as a call with the whole sequence would give it. q: the new
// queries; k, v: all keys and values; options: the mask of the continuation, no dropout. Row b has
// the first rows.counts[b] of the queries. known: of the queries before; afterwards, of these. The
// output of queries beyond a row's own is 0. Records nothing.
Variable multi_token_decode(const AttentionInputs& inputs, const TokenMixing& mixing,
                            const AttentionOptions& options, const Continuation& rows,
                            TokenRows& known);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
