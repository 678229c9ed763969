// Multi-head self-attention with its projections.
#pragma once

#include "layers/attention/flash.hpp"
#include "layers/linear.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct MultiHeadAttentionOptions {
  std::size_t width;
  std::size_t heads;  // divides width
  bool bias = true;
  AttentionKernel kernel = flash_attention;
  Initialization initialization = uniform_fan_in();
  Initialization projection_initialization = uniform_fan_in();
};

// Each head attends with its share of the width; the heads' outputs, side by side, are projected
// once more. x and y: (batch, time, width). Source: Vaswani et al., "Attention is all you need",
// 2017, section 3.2.2. Throws ArgumentError at construction unless heads divides width.
struct MultiHeadAttention : Layer {
  MultiHeadAttentionOptions options;
  Linear qkv;         // queries, keys and values side by side: (3 * width, width)
  Linear projection;  // (width, width)

  MultiHeadAttention(const MultiHeadAttentionOptions& o, Rng& rng)
      : options(checked(o)),
        qkv({.in = o.width, .out = 3 * o.width, .bias = o.bias, .initialization = o.initialization},
            rng),
        projection({.in = o.width,
                    .out = o.width,
                    .bias = o.bias,
                    .initialization = o.projection_initialization},
                   rng) {}

  Variable operator()(const Variable& x, const Mask& mask = {}) const {
    check_shape(x.rank() == 3 && x.size(2) == options.width,
                "MultiHeadAttention: x must be (batch, time, ", options.width, "), got ",
                x.shape());
    const Variable packed = within(*this, qkv)(x);
    const auto part = [&](std::size_t i) { return split_heads(packed, options.heads, i, 3); };
    const AttentionOutput attended =
        options.kernel({part(0), part(1), part(2)}, {.mask = mask, .scale = {}});
    return within(*this, projection)(attended.output);
  }

  void visit(auto&& f) {
    f("qkv", qkv);
    f("projection", projection);
  }

 private:
  static const MultiHeadAttentionOptions& checked(const MultiHeadAttentionOptions& o) {
    check_argument(o.heads > 0 && o.width > 0 && o.width % o.heads == 0,
                   "MultiHeadAttention: width ", o.width, " is not a multiple of heads ", o.heads);
    check_argument(o.kernel != nullptr, "MultiHeadAttention: needs a kernel");
    return o;
  }
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
