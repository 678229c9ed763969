#include "core/ops/matmul.hpp"

#include "core/kernels/gemm.hpp"
#include "core/kernels/strided.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::MatrixView;
using kernels::ProductSizes;

Shape batch_shape(const Variable& x) { return Shape(x.shape().begin(), x.shape().end() - 2); }

// One factor of a product: its matrices as they are read, and where each of them lies.
struct Factor {
  const Real* data;
  std::size_t rows, columns;  // as read
  MatrixView<Real> view;
  Shape batch;

  Factor(const Variable& x, Transpose transpose) : data(x.value().data()), batch(batch_shape(x)) {
    const std::size_t stored_rows = x.size(-2), stored_columns = x.size(-1);
    const bool flip = transpose == Transpose::yes;
    rows = flip ? stored_columns : stored_rows;
    columns = flip ? stored_rows : stored_columns;
    view = {data, std::max<std::size_t>(1, stored_columns), flip};
  }
};

// The offset of each matrix of x in a batch that x's own batch axes broadcast to.
std::vector<std::size_t> matrix_offsets(const Factor& x, const Shape& batch) {
  const kernels::Strides strides = kernels::broadcast_strides(x.batch, batch);
  std::vector<std::size_t> offsets(element_count(batch), 0);
  std::size_t repeat = offsets.size();
  for (std::size_t axis = 0; axis < batch.size() && repeat > 0; ++axis) {
    repeat /= batch[axis];
    for (std::size_t i = 0; i < offsets.size(); ++i)
      offsets[i] +=
          i / repeat % batch[axis] * static_cast<std::size_t>(strides[axis]) * x.rows * x.columns;
  }
  return offsets;
}

// All products of a batch, each to its own matrix of y; row: null, or added to every row of y.
void multiply_each(ProductSizes sizes, const Factor& a, const Factor& b, const Shape& batch,
                   Array& y, const Real* row = nullptr) {
  // rows of all matrices of a can be one tall matrix when b is the same for all of them
  if (element_count(b.batch) == 1 && !a.view.transposed && a.batch == batch) {
    const ProductSizes tall{sizes.rows * element_count(batch), sizes.columns, sizes.inner};
    kernels::gemm_batch<Real>(tall, a.view, b.view, sizes.columns, {{a.data, b.data, y.data()}},
                              row);
    return;
  }
  const auto a_at = matrix_offsets(a, batch), b_at = matrix_offsets(b, batch);
  std::vector<kernels::Product<Real>> products(a_at.size());
  for (std::size_t i = 0; i < products.size(); ++i)
    products[i] = {a.data + a_at[i], b.data + b_at[i], y.data() + i * sizes.rows * sizes.columns};
  kernels::gemm_batch<Real>(sizes, a.view, b.view, sizes.columns, products, row);
}

// All products of a batch, added into one matrix.
void multiply_sum(ProductSizes sizes, const Factor& a, const Factor& b, const Shape& batch,
                  Array& y) {
  // a^T b summed over the batch is one product of tall matrices
  if (a.view.transposed && !b.view.transposed && a.batch == batch && b.batch == batch) {
    const ProductSizes tall{sizes.rows, sizes.columns, sizes.inner * element_count(batch)};
    kernels::gemm_batch<Real>(tall, a.view, b.view, sizes.columns, {{a.data, b.data, y.data()}});
    return;
  }
  std::fill_n(y.data(), y.size(), Real(0));
  const auto a_at = matrix_offsets(a, batch), b_at = matrix_offsets(b, batch);
  for (std::size_t i = 0; i < a_at.size(); ++i)
    kernels::gemm_batch_add<Real>(sizes, a.view, b.view, sizes.columns,
                                  {{a.data + a_at[i], b.data + b_at[i], y.data()}});
}

Transpose flip(Transpose t) { return t == Transpose::no ? Transpose::yes : Transpose::no; }

// A gradient in the shape of its operand: summed over the axes along which the operand was
// stretched.
Variable contract_to(const Shape& shape, const Variable& a, Transpose ta, const Variable& b,
                     Transpose tb) {
  if (shape.size() == 2 && (a.rank() > 2 || b.rank() > 2))
    return contract(a, ta, b, tb, Batch::sum);
  const Variable each = contract(a, ta, b, tb);
  // of a product summed over the batch, every matrix of the operand gets the same
  return sum_to(broadcast_to(each, broadcast_shape("matmul", each.shape(), shape)), shape);
}

}  // namespace

Variable contract(const Variable& a, Transpose ta, const Variable& b, Transpose tb, Batch batch) {
  check_shape(a.rank() >= 2 && b.rank() >= 2, "matmul: needs rank 2 or more, a is ", a.shape(),
              ", b is ", b.shape());
  const Factor left(a, ta), right(b, tb);
  check_shape(left.columns == right.rows, "matmul: inner sizes differ: a is ", a.shape(), ", b is ",
              b.shape());
  const Shape stack = broadcast_shape("matmul", left.batch, right.batch);
  Shape shape = batch == Batch::keep ? stack : Shape();
  shape.push_back(left.rows);
  shape.push_back(right.columns);
  Array y = uninitialized(shape);
  const ProductSizes sizes{left.rows, right.columns, left.columns};
  if (batch == Batch::keep) {
    multiply_each(sizes, left, right, stack, y);
  } else {
    multiply_sum(sizes, left, right, stack, y);
  }

  return record("matmul", Variable(std::move(y)),
                // y = op(a) op(b): the gradient of op(a) is g op(b)^T, and that of a its transpose
                // if a was read so
                edge(a,
                     [to = a.shape(), b = saved(b), ta, tb](const Variable& g) {
                       return ta == Transpose::no ? contract_to(to, g, Transpose::no, b(), flip(tb))
                                                  : contract_to(to, b(), tb, g, Transpose::yes);
                     }),
                // likewise op(a)^T g
                edge(b, [to = b.shape(), a = saved(a), ta, tb](const Variable& g) {
                  return tb == Transpose::no ? contract_to(to, a(), flip(ta), g, Transpose::no)
                                             : contract_to(to, g, Transpose::yes, a(), ta);
                }));
}

Variable matmul(const Variable& a, const Variable& b) {
  check_shape(a.rank() > 0 && b.rank() > 0, "matmul: needs rank 1 or more, a is ", a.shape(),
              ", b is ", b.shape());
  const std::size_t inner = b.rank() == 1 ? b.size(0) : b.size(-2);
  check_shape(a.size(-1) == inner, "matmul: inner sizes differ: a is ", a.shape(), ", b is ",
              b.shape());
  if (a.rank() == 1) return squeeze(matmul(expand_dims(a, 0), b), b.rank() == 1 ? -1 : -2);
  if (b.rank() == 1) return squeeze(matmul(a, expand_dims(b, 1)), -1);
  return contract(a, Transpose::no, b, Transpose::no);
}

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  check_shape(weight.rank() == 2, "linear: weight must be (out, in), got ", weight.shape());
  check_shape(x.rank() > 0 && x.size(-1) == weight.size(1), "linear: x must end in ",
              weight.size(1), ", got ", x.shape());
  check_shape(!bias.holds_value() || bias.shape() == Shape{weight.size(0)},
              "linear: bias must be (", weight.size(0), "), got ",
              bias.holds_value() ? bias.shape() : Shape());
  if (x.rank() == 1) return squeeze(linear(expand_dims(x, 0), weight, bias), 0);
  if (!bias.holds_value()) return contract(x, Transpose::no, weight, Transpose::yes);

  const Factor left(x, Transpose::no), right(weight, Transpose::yes);
  Shape shape = x.shape();
  shape.back() = right.columns;
  Array y = uninitialized(shape);
  multiply_each({left.rows, right.columns, left.columns}, left, right, left.batch, y,
                bias.value().data());
  return record(
      "linear", Variable(std::move(y)),
      edge(x, [w = saved(weight)](
                  const Variable& g) { return contract(g, Transpose::no, w(), Transpose::no); }),
      edge(weight,
           [x = saved(x), to = weight.shape()](const Variable& g) {
             return contract_to(to, g, Transpose::yes, x(), Transpose::no);
           }),
      broadcast_edge(bias, [](const Variable& g) { return g; }));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
