#include "core/array.hpp"

#include <algorithm>

#include "core/parallel.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

Array filled(const Shape& shape, Real value) {
  Array array = uninitialized(shape);
  constexpr std::size_t grain = 1 << 16;
  parallel_chunks(
      array.size(), grain,
      [&](std::size_t begin, std::size_t end) {
        std::fill(array.data() + begin, array.data() + end, value);
      },
      8.0 * double(array.size()));  // a store outside of the cache takes as long as 8 operations
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
