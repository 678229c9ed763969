#include "layers/initialization.hpp"

#include <cmath>

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

double fan_in(const Shape& shape) {
  return shape.empty() ? 1.0 : double(std::max<std::size_t>(1, shape.back()));
}

}  // namespace

Initialization normal_weights(double deviation) {
  return [deviation](Rng& rng, const Shape& shape) { return normal(rng, shape, 0, deviation); };
}

Initialization uniform_fan_in() {
  return [](Rng& rng, const Shape& shape) {
    const double bound = 1 / std::sqrt(fan_in(shape));
    return uniform(rng, shape, -bound, bound);
  };
}

Initialization truncated_normal_fan_in() {
  return [](Rng& rng, const Shape& shape) {
    const double deviation = 1 / std::sqrt(fan_in(shape));
    Array weights = uninitialized(shape);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      double draw = rng.normal();
      while (std::abs(draw) > 3) draw = rng.normal();
      weights.data()[i] = Real(deviation * draw);
    }
    return weights;
  };
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
