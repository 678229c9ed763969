#include "optim/adagrad.hpp"

#include <cmath>

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

const AdagradOptions& checked(const AdagradOptions& options) {
  // 0 would make the step of a zero gradient 0 / 0
  check_argument(Real(options.epsilon) > 0, "adagrad: epsilon must be positive, got ",
                 options.epsilon);
  return options;
}

}  // namespace

Adagrad::Adagrad(const Parameters& parameters, const AdagradOptions& options)
    : Optimizer("adagrad", parameters, {"sum_of_squares"}, options.weight_decay, options.decays),
      options_(checked(options)) {}

void Adagrad::update(const Rates& rates, const Piece& piece) const {
  const Real rate = Real(rates.rate), scale = Real(rates.gradient_scale), decay = Real(rates.decay),
             epsilon = Real(options_.epsilon);
  Real *const w = piece.value, *const s = piece.state[0];
  for (std::size_t i = 0; i < piece.size; ++i) {
    const Real g = scale * piece.gradient[i] + decay * w[i];
    s[i] += g * g;
    w[i] -= rate * g / (std::sqrt(s[i]) + epsilon);
  }
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
