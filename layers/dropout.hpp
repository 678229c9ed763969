// Dropout as a layer. Where the random numbers come from is an argument of the call, so there is no
// training mode to forget: no generator, no dropout.
#pragma once

#include "core/ops/dropout.hpp"
#include "layers/layer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct DropoutOptions {
  double probability = 0;  // that an element becomes 0; in [0, 1]
};

struct Dropout : Layer {
  DropoutOptions options;

  explicit Dropout(const DropoutOptions& options) : options(options) {
    check_argument(options.probability >= 0 && options.probability <= 1,
                   "Dropout: probability must be in [0, 1], got ", options.probability);
  }
  Dropout(const DropoutOptions& options, Rng&) : Dropout(options) {}

  // rng: null means that nothing is dropped.
  Variable operator()(const Variable& x, Rng* rng = nullptr) const {
    return rng == nullptr || options.probability == 0 ? x : dropout(x, options.probability, *rng);
  }

  void visit(auto&&) {}
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
