#include "core/ops/loss.hpp"

#include "common/pull_back.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/index.hpp"
#include "core/ops/shape.hpp"

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

ag::Indices targets_of(const std::vector<std::int64_t>& numbers, const ag::Shape& shape) {
  ag::Indices targets = ag::Indices::from_shape(shape);
  std::copy(numbers.begin(), numbers.end(), targets.data());
  return targets;
}
ag::Indices targets_of(const std::vector<std::int64_t>& numbers) {
  return targets_of(numbers, {numbers.size()});
}

// cross_entropy as a function of logits.
auto loss_for(const ag::Indices& targets, const ag::CrossEntropyOptions& options = {}) {
  return [=](const Variable& x) { return ag::cross_entropy(x, targets, options); };
}

// The numbers expected below are NumPy's for these logits and the targets 2 and 0.
Array sample() { return ag::array_of({1, 2, 3, -1, 0.5, 4}, {2, 3}); }

const ag::CrossEntropyOptions smoothed{.label_smoothing = Real(0.1)};
const ag::CrossEntropyOptions by_row{.reduction = ag::Reduction::none};
const ag::CrossEntropyOptions ignoring{.ignore_index = -100};

}  // namespace

TEST_CASE("cross_entropy equals NumPy's numbers under every reduction", "[loss]") {
  const Variable x(sample());
  const ag::Indices t = targets_of({2, 0});
  require_close(ag::cross_entropy(x, t).value(), {2.72193776});
  require_close(ag::cross_entropy(x, t, {.reduction = ag::Reduction::sum}).value(), {5.44387553});
  require_close(ag::cross_entropy(x, t, by_row).value(), {0.407605964, 5.03626957});
  require_close(ag::cross_entropy(x, t, smoothed).value(), {2.66360443});
}

TEST_CASE("the gradient of cross_entropy is the softmax less the target", "[loss]") {
  const ag::Indices t = targets_of({2, 0});
  require_close(pull_back(loss_for(t), sample()),
                {0.0450152866, 0.122364236, -0.167379522, -0.496751028, 0.0145608808, 0.482190148});
  require_close(
      pull_back(loss_for(t, {.label_smoothing = Real(0.1), .reduction = ag::Reduction::sum}),
                sample()),
      {0.0566972398, 0.211395138, -0.268092378, -0.92683539, -0.0042115718, 0.931046962});
}

TEST_CASE("gradients of cross_entropy match differences", "[loss]") {
  const ag::Indices t = targets_of({2, 0, -100, 3, 1, 1}, {2, 3});
  for (const ag::Reduction how : {ag::Reduction::mean, ag::Reduction::sum, ag::Reduction::none})
    for (const Real smoothing : {Real(0), Real(0.2), Real(1)})
      require_gradients(
          [&](const auto& v) { return ag::cross_entropy(v[0], t, {-100, smoothing, how}); },
          {random_array({2, 3, 4}, -2, 2)});
  require_gradients([](const auto& v) { return ag::cross_entropy(v[0], targets_of({1}, {})); },
                    {random_array({3})});
  require_gradients([](const auto& v) { return ag::cross_entropy(v[0], targets_of({0, 0})); },
                    {random_array({2, 1})});
  require_gradients([](const auto& v) { return ag::cross_entropy(v[0], targets_of({})); },
                    {ag::zeros({0, 3})});
}

TEST_CASE("cross_entropy equals its composed form", "[loss]") {
  ag::Rng rng(3);
  const ag::Indices t = rng.integers(0, 50, {4, 9});
  for (const Real smoothing : {Real(0), Real(0.1)}) {
    const ag::CrossEntropyOptions options{.ignore_index = 7, .label_smoothing = smoothing};
    const ag::Comparison result = ag::compare_functions(
        [&](const auto& v) { return ag::cross_entropy(v[0], t, options); },
        [&](const auto& v) { return ag::composed_cross_entropy(v[0], t, options); },
        {random_array({4, 9, 50}, -5, 5)});
    CAPTURE(result.value, result.gradient);
    REQUIRE(result.value <= tolerance(1e-14, 1e-6));
    REQUIRE(result.gradient <= tolerance(1e-13, 3e-6));
  }
}

TEST_CASE("a class that is ruled out by -infinity costs nothing", "[loss]") {
  const Array x = ag::array_of({-infinity, 0, 0}, {3});
  const ag::Indices t = targets_of({1}, {});
  require_close(ag::cross_entropy(Variable(x), t).value(), {std::log(2.0)});
  require_close(ag::composed_cross_entropy(Variable(x), t).value(), {std::log(2.0)});
  require_close(pull_back(loss_for(t), x), {0, -0.5, 0.5});
}

TEST_CASE("cross_entropy names what does not fit", "[loss]") {
  const Variable x(sample());
  REQUIRE_THROWS_WITH(ag::cross_entropy(x, targets_of({0})),
                      "cross_entropy: targets must be (2), got (1)");
  REQUIRE_THROWS_AS(ag::cross_entropy(Variable(Real(0)), targets_of({0}, {})), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::cross_entropy(x, targets_of({0, 0}), {.label_smoothing = Real(1.5)}),
                    ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::cross_entropy(x, targets_of({0, 0}), {.label_smoothing = Real(NAN)}),
                    ag::ArgumentError);
}

TEST_CASE("mean_square is the mean of squares and wants equal shapes", "[loss]") {
  const Variable a(ag::array_of({1, 2, 3}, {3})), b(ag::array_of({1, 0, 6}, {3}));
  require_close(ag::mean_square(a, b).value(), {13.0 / 3});
  require_gradients([](const auto& v) { return ag::mean_square(v[0], v[1]); },
                    {random_array({2, 3}), random_array({2, 3}, -1, 1, 9)});
  REQUIRE_THROWS_WITH(ag::mean_square(a, Variable(ag::zeros({3, 1}))),
                      "mean_square: shapes differ: prediction is (3), target is (3, 1)");
}

// ---- cases ------------------------------------------------------------------------------------

TEST_CASE("cross_entropy of large logits is exact", "[loss][C73]") {
  const Array x = ag::array_of({-431, 279, 427}, {3});
  const auto loss = loss_for(targets_of({0}, {}));
  require_close(loss(Variable(x)).value(), {858});
  const Array g = pull_back(loss, x);
  require_close(g, {-1, 0, 1});
  if (in_double) REQUIRE(std::abs(double(g.data()[1]) / 5.3e-65 - 1) < 0.02);
}

TEST_CASE("logits that are all very low or high are shifted, not clamped", "[loss][C74]") {
  for (const double logit : {-200.0, 200.0, -1e30, 1e30}) {
    const Array x = ag::filled({4}, Real(logit));
    const auto loss = loss_for(targets_of({0}, {}));
    CAPTURE(logit);
    require_close(loss(Variable(x)).value(), {1.386294});
    require_close(pull_back(loss, x), {-0.75, 0.25, 0.25, 0.25});
  }
}

TEST_CASE("large logits lose no digits of the gradient", "[loss][C74]") {
  const ag::Indices t = targets_of({1}, {});
  const Array small = ag::array_of({0, 1, 3}, {3}), large = ag::array_of({8192, 8193, 8195}, {3});
  const Array expected = pull_back(loss_for(t), small), g = pull_back(loss_for(t), large);
  REQUIRE(ag::relative_difference(g, expected) <= tolerance(1e-15, 3e-7));
  REQUIRE(ag::relative_difference(ag::cross_entropy(Variable(large), t).value(),
                                  ag::cross_entropy(Variable(small), t).value()) <=
          tolerance(1e-15, 1e-7));
}

TEST_CASE("a loss whose targets are all ignored is 0 and moves nothing", "[loss][C75]") {
  for (const auto f : {&ag::cross_entropy, &ag::composed_cross_entropy}) {
    Variable w = ag::parameter(ag::zeros({2, 3}));
    Tape tape;
    const Variable loss = f(w, targets_of({-100, -100}), ignoring);
    REQUIRE(loss.item() == 0);
    const Variable g = tape.gradients(loss).of(w);
    require_close(g.value(), {0, 0, 0, 0, 0, 0}, 0);
    w.assign((w - g * Real(0.1)).value());
    require_close(w.value(), {0, 0, 0, 0, 0, 0}, 0);
  }
}

TEST_CASE("an ignored row counts nothing, even if it is NaN", "[loss][C75]") {
  const Array x = ag::array_of({1, 2, 3, NAN, NAN, NAN}, {2, 3});
  const ag::Indices t = targets_of({2, -100});
  require_close(ag::cross_entropy(Variable(x), t, ignoring).value(), {0.407605964});
  require_close(pull_back(loss_for(t, ignoring), x),
                {0.0900305732, 0.244728471, -0.334759044, 0, 0, 0});
}

TEST_CASE("a target outside the classes throws", "[loss][C77]") {
  const Variable x(ag::zeros({2, 100}));
  for (const std::int64_t label : {1000, 100, -1})
    REQUIRE_THROWS_WITH(ag::cross_entropy(x, targets_of({0, label})),
                        "cross_entropy: target " + std::to_string(label) + " is outside [0, 100)");
  REQUIRE_THROWS_AS(ag::cross_entropy(x, targets_of({0, -1}), ignoring), ag::ArgumentError);
}

TEST_CASE("an ignored class stays in the softmax of other rows", "[loss][C79]") {
  const Variable x(ag::array_of({0, 1, 1}, {1, 3}));
  require_close(ag::cross_entropy(x, targets_of({1}), {.ignore_index = 0}).value(), {0.861995});
}

TEST_CASE("a target counts as often as its weight says, and one without weight as if it were not",
          "[loss]") {
  const Array x = random_array({5, 4}, -2, 2);
  const ag::Indices targets{3, 0, 1, 2, 2};
  const ag::CrossEntropyOptions weighted{.weights = ag::array_of({2.0, 0.0, 1.0, 0.0, 1.0}, {5})};
  for (const auto reduction : {ag::Reduction::mean, ag::Reduction::sum}) {
    ag::CrossEntropyOptions options = weighted;
    options.reduction = reduction;
    const Variable logits = ag::parameter(x);
    Tape tape;
    const Variable loss = ag::cross_entropy(logits, targets, options);
    const Array g = tape.gradients(loss).of(logits).value();
    // the same rows, the first of them twice
    const Variable twice = ag::take(Variable(x), ag::Indices{0, 0, 2, 4});
    const Variable same =
        ag::cross_entropy(twice, ag::Indices{3, 3, 1, 2}, {.reduction = reduction});
    require_close(loss.value(), {double(same.item())}, tolerance(1e-14, 1e-6));
    for (const std::size_t row : {1, 3})
      for (std::size_t j = 0; j < 4; ++j) REQUIRE(g.data()[row * 4 + j] == 0);
    require_close(loss.value(),
                  {double(ag::composed_cross_entropy(logits, targets, options).item())},
                  tolerance(1e-14, 1e-6));
  }
  require_gradients(
      [&](const std::vector<Variable>& in) { return ag::cross_entropy(in[0], targets, weighted); },
      {x});
}

TEST_CASE("a target without weight counts nothing, even if its logits are NaN", "[loss]") {
  Array x = random_array({2, 3});
  x.data()[0] = std::numeric_limits<Real>::quiet_NaN();
  const Variable logits = ag::parameter(x);
  Tape tape;
  const Variable loss =
      ag::cross_entropy(logits, ag::Indices{7, 1}, {.weights = ag::array_of({0.0, 0.5}, {2})});
  REQUIRE(std::isfinite(loss.item()));
  require_close(ag::slice(tape.gradients(loss).of(logits), 0, {.start = 0, .stop = 1}).value(),
                {0, 0, 0}, 0);
}

TEST_CASE("weights of a loss are finite, not negative, and one for each target", "[loss][errors]") {
  const Variable logits(random_array({2, 3}));
  const ag::Indices targets{0, 1};
  const auto loss = [&](const Array& weights) {
    return ag::cross_entropy(logits, targets, {.weights = weights});
  };
  REQUIRE_THROWS_AS(loss(ag::array_of({1.0}, {1})), ag::ShapeError);
  REQUIRE_THROWS_AS(loss(ag::array_of({1.0, -1.0}, {2})), ag::ArgumentError);
  REQUIRE_THROWS_AS(loss(ag::array_of({1.0, INFINITY}, {2})), ag::ArgumentError);
  require_close(loss(ag::array_of({0.0, 0.0}, {2})).value(), {0}, 0);
}
