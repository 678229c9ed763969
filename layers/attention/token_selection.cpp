#include "layers/attention/token_selection.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "core/errors.hpp"
#include "core/parallel.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

const std::vector<std::pair<std::string, Selector>>& names() {
  static const std::vector<std::pair<std::string, Selector>> all{
      {"unified", Selector::unified},
      {"per-head", Selector::per_head},
      {"top", Selector::top},
      {"random-head", Selector::random_head},
      {"window", Selector::window}};
  return all;
}

}  // namespace

Selector selector_named(const std::string& name) {
  std::string list;
  for (const auto& [known, selector] : names()) {
    if (known == name) return selector;
    list += " " + known;
  }
  throw ArgumentError("selector_named: must be one of" + list + ", got " + name);
}

std::string selector_name(Selector selector) {
  for (const auto& [name, known] : names())
    if (known == selector) return name;
  throw ArgumentError("selector_name: no selector of this number");
}

std::vector<std::string> selector_names() {
  std::vector<std::string> all;
  for (const auto& [name, selector] : names()) all.push_back(name);
  return all;
}

const SelectionOptions& checked_selection(const SelectionOptions& o) {
  check_argument(o.budget > 0, "selection: a budget of tokens must be positive, got 0");
  check_argument(o.recent_share >= 0 && o.recent_share <= 1,
                 "selection: the share of recent tokens must be in [0, 1], got ", o.recent_share);
  return o;
}

TokenSets::TokenSets(std::size_t sets_per_row, std::vector<TokenSet> sets)
    : per_row_(sets_per_row), sets_(std::move(sets)) {
  check_shape(per_row_ > 0 && sets_.size() % per_row_ == 0, "TokenSets: ", sets_.size(),
              " sets are no multiple of ", per_row_, " a row");
  for (const TokenSet& set : sets_)
    check_argument(std::adjacent_find(set.begin(), set.end(), std::greater_equal<>()) == set.end(),
                   "TokenSets: tokens of a set must rise, got ", set);
}

namespace {

// How a budget below the number of tokens is spent: the first `sinks`, the last `recent`, and so
// many `ranked` of those between.
struct Split {
  std::size_t tokens, sinks, recent, ranked;

  std::size_t candidates() const { return tokens - sinks - recent; }
};

Split split_budget(std::size_t tokens, const SelectionOptions& o) {
  if (o.selector == Selector::top) return {tokens, 0, 0, o.budget};
  const std::size_t ranked =
      o.selector == Selector::window
          ? 0
          // 10 (1 - 0.9) is 0.99999...
          : static_cast<std::size_t>(double(o.budget) * (1 - o.recent_share) + 1e-9);
  const std::size_t rest = o.budget - ranked, sinks = rest < o.sinks ? 0 : o.sinks;
  return {tokens, sinks, rest - sinks, ranked};
}

// The `ranked` best candidates of one head, best first; of equal ones the earlier.
TokenSet best(const Real* scores, const Split& split) {
  struct Candidate {
    Real score;
    std::size_t token;
  };
  std::vector<Candidate> all(split.candidates());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Real score = scores[split.sinks + i];
    all[i] = {std::isnan(score) ? -std::numeric_limits<Real>::infinity() : score, split.sinks + i};
  }
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.score > b.score || (a.score == b.score && a.token < b.token);
  };
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(split.ranked);
  std::nth_element(all.begin(), end, all.end(), better);
  std::sort(all.begin(), end, better);
  TokenSet tokens(split.ranked);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = all[i].token;
  return tokens;
}

// All first choices in the order of heads, then all second ones, each token once.
TokenSet unite(const std::vector<TokenSet>& choices, const Split& split) {
  std::vector<bool> taken(split.tokens, false);
  TokenSet united;
  for (std::size_t rank = 0; rank < split.ranked; ++rank)
    for (const TokenSet& of_head : choices) {
      const std::size_t token = of_head[rank];
      if (united.size() == split.ranked) return united;
      if (!taken[token]) united.push_back(token);
      taken[token] = true;
    }
  return united;
}

TokenSet with_ends(TokenSet chosen, const Split& split) {
  for (std::size_t i = 0; i < split.sinks; ++i) chosen.push_back(i);
  for (std::size_t i = 0; i < split.recent; ++i) chosen.push_back(split.tokens - split.recent + i);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

TokenSet all_tokens(std::size_t tokens) {
  TokenSet all(tokens);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

// The sets of one row: one, or one a head.
std::vector<TokenSet> select_row(const Array& scores, std::size_t row, std::size_t tokens,
                                 std::size_t group, const SelectionOptions& o, Rng* rng) {
  const std::size_t heads = scores.shape()[1], keys = scores.shape()[2];
  const bool alike = o.selector == Selector::unified || o.selector == Selector::window;
  if (o.budget >= tokens) return std::vector<TokenSet>(alike ? 1 : heads, all_tokens(tokens));
  const Split split = split_budget(tokens, o);
  if (o.selector == Selector::window) return {with_ends({}, split)};
  const Real* first = scores.data() + row * heads * keys;
  std::vector<TokenSet> choices(heads);
  parallel_for(
      heads, [&](std::size_t h) { choices[h] = best(first + h * keys, split); },
      100 * double(heads * tokens));
  if (o.selector == Selector::unified) return {with_ends(unite(choices, split), split)};
  if (o.selector == Selector::random_head) {
    check_argument(rng != nullptr, "selection: a random head needs a source of numbers");
    for (std::size_t h = 0; h < heads; h += group) {
      const TokenSet drawn =
          choices[h + static_cast<std::size_t>(rng->integer(0, std::int64_t(group)))];
      std::fill_n(choices.begin() + static_cast<std::ptrdiff_t>(h), group, drawn);
    }
  }
  for (TokenSet& set : choices) set = with_ends(std::move(set), split);
  return choices;
}

}  // namespace

TokenSets select_tokens(const Array& scores, const std::vector<std::size_t>& lengths,
                        std::size_t group, const SelectionOptions& options, Rng* rng) {
  checked_selection(options);
  check_shape(scores.dimension() == 3 && scores.shape()[0] == lengths.size() && group > 0 &&
                  scores.shape()[1] % group == 0,
              "select_tokens: scores must be (", lengths.size(), ", a multiple of ", group,
              ", keys), got ", scores.shape());
  std::vector<TokenSet> sets;
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    check_shape(lengths[row] <= scores.shape()[2], "select_tokens: row ", row, " has ",
                lengths[row], " tokens, and scores of ", scores.shape()[2]);
    for (TokenSet& set : select_row(scores, row, lengths[row], group, options, rng))
      sets.push_back(std::move(set));
  }
  const std::size_t per_row = lengths.empty() ? 1 : sets.size() / lengths.size();
  return TokenSets(per_row, std::move(sets));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
