#include "layers/attention/masked_product.hpp"

#include "core/kernels/tile.hpp"
#include "core/ops/elementwise.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

bool all_finite(const Array& x) {
  return kernels::tile_kernels<Real>().all_finite(x.data(), x.size(), 1, x.size());
}

// x with zeros where it is hidden
Variable shown(const Variable& x, const Bools& visible) {
  return where(visible, x, Variable(Real(0)));
}

// The matrices of a batch, one after the other: calls visit(matrix, i, j) for every visible entry.
template <class Visit>
void for_each_visible(const Bools& visible, Visit&& visit) {
  const std::size_t rows = visible.shape()[2], columns = visible.shape()[3];
  const std::size_t matrices = visible.shape()[0] * visible.shape()[1];
  const bool* flag = visible.data();
  for (std::size_t m = 0; m < matrices; ++m)
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        if (*flag++) visit(m, i, j);
}

Array product_by_loops(const Array& a, bool transposed, const Array& b, const Bools& visible) {
  const std::size_t rows = visible.shape()[2], columns = visible.shape()[3], width = b.shape()[3];
  const std::size_t out = transposed ? columns : rows, in = transposed ? rows : columns;
  Array y = zeros({visible.shape()[0], visible.shape()[1], out, width});
  for_each_visible(visible, [&](std::size_t m, std::size_t i, std::size_t j) {
    const Real weight = a.data()[(m * rows + i) * columns + j];
    const Real* from = b.data() + (m * in + (transposed ? i : j)) * width;
    Real* to = y.data() + (m * out + (transposed ? j : i)) * width;
    for (std::size_t d = 0; d < width; ++d) to[d] += weight * from[d];
  });
  return y;
}

Array scores_by_loops(const Array& a, const Array& b, const Bools& visible) {
  const std::size_t rows = visible.shape()[2], columns = visible.shape()[3], width = a.shape()[3];
  Array y = zeros(visible.shape());
  for_each_visible(visible, [&](std::size_t m, std::size_t i, std::size_t j) {
    const Real* u = a.data() + (m * rows + i) * width;
    const Real* v = b.data() + (m * columns + j) * width;
    Real total = 0;
    for (std::size_t d = 0; d < width; ++d) total += u[d] * v[d];
    y.data()[(m * rows + i) * columns + j] = total;
  });
  return y;
}

}  // namespace

Variable masked_product(const Variable& a, Transpose transpose, const Variable& b,
                        const Bools& visible) {
  const bool transposed = transpose == Transpose::yes;
  Variable y;
  {
    const Pause forward_only;
    y = all_finite(b.value())
            ? contract(shown(a, visible), transpose, b, Transpose::no)
            : Variable(product_by_loops(a.value(), transposed, b.value(), visible));
  }
  const auto kept = saved(visible);
  return record("masked_product", y,
                edge(a,
                     [b = saved(b), kept, transposed](const Variable& g) {
                       return transposed ? masked_scores(b(), g, *kept)
                                         : masked_scores(g, b(), *kept);
                     }),
                edge(b, [a = saved(a), kept, transposed](const Variable& g) {
                  return masked_product(a(), transposed ? Transpose::no : Transpose::yes, g, *kept);
                }));
}

Variable masked_scores(const Variable& a, const Variable& b, const Bools& visible) {
  Variable y;
  {
    const Pause forward_only;
    y = all_finite(a.value()) && all_finite(b.value())
            ? shown(contract(a, Transpose::no, b, Transpose::yes), visible)
            : Variable(scores_by_loops(a.value(), b.value(), visible));
  }
  const auto kept = saved(visible);
  return record(
      "masked_scores", y,
      edge(a, [b = saved(b),
               kept](const Variable& g) { return masked_product(g, Transpose::no, b(), *kept); }),
      edge(b, [a = saved(a), kept](const Variable& g) {
        return masked_product(g, Transpose::yes, a(), *kept);
      }));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
