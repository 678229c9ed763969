// Vectorised loops over one row: softmax, norms, cross-entropy, and what one query of attention
// needs. Compiled for several instruction sets and chosen at run time, like vector.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attngrad::kernels {

struct RowStatistics {
  double mean, rstd;
};

// log sum exp x of a row in two parts: beside a large x the second would be lost in their sum.
struct LogSumExp {
  double top, log_total;  // the largest x; log sum exp(x - top)
  double sum() const { return top + log_total; }
};

template <class T>
struct RowKernels {
  // y = exp(x - max x) / sum, returns log sum exp x; a row of -infinity only gives zeros and
  // -infinity.
  double (*softmax)(const T* x, T* y, std::size_t n);
  // gx = y (g - sum(g y)); adds nothing where y is 0
  void (*softmax_backward)(const T* y, const T* g, T* gx, std::size_t n);
  // log sum exp x; top is -infinity for a row of -infinity only; log_total is 0 unless top is
  // finite
  LogSumExp (*log_sum_exp)(const T* x, std::size_t n);

  // sum(a b), in lanes of T: as good as the rounding of its products, and several times as fast as
  // in double. Products that leave the range of T are summed in double.
  double (*dot)(const T* a, const T* b, std::size_t n);

  // y = gain * (x - mean) * rstd + shift, of each of `rows` rows of n; writes each row's mean (0
  // unless centered) and rstd = 1 / sqrt(mean square of the centered row + epsilon). shift may be
  // null.
  void (*normalize)(const T* x, const T* gain, const T* shift, bool centered, double epsilon, T* y,
                    RowStatistics* stats, std::size_t rows, std::size_t n);
  // gx of those rows; ggain += the sum of g * normalised x and gshift += that of g; gshift may be
  // null.
  void (*normalize_backward)(const T* x, const T* gain, const T* g, bool centered,
                             const RowStatistics* stats, T* gx, T* ggain, T* gshift,
                             std::size_t rows, std::size_t n);

  // gx = scale * (softmax(x) - target distribution), given log sum exp x; the target distribution
  // is 1 - smoothing at the target plus smoothing / n everywhere
  void (*cross_entropy_backward)(const T* x, LogSumExp log_sum_exp, std::int64_t target,
                                 double smoothing, double scale, T* gx, std::size_t n);

  // y[j] = factor * sum over d of x[d] rows[j * stride + d], for `count` rows of `width` numbers.
  void (*dots)(const T* x, const T* rows, std::size_t stride, std::size_t count, std::size_t width,
               T factor, T* y);
  // y[d] += sum over j of weights[j] rows[j * stride + d].
  void (*add_rows)(const T* weights, const T* rows, std::size_t stride, std::size_t count,
                   std::size_t width, T* y);
  // x becomes exp(x - top), of which a power below exp(-60) counts as 0 (tile.hpp); returns their
  // sum. top is not below any x by more than a few, and not -infinity.
  double (*powers)(T* x, T top, std::size_t n);
};

// The kernels of the same instruction set as vector_kernels().
template <class T>
const RowKernels<T>& row_kernels();

}  // namespace attngrad::kernels
