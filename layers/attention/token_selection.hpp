// Which tokens of the past a decoder reads: all but a budget of them are left out.
//
// LessIsMore lets all heads of a layer share one set. Of n tokens, with budget K, a share r for the
// recent ones and s sinks:
//   m = floor(K (1 - r)) are ranked; K - m are the first s and the last K - m - s; where K - m < s
//   there are no sinks
//   each head ranks the tokens between sinks and recent ones by its scores; all first choices are
//   taken in the order of heads, then all second choices, and so on, each token once, until m are
//   found
// With K >= n it is every token. Source: Yang et al., "Less is more: training-free sparse attention
// with global locality for efficient reasoning", arXiv:2508.07101, section 4, and the accuracy path
// of its code.
#pragma once

#include <string>
#include <vector>

#include "core/array.hpp"
#include "core/random.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Who chooses, from the same scores:
//   unified      LessIsMore: all heads together, one set
//   per_head     each head its own m, beside the same sinks and recent tokens
//   top          each head its own K, without sinks or recent ones (TidalDecode,
//                arXiv:2410.05076)
//   random_head  of each group that shares keys, one head drawn by chance, for the group
//   window       no scores: s sinks and the last K - s tokens (StreamingLLM, arXiv:2309.17453)
enum class Selector { unified, per_head, top, random_head, window };
Selector selector_named(const std::string& name);  // ArgumentError for another, listing them
std::string selector_name(Selector selector);
std::vector<std::string> selector_names();

struct SelectionOptions {
  std::size_t budget = 2048;   // K, of tokens that a head reads
  double recent_share = 0.25;  // r, in [0, 1]
  std::size_t sinks = 4;       // s
  Selector selector = Selector::unified;
};

// Throws ArgumentError for a budget of 0 and a share outside of [0, 1].
const SelectionOptions& checked_selection(const SelectionOptions& options);

// Positions of tokens, rising.
using TokenSet = std::vector<std::size_t>;

// For each row of a batch one set, which all heads read, or one for each head.
class TokenSets {
 public:
  TokenSets() = default;
  // sets: those of row 0, sets_per_row of them, then those of row 1, ... Throws ShapeError where
  // that leaves a row incomplete, ArgumentError for a set that does not rise.
  TokenSets(std::size_t sets_per_row, std::vector<TokenSet> sets);

  bool shared() const { return per_row_ == 1; }
  std::size_t rows() const { return per_row_ == 0 ? 0 : sets_.size() / per_row_; }
  std::size_t per_row() const { return per_row_; }
  const TokenSet& of(std::size_t row, std::size_t head) const {
    return sets_[row * per_row_ + (shared() ? 0 : head)];
  }

 private:
  std::size_t per_row_ = 0;
  std::vector<TokenSet> sets_;
};

// The sets for the next reads of a decoder: scores (batch, heads, keys) of one query in each row,
// of which row b has lengths[b] tokens; `group` heads in a row share a head of keys. Of equal
// scores the earlier token goes first, and NaN counts as the lowest. rng: for random_head alone.
// Throws ShapeError unless there is a length, up to keys, for each row, and group divides heads;
// ArgumentError as checked_selection(), and for random_head without rng.
TokenSets select_tokens(const Array& scores, const std::vector<std::size_t>& lengths,
                        std::size_t group, const SelectionOptions& options, Rng* rng = nullptr);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
