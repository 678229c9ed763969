// Whether an output is the one expected.
#pragma once

#include "onnx_conformance/value.hpp"

namespace conformance {

struct Comparison {
  std::string failure;  // empty if it passed
  double relative = 0;  // the largest difference, over the largest expected magnitude if not 0
};

// Shapes must be equal, NaN and infinities in the same places, and numbers within
//   |got - expected| <= 1e-7 + 1e-3 |expected|
// as ONNX holds its own backends to; integers and flags must be the same. Throws Skip where a
// result of integer arithmetic lies outside its type, for there it would wrap around.
Comparison compare(const std::string& name, const Value& got, const Tensor& expected);

}  // namespace conformance
