#include "core/ops/bias_gelu.hpp"

#include "core/kernels/formulas.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/row_pieces.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::vector_kernels;

template <class Formula>
std::vector<Array> backward(const Variable& x, const Variable& bias, const Array& g) {
  const std::size_t width = bias.size(), rows = g.size() / std::max<std::size_t>(1, width);
  const std::size_t grain = rows_per_piece(width), pieces = (rows + grain - 1) / grain;
  const auto slope = vector_kernels<Real>().unary_slope[formula::Unary::index_of<Formula>()];
  Array gx = uninitialized(x.shape()), gbias = zeros({pieces, width});
  parallel_chunks(
      rows, grain,
      [&](std::size_t begin, std::size_t end) {
        Array sum = uninitialized({width});
        for (std::size_t row = begin; row < end; ++row) {
          const std::size_t at = row * width;
          add_rows(x.value().data() + at, bias.value().data(), sum.data(), width);
          slope(g.data() + at, sum.data(), gx.data() + at, width);
          vector_kernels<Real>().accumulate(gx.data() + at, gbias.data() + begin / grain * width,
                                            width);
        }
      },
      row_operations(x.size()));
  return list_of(std::move(gx), sum_pieces(gbias, width));
}

template <class Formula>
Variable forward(const char* op, const Variable& x, const Variable& bias, Composed composed) {
  check_shape(x.rank() > 0 && bias.shape() == Shape{x.shape().back()}, op,
              ": needs (..., width) and (width), got ", x.shape(), " and ", bias.shape());
  const std::size_t width = bias.size(), rows = x.size() / std::max<std::size_t>(1, width);
  const auto value = vector_kernels<Real>().unary[formula::Unary::index_of<Formula>()];
  Array y = uninitialized(x.shape());
  parallel_chunks(
      rows, kernels::rows_per_task(width),
      [&](std::size_t begin, std::size_t end) {
        for (std::size_t at = begin * width; at < end * width; at += width) {
          add_rows(x.value().data() + at, bias.value().data(), y.data() + at, width);
          value(y.data() + at, y.data() + at, width);
        }
      },
      row_operations(x.size()));
  return record_joint(
      op, Variable(std::move(y)), {x, bias},
      [x, bias](const Array& g) { return backward<Formula>(x, bias, g); }, std::move(composed));
}

}  // namespace

Variable bias_gelu(const Variable& x, const Variable& bias) {
  return forward<formula::Gelu>("bias_gelu", x, bias, [](const std::vector<Variable>& in) {
    return composed_bias_gelu(in[0], in[1]);
  });
}

Variable bias_gelu_tanh(const Variable& x, const Variable& bias) {
  return forward<formula::GeluTanh>("bias_gelu_tanh", x, bias, [](const std::vector<Variable>& in) {
    return composed_bias_gelu_tanh(in[0], in[1]);
  });
}

Variable composed_bias_gelu(const Variable& x, const Variable& bias) { return gelu(x + bias); }
Variable composed_bias_gelu_tanh(const Variable& x, const Variable& bias) {
  return gelu_tanh(x + bias);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
