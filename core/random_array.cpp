// The parts of random.hpp that depend on the precision.
#include "core/random.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

Array uniform(Rng& rng, const Shape& shape, double low, double high) {
  Array x = uninitialized(shape);
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = Real(low + (high - low) * rng.uniform());
  return x;
}

Array normal(Rng& rng, const Shape& shape, double mean, double deviation) {
  Array x = uninitialized(shape);
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = Real(mean + deviation * rng.normal());
  return x;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
