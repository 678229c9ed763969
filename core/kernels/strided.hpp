// Loops over arrays of any rank whose operands have strides of their own: copies, broadcasts and
// reductions.
//
// Axes that lie behind each other in memory for every operand are merged first, so the inner loop
// is as long as the data allows, and pieces run in parallel, cut by the shape alone.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "core/array.hpp"
#include "core/kernels/vector.hpp"
#include "core/parallel.hpp"

namespace attngrad::kernels {

using Strides = ArrayOf<double>::strides_type;

// Elements that are worth a task of their own.
inline constexpr std::size_t task_size = 16384;

// Rows of n elements that are worth a task of their own.
inline std::size_t rows_per_task(std::size_t n) {
  return std::max<std::size_t>(1, task_size / std::max<std::size_t>(1, n));
}

// Strides, in elements, of a row-major array of this shape.
Strides row_major(const Shape& shape);
// The same for an array that is broadcast to `to`: 0 along every stretched axis.
Strides broadcast_strides(const Shape& shape, const Shape& to);

// Walks N operands over one shape.
template <std::size_t N>
class StridedLoop {
 public:
  StridedLoop(const Shape& shape, std::array<Strides, N> strides) {
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == 1) continue;
      std::array<std::ptrdiff_t, N> steps;
      for (std::size_t k = 0; k < N; ++k) steps[k] = strides[k][axis];
      if (!sizes_.empty() && merges(shape[axis], steps)) {
        sizes_.back() *= shape[axis];
        steps_.back() = steps;
      } else {
        sizes_.push_back(shape[axis]);
        steps_.push_back(steps);
      }
    }
    if (sizes_.empty()) {
      sizes_.push_back(1);
      steps_.push_back({});
    }
    inner_ = sizes_.back();
    for (std::size_t axis = 0; axis + 1 < sizes_.size(); ++axis) rows_ *= sizes_[axis];
  }

  // Calls row(offsets, steps, n) until all is done: n elements from `offsets` on, `steps` apart,
  // one of each per operand.
  template <class Row>
  void run(Row&& row) const {
    if (rows_ == 0 || inner_ == 0) return;
    const std::size_t pieces = (inner_ + task_size - 1) / task_size;
    const std::size_t grain = rows_per_task(inner_);
    parallel_chunks(rows_ * pieces, grain, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        std::array<std::ptrdiff_t, N> offsets = row_offsets(i / pieces);
        const std::size_t first = i % pieces * task_size;
        for (std::size_t k = 0; k < N; ++k)
          offsets[k] += static_cast<std::ptrdiff_t>(first) * steps_.back()[k];
        row(offsets, steps_.back(), std::min(task_size, inner_ - first));
      }
    });
  }

 private:
  bool merges(std::size_t size, const std::array<std::ptrdiff_t, N>& steps) const {
    for (std::size_t k = 0; k < N; ++k)
      if (steps_.back()[k] != steps[k] * static_cast<std::ptrdiff_t>(size)) return false;
    return true;
  }

  std::array<std::ptrdiff_t, N> row_offsets(std::size_t row) const {
    std::array<std::ptrdiff_t, N> offsets{};
    for (std::size_t axis = sizes_.size() - 1; axis-- > 0;) {
      const auto index = static_cast<std::ptrdiff_t>(row % sizes_[axis]);
      row /= sizes_[axis];
      for (std::size_t k = 0; k < N; ++k) offsets[k] += index * steps_[axis][k];
    }
    return offsets;
  }

  std::vector<std::size_t> sizes_;
  std::vector<std::array<std::ptrdiff_t, N>> steps_;
  std::size_t rows_ = 1, inner_ = 1;
};

// y[i] += x[i] for i < n.
template <class T>
void add_into(const T* x, T* y, std::size_t n) {
  const auto loop = vector_kernels<T>().accumulate;
  parallel_chunks(n, task_size, [&](std::size_t begin, std::size_t end) {
    loop(x + begin, y + begin, end - begin);
  });
}

// Writes every element of x, seen through its strides, to its place in y.
template <class T>
void copy(const Shape& shape, const T* x, const Strides& x_strides, T* y,
          const Strides& y_strides) {
  StridedLoop<2>(shape, {x_strides, y_strides}).run([&](auto offsets, auto steps, std::size_t n) {
    const T* from = x + offsets[0];
    T* to = y + offsets[1];
    if (steps[0] == 1 && steps[1] == 1) {
      std::copy_n(from, n, to);
    } else {
      for (std::size_t i = 0; i < n; ++i)
        to[std::ptrdiff_t(i) * steps[1]] = from[std::ptrdiff_t(i) * steps[0]];
    }
  });
}

// y = a op b, both broadcast to `shape`; y is row-major.
template <class T>
void binary(Binary op, const Shape& shape, const T* a, const Strides& a_strides, const T* b,
            const Strides& b_strides, T* y) {
  const auto loop = vector_kernels<T>().binary[std::size_t(op)];
  StridedLoop<3>(shape, {a_strides, b_strides, row_major(shape)})
      .run([&](auto offsets, auto steps, std::size_t n) {
        loop({a + offsets[0], std::size_t(steps[0])}, {b + offsets[1], std::size_t(steps[1])},
             y + offsets[2], n);
      });
}

enum class Reduction { sum, mean, max, min };

// Reduces the axes of x (row-major) whose flag is set; y holds the other axes, row-major. Sums run
// in double, pairwise. max and min of nothing are -infinity and infinity; NaN stays.
template <class T>
void reduce(Reduction how, const Shape& shape, const std::vector<bool>& reduced, const T* x, T* y);

}  // namespace attngrad::kernels
