// Elementwise ops of two operands: broadcasting, values, gradients, special values, errors.
#include <cmath>
#include <cstring>

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

struct Op {
  const char* name;
  Variable (*f)(const Variable&, const Variable&);
  Real (*value)(Real, Real);
};

// clang-format off
const std::vector<Op> ops{
    {"add", ag::add, [](Real a, Real b) { return a + b; }},
    {"subtract", ag::subtract, [](Real a, Real b) { return a - b; }},
    {"multiply", ag::multiply, [](Real a, Real b) { return a * b; }},
    {"divide", ag::divide, [](Real a, Real b) { return a / b; }},
    {"pow", ag::pow, [](Real a, Real b) { return std::pow(a, b); }},
    {"maximum", ag::maximum, [](Real a, Real b) { return std::isnan(a) || a > b ? a : b; }},
    {"minimum", ag::minimum, [](Real a, Real b) { return std::isnan(a) || a < b ? a : b; }},
};
// clang-format on

struct Pair {
  ag::Shape a, b, result;
};
const std::vector<Pair> pairs{
    {{}, {}, {}},
    {{3}, {}, {3}},
    {{}, {3}, {3}},
    {{1}, {1, 1}, {1, 1}},
    {{3}, {2, 3}, {2, 3}},
    {{2, 1, 3}, {4, 1}, {2, 4, 3}},
    {{4, 1}, {2, 1, 3}, {2, 4, 3}},
    {{5, 1}, {1, 7}, {5, 7}},
    {{0, 2}, {1}, {0, 2}},
    {{1, 2}, {0, 1}, {0, 2}},
    {{37}, {37}, {37}},
    {{2, 37}, {37}, {2, 37}},
    {{2, 37}, {2, 1}, {2, 37}},
    {{2, 1, 2, 1, 3}, {3, 1, 2, 1}, {2, 3, 2, 2, 3}},
};

// The element of an array of this shape that is used for element `index` of a result.
std::size_t source(const ag::Shape& shape, const ag::Shape& result, std::size_t index) {
  std::size_t at = 0, step = 1;
  for (std::size_t axis = result.size(); axis-- > 0;) {
    const std::size_t i = index % result[axis], missing = result.size() - shape.size();
    index /= result[axis];
    if (axis < missing) continue;
    if (shape[axis - missing] != 1) at += i * step;
    step *= shape[axis - missing];
  }
  return at;
}

bool same_bits(Real a, Real b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST_CASE("two operands broadcast by NumPy's rule", "[elementwise]") {
  for (const Op& op : ops)
    for (const Pair& pair : pairs) {
      const Array a = random_array(pair.a, 0.5, 2), b = random_array(pair.b, 0.5, 2, 8);
      const Array y = op.f(Variable(a), Variable(b)).value();
      INFO(op.name << " of " << ag::text(pair.a, " and ", pair.b));
      REQUIRE(y.shape() == pair.result);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const Real u = a.data()[source(pair.a, pair.result, i)];
        const Real v = b.data()[source(pair.b, pair.result, i)];
        REQUIRE(same_bits(y.data()[i], op.value(u, v)));  // and so at any place in the array
      }
    }
}

TEST_CASE("gradients sum over what was broadcast, to second order", "[elementwise]") {
  for (const Op& op : ops)
    for (const Pair& pair : pairs) {
      if (ag::element_count(pair.result) > 30) continue;
      INFO(op.name << " of " << ag::text(pair.a, " and ", pair.b));
      require_gradients([&](const std::vector<Variable>& in) { return op.f(in[0], in[1]); },
                        {random_array(pair.a, 0.5, 2), random_array(pair.b, 0.5, 2, 8)});
    }
}

TEST_CASE("an operand used on both sides receives both gradients", "[elementwise]") {
  for (const Op& op : ops) {
    if (std::string(op.name).find("imum") != std::string::npos) continue;  // a tie at every element
    INFO(op.name);
    require_gradients([&](const std::vector<Variable>& in) { return op.f(in[0], in[0]); },
                      {random_array({2, 3}, 0.5, 2)});
  }
}

TEST_CASE("special values of two operands give what the C++ language gives", "[elementwise]") {
  const std::vector<double> special{0.0, -0.0, infinity, -infinity, not_a_number, -2, 1, 0.5};
  const std::size_t n = special.size();
  const Array a = ag::array_of(special, {n, 1}), b = ag::array_of(special, {n});
  for (const Op& op : ops) {
    const Array y = op.f(Variable(a), Variable(b)).value();
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        INFO(op.name << " of " << special[i] << " and " << special[j]);
        const Real expected = op.value(a.data()[i], b.data()[j]), value = y.data()[i * n + j];
        REQUIRE(((std::isnan(expected) && std::isnan(value)) || value == expected));
      }
  }
}

TEST_CASE("numbers stand on either side of an operator", "[elementwise]") {
  const Variable x(ag::array_of({1, 2, 4}, {3}));
  require_close((x + 1).value(), {2, 3, 5});
  require_close((1 + x).value(), {2, 3, 5});
  require_close((x - 1).value(), {0, 1, 3});
  require_close((1 - x).value(), {0, -1, -3});
  require_close((x * 3).value(), {3, 6, 12});
  require_close((3 * x).value(), {3, 6, 12});
  require_close((x / 2).value(), {0.5, 1, 2});
  require_close((2 / x).value(), {2, 1, 0.5});
  require_close((1 / x).value(), {1, 0.5, 0.25});
  require_close((-x).value(), {-1, -2, -4});
  require_close(ag::pow(x, 2).value(), {1, 4, 16});
  require_gradients(
      [](const std::vector<Variable>& in) {
        const Variable& v = in[0];
        return (v + 1) * (2 - v) / 3 + (v - Real(0.25)) * 5 + 2 / v - 1 / v + -v + ag::pow(v, 3) +
               ag::pow(v, Real(0.5));
      },
      {random_array({2, 3}, 0.5, 2)});
}

TEST_CASE("a quotient is rounded once, whatever stands above", "[elementwise]") {
  const Real tiny = std::numeric_limits<Real>::denorm_min(), one = 1;
  const Variable x(ag::array_of({double(tiny), 3, 49}, {3}));
  const Array y = (tiny / x).value(), z = (49 / x).value();
  REQUIRE(y.data()[0] == 1);  // 1 / tiny would be infinite
  REQUIRE(z.data()[1] == 49 / (3 * one));
  REQUIRE(z.data()[2] == 1);
}

TEST_CASE("shapes that do not broadcast are named, by every op", "[elementwise][errors]") {
  const Variable a(ag::ones({2, 3})), b(ag::ones({2}));
  for (const Op& op : ops) {
    REQUIRE_THROWS_AS(op.f(a, b), ag::ShapeError);
    REQUIRE_THROWS_WITH(op.f(a, b),
                        std::string(op.name) + ": shapes do not broadcast: a is (2, 3), b is (2)");
  }
  REQUIRE_THROWS_WITH(a + Variable(ag::ones({0, 3})),
                      "add: shapes do not broadcast: a is (2, 3), b is (0, 3)");
}

TEST_CASE("where chooses element by element, and all three broadcast", "[elementwise]") {
  const ag::Bools condition = ag::greater(Variable(ag::array_of({1, -1}, {2, 1})), 0);
  const Variable a(ag::array_of({1, 2, 3}, {3})), b(ag::array_of({10, 20}, {2, 1, 1}));
  const Array y = ag::where(condition, a, b).value();
  REQUIRE(y.shape() == ag::Shape{2, 2, 3});
  require_close(y, {1, 2, 3, 10, 10, 10, 1, 2, 3, 20, 20, 20});
  require_gradients(
      [&](const std::vector<Variable>& in) {
        return ag::where(condition, ag::square(in[0]), ag::exp(in[1])) * in[0];
      },
      {random_array({3}), random_array({2, 1, 1}, -1, 1, 8)});
  require_close(ag::where(condition, Variable(Real(1)), Variable(Real(2))).value(), {1, 2});
  const ag::Bools none = ag::greater(Variable(ag::zeros({0, 2})), 0);
  REQUIRE(ag::where(none, Variable(Real(1)), Variable(Real(2))).shape() == ag::Shape{0, 2});
  REQUIRE_THROWS_WITH(ag::where(condition, a, Variable(ag::ones({2}))),
                      ContainsSubstring("where: shapes do not broadcast"));
}

TEST_CASE("sum_to undoes broadcast_to, and the other way round", "[elementwise]") {
  const Variable x(ag::array_of({1, 2, 3, 4, 5, 6}, {2, 1, 3}));
  const Array wide = ag::broadcast_to(x, {2, 2, 2, 3}).value();
  require_close(wide, {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6, 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  require_close(ag::sum_to(Variable(wide), {2, 1, 3}).value(), {4, 8, 12, 16, 20, 24});
  require_close(ag::sum_to(Variable(wide), {}).value(), {84});
  require_close(ag::sum_to(Variable(wide), {2, 1, 1}).value(), {24, 60});
  require_close(ag::sum_to(Variable(ag::zeros({0, 2})), {1, 2}).value(), {0, 0});
  require_close(ag::sum_to(Variable(ag::zeros({0, 2})), {}).value(), {0});
  REQUIRE(ag::broadcast_to(Variable(Real(1)), {0, 2}).shape() == ag::Shape{0, 2});
  require_gradients(
      [](const std::vector<Variable>& in) {
        return ag::square(ag::broadcast_to(ag::square(in[0]), {2, 2, 3}));
      },
      {random_array({2, 1, 3})});
  require_gradients(
      [](const std::vector<Variable>& in) {
        return ag::square(ag::sum_to(ag::square(in[0]), {2, 1}));
      },
      {random_array({3, 2, 2})});
  REQUIRE_THROWS_WITH(ag::sum_to(x, {2, 2}), ContainsSubstring("sum_to: "));
  REQUIRE_THROWS_WITH(ag::sum_to(x, {1, 2, 1, 3}),
                      "sum_to: (1, 2, 1, 3) does not broadcast to (2, 1, 3)");
  REQUIRE_THROWS_WITH(ag::broadcast_to(x, {2, 1, 1}),
                      "broadcast_to: (2, 1, 3) does not broadcast to (2, 1, 1)");
}
