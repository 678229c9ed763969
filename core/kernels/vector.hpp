// Vectorised loops over contiguous memory, compiled for several instruction sets and chosen once,
// at run time.
//
// This header and vector.cpp know only raw pointers, so that code compiled with -mavx2 stays inside
// its own unit. The result for an element never depends on its place in the array, so callers may
// cut loops as they like.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attngrad::kernels {

// An operand of a binary loop: its step is 1, or 0 where one element serves the whole loop.
template <class T>
struct Operand {
  const T* data;
  std::size_t step;
};

enum class Binary { add, subtract, multiply, divide, maximum, minimum, chain };
inline constexpr std::size_t binary_count = 7;
// The formulas of formulas.hpp, in the order of its list.
inline constexpr std::size_t unary_count = 18;

struct RowStatistics {
  double mean, rstd;
};

// log sum exp x of a row in two parts: beside a large x the second would be lost in their sum.
struct LogSumExp {
  double top, log_total;  // the largest x; log sum exp(x - top)
  double sum() const { return top + log_total; }
};

// What the optimisers' loops need of one step; the formulas stand in optim/.
struct AdamStep {
  double rate, beta1, beta2, epsilon, decoupled_decay, l2_decay, correction1, correction2,
      gradient_scale;
};
struct SgdStep {
  double rate, momentum, decay, gradient_scale;
  bool nesterov;
};

template <class T>
struct VectorKernels {
  const char* name;  // of the instruction set

  // y[i] = f(x[i])
  void (*unary[unary_count])(const T* x, T* y, std::size_t n);
  // gx[i] = g[i] f'(s[i]), and exactly 0 where g[i] is 0; s is the function's input or output
  void (*unary_slope[unary_count])(const T* g, const T* s, T* gx, std::size_t n);
  // y[i] = a[i] op b[i]; chain is a * b, and exactly 0 where a is 0
  void (*binary[binary_count])(Operand<T> a, Operand<T> b, T* y, std::size_t n);
  // y[i] = scale * x[i] + shift
  void (*scale)(const T* x, T scale, T shift, T* y, std::size_t n);
  // y[i] += x[i]
  void (*accumulate)(const T* x, T* y, std::size_t n);
  // sums[i] += x[i], in double
  void (*accumulate_wide)(const T* x, double* sums, std::size_t n);

  // Sums in double, pairwise, so that long rows lose no digits.
  double (*sum)(const T* x, std::size_t n);
  double (*dot)(const T* a, const T* b, std::size_t n);
  // -infinity for n = 0; NaN if there is one.
  T (*max)(const T* x, std::size_t n);
  T (*min)(const T* x, std::size_t n);

  // y = exp(x - max x) / sum, returns log sum exp x; a row of -infinity only gives zeros and
  // -infinity.
  double (*softmax)(const T* x, T* y, std::size_t n);
  // gx = y (g - sum(g y)); adds nothing where y is 0
  void (*softmax_backward)(const T* y, const T* g, T* gx, std::size_t n);
  // log sum exp x; top is -infinity for a row of -infinity only; log_total is 0 unless top is
  // finite
  LogSumExp (*log_sum_exp)(const T* x, std::size_t n);

  // y = gain * (x - mean) * rstd + shift, of one row; writes mean (0 unless centered) and rstd = 1
  // / sqrt(mean square of the centered row + epsilon). shift may be null.
  void (*normalize)(const T* x, const T* gain, const T* shift, bool centered, double epsilon, T* y,
                    RowStatistics* stats, std::size_t n);
  // gx of that row; ggain += g * normalised x and gshift += g, in double; gshift may be null.
  void (*normalize_backward)(const T* x, const T* gain, const T* g, bool centered,
                             RowStatistics stats, T* gx, double* ggain, double* gshift,
                             std::size_t n);

  // gx = scale * (softmax(x) - target distribution), given log sum exp x; the target distribution
  // is 1 - smoothing at the target plus smoothing / n everywhere
  void (*cross_entropy_backward)(const T* x, LogSumExp log_sum_exp, std::int64_t target,
                                 double smoothing, double scale, T* gx, std::size_t n);

  // One step for n weights; m, v (and velocity) are the optimiser's state.
  void (*adam)(const AdamStep& step, const T* g, T* w, T* m, T* v, std::size_t n);
  void (*sgd)(const SgdStep& step, const T* g, T* w, T* velocity,
              std::size_t n);  // velocity: null without momentum
};

// The best kernels this machine can run, or those that the environment variable ATTNGRAD_ARCH asks
// for: baseline (what every machine of the family runs), avx2, avx512, or best. Throws
// ArgumentError for a name that is unknown or does not run here.
template <class T>
const VectorKernels<T>& vector_kernels();

}  // namespace attngrad::kernels
