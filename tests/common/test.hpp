// What every test file includes: Catch2 in either major version, and the comparisons the tests use.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& part) { return Contains(part); }
}  // namespace Catch::Matchers
#endif

#include "core/gradcheck.hpp"
#include "core/tape.hpp"

namespace ag = attngrad;
using ag::Array;
using ag::Real;
using ag::Tape;
using ag::Variable;
using Catch::Matchers::ContainsSubstring;

inline constexpr bool in_double = std::is_same_v<Real, double>;

// A bound on rounding: `in double` where the suite runs in double, else the looser one.
inline double tolerance(double for_double, double for_float) {
  return in_double ? for_double : for_float;
}

inline std::vector<double> numbers(const Array& x) { return {x.begin(), x.end()}; }

// Every element of x is within `bound` of the number expected, relative to max(1, |expected|); NaN
// equals NaN.
inline void require_close(const Array& x, const std::vector<double>& expected, double bound) {
  REQUIRE(x.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i, x.data()[i], expected[i]);
    const double value = double(x.data()[i]);
    if (std::isnan(expected[i])) {
      REQUIRE(std::isnan(value));
    } else if (std::isinf(expected[i])) {
      REQUIRE(value == expected[i]);
    } else {
      REQUIRE(std::abs(value - expected[i]) <= bound * std::max(1.0, std::abs(expected[i])));
    }
  }
}
// The same with six digits, as numbers are printed in reports.
inline void require_close(const Array& x, const std::vector<double>& expected) {
  require_close(x, expected, tolerance(1.5e-6, 5e-6));
}

// Numbers drawn evenly from [low, high): the same in both precisions.
inline Array random_array(const ag::Shape& shape, double low = -1, double high = 1,
                          std::uint64_t seed = 7) {
  ag::Rng rng(seed);
  return ag::uniform(rng, shape, low, high);
}

// First and second order in double; in float the first, with wide steps, which find mistakes and
// not rounding.
inline void require_gradients(const ag::Function& f, const std::vector<Array>& inputs,
                              int order = 2) {
  ag::GradcheckOptions options;
  options.order = in_double ? order : 1;
  options.step = in_double ? 1e-5 : 1e-2;
  options.tolerance = in_double ? 1e-6 : 2e-2;
  const ag::GradcheckResult result = ag::gradcheck(f, inputs, options);
  INFO(result.message);
  REQUIRE(result.passed);
}
