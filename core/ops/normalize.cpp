#include "core/ops/normalize.hpp"

#include "core/kernels/rows.hpp"
#include "core/kernels/strided.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::row_kernels;
using kernels::RowStatistics;
using kernels::vector_kernels;

enum class Mean { removed, kept };

void check_inputs(const char* op, const Variable& x, const Variable& gain, const Variable& shift,
                  Real epsilon) {
  check_shape(x.rank() > 0, op, ": x must have rank 1 or more");
  const Shape width{x.shape().back()};
  check_shape(gain.shape() == width, op, ": gain must be ", width, ", got ", gain.shape());
  check_shape(!shift.holds_value() || shift.shape() == width, op, ": shift must be ", width);
  check_argument(epsilon >= 0, op, ": epsilon must not be negative, got ", epsilon);
}

// One piece of work: so many rows that the pieces' sums of gain and shift stay small beside x, and
// so few that they lose no digits. Set by the shape alone.
std::size_t rows_per_piece(std::size_t width) {
  return std::clamp<std::size_t>(kernels::task_size / width, 16, 64);
}

// The sums of the pieces, in their order, so that the result does not depend on threads.
Array sum_pieces(const Array& pieces, std::size_t width) {
  std::vector<double> total(width, 0.0);
  for (std::size_t begin = 0; begin < pieces.size(); begin += width)
    vector_kernels<Real>().accumulate_wide(pieces.data() + begin, total.data(), width);
  Array y = uninitialized({width});
  std::copy(total.begin(), total.end(), y.data());
  return y;
}

// x: (rows, width), one pair of statistics per row
std::vector<Array> backward(Mean mean, const Variable& x, const Variable& gain, bool shifted,
                            const std::vector<RowStatistics>& statistics, const Array& g) {
  const std::size_t rows = statistics.size(), width = gain.size();
  Array gx = uninitialized(x.shape());
  const std::size_t grain = rows_per_piece(std::max<std::size_t>(1, width));
  const std::size_t pieces = (rows + grain - 1) / grain;
  Array ggain = zeros({pieces, width}), gshift = zeros({shifted ? pieces : 0, width});
  parallel_chunks(rows, grain, [&](std::size_t begin, std::size_t end) {
    const std::size_t piece = begin / grain * width;
    for (std::size_t row = begin; row < end; ++row)
      row_kernels<Real>().normalize_backward(
          x.value().data() + row * width, gain.value().data(), g.data() + row * width,
          mean == Mean::removed, statistics[row], gx.data() + row * width, ggain.data() + piece,
          shifted ? gshift.data() + piece : nullptr, width);
  });
  std::vector<Array> gradients{std::move(gx), sum_pieces(ggain, width)};
  if (shifted) gradients.push_back(sum_pieces(gshift, width));
  return gradients;
}

Variable normalize(const char* op, Mean mean, const Variable& x, const Variable& gain,
                   const Variable& shift, Real epsilon, Composed composed) {
  check_inputs(op, x, gain, shift, epsilon);
  const std::size_t width = gain.size(), rows = width == 0 ? 0 : x.size() / width;
  const bool shifted = shift.holds_value();
  std::vector<RowStatistics> statistics(rows);
  Array y = uninitialized(x.shape());
  parallel_chunks(rows, rows_per_piece(std::max<std::size_t>(1, width)), [&](auto begin, auto end) {
    for (std::size_t row = begin; row < end; ++row)
      row_kernels<Real>().normalize(x.value().data() + row * width, gain.value().data(),
                                    shifted ? shift.value().data() : nullptr, mean == Mean::removed,
                                    double(epsilon), y.data() + row * width, &statistics[row],
                                    width);
  });

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

// gain * x / sqrt(mean(x^2) + epsilon)
Variable scaled_to_unit(const Variable& x, const Variable& gain, Real epsilon) {
  return x * rsqrt(mean(square(x), -1, keep_dims) + epsilon) * gain;
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& gain, const Variable& shift, Real epsilon) {
  return normalize("layer_norm", Mean::removed, x, gain, shift, epsilon,
                   [epsilon](const std::vector<Variable>& in) {
                     return composed_layer_norm(in[0], in[1], in.size() > 2 ? in[2] : Variable(),
                                                epsilon);
                   });
}

Variable rms_norm(const Variable& x, const Variable& gain, Real epsilon) {
  return normalize("rms_norm", Mean::kept, x, gain, Variable(), epsilon,
                   [epsilon](const std::vector<Variable>& in) {
                     return composed_rms_norm(in[0], in[1], epsilon);
                   });
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
