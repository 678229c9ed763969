// A transformer that goes on from its cache gives the logits of the whole sequence.
#include "layers/transformer_cache.hpp"

#include "common/bits.hpp"
#include "common/drawn_layer.hpp"
#include "common/test.hpp"
#include "core/ops/shape.hpp"
#include "layers/transformer.hpp"

namespace {

using Counts = std::vector<std::size_t>;
using Options = ag::TransformerOptions;

ag::Transformer model_of(const Options& options) {
  return drawn_layer<ag::Transformer>(options, 0.5);
}

Options small() { return {.vocabulary = 11, .context = 9, .width = 16, .heads = 4, .layers = 2}; }

std::vector<std::pair<const char*, Options>> every_scheme() {
  const auto with = [&](auto change) {
    Options options = small();
    change(options);
    return options;
  };
  return {
      {"learned", small()},
      {"rotary halves, grouped, gated", with([](Options& o) {
         o.positions = ag::Positions::rotary;
         o.key_heads = 2;
         o.norm = ag::NormKind::rms;
         o.activation = ag::silu;
         o.gated = true;
         o.tied = false;
       })},
      {"rotary neighbours", with([](Options& o) {
         o.positions = ag::Positions::rotary;
         o.rotary.pairs = ag::RotaryPairs::neighbours;
       })},
      {"none, ALiBi", with([](Options& o) {
         o.positions = ag::Positions::none;
         o.scores.alibi = true;
       })},
      {"none, relative positions", with([](Options& o) {
         o.positions = ag::Positions::none;
         o.scores.relative_reach = 2;
       })},
      {"attention residuals, full", with([](Options& o) { o.residual = ag::FullAttention{}; })},
      {"attention residuals, in blocks",
       with([](Options& o) { o.residual = ag::BlockAttention{.blocks = 2, .gain = true}; })},
      {"window, sink, soft cap", with([](Options& o) {
         o.window = 3;
         o.scores = {.soft_cap = 2, .sink = ag::Sink::learned};
       })},
  };
}

ag::Indices drawn(const ag::Shape& shape, std::uint64_t seed = 6) {
  ag::Rng rng(seed);
  return rng.integers(0, 11, shape);
}
// tokens [start, stop) of every row
ag::Indices times(const ag::Indices& tokens, std::size_t start, std::size_t stop) {
  const std::size_t rows = tokens.shape()[0], time = tokens.shape()[1];
  ag::Indices part = ag::Indices::from_shape({rows, stop - start});
  for (std::size_t b = 0; b < rows; ++b)
    std::copy(tokens.data() + b * time + start, tokens.data() + b * time + stop,
              part.data() + b * (stop - start));
  return part;
}

}  // namespace

TEST_CASE("C20: cached logits equal those of the whole sequence at every step behind a prompt",
          "[cache][C20]") {
  const ag::Indices tokens = drawn({2, 8});
  for (const auto& [name, options] : every_scheme()) {
    const ag::Transformer model = model_of(options);
    ag::TransformerCache cache = model.make_cache(2);
    model.decode(times(tokens, 0, 3), cache);
    for (std::size_t step = 3; step < 8; ++step) {
      CAPTURE(name, step);
      REQUIRE(cache.lengths() == Counts{step, step});
      const Variable logits = model.decode(times(tokens, step, step + 1), cache);
      const auto at = std::ptrdiff_t(step);
      const Variable whole = model(times(tokens, 0, step + 1));
      require_close(logits.value(),
                    numbers(ag::slice(whole, 1, {.start = at, .stop = at + 1}).value()),
                    tolerance(1e-12, 5e-5));
    }
  }
}

TEST_CASE("C19: every chunking of seven tokens gives the logits of the whole sequence",
          "[cache][C19]") {
  const ag::Indices tokens = drawn({2, 7});
  for (const auto& [name, options] : every_scheme()) {
    const ag::Transformer model = model_of(options);
    const std::vector<double> expected = numbers(model(tokens).value());
    for (unsigned cut = 0; cut < 64; ++cut) {  // bit i: whether a piece ends behind token i
      ag::TransformerCache cache = model.make_cache(2, 7);
      std::vector<Variable> pieces;
      for (std::size_t start = 0, stop = 1; stop <= 7; ++stop)
        if (stop == 7 || (cut >> (stop - 1) & 1) != 0) {
          pieces.push_back(model.decode(times(tokens, start, stop), cache));
          start = stop;
        }
      CAPTURE(name, cut);
      require_close(ag::concatenate(pieces, 1).value(), expected, tolerance(1e-12, 5e-5));
    }
  }
}

TEST_CASE("prompts of unequal lengths in a batch go on as each would alone", "[cache]") {
  const ag::Indices tokens = drawn({3, 8}, 7);
  for (const auto& [name, options] : every_scheme()) {
    const ag::Transformer model = model_of(options);
    const Array expected = model(tokens).value();
    ag::TransformerCache cache = model.make_cache(3);
    for (const Counts& counts :
         {Counts{5, 2, 3}, Counts{1, 1, 1}, Counts{1, 1, 0}, Counts{1, 4, 2}}) {
      const Counts past = cache.lengths();
      const std::size_t time = *std::max_element(counts.begin(), counts.end());
      ag::Indices batch = ag::Indices::from_shape({3, time});
      batch.fill(10);  // padding
      for (std::size_t b = 0; b < 3; ++b)
        std::copy_n(tokens.data() + b * 8 + past[b], counts[b], batch.data() + b * time);
      const Array logits = model.decode(batch, counts, cache).value();
      for (std::size_t b = 0; b < 3; ++b)
        for (std::size_t i = 0; i < counts[b] * 11; ++i) {
          CAPTURE(name, b, i);
          REQUIRE(std::abs(logits.data()[b * time * 11 + i] -
                           expected.data()[(b * 8 + past[b]) * 11 + i]) < tolerance(1e-12, 5e-5));
        }
    }
    REQUIRE(cache.lengths() == Counts{8, 8, 6});
  }
}

TEST_CASE("C21: a model refuses tokens beyond its cache's capacity, and the cache stays as it was",
          "[cache][C21]") {
  const ag::Transformer model = model_of(small());
  const ag::Indices tokens = drawn({2, 8});
  ag::TransformerCache cache = model.make_cache(2, 4);
  model.decode(times(tokens, 0, 3), cache);
  REQUIRE_THROWS_WITH(model.decode(times(tokens, 3, 5), cache),
                      ContainsSubstring("a cache for 4 tokens holds 3 in row 0"));
  ag::Indices outside = times(tokens, 3, 4);
  outside.data()[1] = 11;
  REQUIRE_THROWS_AS(model.decode(outside, cache), ag::ArgumentError);
  REQUIRE_THROWS_AS(model.decode(times(tokens, 3, 4), {2, 1}, cache), ag::ArgumentError);
  REQUIRE_THROWS_AS(model.decode(drawn({1, 1}), cache), ag::ShapeError);
  REQUIRE_THROWS_AS(model.make_cache(1, 10), ag::ArgumentError);
  REQUIRE(cache.lengths() == Counts{3, 3});
  const Array expected = ag::slice(model(times(tokens, 0, 4)), 1, {.start = 3, .stop = 4}).value();
  require_close(model.decode(times(tokens, 3, 4), cache).value(), numbers(expected),
                tolerance(1e-12, 5e-5));
}

TEST_CASE("a layer that throws leaves every layer's cache at its length", "[cache]") {
  Options options = small();
  int left = 1000;  // calls before the kernel breaks
  options.kernel = [&](const ag::AttentionInputs& inputs, const ag::AttentionOptions& call) {
    if (left-- <= 0) throw std::runtime_error("broken");
    return ag::flash_attention(inputs, call);
  };
  const ag::Transformer model = model_of(options);
  const ag::Indices tokens = drawn({1, 6});
  ag::TransformerCache cache = model.make_cache(1);
  model.decode(times(tokens, 0, 2), cache);
  left = 1;  // the first layer goes well
  REQUIRE_THROWS_WITH(model.decode(times(tokens, 2, 4), cache), "broken");
  REQUIRE(cache.lengths() == Counts{2});
  left = 1000;
  const Array expected = ag::slice(model(tokens), 1, {.start = 2, .stop = 6}).value();
  require_close(model.decode(times(tokens, 2, 6), cache).value(), numbers(expected),
                tolerance(1e-12, 5e-5));
}

TEST_CASE("a prompt read once goes on in several ways, and a cache can be cut back", "[cache]") {
  const ag::Transformer model = model_of(small());
  const ag::Indices prompt = drawn({1, 4}), next = drawn({3, 2}, 8);
  ag::TransformerCache cache = model.make_cache(1);
  model.decode(prompt, cache);
  ag::TransformerCache fork = cache.fork({0, 0, 0});
  const Array y = model.decode(next, fork).value();
  REQUIRE(cache.lengths() == Counts{4});
  REQUIRE(fork.lengths() == Counts{6, 6, 6});
  for (std::size_t i = 0; i < 3; ++i) {  // the same from the one cache, cut back each time
    ag::Indices row = ag::Indices::from_shape({1, 2});
    std::copy_n(next.data() + 2 * i, 2, row.data());
    require_close(model.decode(row, cache).value(),
                  {y.data() + i * 2 * 11, y.data() + (i + 1) * 2 * 11}, tolerance(1e-12, 5e-5));
    cache.truncate({4});
  }
  REQUIRE(fork.bytes() == 3 * cache.bytes());
  cache.clear();
  REQUIRE(cache.lengths() == Counts{0});
}

TEST_CASE("a model does not decode while a tape records", "[cache]") {
  const ag::Transformer model = model_of(small());
  ag::TransformerCache cache = model.make_cache(1);
  const Tape tape;
  REQUIRE_THROWS_WITH(model.decode(drawn({1, 1}), cache),
                      ContainsSubstring("while a Tape records"));
}

TEST_CASE("decoded logits have the same bits at 1, 2, 3 and 8 threads", "[cache][threads]") {
  const ThreadsScope restore;
  const ag::Transformer model = model_of({.vocabulary = 11,
                                          .context = 2500,
                                          .width = 128,
                                          .heads = 4,
                                          .key_heads = 2,
                                          .layers = 2,
                                          .positions = ag::Positions::rotary});
  const ag::Indices tokens = drawn({2, 2403});
  const auto decode = [&](int threads) {
    ag::set_threads(threads);
    ag::TransformerCache cache = model.make_cache(2);
    model.decode(times(tokens, 0, 2400), {2400, 1200}, cache);
    std::vector<Variable> logits;
    for (std::size_t t = 2400; t < 2403; ++t)
      logits.push_back(model.decode(times(tokens, t, t + 1), cache));
    return ag::concatenate(logits, 1).value();
  };
  const Array expected = decode(1);
  for (const int threads : {2, 3, 8}) {
    CAPTURE(threads);
    REQUIRE(same_bits(decode(threads), expected));
  }
}

TEST_CASE("a streaming cache sees the first tokens and the last ones, at the places of its slots",
          "[cache]") {
  // with one layer keys are made of single tokens, so what is kept says all about what is seen
  for (auto [name, options] : every_scheme()) {
    if (options.positions == ag::Positions::learned) continue;
    options.layers = 1;
    const ag::Transformer model = model_of(options);
    const ag::Indices tokens = drawn({2, 30});
    ag::TransformerCache cache = model.make_streaming_cache(2, 7, 2);
    const Variable prompt = model.decode(times(tokens, 0, 5), cache);
    require_close(prompt.value(), numbers(model(times(tokens, 0, 5)).value()),
                  tolerance(1e-12, 5e-5));
    for (std::size_t step = 5; step < 30; ++step) {
      CAPTURE(name, step);
      const Variable logits = model.decode(times(tokens, step, step + 1), cache);
      const std::size_t first = step < 7 ? 2 : step - 4;  // behind the sinks
      ag::Indices kept = ag::Indices::from_shape({2, 2 + step + 1 - first});
      for (std::size_t row = 0; row < 2; ++row) {
        std::int64_t* to = kept.data() + row * kept.shape()[1];
        std::copy_n(tokens.data() + row * 30, 2, to);
        std::copy(tokens.data() + row * 30 + first, tokens.data() + row * 30 + step + 1, to + 2);
      }
      const Variable whole = model(kept);
      require_close(logits.value(), numbers(ag::slice(whole, 1, {.start = -1}).value()),
                    tolerance(1e-12, 5e-5));
    }
    REQUIRE(cache.lengths() == Counts{7, 7});
  }
}

TEST_CASE("rows of a streaming cache fill at their own times, and whole pieces need room",
          "[cache]") {
  Options options = small();
  options.positions = ag::Positions::rotary;
  const ag::Transformer model = model_of(options);
  const ag::Indices tokens = drawn({2, 12});
  ag::TransformerCache both = model.make_streaming_cache(2, 6, 1),
                       alone = model.make_streaming_cache(1, 6, 1);
  model.decode(times(tokens, 0, 6), {6, 2}, both);
  const auto second_row = [&](std::size_t start, std::size_t stop) {
    ag::Indices row = ag::Indices::from_shape({1, stop - start});
    std::copy(tokens.data() + 12 + start, tokens.data() + 12 + stop, row.data());
    return row;
  };
  model.decode(second_row(0, 2), alone);
  for (std::size_t step = 6; step < 12; ++step) {
    const Array y = model.decode(times(tokens, step, step + 1), both).value();
    require_close(model.decode(second_row(step, step + 1), alone).value(),
                  {y.data() + 11, y.data() + 22}, tolerance(1e-12, 5e-5));
  }
  REQUIRE(both.lengths() == Counts{6, 6});
  REQUIRE_THROWS_WITH(model.decode(times(tokens, 0, 2), both),
                      ContainsSubstring("takes 2 more one at a time only"));
  REQUIRE_THROWS_WITH(model_of(small()).make_streaming_cache(1, 6),
                      ContainsSubstring("learned positions"));
  REQUIRE_THROWS_WITH(model.make_streaming_cache(1, 6, 6),
                      ContainsSubstring("sinks must be fewer"));
}

TEST_CASE("a full streaming cache forks and goes on, and is cut back like any other", "[cache]") {
  Options options = small();
  options.positions = ag::Positions::rotary;
  const ag::Transformer model = model_of(options);
  const ag::Indices tokens = drawn({1, 12});
  ag::TransformerCache cache = model.make_streaming_cache(1, 6, 1);
  for (std::size_t step = 0; step < 9; ++step) model.decode(times(tokens, step, step + 1), cache);
  ag::TransformerCache fork = cache.fork({0, 0});
  ag::Indices twice = ag::Indices::from_shape({2, 1});
  for (std::size_t step = 9; step < 12; ++step) {
    twice.fill(tokens.data()[step]);
    const Array both = model.decode(twice, fork).value();
    std::vector<double> one = numbers(model.decode(times(tokens, step, step + 1), cache).value());
    one.insert(one.end(), one.begin(), one.begin() + 11);
    require_close(both, one, tolerance(1e-12, 5e-5));
  }
  cache.truncate({2});
  REQUIRE(cache.lengths() == Counts{2});
  model.decode(times(tokens, 0, 4), cache);
  REQUIRE(cache.lengths() == Counts{6});
}

TEST_CASE("several tokens at a place are the sum of their vectors, in a call and from a cache",
          "[cache]") {
  const ag::Transformer model = model_of(small());
  ag::Indices places = drawn({2, 6, 3});
  const Variable whole = model(places);
  REQUIRE(whole.shape() == ag::Shape{2, 6, 11});
  ag::TransformerCache cache = model.make_cache(2);
  require_close(model.decode(places, cache).value(), numbers(whole.value()),
                tolerance(1e-12, 5e-5));
  ag::Indices one = ag::Indices::from_shape({2, 6, 1});
  std::copy_n(drawn({2, 6}).data(), 12, one.data());
  require_close(model(one).value(), numbers(model(drawn({2, 6})).value()), 0);
  REQUIRE_THROWS_AS(model(drawn({2, 6, 1, 1})), ag::ShapeError);
}

TEST_CASE("a call sees what its own mask shows, too: texts that share a row", "[cache]") {
  const ag::Transformer model = [] {
    Options options = small();
    options.positions = ag::Positions::rotary;
    return model_of(options);
  }();
  const ag::Indices tokens = drawn({1, 8}), ids{{0, 0, 0, 1, 1, 1, 1, 1}};
  const Variable packed = model(tokens, ag::documents(ids));
  require_close(ag::slice(packed, 1, {.start = 3}).value(),
                numbers(model(times(tokens, 3, 8)).value()), tolerance(1e-12, 5e-5));
}
