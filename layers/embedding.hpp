// A table of vectors, read by index.
#pragma once

#include "core/ops/index.hpp"
#include "layers/initialization.hpp"
#include "layers/layer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct EmbeddingOptions {
  std::size_t rows, width;
  Initialization initialization = normal_weights(0.02);
};

// y[...] = weight[indices[...]]. indices: (...), y: (..., width). Throws ArgumentError for an index
// outside [0, rows).
struct Embedding : Layer {
  EmbeddingOptions options;
  Variable weight;  // (rows, width)

  Embedding(const EmbeddingOptions& options, Rng& rng)
      : options(options),
        weight(parameter(options.initialization(rng, {options.rows, options.width}))) {}

  Variable operator()(const Indices& indices) const { return embedding(weight, indices); }

  void visit(auto&& f) { f("weight", weight); }
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
