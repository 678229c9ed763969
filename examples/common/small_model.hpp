// The model that the programs which reproduce papers train: small, of today's usual parts.
#pragma once

#include "layers/transformer.hpp"

namespace ag = attngrad;

// RMS norms, rotary positions, SwiGLU, no biases, tied head; all weights normal with deviation
// 1 / sqrt(in), cut at three of them.
inline ag::TransformerOptions small_model(std::size_t vocabulary, std::size_t context,
                                          std::size_t width, std::size_t heads, std::size_t layers,
                                          std::size_t hidden) {
  return {.vocabulary = vocabulary,
          .context = context,
          .width = width,
          .heads = heads,
          .layers = layers,
          .bias = false,
          .norm = ag::NormKind::rms,
          .positions = ag::Positions::rotary,
          .activation = ag::silu,
          .gated = true,
          .hidden = hidden,
          .initialization = ag::truncated_normal_fan_in()};
}
