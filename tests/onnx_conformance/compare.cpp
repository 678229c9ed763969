#include "onnx_conformance/compare.hpp"

#include <algorithm>
#include <cmath>

namespace conformance {
namespace {

bool agree(double got, double expected, bool exact) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected) || exact) return got == expected;
  return std::abs(got - expected) <= 1e-7 + 1e-3 * std::abs(expected);
}

bool fits(double x, const std::string& type) {
  const int bits = 8 * (type[2] - '0');
  const bool with_sign = type[1] == 'i';
  const double range = std::ldexp(1, with_sign ? bits - 1 : bits);
  return !std::isfinite(x) || (x < range && x >= (with_sign ? -range : 0));
}

// Where the element stands, as (row, column).
Shape place(std::size_t flat, const Shape& shape) {
  Shape at(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0; flat /= shape[axis])
    at[axis] = flat % shape[axis];
  return at;
}

}  // namespace

Comparison compare(const std::string& name, const Value& got, const Tensor& expected) {
  if (!got.present()) return {name + ": no node made it"};
  const Shape shape = expected.value.shape();
  if (got.shape() != shape)
    return {ag::text(name, ": expected the shape ", shape, ", got ", got.shape())};
  const std::vector<double> ours = got.numbers(), wanted = expected.value.numbers();
  std::size_t wrong = 0, first = 0;
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (expected.value.integers() && !fits(ours[i], expected.type))
      throw Skip(ag::text(name, ": ", expected.type, " wraps around at ", ours[i]));
    if (!agree(ours[i], wanted[i], expected.value.integers() || expected.value.flags()))
      if (wrong++ == 0) first = i;
    if (!std::isfinite(wanted[i]) || !std::isfinite(ours[i])) continue;
    largest = std::max(largest, std::abs(wanted[i]));
    difference = std::max(difference, std::abs(ours[i] - wanted[i]));
  }
  Comparison result;
  result.relative = largest > 0 ? difference / largest : difference;
  if (wrong > 0)
    result.failure = ag::text(name, " at ", place(first, shape), ": expected ", wanted[first],
                              ", got ", ours[first], "; ", wrong, " of ", wanted.size(), " differ");
  return result;
}

}  // namespace conformance
