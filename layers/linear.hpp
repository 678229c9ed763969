// A linear map over the last axis.
#pragma once

#include "core/ops/matmul.hpp"
#include "layers/initialization.hpp"
#include "layers/layer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct LinearOptions {
  std::size_t in, out;
  bool bias = true;
  Initialization initialization = uniform_fan_in();
};

// y = x weight^T + bias. x: (..., in), y: (..., out). The bias starts at 0.
struct Linear : Layer {
  LinearOptions options;
  Variable weight;  // (out, in)
  Variable bias;    // (out), or no value

  Linear(const LinearOptions& options, Rng& rng)
      : options(options),
        weight(parameter(options.initialization(rng, {options.out, options.in}))),
        bias(options.bias ? parameter(zeros({options.out})) : Variable()) {}

  Variable operator()(const Variable& x) const { return linear(x, weight, bias); }

  void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
