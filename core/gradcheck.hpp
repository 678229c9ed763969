// Is a gradient right? Analytic against central differences, and fused against composed.
//
// Differences are meaningful in double only: use the f64 library. The output is weighted with
// random numbers before it is summed, because equal weights hide transposed and mis-summed
// gradients.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

using Function = std::function<Variable(const std::vector<Variable>&)>;

struct GradcheckOptions {
  double step = 1e-5;       // of the central difference, relative to max(1, |x|)
  double tolerance = 1e-7;  // on |analytic - difference| / max(1, largest |difference|)
  int order = 1;            // 2 checks the gradient of the gradient as well
  std::uint64_t seed = 1;   // of the output weights
};

struct GradcheckResult {
  bool passed = true;
  double worst = 0;     // the largest error found
  std::string message;  // where, and both numbers; empty if passed
  explicit operator bool() const { return passed; }
};

// Compares the gradient of each input of f, element by element, with central differences. The
// inputs' values are used; they may be constants. At order 2 it then checks in the same
// way the function x -> sum(v * gradient(x)) for a random v: a Hessian-vector product.
GradcheckResult gradcheck(const Function& f, const std::vector<Array>& inputs,
                          GradcheckOptions options = {});

// max|a - b| / max|b|; 0 where both are zero or empty, infinite where a NaN stands on one side
// only. Throws ShapeError if the shapes differ.
double relative_difference(const Array& a, const Array& b);

// Relative differences; of the gradients the largest over all inputs.
struct Comparison {
  double value = 0, gradient = 0;
};
// The values and gradients of two functions of the same inputs, as of a fused op and its composed
// form. A result below a hundredth of the largest input or gradient is measured against that
// hundredth: one that should vanish has no scale of its own.
Comparison compare_functions(const Function& f, const Function& reference,
                             const std::vector<Array>& inputs, std::uint64_t seed = 1);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
