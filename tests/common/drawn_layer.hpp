// Layers whose every parameter is drawn: the zeros and ones that many start with would hide
// mistakes.
#pragma once

#include "common/test.hpp"
#include "core/parameters.hpp"

// The layer of these options with numbers from [-bound, bound) in every parameter.
template <ag::VisitableLayer Layer, class Options>
Layer drawn_layer(const Options& options, double bound = 1) {
  ag::Rng rng(5);
  Layer layer(options, rng);
  std::uint64_t seed = 0;
  ag::visit_variables(layer, [&](const std::string&, Variable& x) {
    x.assign(random_array(x.shape(), -bound, bound, ++seed));
  });
  return layer;
}
