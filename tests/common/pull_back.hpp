// Gradients for a given gradient of the output, as the rows of cases.md state them.
#pragma once

#include "common/test.hpp"

// The gradient of sum(f(x) * seed) with respect to x.
template <class F>
Array pull_back(F f, const Array& x, const Array& seed) {
  const Variable input = ag::parameter(x);
  Tape tape;
  return tape.gradients(f(input), ag::constant(seed)).of(input).value();
}
// The same for f(x) of one element, and seed 1.
template <class F>
Array pull_back(F f, const Array& x) {
  const Variable input = ag::parameter(x);
  Tape tape;
  return tape.gradients(f(input)).of(input).value();
}
