// A transformer that decodes from a part of its cache, against the whole.
#include "layers/less_is_more.hpp"

#include "common/bits.hpp"
#include "common/drawn_layer.hpp"
#include "common/test.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/decode.hpp"
#include "layers/transformer.hpp"

namespace {

constexpr std::size_t layers = 4, heads = 4, vocabulary = 11;

ag::TransformerOptions grouped() {
  return {.vocabulary = vocabulary,
          .context = 40,
          .width = 16,
          .heads = heads,
          .key_heads = 2,
          .layers = layers,
          .positions = ag::Positions::rotary};
}

ag::Transformer model_of(const ag::TransformerOptions& options) {
  return drawn_layer<ag::Transformer>(options, 0.5);
}

ag::Indices drawn(const ag::Shape& shape, std::uint64_t seed = 6) {
  ag::Rng rng(seed);
  return rng.integers(0, std::int64_t(vocabulary), shape);
}

// The logits of one token behind each row's prompt, by this way of reading.
Array next_logits(const ag::Transformer& model, const std::vector<std::size_t>& lengths,
                  ag::LessIsMore* less) {
  const std::size_t rows = lengths.size();
  ag::TransformerCache cache = model.make_cache(rows);
  model.decode(drawn({rows, 30}), lengths, cache, less);
  return model.decode(drawn({rows, 1}, 8), cache, less).value();
}

ag::LessIsMoreOptions options_of(std::size_t budget, ag::Selector selector,
                                 std::vector<std::size_t> selecting = {1}) {
  return {.roles = ag::decode_roles(layers, selecting),
          .selection = {.budget = budget, .selector = selector}};
}

struct Inputs {
  Array q = random_array({2, 1, heads * 8}, -1, 1, 1), k = random_array({2, 30, 2 * 8}, -1, 1, 2),
        v = random_array({2, 30, 2 * 8}, -1, 1, 3);
  ag::AttentionInputs heads_of() const {
    return {ag::split_heads(Variable(q), heads), ag::split_heads(Variable(k), 2),
            ag::split_heads(Variable(v), 2)};
  }
};

ag::TokenSets drawn_sets(std::size_t per_row) {
  ag::Rng rng(9);
  std::vector<ag::TokenSet> sets(2 * per_row);
  for (ag::TokenSet& set : sets)
    for (std::size_t i = 0; i < 30; ++i)
      if (rng.uniform() < 0.4) set.push_back(i);
  return ag::TokenSets(per_row, std::move(sets));
}

ag::Bools flags_of(const ag::TokenSets& sets) {
  ag::Bools flags({2, heads, 1, 30}, false);
  for (std::size_t row = 0; row < 2; ++row)
    for (std::size_t head = 0; head < heads; ++head)
      for (const std::size_t token : sets.of(row, head))
        flags.data()[(row * heads + head) * 30 + token] = true;
  return flags;
}

}  // namespace

TEST_CASE("attention to sets is dense attention with all other tokens masked", "[less]") {
  const ag::AttentionInputs inputs = Inputs().heads_of();
  const Variable sink(random_array({heads}, -1, 1, 5));
  for (const std::size_t per_row : {std::size_t{1}, heads}) {
    const ag::TokenSets sets = drawn_sets(per_row);
    const ag::Mask chosen = ag::visible_where(flags_of(sets));
    for (const ag::Mask& mask : {ag::causal(), ag::key_lengths({30, 13}), ag::sliding_window(9, 0)})
      for (const ag::ScoreSteps& steps :
           {ag::ScoreSteps{},
            ag::ScoreSteps{ag::alibi(ag::alibi_slopes(heads)), ag::soft_cap(2)}}) {
        const auto expected =
            ag::composed_attention(inputs, {.mask = mask & chosen, .scores = steps, .sink = sink});
        const auto out = ag::sparse_decode_attention(
            inputs, {.mask = mask, .scores = steps, .sink = sink}, sets);
        require_close(out.output.value(), numbers(expected.output.value()), tolerance(1e-12, 2e-6));
        require_close(out.log_sum_exp, numbers(expected.log_sum_exp), tolerance(1e-12, 2e-6));
      }
  }
}

TEST_CASE("what is not in the set is not read, be it NaN", "[less]") {
  for (const std::size_t per_row : {std::size_t{1}, heads}) {
    Inputs inputs;
    const ag::TokenSets sets = drawn_sets(per_row);
    const Array expected = ag::sparse_decode_attention(inputs.heads_of(), {}, sets).output.value();
    const ag::Bools read = flags_of(sets);
    for (std::size_t row = 0; row < 2; ++row)
      for (std::size_t head = 0; head < 2; ++head)
        for (std::size_t token = 0; token < 30; ++token) {
          const auto is_read = [&](std::size_t query_head) {
            return read.data()[(row * heads + query_head) * 30 + token];
          };
          if (is_read(2 * head) || is_read(2 * head + 1)) continue;
          for (Array* x : {&inputs.k, &inputs.v})
            std::fill_n(x->data() + (row * 30 + token) * 16 + head * 8, 8,
                        std::numeric_limits<Real>::quiet_NaN());
        }
    REQUIRE(same_bits(ag::sparse_decode_attention(inputs.heads_of(), {}, sets).output.value(),
                      expected));
  }
}

TEST_CASE("a budget of the whole context gives the dense logits, by the sparse path", "[less]") {
  std::vector<ag::TransformerOptions> schemes(4, grouped());
  schemes[1].positions = ag::Positions::none;
  schemes[1].scores.alibi = true;
  schemes[2].positions = ag::Positions::learned;
  schemes[2].scores = {.soft_cap = 2, .sink = ag::Sink::learned};
  schemes[3].window = 7;
  for (const ag::TransformerOptions& scheme : schemes) {
    const ag::Transformer model = model_of(scheme);
    const std::vector<double> expected = numbers(next_logits(model, {30, 17}, nullptr));
    for (const std::string& name : ag::selector_names())
      for (const std::vector<std::size_t>& selecting :
           {std::vector<std::size_t>{0}, std::vector<std::size_t>{1, 3}}) {
        CAPTURE(name, selecting);
        ag::LessIsMoreOptions options = options_of(31, ag::selector_named(name), selecting);
        options.sparse_selection = true;
        ag::LessIsMore less(options);
        require_close(next_logits(model, {30, 17}, &less), expected, tolerance(1e-12, 5e-5));
        REQUIRE(less.sets(3)->of(1, 0).size() == 18);
      }
  }
}

TEST_CASE("rows of unequal lengths choose as each would alone", "[less]") {
  const ag::Transformer model = model_of(grouped());
  ag::LessIsMore together(options_of(8, ag::Selector::unified));
  const Array both = next_logits(model, {30, 30}, &together);
  const ag::TokenSets sets = *together.sets(2);
  ag::LessIsMore uneven(options_of(8, ag::Selector::unified));
  const Array short_row = next_logits(model, {12, 30}, &uneven);
  REQUIRE(uneven.sets(2)->of(0, 0).back() == 12);
  REQUIRE(uneven.sets(2)->of(1, 0) == sets.of(1, 0));
  for (std::size_t i = 0; i < vocabulary; ++i)
    REQUIRE(short_row.data()[vocabulary + i] == both.data()[vocabulary + i]);
}

TEST_CASE("selecting layers attend to everything, so a model of them alone decodes densely",
          "[less]") {
  const ag::Transformer model = model_of(grouped());
  ag::LessIsMore less(options_of(8, ag::Selector::unified, {0, 1, 2, 3}));
  require_close(next_logits(model, {30, 17}, &less), numbers(next_logits(model, {30, 17}, nullptr)),
                tolerance(1e-12, 5e-5));
  REQUIRE(less.bytes_read() == less.dense_bytes());
}

TEST_CASE("sparse layers read the budget of each head of keys once, or once a head of queries",
          "[less]") {
  const ag::Transformer model = model_of(grouped());
  const std::size_t of_token = 2 * 4 * sizeof(Real);  // key and value, of a head
  const auto bytes_of = [&](ag::Selector selector) {
    ag::LessIsMore less(options_of(8, selector));
    next_logits(model, {30}, &less);
    REQUIRE(less.dense_bytes() == layers * 2 * 31 * of_token);
    REQUIRE(less.sets(0) == nullptr);
    REQUIRE(less.sets(2) == less.sets(3));
    return less.bytes_read();
  };
  REQUIRE(bytes_of(ag::Selector::unified) == (2 * 2 * 31 + 2 * 2 * 8) * of_token);
  REQUIRE(bytes_of(ag::Selector::per_head) == (2 * 2 * 31 + 2 * heads * 8) * of_token);
}

TEST_CASE("rows that get no token read nothing", "[less]") {
  const ag::Transformer model = model_of(grouped());
  ag::TransformerCache cache = model.make_cache(2);
  model.decode(drawn({2, 30}), {30, 20}, cache);
  ag::LessIsMore less(options_of(8, ag::Selector::unified));
  model.decode(drawn({2, 1}, 8), {0, 1}, cache, &less);
  REQUIRE(less.dense_bytes() == layers * 2 * 21 * 2 * 4 * sizeof(Real));
  REQUIRE(cache.lengths() == std::vector<std::size_t>{30, 21});
}

TEST_CASE("the scores beside dense attention are those of the softmax, -infinity where hidden",
          "[less]") {
  const ag::AttentionInputs inputs = Inputs().heads_of();
  const ag::AttentionOptions options{.mask = ag::key_lengths({30, 13}),
                                     .scores = {ag::soft_cap(2)}};
  const ag::ScoredAttention scored = ag::decode_with_scores(inputs, options);
  const Array weights = ag::attention_weights(inputs, options).value();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::size_t row = i / 30;  // of (batch, heads)
    const double expected = std::exp(double(scored.scores.data()[i]) -
                                     double(scored.attention.log_sum_exp.data()[row]));
    REQUIRE(std::abs(double(weights.data()[i]) - expected) < tolerance(1e-13, 1e-6));
  }
}

TEST_CASE("a prompt is read densely whatever the budget", "[less]") {
  const ag::Transformer model = model_of(grouped());
  ag::LessIsMore less(options_of(2, ag::Selector::unified));
  ag::TransformerCache cache = model.make_cache(1), plain = model.make_cache(1);
  const ag::Indices prompt = drawn({1, 20});
  REQUIRE(
      same_bits(model.decode(prompt, cache, &less).value(), model.decode(prompt, plain).value()));
  REQUIRE(less.sets(2) == nullptr);
  REQUIRE(less.dense_bytes() == 0);
}

TEST_CASE("sparse decoding has the same bits at 1, 2, 3 and 8 threads", "[less][threads]") {
  const ThreadsScope restore;
  ag::TransformerOptions options = grouped();
  options.width = 128;
  options.context = 2000;
  const ag::Transformer model = model_of(options);
  const auto decode = [&](int threads) {
    ag::set_threads(threads);
    ag::LessIsMore less(options_of(900, ag::Selector::unified));
    ag::TransformerCache cache = model.make_cache(1);
    model.decode(drawn({1, 1900}), cache);
    return model.decode(drawn({1, 1}, 8), cache, &less).value();
  };
  const Array expected = decode(1);
  for (const int threads : {2, 3, 8}) REQUIRE(same_bits(decode(threads), expected));
}

TEST_CASE("roles that do not go together are refused", "[less]") {
  using enum ag::DecodeRole;
  REQUIRE(ag::decode_roles(5, {1, 3}) == std::vector{dense, select, sparse, select, sparse});
  REQUIRE_THROWS_AS(ag::decode_roles(4, {}), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::decode_roles(4, {4}), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::decode_roles(4, {2, 1}), ag::ArgumentError);
  REQUIRE_THROWS_WITH(ag::LessIsMore({.roles = {dense, sparse, select}}),
                      ContainsSubstring("needs a selecting one before it"));
  REQUIRE_THROWS_AS(ag::LessIsMore({.roles = {select}, .selection = {.budget = 0}}),
                    ag::ArgumentError);
  const ag::Transformer model = model_of(grouped());
  ag::LessIsMore other({.roles = {select, sparse}});
  REQUIRE_THROWS_WITH(next_logits(model, {5}, &other),
                      ContainsSubstring("has roles for 2 layers, the model has 4"));
  ag::TransformerOptions convolved = grouped();
  convolved.attention = ag::MultiToken{.layer = {.before = ag::KernelSize{2, 3}}};
  ag::LessIsMore less(options_of(4, ag::Selector::unified));
  REQUIRE_THROWS_WITH(next_logits(model_of(convolved), {5}, &less),
                      ContainsSubstring("takes no other kernel"));
}
