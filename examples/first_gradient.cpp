// A gradient in ten lines: z = sum(x * y + sin(x)), so dz/dx = y + cos(x) and dz/dy = x.
#include <iostream>

#include "core/core.hpp"

namespace ag = attngrad;

int main() {
  const ag::Variable x = ag::parameter({0.0, 1.0, 2.0}), y = ag::parameter({3.0, 4.0, 5.0});
  ag::Tape tape;
  const ag::Variable z = ag::sum(x * y + ag::sin(x));
  const ag::Gradients gradients = tape.gradients(z);
  std::cout << "z     = " << z.item() << "\n";
  for (const ag::Real slope : gradients.of(x).value()) std::cout << "dz/dx = " << slope << "\n";
  for (const ag::Real slope : gradients.of(y).value()) std::cout << "dz/dy = " << slope << "\n";
}
