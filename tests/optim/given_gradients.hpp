// Gradients with chosen numbers, for tests of what is done with them.
#pragma once

#include "common/test.hpp"

// The gradients of sum(parameters[i] * gradients[i]): exactly the arrays given.
inline ag::Gradients given_gradients(const std::vector<Variable>& parameters,
                                     const std::vector<Array>& gradients) {
  ag::Gradients all;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Tape tape;
    all += tape.gradients(parameters[i], ag::constant(gradients[i]));
  }
  return all;
}
