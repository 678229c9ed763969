#include "core/ops/softmax.hpp"

#include "common/pull_back.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "core/parallel.hpp"

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The numbers expected below are NumPy's for this array.
Array sample() { return ag::array_of({1, 2, 3, -1, 0.5, 4}, {2, 3}); }

std::vector<Array> samples() {
  return {random_array({5}, -3, 3),       random_array({1, 4}), random_array({4, 1}),
          random_array({2, 3, 4}, -3, 3), random_array({2, 0}), random_array({0, 3})};
}

}  // namespace

TEST_CASE("a softmax along either axis equals NumPy's", "[softmax]") {
  const Variable x(sample());
  require_close(ag::softmax(x).value(),
                {0.0900305732, 0.244728471, 0.665240956, 0.00649794332, 0.0291217615, 0.964380295});
  require_close(ag::softmax(x, 0).value(),
                {0.880797078, 0.817574476, 0.268941421, 0.119202922, 0.182425524, 0.731058579});
}

TEST_CASE("a log_softmax along either axis equals NumPy's", "[softmax]") {
  const Variable x(sample());
  require_close(ag::log_softmax(x).value(),
                {-2.40760596, -1.40760596, -0.407605964, -5.03626957, -3.53626957, -0.0362695651});
  require_close(ag::log_softmax(x, 0).value(),
                {-0.126928011, -0.201413278, -1.31326169, -2.12692801, -1.70141328, -0.313261688});
}

TEST_CASE("gradients of softmax and log_softmax match differences along every axis", "[softmax]") {
  for (const Array& x : samples())
    for (std::size_t axis = 0; axis < x.dimension(); ++axis) {
      const auto at = std::ptrdiff_t(axis);
      require_gradients([at](const auto& v) { return ag::softmax(v[0], at); }, {x});
      require_gradients([at](const auto& v) { return ag::log_softmax(v[0], at); }, {x});
    }
}

TEST_CASE("softmax and log_softmax equal their composed forms", "[softmax]") {
  for (const Array& x : {random_array({3, 7}, -4, 4), random_array({2, 5, 40}, -20, 20)})
    for (const std::ptrdiff_t axis : {0, 1, -1}) {
      const ag::Comparison one = ag::compare_functions(
          [&](const auto& v) { return ag::softmax(v[0], axis); },
          [&](const auto& v) { return ag::composed_softmax(v[0], axis); }, {x});
      const ag::Comparison two = ag::compare_functions(
          [&](const auto& v) { return ag::log_softmax(v[0], axis); },
          [&](const auto& v) { return ag::composed_log_softmax(v[0], axis); }, {x});
      CAPTURE(axis, one.value, one.gradient, two.value, two.gradient);
      REQUIRE(std::max(one.value, one.gradient) <= tolerance(1e-14, 2e-6));
      REQUIRE(std::max(two.value, two.gradient) <= tolerance(1e-14, 2e-6));
    }
}

TEST_CASE("a row of -infinity has no weights and passes no gradient on", "[softmax]") {
  const Array x = ag::array_of({-infinity, -infinity, -infinity, 0}, {2, 2});
  const Array g = ag::array_of({3, 5, 7, 11}, {2, 2});
  const auto check = [&](auto rows, const std::vector<double>& y, const std::vector<double>& gx) {
    require_close(rows(Variable(x)).value(), y);
    require_close(pull_back(rows, x, g), gx);
  };
  const std::vector<double> weights{0, 0, 0, 1}, logarithms{-infinity, -infinity, -infinity, 0};
  check([](const Variable& v) { return ag::softmax(v); }, weights, {0, 0, 0, 0});
  check([](const Variable& v) { return ag::composed_softmax(v); }, weights, {0, 0, 0, 0});
  check([](const Variable& v) { return ag::log_softmax(v); }, logarithms, {0, 0, 7, -7});
  check([](const Variable& v) { return ag::composed_log_softmax(v); }, logarithms, {0, 0, 7, -7});
}

TEST_CASE("no second derivative of a softmax of -infinity is NaN", "[softmax]") {
  const Array numbers = ag::array_of({-infinity, -infinity, -infinity, 0}, {2, 2});
  for (const auto f : {&ag::softmax, &ag::log_softmax}) {
    const Variable x = ag::parameter(numbers);
    Tape outer;
    const Variable g = [&] {
      Tape inner;
      return inner.gradients(f(x, -1), ag::constant(random_array({2, 2}))).of(x);
    }();
    const Array twice = outer.gradients(g, ag::constant(random_array({2, 2}))).of(x).value();
    require_close(twice, {0, 0, 0, 0});
  }
}

TEST_CASE("a softmax of nothing or along an absent axis is defined or throws", "[softmax][C103]") {
  for (const ag::Shape& shape :
       {ag::Shape{0}, ag::Shape{0, 2}, ag::Shape{1, 2, 0, 1}, ag::Shape{3, 4, 0}}) {
    const Variable x(ag::zeros(shape));
    REQUIRE(ag::softmax(x).shape() == shape);
    REQUIRE(ag::softmax(x, 0).shape() == shape);
    REQUIRE(ag::log_softmax(x).shape() == shape);
  }
  REQUIRE_THROWS_WITH(ag::softmax(Variable(sample()), 2),
                      "softmax: axis 2 is outside an array of rank 2");
  REQUIRE_THROWS_AS(ag::log_softmax(Variable(Real(1))), ag::ArgumentError);
}

TEST_CASE("gradients of softmax with large logits are finite", "[softmax][C73]") {
  const auto log_rows = [](const Variable& v) { return ag::log_softmax(v); };
  const Array x = ag::array_of({0, -200}, {2});
  require_close(pull_back(log_rows, x, ag::array_of({0, 1}, {2})), {-1, 1});
  const auto total = [](const Variable& v) { return ag::sum(ag::softmax(v)); };
  require_close(pull_back(total, ag::array_of({-1047, -981, 1891}, {3})), {0, 0, 0});
}

TEST_CASE("a composed softmax over two axes adds up to 1 over both", "[softmax]") {
  const Variable x(random_array({2, 3, 4}));
  const Array total = ag::sum(ag::composed_softmax(x, {0, 2}), {0, 2}).value();
  require_close(total, {1, 1, 1});
  REQUIRE_THROWS_AS(ag::composed_softmax(x, 3), ag::ArgumentError);
}

TEST_CASE("the result of a softmax may not be changed before its gradient", "[softmax]") {
  const Variable x = ag::parameter(sample());
  Tape tape;
  Variable y = ag::softmax(x);
  const Variable loss = ag::sum(y);
  y.edit();
  REQUIRE_THROWS_AS(tape.gradients(loss), ag::TapeError);
}

TEST_CASE("softmax has the same bits at any thread count", "[softmax]") {
  const Array x = random_array({500, 130}, -5, 5);
  const int before = ag::threads();
  std::vector<Array> results;
  for (const int count : {1, 2, 8}) {
    ag::set_threads(count);
    results.push_back(
        pull_back([](const Variable& v) { return ag::log_softmax(ag::softmax(v, 0)); }, x, x));
  }
  ag::set_threads(before);
  REQUIRE(std::equal(results[0].begin(), results[0].end(), results[1].begin()));
  REQUIRE(std::equal(results[0].begin(), results[0].end(), results[2].begin()));
}
