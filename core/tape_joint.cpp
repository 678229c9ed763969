// Ops with a list of inputs, and fused ops.
#include <algorithm>

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

struct ListNode final : Node {
  ListNode(const char* op, const std::vector<Variable>& all,
           std::function<Variable(std::size_t, const Variable&)> derivative)
      : Node(op), derivative(std::move(derivative)) {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].needs_grad()) inputs.emplace_back(i, Target(all[i]));
  }

  void backward(const Variable& gy, GradientSink& sink) override {
    for (const auto& [i, input] : inputs) sink.add(input, derivative(i, gy));
  }

  std::vector<std::pair<std::size_t, Target>> inputs;
  std::function<Variable(std::size_t, const Variable&)> derivative;
};

struct JointNode final : Node {
  JointNode(const char* op, const std::vector<Variable>& inputs, JointBackward backward,
            Composed composed)
      : Node(op), analytic(std::move(backward)), composed(std::move(composed)) {
    for (const Variable& x : inputs) {
      values.push_back(saved(x));
      targets.emplace_back(x);
    }
  }

  std::vector<Variable> checked_inputs() const {
    std::vector<Variable> all;
    for (const Saved& x : values) all.push_back(x());
    return all;
  }

  void backward(const Variable& gy, GradientSink& sink) override {
    const std::vector<Variable> all = checked_inputs();
    if (recording()) return backward_composed(all, gy, sink);
    std::vector<Array> gradients = analytic(gy.value());
    if (gradients.size() != all.size())
      throw TapeError(text(op, ": the backward returned ", gradients.size(), " gradients for ",
                           all.size(), " inputs"));
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].needs_grad()) sink.add(targets[i], Variable(std::move(gradients[i])));
  }

  // An outer tape wants to differentiate the gradient: the composed form says how.
  void backward_composed(const std::vector<Variable>& all, const Variable& gy, GradientSink& sink) {
    Tape inner;
    const Variable again = composed(all);
    check_shape(again.shape() == gy.shape(), op, ": the composed form has shape ", again.shape(),
                ", the op ", gy.shape());
    const Gradients gradients = inner.gradients(again, gy);
    for (std::size_t i = 0; i < all.size(); ++i) {
      // an input given twice has one gradient here, the sum of both
      const auto here = all.begin() + static_cast<std::ptrdiff_t>(i);
      const bool first =
          std::none_of(all.begin(), here, [&](const Variable& x) { return x.same_as(*here); });
      if (first && all[i].needs_grad()) sink.add(targets[i], gradients.of(all[i]));
    }
  }

  std::vector<Saved> values;
  std::vector<Target> targets;
  JointBackward analytic;
  Composed composed;
};

}  // namespace

Variable record_list(const char* op, Variable y, std::vector<Variable> inputs,
                     std::function<Variable(std::size_t, const Variable&)> derivative) {
  Recorder& recorder = Recorder::current();
  if (recorder.active() && recorder.wants(op, y, inputs))
    recorder.append(std::make_unique<ListNode>(op, inputs, std::move(derivative)));
  return y;
}

Variable record_joint(const char* op, Variable y, std::vector<Variable> inputs,
                      JointBackward backward, Composed composed) {
  check_argument(backward != nullptr, op, ": record_joint needs a backward");
  check_argument(composed != nullptr, op, ": record_joint needs the op's composed form");
  Recorder& recorder = Recorder::current();
  if (recorder.active() && recorder.wants(op, y, inputs))
    recorder.append(
        std::make_unique<JointNode>(op, inputs, std::move(backward), std::move(composed)));
  return y;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
