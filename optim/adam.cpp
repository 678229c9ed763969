#include "optim/adam.hpp"

#include <cmath>

#include "core/kernels/vector.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

std::vector<const char*> kinds() { return {"first_moment", "second_moment"}; }

template <class Options>
const Options& checked(const char* name, const Options& options) {
  for (const double beta : {options.beta1, options.beta2})
    check_argument(beta >= 0 && beta < 1, name, ": beta1 and beta2 must be in [0, 1), got ", beta);
  // 0 would make the step of a zero gradient 0 / 0
  check_argument(Real(options.epsilon) > 0, name, ": epsilon must be positive, got ",
                 options.epsilon);
  return options;
}

template <class Options>
kernels::AdamStep adam_step(const Options& options, double rate, double gradient_scale,
                            double steps) {
  kernels::AdamStep step{};
  step.rate = rate;
  step.beta1 = options.beta1;
  step.beta2 = options.beta2;
  step.epsilon = options.epsilon;
  step.correction1 = 1 - std::pow(options.beta1, steps);
  step.correction2 = 1 - std::pow(options.beta2, steps);
  step.gradient_scale = gradient_scale;
  return step;
}

}  // namespace

Adam::Adam(const Parameters& parameters, const AdamOptions& options)
    : Optimizer("adam", parameters, kinds(), options.weight_decay, options.decays),
      options_(checked("adam", options)) {}

void Adam::update(const Rates& rates, const Piece& piece) const {
  kernels::AdamStep step = adam_step(options_, rates.rate, rates.gradient_scale, rates.steps);
  step.l2_decay = rates.decay;
  kernels::vector_kernels<Real>().adam(step, piece.gradient, piece.value, piece.state[0],
                                       piece.state[1], piece.size);
}

AdamW::AdamW(const Parameters& parameters, const AdamWOptions& options)
    : Optimizer("adamw", parameters, kinds(), options.weight_decay, options.decays),
      options_(checked("adamw", options)) {}

void AdamW::update(const Rates& rates, const Piece& piece) const {
  kernels::AdamStep step = adam_step(options_, rates.rate, rates.gradient_scale, rates.steps);
  step.decoupled_decay = rates.decay;
  kernels::vector_kernels<Real>().adam(step, piece.gradient, piece.value, piece.state[0],
                                       piece.state[1], piece.size);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
