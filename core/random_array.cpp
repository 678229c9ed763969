// The parts of random.hpp that depend on the precision.
#include "core/errors.hpp"
#include "core/random.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

Array uniform(Rng& rng, const Shape& shape, double low, double high) {
  check_argument(low <= high, "uniform: needs low <= high, got ", low, " and ", high);
  Array x = uninitialized(shape);
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = Real(low + (high - low) * rng.uniform());
  return x;
}

Array normal(Rng& rng, const Shape& shape, double mean, double deviation) {
  check_argument(deviation >= 0, "normal: the deviation must be at least 0, got ", deviation);
  Array x = uninitialized(shape);
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = Real(mean + deviation * rng.normal());
  return x;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
