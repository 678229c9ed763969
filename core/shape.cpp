// The parts of array.hpp that do not depend on the precision.
#include <algorithm>
#include <limits>

#include "core/array.hpp"

namespace attngrad {

std::size_t element_count(const Shape& shape) {
  std::size_t count = 1;
  bool empty = false, too_large = false;
  for (const std::size_t size : shape) {
    empty = empty || size == 0;
    too_large =
        too_large || (size != 0 && count > std::numeric_limits<std::size_t>::max() / 8 / size);
    count *= size == 0 ? 1 : size;
  }
  check_shape(!too_large, "shape: ", shape, " has more elements than memory has places");
  return empty ? 0 : count;
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  Shape shape(std::max(a.size(), b.size()), 1);
  std::copy(a.begin(), a.end(), shape.end() - static_cast<std::ptrdiff_t>(a.size()));
  for (std::size_t i = 0; i < b.size(); ++i) {
    std::size_t& size = shape[shape.size() - b.size() + i];
    check_shape(size == b[i] || size == 1 || b[i] == 1, op, ": shapes do not broadcast: a is ", a,
                ", b is ", b);
    if (size == 1) size = b[i];
  }
  return shape;
}

std::size_t check_axis(const char* op, std::ptrdiff_t axis, std::size_t rank) {
  const auto n = static_cast<std::ptrdiff_t>(rank);
  check_argument(-n <= axis && axis < n, op, ": axis ", axis, " is outside an array of rank ",
                 rank);
  return static_cast<std::size_t>(axis < 0 ? axis + n : axis);
}

std::vector<bool> Axes::flags(const char* op, std::size_t rank) const {
  if (!axes_) return std::vector<bool>(rank, true);
  std::vector<bool> flags(rank, false);
  for (const std::ptrdiff_t axis : *axes_) {
    const std::size_t at = check_axis(op, axis, rank);
    check_argument(!flags[at], op, ": axis ", axis, " is named twice");
    flags[at] = true;
  }
  return flags;
}

}  // namespace attngrad
