#include "core/kernels/strided.hpp"

#include <limits>

namespace attngrad::kernels {

Strides row_major(const Shape& shape) {
  Strides strides(shape.size(), 0);
  std::ptrdiff_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= static_cast<std::ptrdiff_t>(shape[axis]);
  }
  return strides;
}

Strides broadcast_strides(const Shape& shape, const Shape& to) {
  const Strides own = row_major(shape);
  Strides strides(to.size(), 0);
  const std::size_t missing = to.size() - shape.size();
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != 1) strides[missing + axis] = own[axis];
  return strides;
}

namespace {

// A short row is added up here: the call of a kernel would take longer.
template <class T>
double sum_row(const T* x, std::size_t n) {
  if (n >= 16) return vector_kernels<T>().sum(x, n);
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) total += double(x[i]);
  return total;
}

template <class T>
T reduce_row(Reduction how, const T* x, std::size_t n) {
  const VectorKernels<T>& k = vector_kernels<T>();
  switch (how) {
    case Reduction::sum:
      return T(sum_row(x, n));
    case Reduction::mean:
      return T(sum_row(x, n) / double(n));
    case Reduction::max:
      return k.max(x, n);
    default:
      return k.min(x, n);
  }
}

// One long row: partial results of fixed pieces, then those in order.
template <class T>
T reduce_long_row(Reduction how, const T* x, std::size_t n) {
  constexpr std::size_t piece = 4 * task_size;
  const std::size_t pieces = (n + piece - 1) / piece;
  const VectorKernels<T>& k = vector_kernels<T>();
  const bool adds = how == Reduction::sum || how == Reduction::mean;
  std::vector<double> partial(pieces);
  parallel_for(pieces, [&](std::size_t i) {
    const std::size_t count = std::min(piece, n - i * piece);
    partial[i] = adds ? k.sum(x + i * piece, count) : double(reduce_row(how, x + i * piece, count));
  });
  const VectorKernels<double>& wide = vector_kernels<double>();
  if (!adds)
    return T(how == Reduction::max ? wide.max(partial.data(), pieces)
                                   : wide.min(partial.data(), pieces));
  return T(wide.sum(partial.data(), pieces) / (how == Reduction::mean ? double(n) : 1.0));
}

template <class T>
void reduce_rows(Reduction how, const T* x, std::size_t rows, std::size_t n, T* y) {
  if (n > 8 * task_size) {
    for (std::size_t r = 0; r < rows; ++r) y[r] = reduce_long_row(how, x + r * n, n);
    return;
  }
  parallel_chunks(rows, rows_per_task(n), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) y[r] = reduce_row(how, x + r * n, n);
  });
}

// Reduces the middle axis of (rows, width): y[j] over all rows, a piece of rows at a time, then the
// pieces in order.
template <class T>
void reduce_columns(Reduction how, const T* x, std::size_t rows, std::size_t width, T* y) {
  const VectorKernels<T>& k = vector_kernels<T>();
  if (how == Reduction::max || how == Reduction::min) {
    const T worst = how == Reduction::max ? -std::numeric_limits<T>::infinity()
                                          : std::numeric_limits<T>::infinity();
    std::fill_n(y, width, worst);
    const auto loop =
        k.binary[std::size_t(how == Reduction::max ? Binary::maximum : Binary::minimum)];
    for (std::size_t r = 0; r < rows; ++r) loop({y, 1}, {x + r * width, 1}, y, width);
    return;
  }
  const std::size_t piece =
      std::max<std::size_t>(16, 4 * task_size / std::max<std::size_t>(1, width));
  const std::size_t pieces = (rows + piece - 1) / piece;
  std::vector<double> partial(pieces * width, 0.0);
  parallel_for(pieces, [&](std::size_t i) {
    const std::size_t first = i * piece, count = std::min(piece, rows - first);
    k.accumulate_wide(x + first * width, count, partial.data() + i * width, width);
  });
  const double count = how == Reduction::mean ? double(rows) : 1.0;
  for (std::size_t j = 0; j < width; ++j) {
    double total = 0;
    for (std::size_t i = 0; i < pieces; ++i) total += partial[i * width + j];
    y[j] = T(total / count);
  }
}

}  // namespace

template <class T>
void reduce(Reduction how, const Shape& shape, const std::vector<bool>& reduced, const T* x, T* y) {
  // neighbouring axes of the same kind count as one
  std::vector<std::size_t> sizes;
  std::vector<bool> kinds;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    if (!kinds.empty() && kinds.back() == reduced[axis]) {
      sizes.back() *= shape[axis];
    } else {
      sizes.push_back(shape[axis]);
      kinds.push_back(reduced[axis]);
    }
  }
  std::size_t kept = 1, gone = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) (kinds[i] ? gone : kept) *= sizes[i];

  if (gone == 1) {  // nothing to add up: every reduction of one element is that element
    std::copy_n(x, kept, y);
  } else if (kinds == std::vector<bool>{true} || kinds == std::vector<bool>{false, true}) {
    reduce_rows(how, x, kept, gone, y);
  } else if (kinds == std::vector<bool>{true, false} ||
             kinds == std::vector<bool>{false, true, false}) {
    const std::size_t outer = kinds[0] ? 1 : sizes[0], width = sizes.back();
    const auto one = [&](std::size_t i) {
      reduce_columns(how, x + i * gone * width, gone, width, y + i * width);
    };
    constexpr std::size_t many = 16;  // enough to share out; fewer share out their own rows
    parallel_chunks(outer, outer < many ? outer : rows_per_task(gone * width),
                    [&](std::size_t begin, std::size_t end) {
                      for (std::size_t i = begin; i < end; ++i) one(i);
                    });
  } else {  // bring the kept axes to the front
    const Strides strides = row_major(shape);
    Shape front;
    Strides front_strides;
    for (const bool kind : {false, true})
      for (std::size_t axis = 0; axis < shape.size(); ++axis)
        if (reduced[axis] == kind) {
          front.push_back(shape[axis]);
          front_strides.push_back(strides[axis]);
        }
    ArrayOf<T> moved = ArrayOf<T>::from_shape(front);
    copy(front, x, front_strides, moved.data(), row_major(front));
    reduce_rows(how, moved.data(), kept, gone, y);
  }
}

template void reduce(Reduction, const Shape&, const std::vector<bool>&, const float*, float*);
template void reduce(Reduction, const Shape&, const std::vector<bool>&, const double*, double*);

}  // namespace attngrad::kernels
