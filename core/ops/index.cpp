#include "core/ops/index.hpp"

#include <algorithm>
#include <vector>

#include "core/kernels/strided.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::vector_kernels;

// columns whose sums, in double, stay in the first-level cache
constexpr std::size_t piece_width = 256;

// An array as (outer, size, inner) about one of its axes.
struct AxisView {
  std::size_t outer = 1, size = 0, inner = 1;

  AxisView(const Shape& shape, std::size_t axis) : size(shape[axis]) {
    for (std::size_t i = 0; i < axis; ++i) outer *= shape[i];
    for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  }
};

void check_indices(const char* op, const Indices& indices, std::size_t size) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::int64_t index = indices.data()[i];
    check_argument(index >= 0 && static_cast<std::size_t>(index) < size, op,
                   ": index must be in [0, ", size, "), got ", index);
  }
}

// ---- whole rows: take and scatter_add ---------------------------------------------------------

Shape taken_shape(const Shape& shape, std::size_t axis, const Shape& indices) {
  Shape result;
  for (std::size_t i = 0; i < axis; ++i) result.push_back(shape[i]);
  for (const std::size_t size : indices) result.push_back(size);
  for (std::size_t i = axis + 1; i < shape.size(); ++i) result.push_back(shape[i]);
  return result;
}

// The places of the indices, those of equal indices together and in order.
struct Groups {
  std::vector<std::size_t> places;
  struct Group {
    std::size_t index, begin, end;  // of places
  };
  std::vector<Group> groups;

  Groups(const Indices& indices, std::size_t size) : places(indices.size()) {
    std::vector<std::size_t> next(size + 1, 0);
    for (std::size_t i = 0; i < indices.size(); ++i) ++next[std::size_t(indices.data()[i]) + 1];
    for (std::size_t index = 0; index < size; ++index) {
      next[index + 1] += next[index];
      if (next[index] < next[index + 1]) groups.push_back({index, next[index], next[index + 1]});
    }
    for (std::size_t i = 0; i < indices.size(); ++i)
      places[next[std::size_t(indices.data()[i])]++] = i;
  }
};

// y[o, indices[i], :] += updates[o, i, :]. One task owns a row of y, so no order of tasks can
// change a sum.
void add_rows(Array& y, const AxisView& view, const Indices& indices, const Real* updates) {
  const Groups sorted(indices, view.size);
  const std::size_t count = indices.size(), groups = sorted.groups.size(), inner = view.inner;
  if (groups == 0) return;
  parallel_chunks(view.outer * groups, kernels::rows_per_task(inner * count / groups),
                  [&](std::size_t begin, std::size_t end) {
                    double sums[piece_width];
                    for (std::size_t task = begin; task < end; ++task) {
                      const Groups::Group& group = sorted.groups[task % groups];
                      const Real* from = updates + task / groups * count * inner;
                      Real* row = y.data() + (task / groups * view.size + group.index) * inner;
                      for (std::size_t column = 0; column < inner; column += piece_width) {
                        const std::size_t n = std::min(piece_width, inner - column);
                        std::copy_n(row + column, n, sums);
                        for (std::size_t i = group.begin; i < group.end; ++i)
                          vector_kernels<Real>().accumulate_wide(
                              from + sorted.places[i] * inner + column, 1, sums, n);
                        std::transform(sums, sums + n, row + column,
                                       [](double sum) { return Real(sum); });
                      }
                    }
                  });
}

Variable scatter_rows(const char* op, const Shape& shape, const Indices& indices,
                      const Variable& updates, std::size_t axis);

Variable take_rows(const char* op, const Variable& x, const Indices& indices, std::size_t axis) {
  const AxisView view(x.shape(), axis);
  check_indices(op, indices, view.size);
  Array y = uninitialized(taken_shape(x.shape(), axis, indices.shape()));
  const std::size_t count = indices.size(), inner = view.inner;
  parallel_chunks(view.outer * count, kernels::rows_per_task(inner),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t row = begin; row < end; ++row) {
                      const auto index = static_cast<std::size_t>(indices.data()[row % count]);
                      std::copy_n(x.value().data() + (row / count * view.size + index) * inner,
                                  inner, y.data() + row * inner);
                    }
                  });
  return record(op, Variable(std::move(y)),
                edge(x, [op, indices = saved(indices), axis, to = x.shape()](const Variable& g) {
                  return scatter_rows(op, to, *indices, g, axis);
                }));
}

// updates added into zeros
Variable scatter_rows(const char* op, const Shape& shape, const Indices& indices,
                      const Variable& updates, std::size_t axis) {
  Array y = zeros(shape);
  add_rows(y, AxisView(shape, axis), indices, updates.value().data());
  return record(op, Variable(std::move(y)),
                edge(updates, [op, indices = saved(indices), axis](const Variable& g) {
                  return take_rows(op, g, *indices, axis);
                }));
}

// ---- single elements: take_along and scatter_add_along ----------------------------------------

// The axis, after checking that the indices fit an array of this shape.
std::size_t check_lanes(const char* op, const Shape& shape, const Indices& indices,
                        std::ptrdiff_t axis) {
  const std::size_t at = check_axis(op, axis, shape.size());
  Shape expected = shape;
  if (indices.shape().size() == shape.size()) expected[at] = indices.shape()[at];
  check_shape(indices.shape() == expected, op, ": indices may differ from ", shape, " along axis ",
              at, " only, got ", indices.shape());
  check_indices(op, indices, shape[at]);
  return at;
}

// y[o, indices[o, j, i], i] += updates[o, j, i]. A task owns some lanes of y.
void add_elements(Array& y, const AxisView& view, const Indices& indices, const Real* updates) {
  if (y.size() == 0) return;
  const std::size_t inner = view.inner, count = indices.size() / (view.outer * inner);
  const std::size_t pieces = (inner + piece_width - 1) / piece_width;
  parallel_for(view.outer * pieces, [&](std::size_t task) {
    const std::size_t outer = task / pieces, first = task % pieces * piece_width;
    const std::size_t n = std::min(piece_width, inner - first);
    Real* to = y.data() + outer * view.size * inner + first;
    std::vector<double> sums(view.size * n);
    for (std::size_t row = 0; row < view.size; ++row)
      std::copy_n(to + row * inner, n, sums.data() + row * n);
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t from = (outer * count + j) * inner + first;
      for (std::size_t i = 0; i < n; ++i)
        sums[std::size_t(indices.data()[from + i]) * n + i] += double(updates[from + i]);
    }
    for (std::size_t row = 0; row < view.size; ++row)
      for (std::size_t i = 0; i < n; ++i) to[row * inner + i] = Real(sums[row * n + i]);
  });
}

Variable scatter_elements(const Shape& shape, const Indices& indices, const Variable& updates,
                          std::size_t axis) {
  Array y = zeros(shape);
  add_elements(y, AxisView(shape, axis), indices, updates.value().data());
  return record("take_along", Variable(std::move(y)),
                edge(updates, [indices = saved(indices), axis](const Variable& g) {
                  return take_along(g, *indices, static_cast<std::ptrdiff_t>(axis));
                }));
}

}  // namespace

Variable take(const Variable& x, const Indices& indices, std::ptrdiff_t axis) {
  return take_rows("take", x, indices, check_axis("take", axis, x.rank()));
}

Variable embedding(const Variable& weight, const Indices& indices) {
  check_shape(weight.rank() == 2, "embedding: weight must be (rows, width), got ", weight.shape());
  return take_rows("embedding", weight, indices, 0);
}

Variable scatter_add(const Variable& base, const Indices& indices, const Variable& updates,
                     std::ptrdiff_t axis) {
  const std::size_t at = check_axis("scatter_add", axis, base.rank());
  const Shape expected = taken_shape(base.shape(), at, indices.shape());
  check_shape(updates.shape() == expected, "scatter_add: updates must be ", expected, ", got ",
              updates.shape());
  check_indices("scatter_add", indices, base.shape()[at]);
  Array y = base.value();
  add_rows(y, AxisView(base.shape(), at), indices, updates.value().data());
  return record("scatter_add", Variable(std::move(y)),  //
                edge(base, [](const Variable& g) { return g; }),
                edge(updates, [indices = saved(indices), at](const Variable& g) {
                  return take_rows("scatter_add", g, *indices, at);
                }));
}

Variable take_along(const Variable& x, const Indices& indices, std::ptrdiff_t axis) {
  const std::size_t at = check_lanes("take_along", x.shape(), indices, axis);
  const AxisView view(x.shape(), at);
  Array y = uninitialized(indices.shape());
  const std::size_t inner = view.inner, count = indices.shape()[at];
  parallel_chunks(view.outer * count, kernels::rows_per_task(inner),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t row = begin; row < end; ++row) {
                      const Real* from = x.value().data() + row / count * view.size * inner;
                      for (std::size_t i = row * inner, lane = 0; lane < inner; ++i, ++lane)
                        y.data()[i] = from[std::size_t(indices.data()[i]) * inner + lane];
                    }
                  });
  return record("take_along", Variable(std::move(y)),
                edge(x, [indices = saved(indices), at, to = x.shape()](const Variable& g) {
                  return scatter_elements(to, *indices, g, at);
                }));
}

Variable scatter_add_along(const Variable& base, const Indices& indices, const Variable& updates,
                           std::ptrdiff_t axis) {
  const std::size_t at = check_lanes("scatter_add_along", base.shape(), indices, axis);
  check_shape(updates.shape() == indices.shape(), "scatter_add_along: updates must be ",
              indices.shape(), ", got ", updates.shape());
  Array y = base.value();
  add_elements(y, AxisView(base.shape(), at), indices, updates.value().data());
  return record("scatter_add_along", Variable(std::move(y)),  //
                edge(base, [](const Variable& g) { return g; }),
                edge(updates, [indices = saved(indices), at](const Variable& g) {
                  return take_along(g, *indices, static_cast<std::ptrdiff_t>(at));
                }));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
