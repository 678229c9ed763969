// Which tokens are chosen, by hand and by the paper's example.
#include "layers/attention/token_selection.hpp"

#include <cmath>

#include "common/test.hpp"

namespace {

using Set = ag::TokenSet;

// Scores of one row by which each head ranks as its list says, best first.
Array ranked(const std::vector<Set>& heads, std::size_t keys) {
  Array scores({1, heads.size(), keys}, Real(0));
  for (std::size_t h = 0; h < heads.size(); ++h)
    for (std::size_t i = 0; i < heads[h].size(); ++i)
      scores.data()[h * keys + heads[h][i]] = Real(10 - double(i));
  return scores;
}

Set shared_set(const Array& scores, const ag::SelectionOptions& options) {
  const ag::TokenSets sets = ag::select_tokens(scores, {scores.shape()[2]}, 1, options);
  REQUIRE(sets.shared());
  return sets.of(0, 0);
}

}  // namespace

TEST_CASE("the worked example of the paper's figure chooses 2, 5, 1 and 7", "[selection]") {
  const Array scores = ranked({{2, 1, 6}, {2, 1, 4}, {2, 6, 4}, {5, 6, 4}}, 8);
  REQUIRE(shared_set(scores, {.budget = 4, .recent_share = 0.25, .sinks = 0}) == Set{1, 2, 5, 7});
}

TEST_CASE("three heads choose the set that the reference formula gives", "[selection]") {
  Array scores = Array::from_shape({1, 3, 12});
  for (std::size_t h = 0; h < 3; ++h)
    for (std::size_t j = 0; j < 12; ++j)
      scores.data()[h * 12 + j] = Real(std::sin(1.1 * double(h) + 0.9 * double(j)));
  REQUIRE(shared_set(scores, {.budget = 8, .recent_share = 0.25, .sinks = 1}) ==
          Set{0, 1, 2, 6, 7, 8, 9, 11});
}

TEST_CASE("every selector spends its budget exactly, in every head", "[selection]") {
  ag::Rng rng(3);
  for (const std::size_t tokens : {2, 17, 40})
    for (std::size_t budget = 1; budget <= 42; ++budget)
      for (const double share : {0.0, 0.25, 0.5, 1.0})
        for (const std::string& name : ag::selector_names()) {
          CAPTURE(tokens, budget, share, name);
          const Array scores = random_array({2, 4, 40}, -1, 1, budget);
          const ag::TokenSets sets = ag::select_tokens(
              scores, {tokens, 40}, 2,
              {.budget = budget, .recent_share = share, .selector = ag::selector_named(name)},
              &rng);
          for (std::size_t head = 0; head < 4; ++head) {
            REQUIRE(sets.of(0, head).size() == std::min(budget, tokens));
            REQUIRE(sets.of(1, head).size() == std::min<std::size_t>(budget, 40));
            REQUIRE(sets.of(0, head).back() < tokens);
          }
        }
}

TEST_CASE("a budget of every token or more chooses every token", "[selection]") {
  Set all(12);
  for (std::size_t i = 0; i < 12; ++i) all[i] = i;
  for (const std::size_t budget : {12, 13, 1000})
    REQUIRE(shared_set(random_array({1, 3, 12}), {.budget = budget}) == all);
}

TEST_CASE("a share that floating point cannot hold leaves the whole number of ranked tokens",
          "[selection]") {
  // 10 (1 - 0.9) is 0.99999...: one is ranked, nine are the sinks and the last
  const Array scores = ranked({{9}}, 30);
  REQUIRE(shared_set(scores, {.budget = 10, .recent_share = 0.9, .sinks = 4}) ==
          Set{0, 1, 2, 3, 9, 25, 26, 27, 28, 29});
}

TEST_CASE("with nothing but recent tokens the set is a window with sinks", "[selection]") {
  const Array scores = random_array({1, 4, 20});
  const Set set = shared_set(scores, {.budget = 7, .recent_share = 1, .sinks = 4});
  REQUIRE(set == Set{0, 1, 2, 3, 17, 18, 19});
  REQUIRE(set == shared_set(scores, {.budget = 7, .selector = ag::Selector::window}));
}

TEST_CASE("a share of recent tokens that is smaller than the sinks goes without them",
          "[selection]") {
  // 3 of 5 are ranked, and 2 cannot hold 4 sinks
  const Array scores = ranked({{9, 8, 7}}, 20);
  REQUIRE(shared_set(scores, {.budget = 5, .recent_share = 0.25, .sinks = 4}) ==
          Set{7, 8, 9, 18, 19});
}

TEST_CASE("one head alone chooses its best tokens", "[selection]") {
  const Array scores = ranked({{3, 9, 5, 7}}, 12);
  const Set expected{3, 5, 9, 11};
  REQUIRE(shared_set(scores, {.budget = 4, .sinks = 0}) == expected);
  const ag::TokenSets own = ag::select_tokens(
      scores, {12}, 1, {.budget = 4, .sinks = 0, .selector = ag::Selector::per_head});
  REQUIRE(own.of(0, 0) == expected);
}

TEST_CASE("with fewer places than heads the first heads choose", "[selection]") {
  const Array scores = ranked({{4}, {5}, {6}, {7}}, 12);
  REQUIRE(shared_set(scores, {.budget = 3, .sinks = 0}) == Set{4, 5, 11});
}

TEST_CASE("of equal scores the earlier token is chosen, and a NaN last", "[selection]") {
  Array scores({1, 1, 10}, Real(1));
  REQUIRE(shared_set(scores, {.budget = 4, .sinks = 0}) == Set{0, 1, 2, 9});
  scores.data()[0] = std::numeric_limits<Real>::quiet_NaN();
  scores.data()[1] = -std::numeric_limits<Real>::infinity();
  REQUIRE(shared_set(scores, {.budget = 4, .sinks = 0}) == Set{2, 3, 4, 9});
}

TEST_CASE("each head has its own best, and a random one decides for its group", "[selection]") {
  const Array scores = ranked({{1, 2}, {3, 4}, {5, 6}, {7, 8}}, 20);
  ag::SelectionOptions options{.budget = 2, .sinks = 0, .selector = ag::Selector::top};
  const ag::TokenSets top = ag::select_tokens(scores, {20}, 2, options);
  REQUIRE(top.per_row() == 4);
  REQUIRE(top.of(0, 3) == Set{7, 8});
  options.selector = ag::Selector::random_head;
  options.recent_share = 0;
  REQUIRE_THROWS_AS(ag::select_tokens(scores, {20}, 2, options), ag::ArgumentError);
  ag::Rng rng(1);
  bool first = false, second = false;
  for (int i = 0; i < 40; ++i) {
    const ag::TokenSets sets = ag::select_tokens(scores, {20}, 2, options, &rng);
    REQUIRE(sets.of(0, 0) == sets.of(0, 1));
    first = first || sets.of(0, 0) == Set{1, 2};
    second = second || sets.of(0, 0) == Set{3, 4};
    REQUIRE((sets.of(0, 2) == Set{5, 6} || sets.of(0, 2) == Set{7, 8}));
  }
  REQUIRE((first && second));
}

TEST_CASE("selections that make no sense are refused", "[selection]") {
  const Array scores = random_array({1, 4, 10});
  REQUIRE_THROWS_AS(ag::select_tokens(scores, {10}, 1, {.budget = 0}), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::select_tokens(scores, {10}, 1, {.recent_share = 1.5}), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::select_tokens(scores, {11}, 1, {}), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::select_tokens(scores, {10, 10}, 1, {}), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::select_tokens(scores, {10}, 3, {}), ag::ShapeError);
  REQUIRE_THROWS_WITH(ag::selector_named("best"), ContainsSubstring("must be one of unified"));
  REQUIRE_THROWS_AS(ag::TokenSets(1, {{3, 3}}), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::TokenSets(2, {{1}, {2}, {3}}), ag::ShapeError);
}
