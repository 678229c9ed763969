#include "core/gradcheck.hpp"

#include <limits>

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace {

// x^2 with a slope of `factor` times x, which is right for 2, and a second derivative of its own.
Variable squared(const Variable& x, Real factor, bool linear_slope = true) {
  Variable y;
  {
    ag::Pause pause;
    y = Variable((x * x).value());
  }
  return ag::record("squared", y, ag::edge(x, [x, factor, linear_slope](const Variable& g) {
                      return g * (linear_slope ? x : ag::detach(x)) * factor;
                    }));
}

ag::GradcheckResult check(const ag::Function& f, const std::vector<Array>& inputs, int order = 1) {
  ag::GradcheckOptions options;
  options.order = order;
  options.step = tolerance(1e-5, 1e-2);
  options.tolerance = tolerance(1e-7, 1e-2);
  return ag::gradcheck(f, inputs, options);
}

}  // namespace

TEST_CASE("a right gradient passes, a wrong one is named with both numbers", "[gradcheck]") {
  const std::vector<Array> inputs{random_array({2}, 0.5, 1)};
  REQUIRE(check([](const auto& in) { return squared(in[0], 2); }, inputs, 2).passed);
  const auto wrong = check([](const auto& in) { return squared(in[0], 3); }, inputs);
  REQUIRE_FALSE(wrong.passed);
  REQUIRE(wrong.worst > 0.1);
  REQUIRE_THAT(wrong.message, ContainsSubstring("the gradient of input 0 of shape (2), element "));
}

TEST_CASE("a wrong second derivative fails at order 2 only", "[gradcheck]") {
  const std::vector<Array> inputs{random_array({2}, 0.5, 1)};
  const ag::Function f = [](const auto& in) { return squared(in[0], 2, false); };
  REQUIRE(check(f, inputs, 1).passed);
  const auto result = check(f, inputs, 2);
  REQUIRE_FALSE(result.passed);
  REQUIRE_THAT(result.message, ContainsSubstring("the second derivative of input 0"));
}

TEST_CASE("a gradient that is only right for equal output weights fails", "[gradcheck]") {
  const ag::Function mixed = [](const auto& in) {
    return ag::record("mixed", Variable(in[0].value()), ag::edge(in[0], [](const Variable& g) {
                        return ag::broadcast_to(ag::mean(g), g.shape());
                      }));
  };
  REQUIRE_FALSE(check(mixed, {random_array({3})}).passed);
}

TEST_CASE("NaN in a gradient fails", "[gradcheck]") {
  const ag::Function f = [](const auto& in) {
    return ag::record("broken", Variable(in[0].value()), ag::edge(in[0], [](const Variable& g) {
                        return g * std::numeric_limits<Real>::quiet_NaN();
                      }));
  };
  REQUIRE_FALSE(check(f, {random_array({3})}).passed);
}

TEST_CASE("functions without elements, or of several inputs, are checked too", "[gradcheck]") {
  REQUIRE(check([](const auto& in) { return ag::exp(in[0]); }, {ag::zeros({0, 2})}, 2).passed);
  REQUIRE(check([](const auto&) { return Variable(Real(1)); }, {random_array({2})}).passed);
  const auto result = check([](const auto& in) { return in[0] * squared(in[1], 3); },
                            {random_array({2}, 0.5, 1), random_array({2}, 0.5, 1)});
  REQUIRE_THAT(result.message, ContainsSubstring("input 1"));
}

TEST_CASE("gradcheck knows orders 1 and 2", "[gradcheck][errors]") {
  REQUIRE_THROWS_WITH(check([](const auto& in) { return in[0]; }, {ag::ones({1})}, 3),
                      "gradcheck: order must be 1 or 2, got 3");
}

TEST_CASE("a relative difference is of the largest element", "[gradcheck]") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  const auto difference = [](std::vector<double> a, std::vector<double> b) {
    return ag::relative_difference(ag::array_of(a, {a.size()}), ag::array_of(b, {b.size()}));
  };
  REQUIRE(difference({1, 4}, {2, 4}) == 0.25);
  REQUIRE(difference({0, 0}, {0, 0}) == 0);
  REQUIRE(difference({}, {}) == 0);
  REQUIRE(difference({1}, {0}) == infinity);
  REQUIRE(difference({not_a_number, 1}, {not_a_number, 1}) == 0);
  REQUIRE(difference({not_a_number}, {1}) == infinity);
  REQUIRE(difference({infinity, 1}, {infinity, 1}) == 0);
  REQUIRE(difference({infinity}, {-infinity}) == infinity);
  REQUIRE(difference({infinity, 1}, {2, 1}) == infinity);
  REQUIRE(difference({1}, {infinity}) == infinity);
  REQUIRE_THROWS_AS(difference({1}, {1, 2}), ag::ShapeError);
}

TEST_CASE("two forms of a function are compared by values and by gradients", "[gradcheck]") {
  const std::vector<Array> inputs{random_array({3}, 0.5, 1)};
  const ag::Function plain = [](const auto& in) { return in[0] * in[0]; };
  const auto good =
      ag::compare_functions([](const auto& in) { return squared(in[0], 2); }, plain, inputs);
  REQUIRE(good.value == 0);
  REQUIRE(good.gradient < tolerance(1e-15, 1e-6));
  const auto bad =
      ag::compare_functions([](const auto& in) { return squared(in[0], 3); }, plain, inputs);
  REQUIRE(bad.value == 0);
  REQUIRE(bad.gradient > 0.4);
}
