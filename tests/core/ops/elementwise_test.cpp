// Functions of one argument: values and slopes against the C++ library in double, special values,
// gradients. Two operands are in elementwise_binary_test.cpp, rules at kinks in
// elementwise_edges_test.cpp.
#include "core/ops/elementwise.hpp"

#include <cmath>
#include <cstring>
#include <numbers>

#include "common/test.hpp"
#include "core/ops/reduce.hpp"

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double epsilon = std::numeric_limits<Real>::epsilon();

// Bounds in epsilons, of max(1, |value|) for slopes and of |value| for values. The vector functions
// of xsimd are good to 1.4 (measured over a million numbers), and a formula rounds a few times
// more. In double the erf of xsimd 8 errs by up to 34.
constexpr double few = 6, as_erf = in_double ? 64 : 6;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double density(double x) {
  return std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}
double bend(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double bent(double x) { return std::tanh(bend(x)); }
// 1 - tanh^2, which would cancel
double bent_slope(double x) { return 1 / (std::cosh(bend(x)) * std::cosh(bend(x))); }

struct Function {
  const char* name;
  Variable (*f)(const Variable&);
  double (*value)(double);
  double (*slope)(double);
  double low, high;    // where values are compared
  double bound = few;  // of the value
  bool by_x = false;   // the value loses digits to a cancellation: bounded by |x| instead
};

// clang-format off
const std::vector<Function> functions{
    {"square", ag::square, [](double x) { return x * x; }, [](double x) { return 2 * x; }, -9, 9},
    {"exp", ag::exp, std::exp, std::exp, -80, 80},
    {"log", ag::log, std::log, [](double x) { return 1 / x; }, 0.1, 9},
    {"log1p", ag::log1p, std::log1p, [](double x) { return 1 / (1 + x); }, -0.5, 0.5},
    {"sqrt", ag::sqrt, std::sqrt, [](double x) { return 0.5 / std::sqrt(x); }, 0.1, 9},
    {"rsqrt", ag::rsqrt, [](double x) { return 1 / std::sqrt(x); },
     [](double x) { return -0.5 / (x * std::sqrt(x)); }, 0.1, 9},
    {"1 / x", [](const Variable& x) { return Real(1) / x; }, [](double x) { return 1 / x; },
     [](double x) { return -1 / (x * x); }, 0.1, 9},
    {"abs", ag::abs, std::abs, [](double x) { return x < 0 ? -1.0 : 1.0; }, -9, 9},
    {"sin", ag::sin, std::sin, std::cos, -100, 100},
    {"cos", ag::cos, std::cos, [](double x) { return -std::sin(x); }, -100, 100},
    {"tanh", ag::tanh, std::tanh, [](double x) { return 1 / (std::cosh(x) * std::cosh(x)); },
     -9, 9},
    {"sigmoid", ag::sigmoid, sigmoid, [](double x) { return sigmoid(x) * sigmoid(-x); }, -30, 30},
    {"erf", ag::erf, std::erf,
     [](double x) { return 2 * std::numbers::inv_sqrtpi * std::exp(-x * x); }, -4, 4, as_erf},
    {"relu", ag::relu, [](double x) { return x < 0 ? 0 : x; },
     [](double x) { return x > 0 ? 1.0 : 0.0; }, -9, 9},
    {"gelu", ag::gelu, [](double x) { return x * normal(x); },
     [](double x) { return normal(x) + x * density(x); }, -9, 9, as_erf, true},
    {"gelu_tanh", ag::gelu_tanh, [](double x) { return 0.5 * x * (1 + bent(x)); },
     [](double x) { return 0.5 * (1 + bent(x)) + 0.5 * x * bent_slope(x) *
                           std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x); },
     -9, 9, few, true},
    {"silu", ag::silu, [](double x) { return x * sigmoid(x); },
     [](double x) { return sigmoid(x) * (1 + x * sigmoid(-x)); }, -30, 30},
    {"softplus", ag::softplus,
     [](double x) { return std::log1p(std::exp(-std::abs(x))) + (x > 0 ? x : 0); },
     sigmoid, -30, 30},
};
// clang-format on

const std::vector<ag::Shape> shapes{{}, {1}, {3}, {2, 1, 3}, {0, 2}, {5}, {37}, {3, 37}};

// f(x) and its gradient for a gradient of ones.
struct Both {
  Array value, slope;
};
Both evaluate(const Function& f, const Array& x) {
  const Variable in = ag::parameter(x);
  Tape tape;
  const Variable y = f.f(in);
  return {y.value(), tape.gradients(y, Variable(ag::ones(x.shape()))).of(in).value()};
}

bool same_bits(Real a, Real b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST_CASE("functions and their slopes are those of the C++ library", "[elementwise]") {
  for (const Function& f : functions)
    for (const ag::Shape& shape : shapes) {
      const Array x = random_array(shape, f.low, f.high);
      const auto [y, slope] = evaluate(f, x);
      REQUIRE(y.shape() == shape);
      REQUIRE(slope.shape() == shape);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double in = double(x.data()[i]), value = f.value(in), gradient = f.slope(in);
        INFO(f.name << " of " << in << ": " << y.data()[i] << ", slope " << slope.data()[i]);
        const double size = f.by_x ? std::abs(in) : std::abs(value);
        CHECK(std::abs(double(y.data()[i]) - value) <= f.bound * epsilon * size);
        CHECK(std::abs(double(slope.data()[i]) - gradient) <=
              f.bound * epsilon * std::max(1.0, std::abs(gradient)));
      }
    }
}

TEST_CASE("the first and second gradients of functions agree with differences", "[elementwise]") {
  for (const Function& f : functions)
    for (const ag::Shape& shape :
         {ag::Shape{}, ag::Shape{2, 1, 3}, ag::Shape{0, 2}, ag::Shape{9}}) {
      INFO(f.name);
      const double low = std::max(f.low, -3.0), high = std::min(f.high, 3.0);
      require_gradients([&](const std::vector<Variable>& in) { return f.f(in[0]); },
                        {random_array(shape, low, high)});
    }
}

TEST_CASE("a slope that is recorded is the slope that is not", "[elementwise]") {
  for (const Function& f : functions) {
    const Array x = random_array({37}, f.low, f.high);
    const Variable in = ag::parameter(x);
    Tape outer, inner;
    const Variable recorded = inner.gradients(ag::sum(f.f(in))).of(in);
    INFO(f.name);
    const Array alone = evaluate(f, x).slope;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double a = double(alone.data()[i]);
      REQUIRE(std::abs(double(recorded.value().data()[i]) - a) <=
              f.bound * epsilon * std::max(1.0, std::abs(a)));
    }
  }
}

TEST_CASE("an element's result does not depend on its place in the array", "[elementwise]") {
  for (const Function& f : functions) {
    const Array x = random_array({53}, f.low, f.high);
    const auto [y, slope] = evaluate(f, x);
    for (std::size_t begin = 0; begin < x.size(); begin += 1 + begin / 8)
      for (const std::size_t count : {std::size_t{1}, x.size() - begin}) {
        if (begin + count > x.size()) continue;
        Array part = ag::zeros({count});
        std::copy_n(x.data() + begin, count, part.data());
        const Both alone = evaluate(f, part);
        for (std::size_t i = 0; i < count; ++i) {
          INFO(f.name << ", element " << begin + i);
          REQUIRE(same_bits(alone.value.data()[i], y.data()[begin + i]));
          REQUIRE(same_bits(alone.slope.data()[i], slope.data()[begin + i]));
        }
      }
  }
}

TEST_CASE("special values give what the C++ library gives", "[elementwise]") {
  const std::vector<double> special{0.0, -0.0, infinity, -infinity, not_a_number, -2, 1};
  for (const Function& f : functions) {
    const bool product = f.by_x || std::string(f.name) == "silu";
    const Array y = f.f(Variable(ag::array_of(special, {special.size()}))).value();
    for (std::size_t i = 0; i < special.size(); ++i) {
      INFO(f.name << " of " << special[i] << ": " << y.data()[i]);
      const double value = double(y.data()[i]);
      // gelu, gelu_tanh and silu are x times a distribution, which at -infinity is infinity times 0
      const double expected =
          product && special[i] == -infinity ? not_a_number : f.value(special[i]);
      if (std::isnan(expected)) {
        CHECK(std::isnan(value));
      } else if (std::isinf(expected) || expected == 0) {
        CHECK(value == expected);
      } else {
        CHECK(std::abs(value - expected) <= f.bound * epsilon * std::abs(expected));
      }
    }
  }
}

TEST_CASE("large arguments overflow to infinity and vanish to zero", "[elementwise]") {
  const double top = in_double ? 1e300 : 1e30;
  const Array x = ag::array_of({top, -top, 1000, -1000}, {4});
  const auto of = [&](Variable (*f)(const Variable&)) { return f(Variable(x)).value(); };
  require_close(of(ag::exp), {infinity, 0, infinity, 0});
  require_close(of(ag::tanh), {1, -1, 1, -1});
  require_close(of(ag::sigmoid), {1, 0, 1, 0});
  require_close(of(ag::silu), {top, 0, 1000, 0});
  require_close(of(ag::gelu), {top, 0, 1000, 0});
  require_close(of(ag::gelu_tanh), {top, 0, 1000, 0});
  require_close(of(ag::softplus), {top, 0, 1000, 0});
  require_close(of(ag::erf), {1, -1, 1, -1});
  for (const Function& f : functions) {
    const std::string name = f.name;
    if (name == "exp" || name == "log" || name == "log1p" || name == "sqrt" || name == "rsqrt")
      continue;
    INFO(name);
    for (const Real slope : evaluate(f, x).slope) REQUIRE(std::isfinite(slope));
  }
}

TEST_CASE("log1p and softplus keep the digits of small numbers", "[elementwise]") {
  const Array x = ag::array_of({1e-10, -1e-10}, {2});
  const Array y = ag::log1p(Variable(x)).value();
  REQUIRE(std::abs(double(y.data()[0]) / 1e-10 - 1) < tolerance(1e-9, 1e-6));
  REQUIRE(std::abs(double(y.data()[1]) / -1e-10 - 1) < tolerance(1e-9, 1e-6));
  const Array small = ag::softplus(Variable(ag::array_of({-20}, {1}))).value();
  REQUIRE(std::abs(double(small.data()[0]) / 2.0611536203143808e-9 - 1) < tolerance(1e-14, 1e-6));
}
