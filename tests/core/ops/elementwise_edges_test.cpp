// Where derivatives have corners, poles and branches: the conventions, one by one.
#include <cmath>

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// The gradient of sum(f(x)).
template <class F>
Array gradient(F f, const std::vector<double>& at) {
  const Variable x = ag::parameter(ag::array_of(at, {at.size()}));
  Tape tape;
  return tape.gradients(ag::sum(f(x))).of(x).value();
}
// The gradient of sum(gradient of f), x by x: second derivatives of a function of one argument.
template <class F>
Array second(F f, const std::vector<double>& at) {
  return gradient(
      [&](const Variable& x) {
        Tape inner;
        return inner.gradients(ag::sum(f(x))).of(x);
      },
      at);
}

Variable zero() { return Variable(Real(0)); }
ag::Bools at_zero(const Variable& x) {
  ag::Bools same = ag::greater(x, 0);
  for (std::size_t i = 0; i < same.size(); ++i) same.data()[i] = x.value().data()[i] == 0;
  return same;
}

}  // namespace

TEST_CASE("the branch that where did not take cannot poison the one it took",
          "[elementwise][C39]") {
  const auto log2 = [](const Variable& x) { return ag::log(x) / Real(std::log(2.0)); };
  require_close(
      gradient([&](const Variable& x) { return ag::where(ag::greater(x, 2), log2(x), 2 * x); },
               {0, 2, 3}),
      {2, 2, 0.480898});
  require_close(
      gradient([&](const Variable& x) { return ag::where(at_zero(x), zero(), x * ag::sqrt(x)); },
               {0}),
      {0});
  const auto root_or_self = [](const Variable& x) {
    return ag::where(ag::greater(x, 0), ag::sqrt(x), x);
  };
  require_close(gradient(root_or_self, {-1, -4}), {1, 1});
  require_close(second(root_or_self, {-1, -4, 0}), {0, 0, 0});
}

TEST_CASE("sqrt at zero has the slope of pow, and none in a product that is zero",
          "[elementwise][C42]") {
  require_close(gradient([](const Variable& x) { return 0 * ag::sqrt(x); }, {0}), {0});
  require_close(gradient([](const Variable& x) { return ag::sqrt(x); }, {0}), {infinity});
  require_close(gradient([](const Variable& x) { return ag::pow(x, Real(0.5)); }, {0}), {infinity});
  require_close(gradient([](const Variable& x) { return ag::pow(x, Real(0.5 + 1e-16)); }, {0}),
                {infinity});
  require_close(gradient([](const Variable& x) { return ag::pow(x, Variable(Real(0.5))); }, {0}),
                {infinity});
}

TEST_CASE("pow has its gradients at bases of zero and below", "[elementwise][C43]") {
  const Variable a = ag::parameter(ag::array_of({0, 2}, {2})), b = ag::parameter(ag::ones({2}));
  Tape tape;
  const ag::Gradients gradients = tape.gradients(ag::sum(ag::pow(a, b)));
  require_close(gradients.of(b).value(), {0, 1.386294});
  require_close(gradients.of(a).value(), {1, 1});
  // by a number and by a variable
  const auto check = [](double power, const std::vector<double>& at,
                        const std::vector<double>& slope) {
    require_close(gradient([&](const Variable& x) { return ag::pow(x, Real(power)); }, at), slope);
    require_close(
        gradient([&](const Variable& x) { return ag::pow(x, Variable(Real(power))); }, at), slope);
  };
  check(2, {0, -2}, {0, -4});
  check(3, {-2}, {12});
  check(1, {0, -2}, {1, 1});
  check(0, {0, -2, 3}, {0, 0, 0});
  check(0.5, {-2}, {not_a_number});
  require_close(second([](const Variable& x) { return ag::pow(x, 2); }, {0, -2}), {2, 2});
  require_close(second([](const Variable& x) { return ag::pow(x, 1); }, {0, -2}), {0, 0});
  require_close(second([](const Variable& x) { return ag::pow(x, Variable(Real(2))); }, {0, -2}),
                {2, 2});
}

TEST_CASE("at a kink the slope is the documented one, from both zeros", "[elementwise][C45]") {
  require_close(gradient([](const Variable& x) { return ag::relu(x); }, {0.0, -0.0, 1}), {0, 0, 1});
  require_close(gradient([](const Variable& x) { return ag::abs(x); }, {0.0, -0.0, -3}),
                {0, 0, -1});
  require_close(
      gradient([](const Variable& x) { return ag::clamp(x, 0, 6); }, {0.0, -0.0, 6, 7, -1, 3}),
      {1, 1, 1, 0, 0, 1});
  require_close(
      gradient([](const Variable& x) { return ag::maximum(x, zero()); }, {0.0, -0.0, 1, -1}),
      {0.5, 0.5, 1, 0});
  require_close(
      gradient([](const Variable& x) { return ag::minimum(x, zero()); }, {0.0, -0.0, 1, -1}),
      {0.5, 0.5, 0, 1});
  require_close(gradient([](const Variable& x) { return ag::maximum(x, x); }, {2}), {1});
  // recorded, so by the other way a slope is computed
  for (const auto f : {ag::relu, ag::abs})
    require_close(second([f](const Variable& x) { return f(x) * x; }, {0.0, -0.0, 1}), {0, 0, 2});
}

TEST_CASE("softplus neither overflows nor gives NaN when most wrong", "[elementwise][C49]") {
  const auto softplus = [](const Variable& x) { return ag::softplus(x); };
  const Array y = softplus(Variable(ag::array_of({20, 50, 100, -100}, {4}))).value();
  const Array g = gradient(softplus, {20, 50, 100, -100});
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(std::abs(double(y.data()[i]) - (i == 0 ? 20 : i == 1 ? 50 : 100)) < 1e-5);
    REQUIRE(std::abs(double(g.data()[i]) - 1) < 1e-5);
  }
  REQUIRE((y.data()[3] >= 0 && y.data()[3] <= Real(4e-44)));
  REQUIRE((g.data()[3] >= 0 && g.data()[3] <= Real(4e-44)));
  // the loss of a logit x whose target is 1: softplus(x) - x
  const auto loss = [](const Variable& x) { return ag::softplus(x) - x; };
  require_close(loss(Variable(ag::array_of({-100}, {1}))).value(), {100});
  require_close(gradient(loss, {-100}), {-1});
  require_close(second(softplus, {-1000, 1000, 0}), {0, 0, 0.25});
}

TEST_CASE("a result does not refer to numbers that were local to its function",
          "[elementwise][C98]") {
  const auto wave = [](const Variable& d) {
    const Real scale = Real(0.01), c = Real(2 * 3.14159265358979323846) * scale;
    return ag::square(ag::sin(d * c));
  };
  const Variable y = wave(Variable(ag::array_of({1, 2, 3, 4, 4, 3, 2, 1}, {8})));
  require_close(y.value(), {0.00394264917, 0.0157084187, 0.0351117555, 0.0618466573, 0.0618466573,
                            0.0351117555, 0.0157084187, 0.00394264917});
}

TEST_CASE("a gradient of exactly zero stays zero through any slope", "[elementwise]") {
  const auto through = [](Variable (*f)(const Variable&)) {
    return gradient([f](const Variable& x) { return f(x) * Real(0); },
                    {0, infinity, not_a_number, -1});
  };
  for (const auto f : {ag::log, ag::sqrt, ag::rsqrt, ag::log1p, ag::exp, ag::square})
    require_close(through(f), {0, 0, 0, 0});
  const auto huge = [](const Variable& x) { return x * Real(infinity) * zero(); };
  require_close(gradient(huge, {1, 2}), {0, 0});
  require_close(gradient([](const Variable& x) { return (1 / x) * zero(); }, {0, not_a_number}),
                {0, 0});
  require_close(
      gradient([](const Variable& x) { return (x / zero()) * zero(); }, {0, not_a_number}), {0, 0});
}

TEST_CASE("chain multiplies, broadcasts, and lets zero win", "[elementwise]") {
  const Variable g(ag::array_of({0, 2, -3}, {3})), slope(ag::array_of({not_a_number, 5}, {2, 1}));
  require_close(ag::chain(g, slope).value(), {0, not_a_number, not_a_number, 0, 10, -15});
  require_gradients([](const std::vector<Variable>& in) { return ag::chain(in[0], in[1]); },
                    {random_array({2, 3}, 0.5, 1), random_array({3})});
}

TEST_CASE("clamp keeps to its bounds, lets NaN through and rejects bounds in the wrong order",
          "[elementwise]") {
  const auto clamp = [](std::vector<double> x, double low, double high) {
    return ag::clamp(Variable(ag::array_of(x, {x.size()})), Real(low), Real(high)).value();
  };
  require_close(clamp({-5, 0, 5, infinity, -infinity, not_a_number}, -1, 2),
                {-1, 0, 2, 2, -1, not_a_number});
  require_close(clamp({-5, 5}, 1, 1), {1, 1});
  REQUIRE(clamp({}, 0, 1).size() == 0);
  REQUIRE_THROWS_AS(clamp({1}, 2, 1), ag::ArgumentError);
  REQUIRE_THROWS_WITH(clamp({1}, 2, 1), "clamp: low must not exceed high, got 2 and 1");
  REQUIRE_THROWS_AS(clamp({1}, not_a_number, 1), ag::ArgumentError);
  require_gradients(
      [](const std::vector<Variable>& in) { return ag::clamp(ag::square(in[0]), 1, 3); },
      {ag::array_of({0.3, 1.5, 2.5}, {3})});
}

TEST_CASE("step and sign have slope zero", "[elementwise]") {
  const Variable x(ag::array_of({-2, -0.0, 0, 3, not_a_number}, {5}));
  require_close(ag::step(x).value(), {0, 0, 0, 1, 0});
  require_close(ag::sign(x).value(), {-1, 0, 0, 1, 0});
  require_close(gradient([](const Variable& v) { return ag::step(v) * v + ag::sign(v); }, {-2, 3}),
                {0, 1});
}
