// The gradients of one self-attention layer, three ways. Free of the precision, so that one program
// can hold both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct Problem {
  std::size_t batch = 2, heads = 2, length = 8;
  // D_x; D_q and D_v of a head are one less and one more, so that a mix-up shows
  std::size_t width = 6;
  std::string mask = "causal";  // none, causal, random (a boolean array), both
  std::uint64_t seed = 1;
  // inputs that are exact in float, so that both precisions solve one problem
  bool rounded_to_float = false;
};

struct NamedArray {
  std::string name;
  std::vector<double> numbers;
};

struct Solution {
  std::vector<NamedArray> fused, automatic;  // Y, dV, dA, dE, dQ, dK, dWq, dWk, dWv, dX
  double fused_seconds, automatic_seconds;   // forward and backward, median of several
};

// As built into the float and the double library.
Solution solve_in_float(const Problem& problem);
Solution solve_in_double(const Problem& problem);
// The same by central differences, in double: each of V, A, E, Q, K, Wq, Wk, Wv and X is moved,
// element by element, and what follows from it is computed again.
std::vector<NamedArray> central_differences(const Problem& problem);
