#include "core/ops/normalize.hpp"

#include "core/kernels/rows.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/row_pieces.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::row_kernels;
using kernels::RowStatistics;

enum class Mean { removed, kept };

void check_inputs(const char* op, const Variable& x, const Variable& gain, const Variable& shift,
                  Real epsilon) {
  check_shape(x.rank() > 0, op, ": x must have rank 1 or more");
  const Shape width{x.shape().back()};
  check_shape(gain.shape() == width, op, ": gain must be ", width, ", got ", gain.shape());
  check_shape(!shift.holds_value() || shift.shape() == width, op, ": shift must be ", width,
              ", got ", shift.holds_value() ? shift.shape() : Shape());
  check_argument(epsilon >= 0, op, ": epsilon must not be negative, got ", epsilon);
}

// x: (rows, width), one pair of statistics per row
std::vector<Array> backward(Mean mean, const Variable& x, const Variable& gain, bool shifted,
                            const std::vector<RowStatistics>& statistics, const Array& g) {
  const std::size_t rows = statistics.size(), width = gain.size();
  Array gx = uninitialized(x.shape());
  const std::size_t grain = rows_per_piece(width);
  const std::size_t pieces = (rows + grain - 1) / grain;
  Array ggain = zeros({pieces, width}), gshift = zeros({shifted ? pieces : 0, width});
  parallel_chunks(
      rows, grain,
      [&](std::size_t begin, std::size_t end) {
        const std::size_t piece = begin / grain * width, at = begin * width;
        row_kernels<Real>().normalize_backward(
            x.value().data() + at, gain.value().data(), g.data() + at, mean == Mean::removed,
            statistics.data() + begin, gx.data() + at, ggain.data() + piece,
            shifted ? gshift.data() + piece : nullptr, end - begin, width);
      },
      row_operations(x.size()));
  std::vector<Array> gradients = list_of(std::move(gx), sum_pieces(ggain, width));
  if (shifted) gradients.push_back(sum_pieces(gshift, width));
  return gradients;
}

// x is normalised; where `terms` are given, it is first filled with their sum, row by row.
Variable normalize(const char* op, Mean mean, Variable& x, const std::vector<Variable>& terms,
                   const Variable& gain, const Variable& shift, Real epsilon, Composed composed) {
  check_inputs(op, x, gain, shift, epsilon);
  const std::size_t width = gain.size(), rows = width == 0 ? 0 : x.size() / width;
  const bool shifted = shift.holds_value();
  std::vector<RowStatistics> statistics(rows);
  Array y = uninitialized(x.shape());
  Real* const sums = terms.empty() ? nullptr : x.edit().data();
  parallel_chunks(
      rows, rows_per_piece(width),
      [&](auto begin, auto end) {
        const std::size_t at = begin * width;
        if (sums != nullptr)
          add_rows(terms[0].value().data() + at, terms[1].value().data() + at, sums + at,
                   (end - begin) * width);
        row_kernels<Real>().normalize(x.value().data() + at, gain.value().data(),
                                      shifted ? shift.value().data() : nullptr,
                                      mean == Mean::removed, double(epsilon), y.data() + at,
                                      statistics.data() + begin, end - begin, width);
      },
      row_operations(x.size()));
  if (sums != nullptr) {
    const auto pass_on = [](const Variable& g) { return g; };
    x = record("add", x, edge(terms[0], pass_on), edge(terms[1], pass_on));
  }

  std::vector<Variable> inputs{x, gain};
  if (shifted) inputs.push_back(shift);
  saves_bytes(rows * sizeof(RowStatistics));
  return record_joint(
      op, Variable(std::move(y)), std::move(inputs),
      [mean, x, gain, shifted, statistics = std::move(statistics)](const Array& g) {
        return backward(mean, x, gain, shifted, statistics, g);
      },
      std::move(composed));
}

Variable layer_norm_of(Variable& x, const std::vector<Variable>& terms, const Variable& gain,
                       const Variable& shift, Real epsilon) {
  return normalize("layer_norm", Mean::removed, x, terms, gain, shift, epsilon,
                   [epsilon](const std::vector<Variable>& in) {
                     return composed_layer_norm(in[0], in[1], in.size() > 2 ? in[2] : Variable(),
                                                epsilon);
                   });
}

Variable rms_norm_of(Variable& x, const std::vector<Variable>& terms, const Variable& gain,
                     Real epsilon) {
  return normalize("rms_norm", Mean::kept, x, terms, gain, Variable(), epsilon,
                   [epsilon](const std::vector<Variable>& in) {
                     return composed_rms_norm(in[0], in[1], epsilon);
                   });
}

// The sum of two terms, not computed yet.
Variable sum_of(const char* op, const Variable& a, const Variable& b) {
  check_shape(a.shape() == b.shape(), op, ": terms must have one shape, got ", a.shape(), " and ",
              b.shape());
  return Variable(uninitialized(a.shape()));
}

// gain * x / sqrt(mean(x^2) + epsilon)
Variable scaled_to_unit(const Variable& x, const Variable& gain, Real epsilon) {
  return x * rsqrt(mean(square(x), -1, keep_dims) + epsilon) * gain;
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& gain, const Variable& shift, Real epsilon) {
  Variable rows = x;
  return layer_norm_of(rows, {}, gain, shift, epsilon);
}

SumAndNorm add_layer_norm(const Variable& a, const Variable& b, const Variable& gain,
                          const Variable& shift, Real epsilon) {
  Variable sum = sum_of("add_layer_norm", a, b);
  const Variable normed = layer_norm_of(sum, {a, b}, gain, shift, epsilon);
  return {sum, normed};
}

Variable rms_norm(const Variable& x, const Variable& gain, Real epsilon) {
  Variable rows = x;
  return rms_norm_of(rows, {}, gain, epsilon);
}

SumAndNorm add_rms_norm(const Variable& a, const Variable& b, const Variable& gain, Real epsilon) {
  Variable sum = sum_of("add_rms_norm", a, b);
  const Variable normed = rms_norm_of(sum, {a, b}, gain, epsilon);
  return {sum, normed};
}

Variable composed_layer_norm(const Variable& x, const Variable& gain, const Variable& shift,
                             Real epsilon) {
  check_inputs("layer_norm", x, gain, shift, epsilon);
  const Variable y = scaled_to_unit(x - mean(x, -1, keep_dims), gain, epsilon);
  return shift.holds_value() ? y + shift : y;
}

Variable composed_rms_norm(const Variable& x, const Variable& gain, Real epsilon) {
  check_inputs("rms_norm", x, gain, Variable(), epsilon);
  return scaled_to_unit(x, gain, epsilon);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
