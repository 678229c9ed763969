#include "layers/attention/multi_head.hpp"

#include "common/drawn_layer.hpp"
#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/fused.hpp"

namespace {

using Options = ag::MultiHeadAttentionOptions;

// Everything that a layer can do at once.
Options everything() {
  return {.width = 12,
          .heads = 4,
          .key_heads = 2,
          .value_width = 5,
          .rotary = ag::RotaryOptions{.positions = 40, .width = 2, .base = 100},
          .scores = {.scale = 0.4,
                     .soft_cap = 3,
                     .relative_reach = 6,
                     .sink = ag::Sink::learned,
                     .dropout = 0.2}};
}

std::vector<Array> output_and_gradients(const Options& options, const ag::Mask& mask) {
  ag::Rng drop(8);
  const auto layer = drawn_layer<ag::MultiHeadAttention>(options);
  const ag::Parameters all = ag::parameters(layer);
  Tape tape;
  const Variable y = layer(Variable(random_array({2, 30, 12})), mask, &drop);
  const ag::Gradients g = tape.gradients(y, Variable(random_array(y.shape(), -1, 1, 99)));
  std::vector<Array> results{y.value()};
  for (std::size_t i = 0; i < all.size(); ++i) results.push_back(g.of(all[i].value).value());
  return results;
}

}  // namespace

TEST_CASE("multi-head attention does everything at once, alike with flash and composed",
          "[multi_head]") {
  const ag::Mask mask = ag::causal() & ag::key_lengths({30, 17});
  Options options = everything();
  const std::vector<Array> flash = output_and_gradients(options, mask);
  options.kernel = ag::composed_attention;
  const std::vector<Array> composed = output_and_gradients(options, mask);
  REQUIRE(flash.size() == 7);  // the output, two maps with biases, the table and the sink
  for (std::size_t i = 0; i < flash.size(); ++i)
    REQUIRE(ag::relative_difference(flash[i], composed[i]) < tolerance(1e-12, 1e-4));
}

TEST_CASE("a sequence shifted under rotary positions attends alike", "[multi_head]") {
  ag::Rng rng(1);
  const ag::MultiHeadAttention layer(
      {.width = 8, .heads = 2, .rotary = ag::RotaryOptions{.positions = 16}}, rng);
  const Array x = random_array({1, 6, 8});
  // two tokens in front that a window of three hides from the last ones
  const Variable longer =
      ag::concatenate({Variable(random_array({1, 2, 8}, -1, 1, 5)), Variable(x)}, 1);
  const ag::Mask mask = ag::sliding_window(2, 0);
  const Array alone = layer(Variable(x), mask).value();
  const Array behind = ag::slice(layer(longer, mask), 1, {.start = 4, .stop = 8}).value();
  const Array end = ag::slice(Variable(alone), 1, {.start = 2, .stop = 6}).value();
  require_close(behind, std::vector<double>(end.begin(), end.end()), tolerance(1e-13, 1e-5));
}

TEST_CASE("combinations that make no sense are refused at construction, with the reason",
          "[multi_head]") {
  ag::Rng rng(1);
  const auto refuses = [&](const Options& options, const char* reason) {
    REQUIRE_THROWS_WITH(ag::MultiHeadAttention(options, rng), Catch::Matchers::Contains(reason));
  };
  refuses({.width = 8, .heads = 2, .scores = {.alibi = true, .relative_reach = 3}}, "choose one");
  refuses({.width = 8, .heads = 2, .scores = {.soft_cap = -1}}, "cap must be positive");
  refuses({.width = 8, .heads = 2, .scores = {.dropout = 2}}, "dropout must be in [0, 1]");
  refuses({.width = 8, .heads = 2, .scores = {.alibi = true}, .kernel = ag::fused_attention},
          "fused_attention takes masks and scales only");
  refuses({.width = 8, .heads = 2, .kernel = nullptr}, "needs a kernel");
  refuses({.width = 8, .heads = 2, .rotary = ag::RotaryOptions{.positions = 4, .width = 6}},
          "do not fit a head");
  refuses({.width = 6, .heads = 2, .rotary = ag::RotaryOptions{.positions = 4}}, "even");
  refuses({.width = 8, .heads = 2, .value_width = 0}, "value_width");
  REQUIRE_THROWS_WITH(ag::CrossAttention({.width = 8, .heads = 2, .scores = {.alibi = true}}, rng),
                      Catch::Matchers::Contains("have none"));
}

TEST_CASE("a sequence longer than the rotary positions is refused", "[multi_head]") {
  ag::Rng rng(1);
  const ag::MultiHeadAttention layer(
      {.width = 8, .heads = 2, .rotary = ag::RotaryOptions{.positions = 4}}, rng);
  REQUIRE_NOTHROW(layer(Variable(ag::ones({1, 4, 8}))));
  REQUIRE_THROWS_AS(layer(Variable(ag::ones({1, 5, 8}))), ag::ShapeError);
}

TEST_CASE("cross-attention reads a memory of another length and width, remembered once",
          "[multi_head]") {
  ag::Rng rng(2);
  ag::CrossAttention layer(
      {.width = 12, .heads = 4, .memory_width = 7, .key_heads = 2, .value_width = 5}, rng);
  const Variable memory(random_array({2, 9, 7}, -1, 1, 1)), x(random_array({2, 4, 12}, -1, 1, 2));
  const ag::MemoryKeys remembered = layer.remember(memory);
  const Array all = layer(x, remembered, ag::key_lengths({9, 5})).value();
  REQUIRE(all.shape() == ag::Shape{2, 4, 12});
  for (std::size_t t = 0; t < 4; ++t) {  // a query at a time
    const auto at = std::ptrdiff_t(t);
    const Variable one = ag::slice(x, 1, {.start = at, .stop = at + 1});
    const Array y = layer(one, remembered, ag::key_lengths({9, 5})).value();
    const Array expected = ag::slice(Variable(all), 1, {.start = at, .stop = at + 1}).value();
    require_close(y, std::vector<double>(expected.begin(), expected.end()), tolerance(1e-14, 1e-6));
  }
  REQUIRE_THROWS_AS(layer.remember(x), ag::ShapeError);
}

TEST_CASE("padding of the memory has no influence and no gradient", "[multi_head]") {
  ag::Rng rng(2);
  ag::CrossAttention layer({.width = 8, .heads = 2}, rng);
  Array numbers = random_array({1, 6, 8});
  const auto run = [&](const Array& memory) {
    const Variable m = ag::parameter(memory);
    Tape tape;
    const Variable y =
        layer(Variable(random_array({1, 3, 8}, -1, 1, 4)), layer.remember(m), ag::key_lengths({4}));
    const Array g = tape.gradients(ag::square(y), Variable(ag::ones(y.shape()))).of(m).value();
    return std::pair{y.value(), g};
  };
  const auto [before, gradient] = run(numbers);
  for (std::size_t i = 4 * 8; i < 6 * 8; ++i) {
    REQUIRE(gradient.data()[i] == 0);
    numbers.data()[i] = 1000;
  }
  const auto [after, unused] = run(numbers);
  REQUIRE(std::equal(before.begin(), before.end(), after.begin()));
}
