// Multi-head self-attention with its projections.
#pragma once

#include "layers/attention/flash.hpp"
#include "layers/linear.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct MultiHeadAttentionOptions {
  std::size_t width;
  std::size_t heads;  // of queries; divides width
  // of keys and values; divides heads; as many unless given
  std::optional<std::size_t> key_heads = {};
  bool bias = true;
  AttentionKernel kernel = flash_attention;
  Initialization initialization = uniform_fan_in();
  Initialization projection_initialization = uniform_fan_in();
};

// Each head attends with its share of the width; the heads' outputs, side by side, are projected
// once more. x and y: (batch, time, width). With fewer key_heads, neighbouring heads share keys and
// values (one: multi-query attention). Sources: Vaswani et al., "Attention is all you need", 2017,
// section 3.2.2; Ainslie et al., arXiv:2305.13245. Throws ArgumentError at construction unless
// heads divides width and key_heads divides heads.
struct MultiHeadAttention : Layer {
  MultiHeadAttentionOptions options;
  Linear qkv;         // queries, keys and values side by side: (width + 2 * key width, width)
  Linear projection;  // (width, width)

  MultiHeadAttention(const MultiHeadAttentionOptions& o, Rng& rng)
      : options(checked(o)),
        qkv({.in = o.width,
             .out = o.width + 2 * key_heads() * head_width(),
             .bias = o.bias,
             .initialization = o.initialization},
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
    const auto keys_from = [&](std::size_t first) {
      return heads_at(packed, key_heads(), head_width(), first);
    };
    const AttentionInputs inputs{.q = heads_at(packed, options.heads, head_width(), 0),
                                 .k = keys_from(options.width),
                                 .v = keys_from(options.width + key_heads() * head_width())};
    const AttentionOutput attended = options.kernel(inputs, {.mask = mask});
    return within(*this, projection)(attended.output);
  }

  void visit(auto&& f) {
    f("qkv", qkv);
    f("projection", projection);
  }

  std::size_t head_width() const { return options.width / options.heads; }
  std::size_t key_heads() const { return options.key_heads.value_or(options.heads); }

 private:
  static const MultiHeadAttentionOptions& checked(const MultiHeadAttentionOptions& o) {
    check_argument(o.heads > 0 && o.width > 0 && o.width % o.heads == 0,
                   "MultiHeadAttention: width ", o.width, " is not a multiple of heads ", o.heads);
    const std::size_t key_heads = o.key_heads.value_or(o.heads);
    check_argument(key_heads > 0 && o.heads % key_heads == 0, "MultiHeadAttention: heads ", o.heads,
                   " is not a multiple of key_heads ", key_heads);
    check_argument(o.kernel != nullptr, "MultiHeadAttention: needs a kernel");
    return o;
  }
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
