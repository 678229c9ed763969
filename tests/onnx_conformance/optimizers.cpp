// Adagrad, Adam and Momentum of ai.onnx.preview.training, which are one step from a given state.
//
// Inputs are a rate R, a count of steps T, and then a list each of parameters, of gradients, and of
// every kind of state; outputs are these lists without the gradients.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "onnx_conformance/call.hpp"
#include "optim/adagrad.hpp"
#include "optim/adam.hpp"
#include "optim/sgd.hpp"

namespace conformance {
namespace {

struct Lists {
  double rate, steps;
  std::vector<Variable> values, gradients;
  std::vector<std::vector<Variable>> state;  // a list for each kind

  Lists(const Call& call, std::size_t kinds) : rate(call.scalar(0)), steps(call.scalar(1)) {
    const std::size_t count = (call.inputs() - 2) / (2 + kinds);
    const auto list = [&](std::size_t which) {
      std::vector<Variable> all;
      for (std::size_t i = 0; i < count; ++i) all.push_back(call[2 + which * count + i]);
      return all;
    };
    for (const Variable& x : list(0)) values.push_back(ag::parameter(x.value()));
    gradients = list(1);
    for (std::size_t kind = 0; kind < kinds; ++kind) state.push_back(list(2 + kind));
  }

  ag::Parameters parameters() const {
    ag::Parameters all;
    for (std::size_t i = 0; i < values.size(); ++i) all.add(std::to_string(i), values[i]);
    return all;
  }

  std::vector<Value> outputs() const {
    std::vector<Value> all(values.begin(), values.end());
    for (const auto& kind : state) all.insert(all.end(), kind.begin(), kind.end());
    return all;
  }

  // The optimiser's step from this state, which becomes the one after it.
  void step(ag::Optimizer& optimizer, const std::vector<std::string>& kinds, double steps_before,
            double at_rate, double gradient_scale = 1) {
    const auto held = [&](const std::string& kind, std::size_t i) {
      return optimizer.state().find(ag::dotted(kind, std::to_string(i)));
    };
    for (std::size_t i = 0; i < values.size(); ++i) {
      held("steps", i).assign(ag::filled({}, Real(steps_before)));
      for (std::size_t kind = 0; kind < kinds.size(); ++kind)
        held(kinds[kind], i).assign(state[kind][i].value());
    }
    ag::Tape tape;
    Variable loss(Real(0));  // whose gradients are those given
    for (std::size_t i = 0; i < values.size(); ++i) loss = loss + ag::sum(values[i] * gradients[i]);
    optimizer.step(tape.gradients(loss), at_rate, gradient_scale);
    for (std::size_t kind = 0; kind < kinds.size(); ++kind)
      for (std::size_t i = 0; i < values.size(); ++i) state[kind][i] = held(kinds[kind], i);
  }
};

// ONNX lets epsilon be 0; ours must be positive, and next to a root this is nothing.
double epsilon_of(const Call& call) {
  return std::max<double>(call.number("epsilon", 0), std::numeric_limits<Real>::min());
}

std::vector<Value> adagrad(const Call& call) {
  Lists lists(call, 1);
  const double rate = lists.rate / (1 + lists.steps * call.number("decay_factor", 0));
  ag::Adagrad optimizer(lists.parameters(), {.epsilon = epsilon_of(call),
                                             .weight_decay = call.number("norm_coefficient", 0),
                                             .decays = ag::decay_all});
  lists.step(optimizer, {"sum_of_squares"}, lists.steps, rate);
  return lists.outputs();
}

std::vector<Value> adam(const Call& call) {
  Lists lists(call, 2);
  const double alpha = call.number("alpha", 0.9), beta = call.number("beta", 0.999);
  // T counts the step that is taken; for 0 nothing is corrected, as after very many steps
  const double steps = lists.steps > 0 ? lists.steps : 1 << 24;
  // ONNX adds epsilon to the root before it is corrected
  const double epsilon = epsilon_of(call) / std::sqrt(1 - std::pow(beta, steps));
  ag::Adam optimizer(lists.parameters(), {.beta1 = alpha,
                                          .beta2 = beta,
                                          .epsilon = epsilon,
                                          .weight_decay = call.number("norm_coefficient", 0),
                                          .decays = ag::decay_all});
  lists.step(optimizer, {"first_moment", "second_moment"}, steps - 1, lists.rate);
  const double shrink = 1 - call.number("norm_coefficient_post", 0);
  for (Variable& x : lists.values) x = Real(shrink) * x;
  return lists.outputs();
}

// Where Sgd has no such options: Nesterov with a weighted gradient, momentum outside of (0, 1).
void momentum_by_hand(Lists& lists, double alpha, double beta, double decay, bool nesterov) {
  for (std::size_t i = 0; i < lists.values.size(); ++i) {
    Variable &x = lists.values[i], &velocity = lists.state[0][i];
    const Variable gradient = lists.gradients[i] + Real(decay) * x;
    velocity = Real(alpha) * velocity + Real(beta) * gradient;
    x = x - Real(lists.rate) * (nesterov ? gradient + Real(alpha) * velocity : velocity);
  }
}

std::vector<Value> momentum(const Call& call) {
  Lists lists(call, 1);
  const double alpha = call.number("alpha").value(),
               decay = call.number("norm_coefficient").value(), given = call.number("beta").value(),
               beta = lists.steps > 0 ? given : 1;
  const std::string mode = call.text("mode", "");
  if (mode != "standard" && mode != "nesterov") throw Skip("mode " + mode);
  const bool nesterov = mode == "nesterov";
  if (alpha > 0 && alpha < 1 && beta >= 0 && (beta == 1 || !nesterov)) {
    ag::Sgd optimizer(lists.parameters(), {.momentum = alpha,
                                           .nesterov = nesterov,
                                           .weight_decay = beta * decay,
                                           .decays = ag::decay_all});
    lists.step(optimizer, {"velocity"}, lists.steps, lists.rate, beta);
  } else {
    momentum_by_hand(lists, alpha, beta, decay, nesterov);
  }
  return lists.outputs();
}

}  // namespace

void add_optimizers(Mappings& mappings) {
  mappings["Adagrad"] = adagrad;
  mappings["Adam"] = adam;
  mappings["Momentum"] = momentum;
}

}  // namespace conformance
