// Clipping by the global norm of the gradients.
#pragma once

#include "core/parameters.hpp"
#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct Clip {
  double norm;    // of all gradients together, before clipping
  double factor;  // what they must be multiplied by: 1 if norm <= limit, else limit / norm
};

// The 2-norm of the gradients of all parameters taken as one vector, and the factor that brings it
// down to `limit`. No gradient is changed: hand the factor to the optimiser, which applies it in
// the same pass over memory:
//   optimizer.step(gradients, rate, clip_norm(parameters, gradients, 1).factor);
// A norm of 0 has factor 1. Parameters that the loss does not reach count as 0. Sums run in double.
// Throws ArgumentError, naming the first parameter concerned, if the norm is not finite; or unless
// limit > 0. Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural
// networks", 2013, section 3.2.
Clip clip_norm(const Parameters& parameters, const Gradients& gradients, double limit);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
