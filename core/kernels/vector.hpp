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
  // y[i] = weights[0] x[0][i] + weights[1] x[1][i] + ... over `count` inputs, each rounded once if
  // the instruction set can; y may be one of them
  void (*combine)(const T* const* x, const T* weights, std::size_t count, T* y, std::size_t n);
  // sums[i] += x[i] + x[n + i] + ..., of `rows` rows, in that order and in double
  void (*accumulate_wide)(const T* x, std::size_t rows, double* sums, std::size_t n);

  // y[j] += sum over k < count of taps[k] x[j + k], for j < n; x holds n + count - 1
  void (*convolve)(const T* x, const T* taps, std::size_t count, T* y, std::size_t n);

  // Sums in double, pairwise, so that long rows lose no digits.
  double (*sum)(const T* x, std::size_t n);
  double (*dot)(const T* a, const T* b, std::size_t n);
  // -infinity for n = 0; NaN if there is one.
  T (*max)(const T* x, std::size_t n);
  T (*min)(const T* x, std::size_t n);

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

// The instruction set that was chosen, for templates that users compile.
enum class InstructionSet { baseline, avx2, avx512 };
InstructionSet instruction_set();

}  // namespace attngrad::kernels
