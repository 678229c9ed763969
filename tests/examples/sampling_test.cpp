// Writing on from a cache, against a model that reads everything again for each token.
#include "examples/common/sampling.hpp"

#include "common/drawn_layer.hpp"
#include "common/test.hpp"

namespace {

using Tokens = std::vector<std::int64_t>;

ag::Transformer model_of(std::size_t context) {
  return drawn_layer<ag::Transformer>(ag::TransformerOptions{
      .vocabulary = 23, .context = context, .width = 16, .heads = 2, .layers = 2});
}

Tokens continued(const ag::Transformer& model, const Tokens& prompt, std::size_t count,
                 const SamplingOptions& options, const ReadingOptions& reading = {}) {
  ag::Rng rng(9);
  Tokens written;
  const auto take = [&](std::int64_t token) {
    written.push_back(token);
    return true;
  };
  continue_text(model, prompt, count, options, rng, take, reading);
  return written;
}

// The token that the model, reading the last `seen` tokens anew, finds the likeliest or draws.
std::int64_t next(const ag::Transformer& model, const Tokens& tokens, std::size_t seen,
                  const SamplingOptions& options, ag::Rng& rng) {
  ag::Indices read = ag::Indices::from_shape({1, seen});
  std::copy(tokens.end() - std::ptrdiff_t(seen), tokens.end(), read.data());
  const Variable logits = model(read);
  return sample_token(logits.value().data() + (seen - 1) * 23, 23, options, rng);
}

}  // namespace

TEST_CASE("a text written on from the cache is that written without, greedily and drawn",
          "[sampling]") {
  const ag::Transformer model = model_of(40);
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 0}, SamplingOptions{.temperature = 1, .top_k = 5}}) {
    const Tokens prompt{1, 2, 3, 4};
    Tokens tokens = prompt;
    ag::Rng rng(9);
    while (tokens.size() < 40) tokens.push_back(next(model, tokens, tokens.size(), options, rng));
    REQUIRE(continued(model, prompt, 36, options) == Tokens(tokens.begin() + 4, tokens.end()));
  }
}

TEST_CASE("when the context is full, writing goes on from its last half", "[sampling]") {
  const SamplingOptions greedy{.temperature = 0};
  for (const std::size_t context : {1, 2, 5, 6}) {
    const ag::Transformer model = model_of(context);
    Tokens tokens{7, 3, 9};
    ag::Rng rng(9);
    std::size_t seen = std::min<std::size_t>(3, context);
    for (int i = 0; i < 20; ++i) {
      tokens.push_back(next(model, tokens, seen, greedy, rng));
      seen = seen == context ? (context + 1) / 2 : seen + 1;
    }
    CAPTURE(context);
    REQUIRE(continued(model, {7, 3, 9}, 20, greedy) == Tokens(tokens.begin() + 3, tokens.end()));
  }
}

TEST_CASE("a streaming cache writes on beyond the context, and as any other within it",
          "[sampling]") {
  const SamplingOptions greedy{.temperature = 0};
  ag::Rng rng(5);
  const ag::Transformer model({.vocabulary = 23,
                               .context = 12,
                               .width = 16,
                               .heads = 2,
                               .layers = 1,
                               .positions = ag::Positions::rotary,
                               .deviation = 1},
                              rng);
  const ReadingOptions streaming{.window = 12, .sinks = 2};
  REQUIRE(continued(model, {1, 2, 3}, 9, greedy, streaming) ==
          continued(model, {1, 2, 3}, 9, greedy));
  // of one layer, so that what is kept says all about what is seen
  const Tokens prompt{5, 7, 3, 9, 1, 4, 2, 8, 6, 11, 13, 12, 17, 14, 21};
  Tokens tokens = prompt;
  for (int i = 0; i < 20; ++i) {
    Tokens kept(tokens.begin(), tokens.begin() + 2);
    kept.insert(kept.end(), tokens.end() - 10, tokens.end());
    tokens.push_back(next(model, kept, 12, greedy, rng));
  }
  REQUIRE(continued(model, prompt, 20, greedy, streaming) ==
          Tokens(tokens.begin() + 15, tokens.end()));
}

TEST_CASE("a budget of the whole text writes what the whole cache does", "[sampling]") {
  const ag::Transformer model = model_of(40);
  const SamplingOptions drawn{.temperature = 1, .top_k = 5};
  const auto with_budget = [&](std::size_t budget) {
    return continued(model, {1, 2, 3, 4}, 36, drawn,
                     {.less_is_more = ag::LessIsMoreOptions{.roles = ag::decode_roles(2, {0}),
                                                            .selection = {.budget = budget}}});
  };
  REQUIRE(with_budget(40) == continued(model, {1, 2, 3, 4}, 36, drawn));
  REQUIRE(with_budget(2) != with_budget(40));
}

TEST_CASE("top_p draws from the fewest tokens that have its share", "[sampling]") {
  const std::vector<Real> logits{std::log(Real(0.1)), std::log(Real(0.5)), std::log(Real(0.4))};
  const auto drawn = [&](double top_p) {
    ag::Rng rng(3);
    std::vector<int> counts(3);
    for (int i = 0; i < 2000; ++i)
      ++counts[std::size_t(
          sample_token(logits.data(), 3, {.temperature = 1, .top_k = 0, .top_p = top_p}, rng))];
    return counts;
  };
  const std::vector<int> one = drawn(0.49), two = drawn(0.89), all = drawn(1);
  REQUIRE(one[1] == 2000);
  REQUIRE(two[0] == 0);
  REQUIRE(std::abs(two[1] - 1111) < 100);  // 5 of 9; four standard deviations
  REQUIRE(std::abs(all[0] - 200) < 60);
  REQUIRE_THROWS_AS(drawn(0), ag::ArgumentError);
  REQUIRE_THROWS_AS(drawn(1.5), ag::ArgumentError);
}

TEST_CASE("logits that leave nothing to draw are refused", "[sampling][errors]") {
  ag::Rng rng(3);
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  for (const std::vector<Real>& logits :
       {std::vector<Real>{0, std::numeric_limits<Real>::quiet_NaN()},
        {infinity, 0},
        {-infinity},
        {}})
    REQUIRE_THROWS_AS(
        sample_token(logits.data(), logits.size(), {.temperature = 1, .top_p = 0.9}, rng),
        ag::ArgumentError);
  const std::vector<Real> one{-infinity, 0};
  REQUIRE(sample_token(one.data(), 2, {.temperature = 1}, rng) == 1);
  REQUIRE_THROWS_AS(sample_token(one.data(), 2, {.temperature = infinity}, rng), ag::ArgumentError);
}

TEST_CASE("writing on ends when its reader has enough", "[sampling]") {
  const ag::Transformer model = model_of(8);
  ag::Rng rng(9);
  int taken = 0;
  continue_text(model, {1}, 20, {.temperature = 0}, rng, [&](std::int64_t) { return ++taken < 5; });
  REQUIRE(taken == 5);
}
