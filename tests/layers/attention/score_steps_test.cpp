// Score steps, sinks and dropout, each on numbers that can be followed by hand.
#include "layers/attention/score_steps.hpp"

#include "common/bits.hpp"
#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/flash.hpp"
#include "layers/attention/fused.hpp"

namespace {

using Options = ag::AttentionOptions;
constexpr Real infinity_ = std::numeric_limits<Real>::infinity();

Array row(const std::vector<double>& numbers) {
  return ag::array_of(numbers, {1, numbers.size(), 1});
}

// One head of width 1 whose scores are q k; by flash, after checking that composed says the same.
Array attend(const std::vector<double>& q, const std::vector<double>& k,
             const std::vector<double>& v, Options options) {
  options.scale = 1;
  const Variable queries(row(q)), keys(row(k)), values(row(v));
  const ag::AttentionInputs in{ag::split_heads(queries, 1), ag::split_heads(keys, 1),
                               ag::split_heads(values, 1)};
  const Array y = ag::flash_attention(in, options).output.value();
  const Array reference = ag::composed_attention(in, options).output.value();
  require_close(y, std::vector<double>(reference.begin(), reference.end()), tolerance(1e-14, 1e-6));
  return y;
}

// Softmax of the scores, over values.
double weighted(const std::vector<double>& scores, const std::vector<double>& values,
                double extra = 0) {
  double total = extra, sum = 0;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    total += std::exp(scores[j]);
    sum += std::exp(scores[j]) * values[j];
  }
  return sum / total;
}

// q, k, v of (2, length, heads * 8), by a kernel.
Variable random_attention(ag::AttentionOutput (*kernel)(const ag::AttentionInputs&, const Options&),
                          std::size_t length, const Options& options, double spoil = 0) {
  Array k = random_array({2, length, 16}, -1, 1, 2), v = random_array({2, length, 16}, -1, 1, 3);
  for (std::size_t i = (length - 1) * 16; i < length * 16; ++i) {  // the last key of the first row
    k.data()[i] += Real(spoil);
    v.data()[i] += Real(spoil);
  }
  const Variable q(random_array({2, length, 16}, -1, 1, 1)), keys(k), values(v);
  return kernel({ag::split_heads(q, 2), ag::split_heads(keys, 2), ag::split_heads(values, 2)},
                options)
      .output;
}

}  // namespace

TEST_CASE("a soft-cap bends scores to cap tanh(e / cap)", "[attention]") {
  const Array y = attend({3}, {1, -2}, {5, 7}, {.scores = {ag::soft_cap(2)}});
  require_close(y, {weighted({2 * std::tanh(1.5), 2 * std::tanh(-3.0)}, {5, 7})});
  REQUIRE_THROWS_AS(ag::soft_cap(0), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::soft_cap(std::nan("")), ag::ArgumentError);
}

TEST_CASE("score steps run in the order they are given", "[attention]") {
  const auto cap = ag::soft_cap(1);
  const auto add = ag::bias(Variable(ag::array_of({4, 0}, {1, 2})));
  require_close(attend({1}, {1, 1}, {5, 7}, {.scores = {cap, add}}),
                {weighted({std::tanh(1.0) + 4, std::tanh(1.0)}, {5, 7})});
  require_close(attend({1}, {1, 1}, {5, 7}, {.scores = {add, cap}}),
                {weighted({std::tanh(5.0), std::tanh(1.0)}, {5, 7})});
}

TEST_CASE("a bias of -infinity hides its pair, also before a soft-cap hid nothing", "[attention]") {
  const auto hides = ag::bias(Variable(ag::array_of({0, -double(infinity_)}, {1, 2})));
  require_close(attend({1}, {1, 1}, {5, 7}, {.scores = {hides}}), {5});
  require_close(attend({1}, {1, 1}, {5, 7}, {.scores = {ag::soft_cap(2), hides}}), {5});
  const auto all = ag::bias(Variable(ag::filled({1, 1}, -infinity_)));
  require_close(attend({1}, {1, 1}, {5, 7}, {.scores = {all}}), {0});
}

TEST_CASE("a bias fits (queries, keys), or stretches where its size is 1", "[attention]") {
  const auto with = [](const ag::Shape& shape) {
    return attend({1, 1}, {1, 1, 1}, {3, 4, 5}, {.scores = {ag::bias(Variable(ag::ones(shape)))}});
  };
  for (const ag::Shape& shape : {ag::Shape{2, 3}, {1, 1, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 3}})
    require_close(with(shape), {4, 4});
  REQUIRE_THROWS_AS(with({3, 3}), ag::ShapeError);
  REQUIRE_THROWS_AS(with({2, 1, 2, 3}), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::bias(Variable(ag::ones({3}))), ag::ShapeError);
}

TEST_CASE("ALiBi's slopes are those of the paper for any number of heads", "[attention][C22]") {
  const std::vector<double> of_8 = ag::alibi_slopes(8), of_12 = ag::alibi_slopes(12);
  for (std::size_t h = 0; h < 8; ++h) {
    REQUIRE(of_8[h] == std::exp2(-double(h + 1)));
    REQUIRE(of_12[h] == of_8[h]);
  }
  const std::vector<double> tail{0.70710678, 0.35355339, 0.17677670, 0.08838835};
  for (std::size_t h = 0; h < 4; ++h) REQUIRE(std::abs(of_12[8 + h] - tail[h]) < 1e-8);
  REQUIRE(ag::alibi_slopes(1) == std::vector<double>{1.0 / 256});
  REQUIRE(ag::alibi_slopes(0).empty());
}

TEST_CASE("ALiBi lowers scores by the distance from the query's position", "[attention]") {
  const Array y = attend({1, 1}, {1, 1, 1}, {3, 4, 5}, {.scores = {ag::alibi({0.5})}});
  require_close(y, {weighted({-0.5, 0, -0.5}, {3, 4, 5}), weighted({-1, -0.5, 0}, {3, 4, 5})});
  REQUIRE_THROWS_AS(attend({1}, {1}, {1}, {.scores = {ag::alibi(ag::alibi_slopes(2))}}),
                    ag::ShapeError);
  REQUIRE_THROWS_WITH(ag::alibi({1, std::nan("")}), "alibi: slopes must be finite, got nan");
}

TEST_CASE("relative positions beyond the reach share the last columns", "[attention]") {
  const auto step = ag::relative_positions(Variable(ag::array_of({1, 2, 4}, {1, 3})));
  const Array y = attend({0, 0, 0, 0}, {0, 0, 0, 0}, {3, 4, 5, 6}, {.scores = {step}});
  require_close(y, {weighted({2, 4, 4, 4}, {3, 4, 5, 6}), weighted({1, 2, 4, 4}, {3, 4, 5, 6}),
                    weighted({1, 1, 2, 4}, {3, 4, 5, 6}), weighted({1, 1, 1, 2}, {3, 4, 5, 6})});
  REQUIRE_THROWS_AS(ag::relative_positions(Variable(ag::ones({1, 4}))), ag::ShapeError);
  const auto two = ag::relative_positions(Variable(ag::ones({2, 3})));
  REQUIRE_THROWS_AS(attend({1}, {1}, {1}, {.scores = {two}}), ag::ShapeError);
}

TEST_CASE("a sink takes its share of the weight, and a sink of 0 adds 1 to the sum",
          "[attention]") {
  const auto with = [](double sink, const ag::Mask& mask = {}) {
    return attend({2}, {1, -1}, {5, 7},
                  {.mask = mask, .sink = Variable(ag::array_of({sink}, {1}))});
  };
  require_close(with(0), {weighted({2, -2}, {5, 7}, 1)});
  require_close(with(1.5), {weighted({2, -2}, {5, 7}, std::exp(1.5))});
  require_close(with(-double(infinity_)), {weighted({2, -2}, {5, 7})});
  require_close(with(1.5, ag::key_lengths({0})), {0});
  const Variable wrong(ag::ones({2}));
  REQUIRE_THROWS_AS(attend({1}, {1}, {1}, {.sink = wrong}), ag::ShapeError);
}

TEST_CASE("the log-sum-exp counts the sink, also where nothing else is visible", "[attention]") {
  const Variable q(row({1})), k(row({2})), v(row({3}));
  const ag::AttentionInputs in{ag::split_heads(q, 1), ag::split_heads(k, 1), ag::split_heads(v, 1)};
  const auto log_sum_exp = [&](auto* kernel, const ag::Mask& mask) {
    return double(kernel(in, {.mask = mask, .scale = 1, .sink = Variable(ag::array_of({1}, {1}))})
                      .log_sum_exp.data()[0]);
  };
  for (auto* kernel : {&ag::flash_attention, &ag::composed_attention}) {
    REQUIRE(std::abs(log_sum_exp(kernel, {}) - std::log(std::exp(2.0) + std::exp(1.0))) < 1e-6);
    REQUIRE(std::abs(log_sum_exp(kernel, ag::key_lengths({0})) - 1) < 1e-6);
  }
}

TEST_CASE("dropout drops the same weights in every kernel and at any number of threads",
          "[attention][threads]") {
  const ThreadsScope restore;
  const auto with = [](auto* kernel, double probability) {
    ag::Rng rng(3, 17);
    return random_attention(kernel, 130,
                            {.mask = ag::causal(), .dropout = probability, .rng = &rng})
        .value();
  };
  const Array composed = with(&ag::composed_attention, 0.4);
  ag::set_threads(1);
  const Array one = with(&ag::flash_attention, 0.4);
  require_close(one, std::vector<double>(composed.begin(), composed.end()), tolerance(1e-13, 1e-5));
  for (const int threads : {2, 3, 8}) {
    ag::set_threads(threads);
    const Array several = with(&ag::flash_attention, 0.4);
    REQUIRE(std::equal(one.begin(), one.end(), several.begin()));
  }
  const Array none = with(&ag::flash_attention, 1);
  REQUIRE(std::all_of(none.begin(), none.end(), [](Real y) { return y == 0; }));
}

TEST_CASE("dropout keeps its share of weights, scaled so that their mean stays", "[attention]") {
  ag::Rng rng(5);
  const std::size_t keys = 4000;
  const Variable q(ag::zeros({1, 8, 1})), k(ag::zeros({1, keys, 1})), v(ag::ones({1, keys, 1}));
  const Array y =
      ag::flash_attention({ag::split_heads(q, 1), ag::split_heads(k, 1), ag::split_heads(v, 1)},
                          {.dropout = 0.25, .rng = &rng})
          .output.value();
  REQUIRE(rng.offset() == 8 * keys / 4);
  for (const Real sum : y) REQUIRE(std::abs(double(sum) - 1) < 0.05);  // five deviations
  REQUIRE(y.data()[0] != y.data()[1]);
}

TEST_CASE("dropout without a generator is none, and a probability above 1 an error",
          "[attention]") {
  const Array plain = random_attention(&ag::flash_attention, 20, {}).value();
  const Array quiet = random_attention(&ag::flash_attention, 20, {.dropout = 0.5}).value();
  REQUIRE(std::equal(plain.begin(), plain.end(), quiet.begin()));
  REQUIRE_THROWS_AS(random_attention(&ag::flash_attention, 20, {.dropout = 1.5}),
                    ag::ArgumentError);
}

TEST_CASE("no step, sink or dropout lets a causal query see what comes later", "[attention][C07]") {
  auto* kernel = GENERATE(&ag::flash_attention, &ag::composed_attention);
  const std::size_t length = GENERATE(4, 100);
  const auto run = [&](double spoil) {
    ag::Rng rng(3);
    const Options options{.mask = ag::causal(),
                          .scores = {ag::soft_cap(3), ag::alibi(ag::alibi_slopes(2)),
                                     ag::bias(Variable(ag::ones({1, 2, length, length})))},
                          .sink = Variable(ag::ones({2})),
                          .dropout = 0.3,
                          .rng = &rng};
    return random_attention(kernel, length, options, spoil).value();
  };
  const Array before = run(0), after = run(100);
  const Real* last = before.data() + (length - 1) * 16;
  REQUIRE(std::equal(before.data(), last, after.data()));
  REQUIRE_FALSE(std::equal(last, last + 16, after.data() + (length - 1) * 16));
}

TEST_CASE("fused_attention says that it has no steps, sinks or dropout", "[attention]") {
  for (const Options& options : {Options{.scores = {ag::soft_cap(1)}},
                                 Options{.sink = Variable(ag::ones({2}))}, Options{.dropout = 0.1}})
    REQUIRE_THROWS_WITH(random_attention(&ag::fused_attention, 4, options),
                        Catch::Matchers::Contains("flash_attention and composed_attention"));
}

TEST_CASE("a bias shared by rows or heads gets its gradient with the same bits on any threads",
          "[attention][threads]") {
  const ThreadsScope restore;
  const ag::Shape shape = GENERATE(ag::Shape{150, 150}, ag::Shape{2, 1, 150, 150},
                                   ag::Shape{1, 2, 150, 150}, ag::Shape{2, 2, 1, 150});
  const auto gradient = [&](int threads) {
    ag::set_threads(threads);
    const Variable b = ag::parameter(random_array(shape, -1, 1, 9)),
                   table = ag::parameter(random_array({2, 31}, -1, 1, 10)),
                   sink = ag::parameter(random_array({2}, -1, 1, 11));
    Tape tape;
    const Variable y = random_attention(&ag::flash_attention, 150,
                                        {.mask = ag::causal(),
                                         .scores = {ag::bias(b), ag::relative_positions(table)},
                                         .sink = sink});
    const ag::Gradients g = tape.gradients(y, Variable(random_array(y.shape(), -1, 1, 12)));
    std::vector<Real> all;
    for (const Variable& p : {b, table, sink})
      all.insert(all.end(), g.of(p).value().begin(), g.of(p).value().end());
    return all;
  };
  const std::vector<Real> one = gradient(1);
  for (const int threads : {2, 3, 8}) REQUIRE(gradient(threads) == one);
}
