// The indices that the composed form of a score function is called with: those of all scores at
// once.
#pragma once

#include <concepts>

#include "core/ops/elementwise.hpp"
#include "core/ops/index.hpp"
#include "core/ops/shape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// An index of all scores at once: (batch, heads, queries, keys), 1 along the axes it is the same
// for.
struct IndexGrid {
  Indices of;

  IndexGrid(std::size_t count, std::size_t axis) {
    Shape shape{1, 1, 1, 1};
    shape[axis] = count;
    of = Indices::from_shape(shape);
    for (std::size_t i = 0; i < count; ++i) of.data()[i] = std::int64_t(i);
  }
  explicit IndexGrid(Indices indices) : of(std::move(indices)) {}
  template <std::integral T>
  IndexGrid(T x) : of(Indices::from_shape({1, 1, 1, 1})) {  // NOLINT: one for every score
    of.data()[0] = std::int64_t(x);
  }
  operator Variable() const {
    const Indices& indices = of;
    return Variable(Array(xt::cast<Real>(indices)));
  }
};

// Two grids, or one and an integer.
template <class A, class B>
concept IndexGrids =
    (std::same_as<A, IndexGrid> && (std::same_as<B, IndexGrid> || std::integral<B>)) ||
    (std::integral<A> && std::same_as<B, IndexGrid>);
template <class F, class A, class B>
IndexGrid map_grids(F f, const A& a, const B& b) {
  const IndexGrid x(a), y(b);
  return IndexGrid(Indices(f(x.of, y.of)));
}
template <class A, class B>
  requires IndexGrids<A, B>
IndexGrid operator+(const A& a, const B& b) {
  return map_grids([](const auto& x, const auto& y) { return x + y; }, a, b);
}
template <class A, class B>
  requires IndexGrids<A, B>
IndexGrid operator-(const A& a, const B& b) {
  return map_grids([](const auto& x, const auto& y) { return x - y; }, a, b);
}
template <class A, class B>
  requires IndexGrids<A, B>
IndexGrid operator*(const A& a, const B& b) {
  return map_grids([](const auto& x, const auto& y) { return x * y; }, a, b);
}
template <class A, class B>
  requires IndexGrids<A, B>
IndexGrid minimum(const A& a, const B& b) {
  return map_grids([](const auto& x, const auto& y) { return xt::minimum(x, y); }, a, b);
}
template <class A, class B>
  requires IndexGrids<A, B>
IndexGrid maximum(const A& a, const B& b) {
  return map_grids([](const auto& x, const auto& y) { return xt::maximum(x, y); }, a, b);
}
inline IndexGrid abs(const IndexGrid& x) { return maximum(x, 0 - x); }
inline IndexGrid clamp(const IndexGrid& x, std::ptrdiff_t low, std::ptrdiff_t high) {
  return minimum(maximum(x, low), high);
}

class GridParameters {
 public:
  explicit GridParameters(const std::vector<Variable>& parameters) : parameters_(parameters) {}

  auto operator[](std::size_t parameter) const {
    return [x = parameters_.at(parameter)](const auto&... indices) {
      IndexGrid at(0);
      std::size_t axis = 0;
      ((at = at * std::ptrdiff_t(x.shape()[axis++]) + IndexGrid(indices)), ...);
      return take(flatten(x), at.of, 0);
    };
  }

 private:
  const std::vector<Variable>& parameters_;
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
