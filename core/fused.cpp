#include "core/fused.hpp"

#include <algorithm>

#include "core/ops/bias_gelu.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/loss.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/normalize.hpp"
#include "core/ops/silu_gate.hpp"
#include "core/ops/softmax.hpp"
#include "core/recompute.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using Inputs = std::vector<Variable>;

// Up to three axes of sizes that leave every remainder of a vector.
Shape random_shape(Rng& rng) {
  Shape shape;
  for (std::int64_t axis = rng.integer(0, 3); axis > 0; --axis)
    shape.push_back(std::size_t(rng.integer(1, 5)));
  shape.push_back(std::size_t(rng.integer(1, 40)));
  return shape;
}

// Mostly moderate numbers, sometimes large ones.
Array random_logits(Rng& rng, const Shape& shape) {
  const double spread = rng.uniform() < 0.2 ? 100 : 3;
  return uniform(rng, shape, -spread, spread);
}

FusedCase sample_softmax(Rng& rng) {
  const Shape shape = random_shape(rng);
  const auto axis = rng.integer(0, std::int64_t(shape.size()));
  return {text("x ", shape, ", axis ", axis),
          {random_logits(rng, shape)},
          [axis](const Inputs& in) { return softmax(in[0], axis); },
          [axis](const Inputs& in) { return composed_softmax(in[0], axis); }};
}

FusedCase sample_log_softmax(Rng& rng) {
  const Shape shape = random_shape(rng);
  const auto axis = rng.integer(0, std::int64_t(shape.size()));
  return {text("x ", shape, ", axis ", axis),
          {random_logits(rng, shape)},
          [axis](const Inputs& in) { return log_softmax(in[0], axis); },
          [axis](const Inputs& in) { return composed_log_softmax(in[0], axis); }};
}

// Rows that are not nearly constant: of those, a norm's gradient would be little but rounding.
Array random_rows(Rng& rng, const Shape& shape) {
  Array x = uniform(rng, shape, -2, 2);
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] += Real(6 * (i % shape.back() % 2));
  return x;
}

FusedCase sample_layer_norm(Rng& rng) {
  Shape shape = random_shape(rng);
  shape.back() += 1;  // one element is a constant row
  const Shape row{shape.back()};
  const bool shifted = rng.uniform() < 0.5;
  const Real epsilon = Real(rng.uniform() < 0.5 ? 1e-5 : 1e-2);
  std::vector<Array> inputs{random_rows(rng, shape), uniform(rng, row, 0.5, 1.5)};
  if (shifted) inputs.push_back(uniform(rng, row));
  const auto shift = [shifted](const Inputs& in) { return shifted ? in[2] : Variable(); };
  return {text("x ", shape, shifted ? " with shift" : " without shift", ", epsilon ", epsilon),
          std::move(inputs),
          [=](const Inputs& in) { return layer_norm(in[0], in[1], shift(in), epsilon); },
          [=](const Inputs& in) { return composed_layer_norm(in[0], in[1], shift(in), epsilon); }};
}

FusedCase sample_rms_norm(Rng& rng) {
  Shape shape = random_shape(rng);
  shape.back() += 1;  // one element has a gradient of little but rounding
  const Shape row{shape.back()};
  return {text("x ", shape),
          {uniform(rng, shape, -2, 2), uniform(rng, row, 0.5, 1.5)},
          [](const Inputs& in) { return rms_norm(in[0], in[1]); },
          [](const Inputs& in) { return composed_rms_norm(in[0], in[1]); }};
}

FusedCase sample_cross_entropy(Rng& rng) {
  const Shape shape = random_shape(rng);
  const auto classes = std::int64_t(shape.back());
  Indices targets = rng.integers(0, classes, Shape(shape.begin(), shape.end() - 1));
  CrossEntropyOptions options;
  options.label_smoothing = rng.uniform() < 0.5 ? Real(0) : Real(0.1);
  options.reduction =
      std::array{Reduction::mean, Reduction::sum, Reduction::none}[std::size_t(rng.integer(0, 3))];
  if (rng.uniform() < 0.5) options.ignore_index = rng.integer(0, classes);
  if (rng.uniform() < 0.5) {
    options.weights = uniform(rng, targets.shape(), -1, 2);
    for (Real& w : *options.weights) w = std::max(w, Real(0));  // a third of them
  }
  return {text("logits ", shape, ", smoothing ", options.label_smoothing),
          {random_logits(rng, shape)},
          [=](const Inputs& in) { return cross_entropy(in[0], targets, options); },
          [=](const Inputs& in) { return composed_cross_entropy(in[0], targets, options); }};
}

// The sum and its norm both count.
FusedCase sample_add_layer_norm(Rng& rng) {
  Shape shape = random_shape(rng);
  shape.back() += 1;
  const Shape row{shape.back()};
  const auto both = [](const SumAndNorm& s) { return s.sum * s.normed; };
  return {text("terms ", shape),
          {random_rows(rng, shape), uniform(rng, shape), uniform(rng, row, 0.5, 1.5),
           uniform(rng, row)},
          [both](const Inputs& in) { return both(add_layer_norm(in[0], in[1], in[2], in[3])); },
          [both](const Inputs& in) {
            const Variable sum = in[0] + in[1];
            return both({sum, composed_layer_norm(sum, in[2], in[3])});
          }};
}

FusedCase sample_of_bias(Rng& rng, Variable (*fused)(const Variable&, const Variable&),
                         Variable (*composed)(const Variable&, const Variable&)) {
  const Shape shape = random_shape(rng);
  return {text("x ", shape),
          {uniform(rng, shape, -4, 4), uniform(rng, {shape.back()})},
          [fused](const Inputs& in) { return fused(in[0], in[1]); },
          [composed](const Inputs& in) { return composed(in[0], in[1]); }};
}
FusedCase sample_bias_gelu(Rng& rng) { return sample_of_bias(rng, bias_gelu, composed_bias_gelu); }
FusedCase sample_bias_gelu_tanh(Rng& rng) {
  return sample_of_bias(rng, bias_gelu_tanh, composed_bias_gelu_tanh);
}

FusedCase sample_add_rms_norm(Rng& rng) {
  Shape shape = random_shape(rng);
  shape.back() += 1;
  const auto both = [](const SumAndNorm& s) { return s.sum * s.normed; };
  return {text("terms ", shape),
          {uniform(rng, shape, -2, 2), uniform(rng, shape), uniform(rng, {shape.back()}, 0.5, 1.5)},
          [both](const Inputs& in) { return both(add_rms_norm(in[0], in[1], in[2])); },
          [both](const Inputs& in) {
            const Variable sum = in[0] + in[1];
            return both({sum, composed_rms_norm(sum, in[2])});
          }};
}

FusedCase sample_silu_gate(Rng& rng) {
  Shape shape = random_shape(rng);
  shape.back() *= 2;
  return {text("x ", shape),
          {uniform(rng, shape, -4, 4)},
          [](const Inputs& in) { return silu_gate(in[0]); },
          [](const Inputs& in) { return composed_silu_gate(in[0]); }};
}

// Not fused, but its gradients come from a second run.
FusedCase sample_checkpoint(Rng& rng) {
  const std::size_t width = std::size_t(rng.integer(1, 9));
  const Shape square{width, width};
  const auto f = [](const Variable& x, const Variable& w) { return tanh(matmul(x, w)) * x + x; };
  return {text("width ", width),
          {uniform(rng, square), uniform(rng, square)},
          [f](const Inputs& in) {  // w is not named, but found
            return checkpoint([f, w = in[1]](const Variable& x) { return f(x, w); }, in[0]);
          },
          [f](const Inputs& in) { return f(in[0], in[1]); }};
}

}  // namespace

const std::vector<FusedOp>& core_fused_ops() {
  static const std::vector<FusedOp> table{
      {"softmax", sample_softmax},       {"log_softmax", sample_log_softmax},
      {"layer_norm", sample_layer_norm}, {"layer_norm", sample_add_layer_norm},
      {"rms_norm", sample_rms_norm},     {"rms_norm", sample_add_rms_norm},
      {"bias_gelu", sample_bias_gelu},   {"bias_gelu_tanh", sample_bias_gelu_tanh},
      {"silu_gate", sample_silu_gate},   {"cross_entropy", sample_cross_entropy},
      {"checkpoint", sample_checkpoint},
  };
  return table;
}

Comparison check_fused(const FusedOp& op, std::size_t count, std::uint64_t seed,
                       std::string* description) {
  Comparison worst;
  Rng rng(seed);
  for (std::size_t i = 0; i < count; ++i) {
    const FusedCase drawn = op.sample(rng);
    const Comparison difference =
        compare_functions(drawn.fused, drawn.composed, drawn.inputs, seed + i);
    if (description != nullptr &&
        (difference.gradient > worst.gradient || difference.value > worst.value))
      *description = drawn.description;
    worst.value = std::max(worst.value, difference.value);
    worst.gradient = std::max(worst.gradient, difference.gradient);
  }
  return worst;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
