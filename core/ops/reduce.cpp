#include "core/ops/reduce.hpp"

#include <cmath>

#include "core/kernels/rows.hpp"
#include "core/kernels/strided.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/softmax.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::row_kernels;
using kernels::Strides;
using kernels::vector_kernels;

// Which axes of what go, and what is left.
struct Reduced {
  Shape from, to;
  std::vector<bool> gone;

  Reduced(const char* op, const Variable& x, const Axes& axes, Dims dims)
      : from(x.shape()), gone(axes.flags(op, x.rank())) {
    for (std::size_t axis = 0; axis < from.size(); ++axis) {
      if (!gone[axis]) to.push_back(from[axis]);
      if (gone[axis] && dims == Dims::keep) to.push_back(1);
    }
  }

  // How many elements become one.
  std::size_t count() const {
    std::size_t n = 1;
    for (std::size_t axis = 0; axis < from.size(); ++axis)
      if (gone[axis]) n *= from[axis];
    return n;
  }

  // Strides that read the result as if it were shaped like x.
  Strides spread_strides() const {
    Strides strides(from.size(), 0);
    std::ptrdiff_t stride = 1;
    for (std::size_t axis = from.size(); axis-- > 0;) {
      if (gone[axis]) continue;
      strides[axis] = stride;
      stride *= static_cast<std::ptrdiff_t>(from[axis]);
    }
    return strides;
  }
};

Array reduce_value(kernels::Reduction how, const Reduced& r, const Array& x) {
  Array y = uninitialized(r.to);
  kernels::reduce(how, r.from, r.gone, x.data(), y.data());
  return y;
}

Variable spread(const Variable& g, const Reduced& r);

Variable sum_reduced(const Variable& x, const Reduced& r) {
  Variable y(reduce_value(kernels::Reduction::sum, r, x.value()));
  return record("sum", y, edge(x, [r](const Variable& g) { return spread(g, r); }));
}

// Each element of a result at the places of all that it was made of: the derivative of a sum, and
// back.
Variable spread(const Variable& g, const Reduced& r) {
  Array y = uninitialized(r.from);
  kernels::copy(r.from, g.value().data(), r.spread_strides(), y.data(), kernels::row_major(r.from));
  return record("spread", Variable(std::move(y)),
                edge(g, [r](const Variable& u) { return sum_reduced(u, r); }));
}

// The share of the gradient that each element gets of the extreme one y: 1 over the number of ties
// there, or 0.
Variable share_of_extreme(const Variable& x, const Variable& y, const Reduced& r) {
  const Array extreme = spread(detach(y), r).value();
  Array ties = uninitialized(r.from);
  for (std::size_t i = 0; i < ties.size(); ++i) {
    const Real v = x.value().data()[i], e = extreme.data()[i];
    ties.data()[i] = Real(v == e || (std::isnan(v) && std::isnan(e)));
  }
  const Variable tied(std::move(ties));
  return tied / spread(sum_reduced(tied, r), r);
}

Variable extreme(const char* op, kernels::Reduction how, const Variable& x, const Axes& axes,
                 Dims dims) {
  const Reduced r(op, x, axes, dims);
  check_argument(r.count() > 0 || element_count(r.to) == 0, op,
                 ": there is no element to choose from, x is ", x.shape());
  Variable y(reduce_value(how, r, x.value()));
  return record(op, y, edge(x, [r, x = saved(x), y = saved(y)](const Variable& g) {
                  return chain(spread(g, r), share_of_extreme(x(), y(), r));
                }));
}

// x with the reduced axes moved to the back.
Array gone_axes_last(const Array& x, const Reduced& r) {
  const Strides strides = kernels::row_major(r.from);
  Shape shape;
  Strides moved;
  for (const bool gone : {false, true})
    for (std::size_t axis = 0; axis < r.from.size(); ++axis)
      if (r.gone[axis] == gone) {
        shape.push_back(r.from[axis]);
        moved.push_back(strides[axis]);
      }
  Array y = uninitialized(shape);
  kernels::copy(shape, x.data(), moved, y.data(), kernels::row_major(shape));
  return y;
}

Array log_sum_exp_value(const Array& x, const Reduced& r) {
  const Array rows = gone_axes_last(x, r);
  Array y = uninitialized(r.to);
  const std::size_t n = r.count();
  parallel_chunks(y.size(), kernels::rows_per_task(n), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      y.data()[i] = Real(row_kernels<Real>().log_sum_exp(rows.data() + i * n, n).sum());
  });
  return y;
}

enum class Direction { forward, backward };
Direction flip(Direction d) {
  return d == Direction::forward ? Direction::backward : Direction::forward;
}

// Sums along the middle axis of (outer, n, inner), from either end.
Array running_sums(const Array& x, std::size_t axis, Direction direction) {
  Array y = uninitialized(x.shape());
  const std::size_t n = x.shape()[axis];
  std::size_t inner = 1;
  for (std::size_t a = axis + 1; a < x.dimension(); ++a) inner *= x.shape()[a];
  if (y.size() == 0) return y;
  const std::size_t grain = kernels::rows_per_task(n * inner);
  parallel_chunks(y.size() / (n * inner), grain, [&](std::size_t begin, std::size_t end) {
    std::vector<double> totals(inner);
    for (std::size_t outer = begin; outer < end; ++outer) {
      std::fill(totals.begin(), totals.end(), 0.0);
      for (std::size_t step = 0; step < n; ++step) {
        const std::size_t i = direction == Direction::forward ? step : n - 1 - step;
        const std::size_t row = (outer * n + i) * inner;
        for (std::size_t j = 0; j < inner; ++j)
          y.data()[row + j] = Real(totals[j] += double(x.data()[row + j]));
      }
    }
  });
  return y;
}

// An element is part of every sum from it on, so its gradient is the sum of theirs, taken from the
// other end.
Variable running_sum(const Variable& x, std::size_t axis, Direction direction) {
  Variable y(running_sums(x.value(), axis, direction));
  return record("cumsum", y, edge(x, [axis, direction](const Variable& g) {
                  return running_sum(g, axis, flip(direction));
                }));
}

}  // namespace

Variable sum(const Variable& x, const Axes& axes, Dims dims) {
  return sum_reduced(x, Reduced("sum", x, axes, dims));
}

Variable mean(const Variable& x, const Axes& axes, Dims dims) {
  const Reduced r("mean", x, axes, dims);
  Variable y(reduce_value(kernels::Reduction::mean, r, x.value()));
  return record("mean", y, edge(x, [r](const Variable& g) {
                  return spread(multiply(g, Real(1.0 / double(r.count()))), r);
                }));
}

Variable variance(const Variable& x, const Axes& axes, Dims dims, Real correction) {
  check_argument(correction >= 0, "variance: correction must not be negative, got ", correction);
  const Reduced r("variance", x, axes, dims);
  const double freedom = std::max(0.0, double(r.count()) - double(correction));
  const Variable centred = x - mean(x, axes, Dims::keep);
  return sum_reduced(square(centred), r) / Real(freedom);
}

Variable max(const Variable& x, const Axes& axes, Dims dims) {
  return extreme("max", kernels::Reduction::max, x, axes, dims);
}

Variable min(const Variable& x, const Axes& axes, Dims dims) {
  return extreme("min", kernels::Reduction::min, x, axes, dims);
}

Variable logsumexp(const Variable& x, const Axes& axes, Dims dims) {
  const Reduced r("logsumexp", x, axes, dims);
  Variable y(log_sum_exp_value(x.value(), r));
  // each element counts by its weight in the softmax, which is made anew: exp(x - y) loses digits
  // where y is large
  return record("logsumexp", y, edge(x, [r, axes, x = saved(x)](const Variable& g) {
                  return chain(spread(g, r), composed_softmax(x(), axes));
                }));
}

Variable cumsum(const Variable& x, std::ptrdiff_t axis) {
  return running_sum(x, check_axis("cumsum", axis, x.rank()), Direction::forward);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
