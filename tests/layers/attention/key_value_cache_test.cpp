// The cache of one attention layer: what it holds, what it refuses, and that attention going on
// from it gives what attention over the whole sequence gives.
#include "layers/attention/key_value_cache.hpp"

#include "common/bits.hpp"
#include "common/drawn_layer.hpp"
#include "common/test.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/shape.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/decode.hpp"
#include "layers/attention/fused.hpp"
#include "layers/attention/multi_head.hpp"
#include "layers/attention/score_function.hpp"

namespace {

using Counts = std::vector<std::size_t>;
using Options = ag::MultiHeadAttentionOptions;

ag::MultiHeadAttention layer_of(const Options& options) {
  return drawn_layer<ag::MultiHeadAttention>(options);
}

Variable times(const Variable& x, std::size_t start, std::size_t stop) {
  return ag::slice(x, 1, {.start = std::ptrdiff_t(start), .stop = std::ptrdiff_t(stop)});
}
Variable row(const Variable& x, std::size_t row) {
  return ag::slice(x, 0, {.start = std::ptrdiff_t(row), .stop = std::ptrdiff_t(row + 1)});
}

// A layer of width 1 with queries and keys of 0, and values and outputs that are the inputs: each
// output is the mean of what is visible.
ag::MultiHeadAttention mean_layer() {
  ag::Rng rng(1);
  ag::MultiHeadAttention layer({.width = 1, .heads = 1, .bias = false}, rng);
  layer.qkv.weight.assign(ag::array_of({0, 0, 1}, {3, 1}));
  layer.projection.weight.assign(ag::ones({1, 1}));
  return layer;
}
Variable column(const std::vector<double>& values) {
  return Variable(ag::array_of(values, {1, values.size(), 1}));
}

ag::KeyValueCache small_cache(std::size_t batch) {
  return ag::KeyValueCache(
      {.batch = batch, .heads = 1, .capacity = 4, .key_width = 1, .value_width = 1});
}
// Appends numbers of (batch, time, 1) as keys, and their negatives as values.
void append(ag::KeyValueCache& cache, const Array& x, const Counts& counts) {
  cache.append(ag::split_heads(Variable(x), 1), ag::split_heads(Variable(Array(-x)), 1), counts);
}

// Every way to cut seven tokens into pieces: bit i says whether a piece ends behind token i.
constexpr unsigned cuts = 1u << 6;

// The outputs of seven tokens that come in such pieces.
Array in_pieces(const ag::MultiHeadAttention& layer, const Variable& x, const ag::Mask& mask,
                unsigned cut) {
  ag::KeyValueCache cache = layer.make_cache(x.size(0), 7);
  std::vector<Variable> outputs;
  for (std::size_t start = 0, stop = 1; stop <= 7; ++stop)
    if (stop == 7 || (cut >> (stop - 1) & 1) != 0) {
      outputs.push_back(layer.decode(times(x, start, stop), cache, mask));
      start = stop;
    }
  return ag::concatenate(outputs, 1).value();
}

std::vector<std::pair<const char*, Options>> every_scheme() {
  const auto step = ag::score(
      [](auto e, auto batch, auto head, auto query, auto key, const auto& p) {
        return e * (query + 2 * key + 1) * 0.2 + p[0](batch, head, clamp(query - key, 0, 6));
      },
      {Variable(random_array({2, 4, 7}, -1, 1, 50))});
  const Options plain{.width = 16, .heads = 4};
  const auto with = [&](auto change) {
    Options options = plain;
    change(options);
    return options;
  };
  const auto scores = [&](const ag::AttentionScoresOptions& s) {
    return with([&](Options& o) { o.scores = s; });
  };
  using ag::RotaryOptions, ag::RotaryPairs;
  return {
      {"plain", plain},
      {"rotary halves", with([](Options& o) { o.rotary = RotaryOptions{.positions = 7}; })},
      {"rotary neighbours", with([](Options& o) {
         o.rotary = RotaryOptions{
             .positions = 9, .width = 2, .base = 100, .pairs = RotaryPairs::neighbours};
       })},
      {"ALiBi", scores({.alibi = true})},
      {"relative positions", scores({.relative_reach = 3})},
      {"soft cap, learned sink", scores({.scale = 2, .soft_cap = 1.5, .sink = ag::Sink::learned})},
      {"zero sink", scores({.sink = ag::Sink::zero})},
      {"a score function", scores({.steps = {step}})},
      {"grouped heads", with([](Options& o) {
         o.key_heads = 2;
         o.value_width = 5;
         o.scores = {.soft_cap = 3, .alibi = true, .sink = ag::Sink::learned};
       })},
      {"composed", with([&](Options& o) {
         o.kernel = ag::composed_attention;
         o.scores = {.alibi = true, .steps = {step}};
       })},
      {"fused", with([](Options& o) { o.kernel = ag::fused_attention; })},
  };
}

}  // namespace

TEST_CASE("C19: two tokens fed at once behind three see the past, and the second the first",
          "[cache][C19]") {
  const ag::MultiHeadAttention layer = mean_layer();
  ag::KeyValueCache cache = layer.make_cache(1, 5);
  require_close(layer.decode(column({1, 2, 3}), cache).value(), {1, 1.5, 2});
  require_close(layer.decode(column({4, 5}), cache).value(), {2.5, 3});
}

TEST_CASE("C19: every chunking of seven tokens gives what the whole sequence gives",
          "[cache][C19]") {
  const Variable x(random_array({2, 7, 16}, -1, 1, 40));
  for (const auto& [name, options] : every_scheme()) {
    const ag::MultiHeadAttention layer = layer_of(options);
    for (const bool windowed : {false, true}) {
      const ag::Mask mask = windowed ? ag::sliding_window(2, 0) : ag::causal();
      const std::vector<double> expected = numbers(layer(x, mask).value());
      for (unsigned cut = 0; cut < cuts; ++cut) {
        CAPTURE(name, windowed, cut);
        require_close(in_pieces(layer, x, mask, cut), expected, tolerance(1e-12, 2e-5));
      }
    }
  }
}

TEST_CASE("rows of unequal lengths give what each gives alone, and padding no influence",
          "[cache]") {
  const Array tokens = random_array({3, 7, 16}, -1, 1, 41);
  for (const auto& [name, options] : every_scheme()) {
    const ag::MultiHeadAttention layer = layer_of(options);
    if (!options.scores.steps.empty()) continue;  // of which the table is for two rows
    const std::vector<Counts> calls{{4, 2, 0}, {1, 1, 1}, {2, 1, 3}, {0, 3, 1}};
    for (const ag::Mask& mask : {ag::causal(), ag::sliding_window(2, 0)}) {
      ag::KeyValueCache cache = layer.make_cache(3, 7);
      const Array expected = layer(Variable(tokens), mask).value();
      for (const Counts& counts : calls) {
        const Counts past = cache.lengths();
        const std::size_t time = *std::max_element(counts.begin(), counts.end());
        Array x = ag::filled({3, time, 16}, Real(1000));  // padding
        for (std::size_t b = 0; b < 3; ++b)
          std::copy_n(tokens.data() + (b * 7 + past[b]) * 16, counts[b] * 16,
                      x.data() + b * time * 16);
        const Array y = layer.decode(Variable(x), counts, cache, mask).value();
        for (std::size_t b = 0; b < 3; ++b)
          for (std::size_t i = 0; i < counts[b] * 16; ++i) {
            CAPTURE(name, b, i);
            REQUIRE(std::abs(y.data()[b * time * 16 + i] -
                             expected.data()[(b * 7 + past[b]) * 16 + i]) < tolerance(1e-12, 2e-5));
          }
      }
      REQUIRE(cache.lengths() == Counts{7, 7, 5});
    }
  }
}

TEST_CASE("C20: the first decoded token is written at the prompt's length and turned by it",
          "[cache][C20]") {
  const ag::MultiHeadAttention layer =
      layer_of({.width = 4, .heads = 1, .rotary = ag::RotaryOptions{.positions = 8}});
  const Variable x(random_array({1, 4, 4}, -1, 1, 42));
  ag::KeyValueCache cache = layer.make_cache(1, 8);
  layer.decode(times(x, 0, 3), cache);
  const ag::Heads before = cache.keys();
  REQUIRE(before.length == 3);
  REQUIRE(before.array.value().data()[3 * 4] == 0);
  layer.decode(times(x, 3, 4), cache);
  const ag::Heads keys = cache.keys();
  REQUIRE(keys.length == 4);
  const Variable packed = layer.qkv(times(x, 3, 4));
  const Variable turned =
      ag::rotary(times(ag::slice(packed, 2, {.start = 4, .stop = 8}), 0, 1), 1, 4,
                 ag::rotary_table(8, 4), ag::RotaryPairs::halves, ag::positions_from(3, 1));
  const Real* slots = keys.array.value().data();
  require_close(ag::array_of({slots + 3 * 4, slots + 4 * 4}, {4}), numbers(turned.value()),
                tolerance(1e-15, 1e-6));
  REQUIRE(std::all_of(slots + 4 * 4, slots + 8 * 4, [](Real slot) { return slot == 0; }));
}

TEST_CASE("C21: a token beyond the capacity is refused and changes nothing", "[cache][C21]") {
  const ag::MultiHeadAttention layer = mean_layer();
  ag::KeyValueCache cache = layer.make_cache(1, 4);
  for (const double token : {1, 2, 3, 4}) layer.decode(column({token}), cache);
  const Array before = cache.keys().array.value(), values = cache.values().array.value();
  REQUIRE_THROWS_WITH(layer.decode(column({5}), cache),
                      ContainsSubstring("a cache for 4 tokens holds 4 in row 0 and has no room "
                                        "for 1 more"));
  REQUIRE(cache.lengths() == Counts{4});
  REQUIRE(same_bits(cache.keys().array.value(), before));
  REQUIRE(same_bits(cache.values().array.value(), values));
}

TEST_CASE("C21: two tokens where one would fit are refused, and the one still fits",
          "[cache][C21]") {
  const ag::MultiHeadAttention layer = mean_layer();
  ag::KeyValueCache cache = layer.make_cache(1, 4);
  layer.decode(column({1, 2, 3}), cache);
  REQUIRE_THROWS_AS(layer.decode(column({4, 5}), cache), ag::ArgumentError);
  require_close(layer.decode(column({4}), cache).value(), {2.5});
}

TEST_CASE("a cache holds what was appended, each row at its own length", "[cache]") {
  ag::KeyValueCache cache = small_cache(2);
  append(cache, ag::array_of({1, 2, 3, 4}, {2, 2, 1}), {2, 1});
  append(cache, ag::array_of({5, 6}, {2, 1, 1}), {1, 1});
  REQUIRE(cache.lengths() == Counts{3, 2});
  require_close(cache.keys().array.value(), {1, 2, 5, 0, 3, 6, 0, 0}, 0);
  require_close(cache.values().array.value(), {-1, -2, -5, 0, -3, -6, 0, 0}, 0);
  REQUIRE(cache.bytes() == 16 * sizeof(Real));
  cache.truncate({1, 2});
  append(cache, ag::array_of({7, 8}, {2, 1, 1}), {1, 0});
  require_close(cache.keys().array.value(), {1, 7, 5, 0, 3, 6, 0, 0}, 0);
  cache.clear();
  REQUIRE(cache.lengths() == Counts{0, 0});
}

TEST_CASE("a row without room keeps all rows from being written", "[cache]") {
  ag::KeyValueCache cache = small_cache(2);
  append(cache, ag::ones({2, 4, 1}), {1, 4});
  const Array before = cache.keys().array.value();
  REQUIRE_THROWS_WITH(append(cache, ag::filled({2, 1, 1}, 9), {1, 1}),
                      ContainsSubstring("in row 1"));
  REQUIRE_THROWS_AS(append(cache, ag::filled({2, 1, 1}, 9), {1}), ag::ArgumentError);
  REQUIRE_THROWS_AS(append(cache, ag::filled({2, 1, 1}, 9), {2, 0}), ag::ShapeError);
  REQUIRE_THROWS_AS(cache.truncate({2, 4}), ag::ArgumentError);
  REQUIRE(cache.lengths() == Counts{1, 4});
  REQUIRE(same_bits(cache.keys().array.value(), before));
}

TEST_CASE("forks of a prompt go on apart, each as if it had read the prompt itself", "[cache]") {
  const ag::MultiHeadAttention layer = layer_of({.width = 8, .heads = 2, .key_heads = 1});
  const Variable prompt(random_array({2, 3, 8}, -1, 1, 43)),
      next(random_array({3, 2, 8}, -1, 1, 44));
  ag::KeyValueCache cache = layer.make_cache(2, 6);
  layer.decode(prompt, cache);
  ag::KeyValueCache fork = cache.fork({1, 0, 1});
  const Array y = layer.decode(next, fork).value();
  REQUIRE(cache.lengths() == Counts{3, 3});
  REQUIRE(fork.lengths() == Counts{5, 5, 5});
  for (std::size_t i = 0; i < 3; ++i) {
    const Variable whole = ag::concatenate({row(prompt, i == 1 ? 0 : 1), row(next, i)}, 1);
    const Array expected = times(layer(whole, ag::causal()), 3, 5).value();
    require_close(row(Variable(y), i).value(), numbers(expected), tolerance(1e-12, 1e-5));
  }
  REQUIRE_THROWS_AS(cache.fork({2}), ag::ArgumentError);
  REQUIRE_THROWS_AS(cache.fork({}), ag::ArgumentError);
}

TEST_CASE("a cache does not grow while a tape records, but under a pause", "[cache]") {
  const ag::MultiHeadAttention layer = mean_layer();
  ag::KeyValueCache cache = layer.make_cache(1, 4);
  const Tape tape;
  REQUIRE_THROWS_WITH(layer.decode(column({1}), cache),
                      ContainsSubstring("MultiHeadAttention: a cache keeps values without"));
  REQUIRE_THROWS_AS(append(cache, ag::ones({1, 1, 1}), {1}), ag::TapeError);
  REQUIRE(cache.lengths() == Counts{0});
  const ag::Pause pause;
  REQUIRE_NOTHROW(layer.decode(column({1}), cache));
}

TEST_CASE("a tape that holds a view of a cache throws once the cache has grown", "[cache]") {
  ag::KeyValueCache cache = small_cache(1);
  append(cache, ag::ones({1, 2, 1}), {2});
  const Variable q = ag::parameter(ag::ones({1, 1, 1}));
  Tape tape;
  const Variable y =
      ag::flash_attention({ag::split_heads(q, 1), cache.keys(), cache.values()}, {}).output;
  {
    const ag::Pause pause;
    append(cache, ag::ones({1, 1, 1}), {1});
  }
  REQUIRE_THROWS_AS(tape.gradients(ag::sum(y)), ag::TapeError);
}

TEST_CASE("the weights that a decoding layer offers are the last rows of the whole sequence's",
          "[cache]") {
  const ag::MultiHeadAttention layer =
      layer_of({.width = 8, .heads = 2, .scores = {.alibi = true}});
  const Variable x(random_array({1, 5, 8}, -1, 1, 45));
  ag::KeyValueCache cache = layer.make_cache(1, 5);
  layer.decode(times(x, 0, 3), cache);
  const ag::Capture whole = ag::capture("weights");
  layer(x, ag::causal());
  const ag::Capture seen = ag::capture("weights");
  layer.decode(times(x, 3, 4), cache);
  layer.decode(times(x, 4, 5), cache);
  REQUIRE(seen.values().size() == 2);
  const auto last = [&](std::ptrdiff_t query, std::ptrdiff_t keys) {
    const Variable rows =
        ag::slice(whole.values()[0].value, 2, {.start = query, .stop = query + 1});
    return numbers(ag::slice(rows, 3, {.start = 0, .stop = keys}).value());
  };
  require_close(seen.values()[0].value.value(), last(3, 4), tolerance(1e-14, 1e-6));
  require_close(seen.values()[1].value.value(), last(4, 5), tolerance(1e-14, 1e-6));
}

TEST_CASE("a kernel that throws leaves the cache at its length", "[cache]") {
  Options options{.width = 4, .heads = 1};
  bool broken = true;
  options.kernel = [&](const ag::AttentionInputs& inputs, const ag::AttentionOptions& call) {
    if (broken) throw std::runtime_error("broken");
    return ag::composed_attention(inputs, call);
  };
  const ag::MultiHeadAttention layer = layer_of(options);
  ag::KeyValueCache cache = layer.make_cache(1, 4);
  const Variable x(random_array({1, 2, 4}));
  REQUIRE_THROWS_AS(layer.decode(x, cache), std::runtime_error);
  REQUIRE(cache.lengths() == Counts{0});
  broken = false;
  require_close(layer.decode(x, cache).value(), numbers(layer(x, ag::causal()).value()),
                tolerance(1e-14, 1e-6));
}

TEST_CASE("what does not fit a layer and its cache is refused", "[cache]") {
  const ag::MultiHeadAttention layer =
      layer_of({.width = 4, .heads = 2, .rotary = ag::RotaryOptions{.positions = 4}});
  ag::KeyValueCache cache = layer.make_cache(1, 4);
  const Variable x(ag::ones({1, 2, 4}));
  REQUIRE_THROWS_AS(layer.decode(Variable(ag::ones({2, 1, 4})), cache), ag::ShapeError);
  REQUIRE_THROWS_AS(layer.decode(Variable(ag::ones({1, 0, 4})), cache), ag::ShapeError);
  REQUIRE_THROWS_AS(layer.decode(x, {3}, cache), ag::ArgumentError);
  ag::KeyValueCache other(
      {.batch = 1, .heads = 1, .capacity = 4, .key_width = 2, .value_width = 2}),
      longer = layer.make_cache(1, 5);
  REQUIRE_THROWS_WITH(layer.decode(x, other), ContainsSubstring("must be for 2 heads"));
  REQUIRE_THROWS_WITH(layer.decode(x, longer), ContainsSubstring("rotary positions"));
  REQUIRE_THROWS_WITH(layer.decode(x, cache, ag::visible_where(ag::Bools::from_shape({2, 2}))),
                      ContainsSubstring("pair by pair"));
  REQUIRE_THROWS_AS(small_cache(0), ag::ArgumentError);
  REQUIRE(cache.lengths() == Counts{0});
}
