// Ops with a list of inputs, and fused ops.
#include <algorithm>
#include <variant>

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

using Analytic = std::variant<JointBackward, InPlaceBackward>;

struct JointNode final : Node {
  JointNode(const char* op, const std::vector<Variable>& inputs, Analytic analytic,
            Composed composed)
      : Node(op), analytic(std::move(analytic)), composed(std::move(composed)) {
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
    if (recording())
      backward_composed(all, gy, sink);
    else
      std::visit([&](auto& backward) { run(backward, all, gy.value(), sink); }, analytic);
  }

  void run(JointBackward& backward, const std::vector<Variable>& all, const Array& gy,
           GradientSink& sink) {
    std::vector<Array> gradients = backward(gy);
    if (gradients.size() != all.size())
      throw TapeError(text(op, ": the backward returned ", gradients.size(), " gradients for ",
                           all.size(), " inputs"));
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].needs_grad()) sink.add(targets[i], Variable(std::move(gradients[i])));
  }

  void run(InPlaceBackward& backward, const std::vector<Variable>& all, const Array& gy,
           GradientSink& sink) {
    std::vector<Array> fresh(all.size());
    std::vector<GradientPlace> places(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].needs_grad()) continue;
      Array* const sum = sink.sum_of(targets[i]);
      if (sum == nullptr) fresh[i] = uninitialized(all[i].shape());
      places[i] = {(sum == nullptr ? fresh[i] : *sum).data(), sum != nullptr};
    }
    backward(gy, places);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].needs_grad() && !places[i].adds)
        sink.add(targets[i], Variable(std::move(fresh[i])));
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
  Analytic analytic;
  Composed composed;
};

Variable record_fused(const char* op, Variable y, const std::vector<Variable>& inputs,
                      Analytic backward, Composed composed) {
  check_argument(std::visit([](const auto& f) { return f != nullptr; }, backward), op,
                 ": record_joint needs a backward");
  check_argument(composed != nullptr, op, ": record_joint needs the op's composed form");
  Recorder& recorder = Recorder::current();
  if (recorder.active() && recorder.wants(op, y, inputs))
    recorder.append(
        std::make_unique<JointNode>(op, inputs, std::move(backward), std::move(composed)));
  return y;
}

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
  return record_fused(op, std::move(y), inputs, std::move(backward), std::move(composed));
}

Variable record_joint_in_place(const char* op, Variable y, std::vector<Variable> inputs,
                               InPlaceBackward backward, Composed composed) {
  return record_fused(op, std::move(y), inputs, std::move(backward), std::move(composed));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
