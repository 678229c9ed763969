// The part of a transformer block that treats each position alone.
#pragma once

#include "core/ops/bias_gelu.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"
#include "core/ops/silu_gate.hpp"
#include "layers/linear.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

using Activation = Variable (*)(const Variable&);

struct FeedForwardOptions {
  std::size_t width;
  std::size_t hidden;  // usually 4 * width; with a gate 8/3 * width
  bool bias = true;
  Activation activation = gelu;
  bool gated = false;  // with silu: SwiGLU
  Initialization initialization = uniform_fan_in();
  Initialization down_initialization = uniform_fan_in();
};

// y = down(activation(up(x))); gated: up makes two rows of `hidden` side by side, and y =
// down(activation(first) * second). x and y: (..., width). Source of the gate: Shazeer,
// arXiv:2002.05202.
struct FeedForward : Layer {
  FeedForwardOptions options;
  Linear up, down;

  FeedForward(const FeedForwardOptions& o, Rng& rng)
      : options(checked(o)),
        up({.in = o.width,
            .out = (o.gated ? 2 : 1) * o.hidden,
            .bias = o.bias,
            .initialization = o.initialization},
           rng),
        down({.in = o.hidden,
              .out = o.width,
              .bias = o.bias,
              .initialization = o.down_initialization},
             rng) {}

  Variable operator()(const Variable& x) const { return within(*this, down)(activated(x)); }

  void visit(auto&& f) {
    f("up", up);
    f("down", down);
  }

 private:
  static const FeedForwardOptions& checked(const FeedForwardOptions& o) {
    check_argument(o.activation != nullptr, "FeedForward: needs an activation, got none");
    return o;
  }
  // Either GELU takes the bias of the map before it along in one pass.
  Variable activated(const Variable& x) const {
    if (options.gated) return gated(within(*this, up)(x));
    const bool exact = options.activation == gelu;
    if (!up.bias.holds_value() || !(exact || options.activation == gelu_tanh))
      return options.activation(within(*this, up)(x));
    Variable y;  // of both, so it is not what capture() calls up
    within(*this, up, [&](const Linear& map) {
      y = (exact ? bias_gelu : bias_gelu_tanh)(linear(x, map.weight), map.bias);
    });
    return y;
  }
  Variable gated(const Variable& both) const {
    if (options.activation == silu) return silu_gate(both);
    const auto hidden = std::ptrdiff_t(options.hidden);
    return options.activation(slice(both, -1, {.start = 0, .stop = hidden})) *
           slice(both, -1, {.start = hidden, .stop = 2 * hidden});
  }
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
