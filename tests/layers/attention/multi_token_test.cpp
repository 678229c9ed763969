// Multi-token attention: papers' golden numbers, what its weights may and may not do, the layer.
#include "layers/attention/multi_token.hpp"

#include "common/bits.hpp"
#include "common/test.hpp"
#include "core/capture.hpp"
#include "core/memory.hpp"
#include "core/ops/convolution.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/shape.hpp"
#include "core/ops/softmax.hpp"
#include "layers/attention/composed.hpp"
#include "layers/transformer.hpp"

namespace {

// val(s, i, j) = sin(0.7 i + 1.3 j + s), what tests/reference and the golden numbers start from
Array waves(std::size_t rows, std::size_t columns, double s) {
  Array x = ag::zeros({rows, columns});
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      x(i, j) = Real(std::sin(0.7 * double(i) + 1.3 * double(j) + s));
  return x;
}

ag::TokenMixing identity(std::size_t heads, std::size_t queries, std::size_t keys, bool after) {
  Array kernel = ag::zeros({heads, queries, keys}), matrix = ag::zeros({1, heads, heads});
  for (std::size_t h = 0; h < heads; ++h) kernel(h, queries - 1, keys / 2) = matrix(0, h, h) = 1;
  ag::TokenMixing mixing{ag::parameter(kernel), ag::parameter(matrix), {}, {}};
  if (after) mixing.key_query_after = ag::parameter(kernel);
  if (after) mixing.heads_after = ag::parameter(matrix);
  return mixing;
}

ag::TokenMixing random_mixing(std::size_t heads) {
  return {
      ag::parameter(random_array({heads, 3, 5})), ag::parameter(random_array({1, heads, heads})),
      ag::parameter(random_array({heads, 2, 3})), ag::parameter(random_array({1, heads, heads}))};
}

struct Projections {
  Variable q, k, v;
  std::size_t heads;
  ag::AttentionInputs inputs() const {
    return {ag::split_heads(q, heads), ag::split_heads(k, heads), ag::split_heads(v, heads)};
  }
};
Projections random_projections(std::size_t batch, std::size_t heads, std::size_t time) {
  const auto one = [&] { return ag::parameter(random_array({batch, time, heads * 4})); };
  return {one(), one(), one(), heads};
}

// The output and all gradients for the same output weights.
std::vector<Array> run(ag::MultiTokenKernel kernel, const Projections& p,
                       const ag::TokenMixing& mixing, const ag::AttentionOptions& options) {
  Tape tape;
  const Variable y = kernel(p.inputs(), mixing, options);
  const ag::Gradients g = tape.gradients(y, Variable(random_array(y.shape())));
  return {y.value(), g.of(p.q).value(), g.of(p.k).value(), g.of(p.v).value()};
}

}  // namespace

TEST_CASE("multi-token attention: the golden numbers of the convolution", "[multi-token]") {
  // scores given as they are: queries of scores' rows, keys of the identity
  Array q = waves(4, 4, 0.5), dp = waves(4, 4, 0.6), theta = waves(2, 3, 0.9);
  Array eye = ag::zeros({4, 4});
  for (std::size_t i = 0; i < 4; ++i) eye(i, i) = 1;
  const auto row = [](const Array& x) { return ag::reshape(Variable(x), {1, 4, 4}); };
  const Variable kernel = ag::parameter(ag::reshape(Variable(theta), {1, 2, 3}).value());
  for (const auto op : {ag::multi_token_attention, ag::composed_multi_token_attention}) {
    Tape tape;
    const Variable p =
        op({ag::split_heads(row(q), 1), ag::split_heads(row(eye), 1), ag::split_heads(row(eye), 1)},
           {kernel, {}, {}, {}}, {.mask = ag::causal(), .scale = 1});
    const Array g = tape.gradients(p, row(dp)).of(kernel).value();
    for (std::size_t j = 0; j < 4; ++j)
      CHECK(std::abs(p.value()(0, 3, j) - std::array{0.334281, 0.639926, 0.010819, 0.014974}[j]) <
            2e-6);
    require_close(g, {-0.368591, 0.359639, 0.300251, -0.254818, 0.484735, 0.141964}, 2e-6);
  }
}

TEST_CASE("under a causal mask it is the paper's form: mask to 0, convolve, mask to -infinity",
          "[multi-token]") {
  const std::size_t time = 9;
  const Projections p = random_projections(2, 3, time);
  const Variable theta(random_array({3, 3, 5}));
  const Variable q = ag::gather(p.inputs().q), k = ag::gather(p.inputs().k),
                 v = ag::gather(p.inputs().v);
  ag::Bools seen = ag::Bools::from_shape({time, time});
  for (std::size_t i = 0; i < time; ++i)
    for (std::size_t j = 0; j < time; ++j) seen(i, j) = j <= i;
  const Variable scores = ag::matmul(q, ag::swap_axes(k)) * Real(0.5);
  const Variable masked =
      ag::pad(ag::where(seen, scores, Variable(Real(0))), {{0, 0}, {0, 0}, {2, 0}, {2, 2}});
  const Variable convolved = ag::convolve_2d(masked, theta);
  const Variable weights =
      ag::softmax(ag::where(seen, convolved, Variable(-std::numeric_limits<Real>::infinity())), -1);
  const Array expected = ag::merge_heads(ag::matmul(weights, v)).value();
  const Array y =
      ag::multi_token_attention(p.inputs(), {theta, {}, {}, {}}, {.mask = ag::causal()}).value();
  REQUIRE(ag::relative_difference(y, expected) < tolerance(1e-13, 1e-5));
}

TEST_CASE("identity kernels and matrices give the bits of plain attention", "[multi-token]") {
  for (const std::size_t time : {5u, 70u, 200u}) {
    const Projections p = random_projections(2, 2, time);
    const ag::AttentionOptions causal{.mask = ag::causal()};
    for (const bool after : {false, true}) {
      CAPTURE(time, after);
      const auto plain = run(ag::multi_token_attention, p, {}, causal);
      const auto mixed = run(ag::multi_token_attention, p, identity(2, 6, 11, after), causal);
      // with a kernel of the weights, a strip's gradients take more keys into their products
      const std::size_t exact = after && time > 64 ? 1 : 4;
      for (std::size_t i = 0; i < exact; ++i) CHECK(same_bits(plain[i], mixed[i]));
      for (std::size_t i = exact; i < 4; ++i)
        CHECK(ag::relative_difference(plain[i], mixed[i]) < tolerance(1e-14, 1e-6));
    }
    if (time > 100) continue;
    const Array composed =
        ag::composed_multi_token_attention(p.inputs(), identity(2, 6, 11, true), causal).value();
    const Array standard = ag::composed_attention(p.inputs(), causal).output.value();
    CHECK(same_bits(composed, standard));
  }
}

TEST_CASE("no query sees what its mask hides, through no kernel", "[multi-token]") {
  const std::size_t time = 12;
  ag::Indices ids = ag::Indices::from_shape({1, time});
  for (std::size_t i = 0; i < time; ++i) ids.data()[i] = i < 5 ? 0 : 1;
  const std::vector<ag::Mask> masks{ag::causal(), ag::causal() & ag::sliding_window(3, 0),
                                    ag::causal() & ag::documents(ids)};
  for (std::size_t m = 0; m < masks.size(); ++m) {
    ag::TokenMixing mixing = random_mixing(2);
    // the weights of the query before were normalised over what left the window since
    if (m == 1) mixing.key_query_after = {};
    const Projections p = random_projections(1, 2, time);
    const Array y = ag::multi_token_attention(p.inputs(), mixing, {.mask = masks[m]}).value();
    for (std::size_t key = 0; key < time; ++key) {
      Projections changed = p;
      Array k = p.k.value(), v = p.v.value();
      for (std::size_t c = 0; c < 8; ++c) k(0, key, c) += 1, v(0, key, c) += 1;
      changed.k = Variable(k);
      changed.v = Variable(v);
      const Array now =
          ag::multi_token_attention(changed.inputs(), mixing, {.mask = masks[m]}).value();
      for (std::size_t i = 0; i < time; ++i) {
        const bool sees =
            key <= i && (m != 1 || key + 3 >= i) && (m != 2 || ids.data()[key] == ids.data()[i]);
        bool same = true;
        for (std::size_t c = 0; c < 8; ++c) same = same && now(0, i, c) == y(0, i, c);
        CAPTURE(m, key, i);
        REQUIRE(same == !sees);
      }
    }
  }
}

TEST_CASE("multi-token attention has the same bits at any number of threads", "[multi-token]") {
  const ThreadsScope restore;
  const Projections p = random_projections(2, 4, 150);
  const ag::TokenMixing mixing = random_mixing(4);
  std::vector<Array> first;
  for (const int threads : {1, 2, 3, 8}) {
    ag::set_threads(threads);
    Tape tape;
    const Variable y = ag::multi_token_attention(p.inputs(), mixing, {.mask = ag::causal()});
    const ag::Gradients g = tape.gradients(ag::sum(y * y));
    std::vector<Array> all{y.value()};
    for (const Variable& x : {p.q, p.k, p.v, mixing.key_query, mixing.heads, mixing.key_query_after,
                              mixing.heads_after})
      all.push_back(g.of(x).value());
    if (first.empty()) first = all;
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(same_bits(all[i], first[i]));
  }
}

TEST_CASE("multi-token attention keeps nothing that grows with the square of the length",
          "[multi-token]") {
  const auto bytes_of = [](std::size_t time) {
    const Projections p = random_projections(1, 1, time);
    const ag::TokenMixing mixing{ag::parameter(random_array({1, 2, 3})), {}, {}, {}};
    ag::pool_reset_peak();
    const std::size_t before = ag::pool_statistics().bytes_alive;
    Tape tape;
    const Variable y = ag::multi_token_attention(p.inputs(), mixing, {.mask = ag::causal()});
    tape.gradients(ag::sum(y));
    return ag::memory_report().most_bytes_alive - before;
  };
  CHECK(double(bytes_of(4000)) < 2.5 * double(bytes_of(2000)));
}

TEST_CASE("the layer norms, scales and gates each head's output", "[multi-token]") {
  ag::Rng rng(4);
  const Projections p = random_projections(2, 2, 5);
  const ag::MultiTokenMixer mixer(
      {{.before = ag::KernelSize{2, 3}, .norm = true, .depth = 2, .gate = true}, 2, 4}, rng);
  REQUIRE(ag::parameters(mixer).names() ==
          std::vector<std::string>{"key_query", "norm", "gate", "gate_bias"});
  const Array plain = ag::composed_attention(p.inputs(), {.mask = ag::causal()}).output.value();
  const Array y = mixer(p.inputs(), {.mask = ag::causal()}).value();
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t i = 0; i < 5; ++i)
      for (std::size_t h = 0; h < 2; ++h) {
        double square = 0, u_o = 0;
        for (std::size_t c = 0; c < 4; ++c) square += std::pow(double(plain(b, i, 4 * h + c)), 2);
        const double scale = 0.5292869817 / std::sqrt(square / 4 + 1e-5);  // 0.2 + 0.6 exp(-0.6)
        for (std::size_t c = 0; c < 4; ++c)
          u_o += scale * double(plain(b, i, 4 * h + c)) * double(mixer.gate.value()(c));
        for (std::size_t c = 0; c < 4; ++c)
          CHECK(std::abs(double(y(b, i, 4 * h + c)) -
                         scale * double(plain(b, i, 4 * h + c)) / (1 + std::exp(-u_o))) <
                tolerance(1e-9, 1e-5));
      }
}

TEST_CASE("a transformer of multi-token attention: where its weights are, and its gradients",
          "[multi-token]") {
  ag::Rng rng(5);
  ag::TransformerOptions options{
      .vocabulary = 7, .context = 6, .width = 8, .heads = 2, .layers = 3};
  options.attention = ag::MultiToken{
      .layer = {.before = ag::KernelSize{2, 3}, .heads_after = 2}, .first = 1, .every = 2};
  const ag::Transformer model(options, rng);
  const ag::Parameters all = ag::parameters(model);
  CHECK(!all.contains("blocks.0.attention.multi_token.key_query"));
  CHECK(all.contains("blocks.1.attention.multi_token.key_query"));
  CHECK(all.contains("blocks.2.attention.multi_token.head_mixing_after"));
  const ag::Indices tokens = rng.integers(0, 7, {2, 6});
  const ag::Capture seen = ag::capture("blocks.1.attention.weights");
  Tape tape;
  const Variable loss = ag::sum(ag::square(model(tokens)));
  REQUIRE(seen.values().size() == 1);
  CHECK(ag::relative_difference(ag::sum(seen.values()[0].value, -1).value(), ag::ones({2, 2, 6})) <
        1e-6);
  const ag::Gradients g = tape.gradients(loss);
  for (const auto& [name, value] : all) {
    CAPTURE(name);
    CHECK(g.reached(value));
  }
}

TEST_CASE("parameters are counted without a model: the paper's 880M and what its method adds",
          "[multi-token]") {
  ag::TransformerOptions options{.vocabulary = 128256,
                                 .context = 2048,
                                 .width = 1536,
                                 .heads = 16,
                                 .layers = 24,
                                 .bias = false,
                                 .norm = ag::NormKind::rms,
                                 .positions = ag::Positions::rotary,
                                 .activation = ag::silu,
                                 .gated = true,
                                 .hidden = 4096};
  CHECK(ag::parameter_count(options) == 876'553'728);
  options.attention = ag::MultiToken{.layer = {.before = ag::KernelSize{6, 11},
                                               .after = ag::KernelSize{6, 11},
                                               .heads_before = 16,
                                               .heads_after = 16,
                                               .norm = true,
                                               .gate = true},
                                     .first = 2,
                                     .every = 4};
  CHECK(ag::parameter_count(options) == 876'553'728 + 29'592);
  options.attention->every = 0;
  CHECK_THROWS_WITH(ag::parameter_count(options), ContainsSubstring("every must be positive"));
  options.heads = 0;
  CHECK_THROWS_WITH(ag::parameter_count(options), ContainsSubstring("must be positive"));
}

TEST_CASE("the count of parameters is that of the model", "[multi-token]") {
  ag::Rng rng(6);
  for (int i = 0; i < 60; ++i) {
    const auto yes = [&] { return rng.uniform() < 0.5; };
    ag::TransformerOptions o{.vocabulary = 9, .context = 5, .width = 12, .heads = 4, .layers = 3};
    if (yes()) o.key_heads = 2;
    o.bias = yes();
    o.tied = yes();
    o.norm = yes() ? ag::NormKind::rms : ag::NormKind::layer;
    o.positions = yes() ? ag::Positions::none : ag::Positions::learned;
    o.gated = yes();
    if (yes()) o.hidden = 7;
    if (yes()) {
      o.attention =
          ag::MultiToken{.layer = {.heads_before = 2, .norm = yes(), .gate = yes()}, .first = 1};
      if (yes()) o.attention->layer.after = ag::KernelSize{2, 3};
      o.attention->layer.learned = yes();
    } else {
      o.scores.sink = yes() ? ag::Sink::learned : ag::Sink::none;
      if (yes()) o.scores.relative_reach = 3;
    }
    if (yes()) o.residual = ag::BlockAttention{.blocks = 2, .gain = yes()};
    CHECK(ag::parameter_count(o) == ag::parameters(ag::Transformer(o, rng)).count());
  }
}

TEST_CASE("multi-token attention refuses what does not fit, and says what came", "[multi-token]") {
  const Projections p = random_projections(1, 2, 3);
  const auto with = [&](const ag::TokenMixing& mixing, const ag::AttentionOptions& options = {}) {
    return ag::multi_token_attention(p.inputs(), mixing, options);
  };
  const auto zeros = [](const ag::Shape& shape) { return Variable(ag::zeros(shape)); };
  CHECK_THROWS_WITH(with({zeros({2, 2, 4}), {}, {}, {}}),
                    ContainsSubstring("key_query must be (2 heads, queries, an odd number"));
  CHECK_THROWS_WITH(with({{}, {}, zeros({3, 2, 3}), {}}), ContainsSubstring("got (3, 2, 3)"));
  CHECK_THROWS_WITH(with({{}, zeros({1, 3, 3}), {}, {}}), ContainsSubstring("groups * c = 2"));
  CHECK_THROWS_WITH(with({}, {.sink = zeros({2})}), ContainsSubstring("no sink"));
  ag::Rng rng(1);
  CHECK_THROWS_WITH(ag::MultiHeadAttention({.width = 8,
                                            .heads = 2,
                                            .scores = {.alibi = true},
                                            .multi_token = ag::MultiTokenOptions{}},
                                           rng),
                    ContainsSubstring("no score steps"));
  CHECK_THROWS_WITH(ag::MultiTokenMixer({{.before = ag::KernelSize{2, 4}}, 2, 4}, rng),
                    ContainsSubstring("got 2 and 4"));
  CHECK_THROWS_WITH(ag::MultiTokenMixer({{.heads_before = 3}, 2, 4}, rng),
                    ContainsSubstring("groups of 3 do not divide 2 heads"));
}
