#include "core/ops/silu_gate.hpp"

#include "core/kernels/formulas.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/row_pieces.hpp"
#include "core/ops/shape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::Binary;
using kernels::vector_kernels;

constexpr auto silu_formula = formula::Unary::index_of<formula::Silu>();

void multiply(const Real* a, const Real* b, Real* y, std::size_t n) {
  vector_kernels<Real>().binary[int(Binary::multiply)]({a, 1}, {b, 1}, y, n);
}
// a b, and exactly 0 where a is 0
void chain(const Real* a, const Real* b, Real* y, std::size_t n) {
  vector_kernels<Real>().binary[int(Binary::chain)]({a, 1}, {b, 1}, y, n);
}

// The width of a half. x must have rows of even length.
std::size_t half_width(const Variable& x) {
  check_shape(x.rank() > 0 && x.shape().back() % 2 == 0,
              "silu_gate: rows must be of even length, got ", x.shape());
  return x.shape().back() / 2;
}

// Calls body(row) for every row of x.
template <class Body>
void for_each_row(const Variable& x, std::size_t width, const Body& body) {
  const std::size_t rows = width == 0 ? 0 : x.size() / (2 * width);
  parallel_chunks(
      rows, kernels::rows_per_task(width),
      [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row) body(row);
      },
      row_operations(x.size()));
}

Array backward(const Variable& x, std::size_t width, const Array& g) {
  const auto silu_of = vector_kernels<Real>().unary[silu_formula];
  const auto slope_of = vector_kernels<Real>().unary_slope[silu_formula];
  Array gx = uninitialized(x.shape());
  for_each_row(x, width, [&](std::size_t row) {
    const Real *gate = x.value().data() + 2 * row * width, *up = gate + width;
    const Real* gy = g.data() + row * width;
    Real *to_gate = gx.data() + 2 * row * width, *to_up = to_gate + width;
    chain(gy, up, to_up, width);  // for now: what the gate is multiplied by
    slope_of(to_up, gate, to_gate, width);
    silu_of(gate, to_up, width);
    chain(gy, to_up, to_up, width);
  });
  return gx;
}

}  // namespace

Variable silu_gate(const Variable& x) {
  const std::size_t width = half_width(x);
  Shape shape = x.shape();
  shape.back() = width;
  Array y = uninitialized(shape);
  for_each_row(x, width, [&](std::size_t row) {
    const Real* gate = x.value().data() + 2 * row * width;
    Real* to = y.data() + row * width;
    vector_kernels<Real>().unary[silu_formula](gate, to, width);
    multiply(to, gate + width, to, width);
  });
  return record_joint(
      "silu_gate", Variable(std::move(y)), {x},
      [x, width](const Array& g) { return list_of(backward(x, width, g)); },
      [](const std::vector<Variable>& in) { return composed_silu_gate(in[0]); });
}

Variable composed_silu_gate(const Variable& x) {
  const auto width = std::ptrdiff_t(half_width(x));
  return silu(slice(x, -1, {.start = 0, .stop = width})) *
         slice(x, -1, {.start = width, .stop = 2 * width});
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
