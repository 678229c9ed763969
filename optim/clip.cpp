#include "optim/clip.hpp"

#include <cmath>
#include <numeric>

#include "core/kernels/strided.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// In pieces that the size alone decides, so that the bits do not depend on the threads.
double sum_of_squares(const Array& x) {
  std::vector<double> parts((x.size() + kernels::task_size - 1) / kernels::task_size);
  parallel_chunks(x.size(), kernels::task_size, [&](std::size_t begin, std::size_t end) {
    const Real* piece = x.data() + begin;
    parts[begin / kernels::task_size] =
        kernels::vector_kernels<Real>().dot(piece, piece, end - begin);
  });
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

}  // namespace

Clip clip_norm(const Parameters& parameters, const Gradients& gradients, double limit) {
  check_argument(limit > 0, "clip_norm: limit must be positive, got ", limit);
  double sum = 0;
  for (const auto& [name, x] : parameters) {
    if (!gradients.reached(x)) continue;
    sum += sum_of_squares(gradients.of(x).value());
    check_argument(std::isfinite(sum),
                   "clip_norm: the norm of the gradients is not finite: ", std::sqrt(sum), " at ",
                   name);
  }
  const double norm = std::sqrt(sum);
  return {norm, norm > limit ? limit / norm : 1};
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
