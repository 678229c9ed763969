// Array, Indices, Bools and Shape: the only header that names xtensor's containers.
//
// Arrays are xtensor's xarray, row-major, with storage from the pool. Integer positions and targets
// are Indices, masks are Bools; neither is ever Real.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#if __has_include(<xtensor/containers/xarray.hpp>)  // xtensor >= 0.26
#include <xtensor/containers/xarray.hpp>
#else
#include <xtensor/xarray.hpp>
#endif

#include "core/errors.hpp"
#include "core/pool.hpp"
#include "core/precision.hpp"

namespace attngrad {

template <class T>
using ArrayOf = xt::xarray<T, xt::layout_type::row_major, PoolAllocator<T>>;
using Indices = ArrayOf<std::int64_t>;
using Bools = ArrayOf<bool>;
using Shape = Indices::shape_type;

// The number of elements of an array of this shape; 1 for rank 0. Throws ShapeError if the sizes
// multiply to more than memory could hold.
std::size_t element_count(const Shape& shape);

// The shape that a and b broadcast to by NumPy's rule (aligned at the last axis; 1 stretches).
// Throws ShapeError, naming `op`, where neither fits the other.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

// `axis` counted from the front; -1 is the last axis. Throws ArgumentError, naming `op`, outside
// [-rank, rank).
std::size_t check_axis(const char* op, std::ptrdiff_t axis, std::size_t rank);

// A set of axes: one, a list, or (made from nothing) all of them.
class Axes {
 public:
  Axes() = default;
  Axes(std::ptrdiff_t axis) : axes_{{axis}} {}
  Axes(int axis) : Axes(std::ptrdiff_t{axis}) {}
  Axes(std::initializer_list<std::ptrdiff_t> axes) : axes_{axes} {}
  Axes(std::vector<std::ptrdiff_t> axes) : axes_{std::move(axes)} {}

  // One flag for each axis of an array of this rank. Throws ArgumentError for an axis outside it or
  // named twice.
  std::vector<bool> flags(const char* op, std::size_t rank) const;

 private:
  std::optional<std::vector<std::ptrdiff_t>> axes_;
};

// Whether a reduced axis stays, with size 1, or goes.
enum class Dims { drop, keep };
inline constexpr Dims keep_dims = Dims::keep;

inline namespace ATTNGRAD_PRECISION {

using Array = ArrayOf<Real>;

// An array whose elements are not yet set: for a kernel that writes every one of them. Throws
// ShapeError if the sizes multiply to more than memory could hold.
inline Array uninitialized(const Shape& shape) {
  element_count(shape);
  return Array::from_shape(shape);
}
Array filled(const Shape& shape, Real value);
inline Array zeros(const Shape& shape) { return filled(shape, 0); }
inline Array ones(const Shape& shape) { return filled(shape, 1); }

// The arrays given, as a list. Moves them, where std::vector's own braces would copy.
template <class... Arrays>
std::vector<Array> list_of(Arrays&&... arrays) {
  std::vector<Array> list;
  list.reserve(sizeof...(arrays));
  (list.push_back(std::forward<Arrays>(arrays)), ...);
  return list;
}

// The numbers given, in row-major order. Throws ShapeError unless there are as many as the shape
// holds.
Array array_of(const std::vector<double>& numbers, const Shape& shape);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
