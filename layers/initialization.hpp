// How weights begin. An initialisation makes an array of a given shape; for a linear map that is
// (out, in).
#pragma once

#include <functional>

#include "core/random.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

using Initialization = std::function<Array(Rng&, const Shape&)>;

// Normal with mean 0 and the given standard deviation.
Initialization normal_weights(double deviation);
// Uniform in +- 1 / sqrt(in), the usual start of a linear layer (LeCun et al., "Efficient
// BackProp", 1998).
Initialization uniform_fan_in();
// Normal with standard deviation 1 / sqrt(in), drawn again beyond three of them.
Initialization truncated_normal_fan_in();

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
