#include "core/array.hpp"

#include <algorithm>

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

Array filled(const Shape& shape, Real value) {
  Array array = uninitialized(shape);
  std::fill_n(array.data(), array.size(), value);
  return array;
}

Array array_of(const std::vector<double>& numbers, const Shape& shape) {
  check_shape(numbers.size() == element_count(shape), "array_of: shape ", shape, " needs ",
              element_count(shape), " numbers, got ", numbers.size());
  Array array = uninitialized(shape);
  std::transform(numbers.begin(), numbers.end(), array.data(), [](double x) { return Real(x); });
  return array;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
