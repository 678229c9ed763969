// Negative log likelihood and softmax cross entropy.
#include <limits>

#include "core/ops/elementwise.hpp"
#include "core/ops/index.hpp"
#include "core/ops/loss.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/shape.hpp"
#include "core/ops/softmax.hpp"
#include "onnx_conformance/call.hpp"

namespace conformance {
namespace {

// (batch, classes, rest ...) with the classes last, where the library has them.
Variable classes_last(const Variable& x) {
  std::vector<std::size_t> order{0};
  for (std::size_t axis = 2; axis < x.rank(); ++axis) order.push_back(axis);
  order.push_back(1);
  return ag::transpose(x, order);
}

std::optional<std::int64_t> ignored_target(const Call& call) {
  constexpr std::ptrdiff_t none = std::numeric_limits<std::ptrdiff_t>::min();
  const std::ptrdiff_t ignored = call.integer("ignore_index", none);
  if (ignored == none) return std::nullopt;
  return ignored;
}

ag::Reduction reduction_of(const Call& call) {
  const std::string name = call.text("reduction", "mean");
  if (name == "mean") return ag::Reduction::mean;
  if (name == "sum") return ag::Reduction::sum;
  if (name == "none") return ag::Reduction::none;
  throw std::invalid_argument("reduction must be none, mean or sum, got " + name);
}

// The targets, with class 0 for those that are ignored, and a weight for each: 0 for those.
struct Targets {
  Indices classes;
  Variable weights;
};

Targets targets_of(const Call& call, std::size_t classes) {
  Targets targets{call.value(1).indices(), Variable()};
  const std::optional<std::int64_t> ignored = ignored_target(call);
  Array counted = ag::ones(targets.classes.shape());
  for (std::size_t i = 0; i < counted.size(); ++i) {
    if (targets.classes.data()[i] != ignored) continue;
    targets.classes.data()[i] = 0;
    counted.data()[i] = 0;
  }
  const Variable each = call.has(2) ? call[2] : Variable(ag::ones({classes}));
  targets.weights = Variable(counted) * ag::take(each, targets.classes);
  return targets;
}

// ONNX divides the mean by the sum of the weights.
Variable reduced(ag::Reduction reduction, const Variable& losses, const Variable& weights) {
  // an ignored element counts nothing, even if it is infinite
  const Variable weighted =
      ag::where(ag::greater(ag::abs(weights), 0), losses * weights, Variable(Real(0)));
  if (reduction == ag::Reduction::none) return weighted;
  const Variable total = ag::sum(weighted);
  return reduction == ag::Reduction::sum ? total : total / ag::sum(weights);
}

std::vector<Value> negative_log_likelihood(const Call& call) {
  const Variable scores = classes_last(call[0]);
  const Targets targets = targets_of(call, scores.shape().back());
  Indices at = targets.classes;
  Shape column = at.shape();
  column.push_back(1);
  at.reshape(column);
  const Variable losses = ag::squeeze(-ag::take_along(scores, at, -1), -1);
  return {reduced(reduction_of(call), losses, targets.weights)};
}

std::vector<Value> softmax_cross_entropy(const Call& call) {
  const Variable scores = classes_last(call[0]);
  const ag::Reduction reduction = reduction_of(call);
  std::vector<Value> outputs;
  if (call.has(2)) {
    const Targets targets = targets_of(call, scores.shape().back());
    const Variable losses =
        ag::cross_entropy(scores, targets.classes, {.reduction = ag::Reduction::none});
    outputs.push_back(reduced(reduction, losses, targets.weights));
  } else {
    outputs.push_back(ag::cross_entropy(
        scores, call.value(1).indices(),
        {.ignore_index = ignored_target(call), .label_smoothing = 0, .reduction = reduction}));
  }
  if (call.wants(1)) outputs.push_back(ag::log_softmax(call[0], 1));
  return outputs;
}

}  // namespace

void add_losses(Mappings& mappings) {
  mappings["NegativeLogLikelihoodLoss"] = negative_log_likelihood;
  mappings["SoftmaxCrossEntropyLoss"] = softmax_cross_entropy;
}

}  // namespace conformance
