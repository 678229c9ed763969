#include "core/ops/softmax.hpp"

#include <limits>
#include <numeric>

#include "core/kernels/formulas.hpp"
#include "core/kernels/rows.hpp"
#include "core/kernels/strided.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::row_kernels;
using kernels::vector_kernels;

constexpr Real minus_infinity = -std::numeric_limits<Real>::infinity();

// x with one axis and the last exchanged, which is its own inverse.
Array swap_with_last(const Array& x, std::size_t axis) {
  Shape shape = x.shape();
  kernels::Strides strides = kernels::row_major(shape);
  std::swap(shape[axis], shape.back());
  std::swap(strides[axis], strides.back());
  Array y = uninitialized(shape);
  kernels::copy(shape, x.data(), strides, y.data(), kernels::row_major(shape));
  return y;
}

// Calls row(inputs..., y, n) for every row along the axis, in parallel; the inputs are shaped
// alike, and so is y.
template <class Row, class... Arrays>
Array map_rows(std::size_t axis, Row row, const Array& x, const Arrays&... more) {
  if (axis + 1 != x.dimension()) {
    const std::size_t last = x.dimension() - 1;
    return swap_with_last(
        map_rows(last, row, swap_with_last(x, axis), swap_with_last(more, axis)...), axis);
  }
  Array y = uninitialized(x.shape());
  if (y.size() == 0) return y;
  const std::size_t n = x.shape()[axis];
  const std::size_t grain = kernels::rows_per_task(n);
  parallel_chunks(y.size() / n, grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin * n; i < end * n; i += n)
      row(x.data() + i, (more.data() + i)..., y.data() + i, n);
  });
  return y;
}

void log_softmax_row(const Real* x, Real* y, std::size_t n) {
  const kernels::LogSumExp total = row_kernels<Real>().log_sum_exp(x, n);
  const double top = total.top == minus_infinity ? 0 : total.top;
  for (std::size_t i = 0; i < n; ++i) y[i] = Real(double(x[i]) - top - total.log_total);
}

// Each entry also lowers all others through their common sum, in proportion to its probability
// exp(y).
void log_softmax_backward_row(const Real* y, const Real* g, Real* gx, std::size_t n) {
  const kernels::VectorKernels<Real>& k = vector_kernels<Real>();
  if (k.max(y, n) == minus_infinity) return void(std::fill_n(gx, n, Real(0)));
  const Real total = Real(k.sum(g, n));
  k.unary[formula::Unary::index_of<formula::Exp>()](y, gx, n);
  for (std::size_t i = 0; i < n; ++i) gx[i] = g[i] - gx[i] * total;
}

// x less its largest element along the axes, or as it is where that is -infinity.
Variable shifted(const Variable& x, const Axes& axes) {
  const Variable top = max(detach(x), axes, keep_dims);
  const Bools none = xt::equal(top.value(), minus_infinity);
  return x - where(none, Variable(Real(0)), top);
}

// total, or 1 where nothing was there to add up: no other sum of powers is 0.
Variable sum_or_one(const Variable& powers, const Axes& axes) {
  const Variable total = sum(powers, axes, keep_dims);
  const Bools none = xt::equal(total.value(), Real(0));
  return where(none, Variable(Real(1)), total);
}

}  // namespace

Variable softmax(const Variable& x, std::ptrdiff_t axis) {
  const std::size_t along = check_axis("softmax", axis, x.rank());
  const auto forward = [](const Real* x, Real* y, std::size_t n) {
    row_kernels<Real>().softmax(x, y, n);
  };
  const Variable y(map_rows(along, forward, x.value()));

  return record_joint(
      "softmax", y, {x},
      [along, y = saved(y)](const Array& g) {
        const auto backward = row_kernels<Real>().softmax_backward;
        return list_of(map_rows(along, backward, y().value(), g));
      },
      [axis](const std::vector<Variable>& in) { return composed_softmax(in[0], axis); });
}

Variable log_softmax(const Variable& x, std::ptrdiff_t axis) {
  const std::size_t along = check_axis("log_softmax", axis, x.rank());
  const Variable y(map_rows(along, log_softmax_row, x.value()));

  return record_joint(
      "log_softmax", y, {x},
      [along, y = saved(y)](const Array& g) {
        return list_of(map_rows(along, log_softmax_backward_row, y().value(), g));
      },
      [axis](const std::vector<Variable>& in) { return composed_log_softmax(in[0], axis); });
}

Variable composed_softmax(const Variable& x, const Axes& axes) {
  axes.flags("softmax", x.rank());
  if (x.size() == 0) return exp(x);  // an empty row has no largest element
  const Variable powers = exp(shifted(x, axes));
  return powers / sum_or_one(powers, axes);
}

Variable composed_log_softmax(const Variable& x, const Axes& axes) {
  axes.flags("log_softmax", x.rank());
  if (x.size() == 0) return exp(x);
  const Variable from_top = shifted(x, axes), powers = exp(from_top);
  const Bools none = xt::equal(sum(detach(powers), axes, keep_dims).value(), Real(0));
  return where(none, Variable(minus_infinity), from_top - log(sum_or_one(powers, axes)));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
