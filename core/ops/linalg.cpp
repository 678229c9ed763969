#include "core/ops/linalg.hpp"

// first, as in kernels/gemm.cpp: without it some releases never call BLAS
#include <xtensor-blas/xblas_config.hpp>
#include <xtensor-blas/xlinalg.hpp>

#include "core/kernels/gemm.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/shape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// LAPACK's order
using Matrix = xt::xtensor<Real, 2, xt::layout_type::column_major>;

Matrix read_matrix(const Real* data, std::size_t rows, std::size_t columns) {
  Matrix matrix = Matrix::from_shape({rows, columns});
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) matrix(i, j) = data[i * columns + j];
  return matrix;
}

void write_matrix(const Matrix& matrix, Real* data) {
  const std::size_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) data[i * columns + j] = matrix(i, j);
}

// The batch axes of a, after checking that its matrices are square.
Shape check_square(const char* op, const Variable& a) {
  check_shape(a.rank() >= 2 && a.size(-1) == a.size(-2), op, ": a must be (..., n, n), got ",
              a.shape());
  return Shape(a.shape().begin(), a.shape().end() - 2);
}

// compute(i) for each matrix of a batch. What xtensor-blas throws has one cause: an exactly zero
// pivot.
template <class Compute>
void for_each_matrix(const char* op, std::size_t count, Compute compute) {
  const kernels::SingleThreadedBlas guard;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      compute(i);
    } catch (const std::runtime_error&) {
      throw ArgumentError(text(op, ": matrix ", i, " of a is singular"));
    }
  }
}

Shape with_matrix(Shape batch, std::size_t rows, std::size_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// a: (..., n, n), b: (..., n, k), of the same batch axes.
Variable solve_batch(const Variable& a, const Variable& b) {
  const std::size_t n = b.size(-2), k = b.size(-1);
  Array y = uninitialized(b.shape());
  for_each_matrix("solve", y.size() == 0 ? 0 : y.size() / (n * k), [&](std::size_t i) {
    const Matrix left = read_matrix(a.value().data() + i * n * n, n, n);
    const Matrix right = read_matrix(b.value().data() + i * n * k, n, k);
    write_matrix(xt::linalg::solve(left, right), y.data() + i * n * k);
  });
  const Variable x(std::move(y));
  return record(
      "solve", x,
      // from a x = b: da x + a dx = db, so b gets a^-T g, and a what b gets times -x^T
      edge(a,
           [a = saved(a), x = saved(x)](const Variable& g) {
             return negate(contract(solve(swap_axes(a()), g), Transpose::no, x(), Transpose::yes));
           }),
      edge(b, [a = saved(a)](const Variable& g) { return solve(swap_axes(a()), g); }));
}

}  // namespace

Variable solve(const Variable& a, const Variable& b) {
  const Shape a_batch = check_square("solve", a);
  const std::size_t n = a.size(-1);
  check_shape(b.rank() > 0 && b.size(b.rank() == 1 ? 0 : -2) == n, "solve: b must have ", n,
              " rows, a is ", a.shape(), ", b is ", b.shape());
  if (b.rank() == 1) return squeeze(solve(a, expand_dims(b, 1)), -1);
  const Shape batch =
      broadcast_shape("solve", a_batch, Shape(b.shape().begin(), b.shape().end() - 2));
  return solve_batch(broadcast_to(a, with_matrix(batch, n, n)),
                     broadcast_to(b, with_matrix(batch, n, b.size(-1))));
}

namespace {

// `op`: who needs it, and is named in errors
Variable inverse_for(const char* op, const Variable& a) {
  check_square(op, a);
  const std::size_t n = a.size(-1);
  Array value = uninitialized(a.shape());
  for_each_matrix(op, value.size() == 0 ? 0 : value.size() / (n * n), [&](std::size_t i) {
    write_matrix(xt::linalg::inv(read_matrix(a.value().data() + i * n * n, n, n)),
                 value.data() + i * n * n);
  });
  const Variable y(std::move(value));
  return record("inverse", y,
                // from a y = 1: dy = -y da y, so the gradient is -y^T g y^T
                edge(a, [y = saved(y)](const Variable& g) {
                  return negate(contract(contract(y(), Transpose::yes, g, Transpose::no),
                                         Transpose::no, y(), Transpose::yes));
                }));
}

}  // namespace

Variable inverse(const Variable& a) { return inverse_for("inverse", a); }

Variable log_determinant(const Variable& a) {
  const Shape batch = check_square("log_determinant", a);
  const std::size_t n = a.size(-1);
  Array y = zeros(batch);  // an empty matrix has determinant 1
  for_each_matrix("log_determinant", n == 0 ? 0 : y.size(), [&](std::size_t i) {
    y.data()[i] = std::get<1>(xt::linalg::slogdet(read_matrix(a.value().data() + i * n * n, n, n)));
  });
  return record("log_determinant", Variable(std::move(y)),
                edge(a, [a = saved(a), matrix = with_matrix(batch, 1, 1)](const Variable& g) {
                  return multiply(reshape(g, matrix),
                                  swap_axes(inverse_for("log_determinant", a())));
                }));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
