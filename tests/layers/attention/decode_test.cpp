// The kernel for one query, against the reference.
#include "layers/attention/decode.hpp"

#include "common/bits.hpp"
#include "common/test.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/score_function.hpp"
#include "layers/attention/score_steps.hpp"

namespace {

constexpr double nan_ = std::numeric_limits<double>::quiet_NaN();

struct Sizes {
  std::size_t batch, heads, key_heads, keys, width, value_width;
};

ag::AttentionInputs random_inputs(const Sizes& s) {
  const auto draw = [&](std::size_t length, std::size_t columns, std::uint64_t seed) {
    return Variable(random_array({s.batch, length, columns}, -1, 1, seed));
  };
  return {ag::split_heads(draw(1, s.heads * s.width, 1), s.heads),
          ag::split_heads(draw(s.keys, s.key_heads * s.width, 2), s.key_heads),
          ag::split_heads(draw(s.keys, s.key_heads * s.value_width, 3), s.key_heads)};
}

void require_as_composed(const ag::AttentionInputs& inputs, const ag::AttentionOptions& options) {
  const ag::AttentionOutput expected = ag::composed_attention(inputs, options),
                            out = ag::decode_attention(inputs, options);
  const auto numbers = [](const Array& x) { return std::vector<double>(x.begin(), x.end()); };
  REQUIRE(out.output.shape() == expected.output.shape());
  REQUIRE(out.log_sum_exp.shape() == expected.log_sum_exp.shape());
  require_close(out.output.value(), numbers(expected.output.value()), tolerance(1e-12, 2e-6));
  require_close(out.log_sum_exp, numbers(expected.log_sum_exp), tolerance(1e-12, 2e-6));
}

ag::Bools drawn_flags(std::size_t batch, std::size_t keys) {
  ag::Rng rng(4);
  ag::Bools flags = ag::Bools::from_shape({batch, 1, 1, keys});
  for (std::size_t i = 0; i < flags.size(); ++i) flags.data()[i] = rng.uniform() < 0.6;
  return flags;
}

Array column(const std::vector<double>& numbers) {
  return ag::array_of(numbers, {1, numbers.size(), 1});
}

}  // namespace

TEST_CASE("one query attends as the reference says, whatever the sizes", "[decode]") {
  for (const std::size_t keys : {1, 2, 95, 96, 97, 384, 385, 1000})
    for (const Sizes& s : {Sizes{2, 4, 2, keys, 8, 5}, Sizes{1, 6, 1, keys, 3, 19},
                           Sizes{1, 1, 1, keys, 37, 64}, Sizes{3, 2, 2, keys, 64, 16}}) {
      CAPTURE(keys, s.heads, s.width);
      require_as_composed(random_inputs(s), {});
    }
}

TEST_CASE("one query attends as the reference says under every mask, step and sink", "[decode]") {
  const std::size_t keys = GENERATE(7, 500);
  const ag::AttentionInputs inputs = random_inputs({2, 4, 2, keys, 8, 5});
  const Variable sink(random_array({4}, -1, 1, 5)), table(random_array({4, 9}, -1, 1, 6)),
      bias(random_array({1, keys}, -1, 1, 7));
  const auto far =
      ag::score([](auto e, auto, auto head, auto query, auto key,
                   const auto& p) { return e + p[0](head, clamp(query - key, -8, 0) + 8); },
                {table});
  for (const ag::Mask& mask :
       {ag::Mask(), ag::causal(), ag::sliding_window(4, 0), ag::key_lengths({keys, keys / 2}),
        ag::key_lengths({0, 3}), ag::visible_where(drawn_flags(2, keys)),
        ag::visible_where(drawn_flags(2, keys)) & ag::sliding_window(450, 0)})
    for (const ag::ScoreSteps& steps :
         {ag::ScoreSteps{}, ag::ScoreSteps{ag::soft_cap(0.5)},
          ag::ScoreSteps{ag::alibi(ag::alibi_slopes(4))},
          ag::ScoreSteps{ag::relative_positions(table), ag::soft_cap(2), ag::bias(bias)},
          ag::ScoreSteps{far}}) {
      require_as_composed(inputs, {.mask = mask, .scores = steps});
      require_as_composed(inputs, {.mask = mask, .scale = 2, .scores = steps, .sink = sink});
    }
}

TEST_CASE("one query that sees no key gives 0, or what the sink leaves, and -infinity",
          "[decode]") {
  const ag::AttentionInputs inputs = random_inputs({1, 2, 1, 5, 4, 3});
  const ag::AttentionOutput out = ag::decode_attention(inputs, {.mask = ag::key_lengths({0})});
  require_close(out.output.value(), {0, 0, 0, 0, 0, 0}, 0);
  require_close(out.log_sum_exp, {-std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity()});
}

TEST_CASE("a NaN behind the mask reaches nothing in one query, a visible one its output",
          "[decode]") {
  const auto attend = [](const Array& k, const Array& v, const ag::Mask& mask) {
    return ag::decode_attention({ag::split_heads(Variable(column({1})), 1),
                                 ag::split_heads(Variable(k), 1), ag::split_heads(Variable(v), 1)},
                                {.mask = mask})
        .output.value();
  };
  ag::Bools flags = ag::Bools::from_shape({1, 1, 1, 3});
  flags.data()[0] = flags.data()[2] = true;
  flags.data()[1] = false;
  const ag::Mask middle = ag::visible_where(flags);
  require_close(attend(column({1, nan_, 1}), column({2, 3, 4}), middle), {3});
  require_close(attend(column({1, 1, 1}), column({2, nan_, 4}), middle), {3});
  require_close(attend(column({1, 1, nan_}), column({2, 4, nan_}), ag::key_lengths({2})), {3});
  require_close(attend(column({1, nan_, 1}), column({2, 3, 4}), {}), {nan_});
}

TEST_CASE("one query has the same bits at 1, 2, 3 and 8 threads", "[decode][threads]") {
  const ThreadsScope restore;
  const ag::AttentionInputs inputs = random_inputs({1, 4, 2, 5000, 64, 64});
  const ag::AttentionOptions options{.scores = {ag::alibi(ag::alibi_slopes(4))}};
  ag::set_threads(1);
  const ag::AttentionOutput expected = ag::decode_attention(inputs, options);
  for (const int count : {2, 3, 8}) {
    ag::set_threads(count);
    const ag::AttentionOutput out = ag::decode_attention(inputs, options);
    REQUIRE(same_bits(out.output.value(), expected.output.value()));
    REQUIRE(same_bits(out.log_sum_exp, expected.log_sum_exp));
  }
}

TEST_CASE("the kernel for one query refuses two, a tape and dropout", "[decode]") {
  const ag::AttentionInputs one = random_inputs({1, 2, 1, 5, 4, 3});
  ag::AttentionInputs two = one;
  two.q = ag::split_heads(Variable(ag::ones({1, 2, 8})), 2);
  REQUIRE_THROWS_AS(ag::decode_attention(two, {}), ag::ShapeError);
  ag::Rng rng(1);
  REQUIRE_THROWS_AS(ag::decode_attention(one, {.dropout = 0.5, .rng = &rng}), ag::ArgumentError);
  REQUIRE_NOTHROW(ag::decode_attention(one, {.dropout = 0.5}));
  const Tape tape;
  REQUIRE_THROWS_WITH(ag::decode_attention(one, {}), ContainsSubstring("has no gradient"));
}
