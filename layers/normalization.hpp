// Layer norm and RMS norm over the last axis, with their learned gain and shift.
#pragma once

#include <variant>

#include "core/ops/normalize.hpp"
#include "layers/layer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct LayerNormOptions {
  std::size_t width;
  bool bias = true;           // whether there is a shift
  Real epsilon = Real(1e-5);  // added to the variance; not negative
};

// Formula in core/ops/normalize.hpp. The gain starts at 1 and the shift at 0.
struct LayerNorm : Layer {
  LayerNormOptions options;
  Variable weight;  // gain: (width)
  Variable bias;    // shift: (width), or no value

  explicit LayerNorm(const LayerNormOptions& options)
      : options(options),
        weight(parameter(ones({options.width}))),
        bias(options.bias ? parameter(zeros({options.width})) : Variable()) {
    check_argument(options.epsilon >= 0, "LayerNorm: epsilon must not be negative, got ",
                   options.epsilon);
  }
  LayerNorm(const LayerNormOptions& options, Rng&) : LayerNorm(options) {}

  Variable operator()(const Variable& x) const {
    return layer_norm(x, weight, bias, options.epsilon);
  }
  // a + b and its norm, in one pass.
  SumAndNorm add(const Variable& a, const Variable& b) const {
    return add_layer_norm(a, b, weight, bias, options.epsilon);
  }

  void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }
};

struct RMSNormOptions {
  std::size_t width;
  Real epsilon = Real(1e-5);  // added to the mean square; not negative
};

struct RMSNorm : Layer {
  RMSNormOptions options;
  Variable weight;  // gain: (width)

  explicit RMSNorm(const RMSNormOptions& options)
      : options(options), weight(parameter(ones({options.width}))) {
    check_argument(options.epsilon >= 0, "RMSNorm: epsilon must not be negative, got ",
                   options.epsilon);
  }
  RMSNorm(const RMSNormOptions& options, Rng&) : RMSNorm(options) {}

  Variable operator()(const Variable& x) const { return rms_norm(x, weight, options.epsilon); }
  SumAndNorm add(const Variable& a, const Variable& b) const {
    return add_rms_norm(a, b, weight, options.epsilon);
  }

  void visit(auto&& f) { f("weight", weight); }
};

// One or the other, as an option of the layers that take a norm.
using NormOptions = std::variant<LayerNormOptions, RMSNormOptions>;

struct Norm : Layer {
  NormOptions options;
  std::variant<LayerNorm, RMSNorm> either;

  explicit Norm(const NormOptions& options) : options(options), either(made_of(options)) {}
  Norm(const NormOptions& options, Rng&) : Norm(options) {}

  Variable operator()(const Variable& x) const {
    return std::visit([&](const auto& norm) { return norm(x); }, either);
  }
  SumAndNorm add(const Variable& a, const Variable& b) const {
    return std::visit([&](const auto& norm) { return norm.add(a, b); }, either);
  }

  void visit(auto&& f) {
    std::visit([&](auto& norm) { norm.visit(f); }, either);
  }

 private:
  static std::variant<LayerNorm, RMSNorm> made_of(const NormOptions& options) {
    if (const auto* rms = std::get_if<RMSNormOptions>(&options)) return RMSNorm(*rms);
    return LayerNorm(std::get<LayerNormOptions>(options));
  }
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
