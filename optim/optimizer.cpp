#include "optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "core/kernels/strided.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

bool decay_matrices(const std::string&, const Variable& parameter) { return parameter.rank() >= 2; }
bool decay_all(const std::string&, const Variable&) { return true; }

Optimizer::Optimizer(const char* name, const Parameters& parameters,
                     const std::vector<const char*>& kinds, double weight_decay,
                     const DecayRule& decays)
    : name_(name) {
  check_argument(weight_decay >= 0 && std::isfinite(weight_decay), name,
                 ": weight_decay must be at least 0, got ", weight_decay);
  check_argument(decays != nullptr, name, ": decays must be a rule");
  check_argument(std::any_of(parameters.begin(), parameters.end(),
                             [](const auto& entry) { return entry.value.needs_grad(); }),
                 name, ": none of ", parameters.size(),
                 " variables needs a gradient; a layer's visit lists its parameters");
  for (const auto& [path, x] : parameters) {
    if (!x.needs_grad()) continue;
    parameters_.add(path, x);
    Slot slot{x, {}, constant(zeros({})), decays(path, x) ? weight_decay : 0};
    for (const char* kind : kinds)
      state_.add(dotted(kind, path), slot.state.emplace_back(zeros(x.shape())));
    state_.add(dotted("steps", path), slot.steps);
    slots_.push_back(std::move(slot));
  }
}

void Optimizer::add_tasks(Slot& slot, Rates rates, const Array& gradient,
                          std::vector<Task>& tasks) {
  std::array<Real*, 2> state{};
  for (std::size_t i = 0; i < slot.state.size(); ++i) state[i] = slot.state[i].edit().data();
  Real* const value = slot.value.edit().data();
  for (std::size_t begin = 0; begin < gradient.size(); begin += kernels::task_size) {
    Piece piece{gradient.data() + begin,
                value + begin,
                {},
                std::min(kernels::task_size, gradient.size() - begin)};
    for (std::size_t i = 0; i < slot.state.size(); ++i) piece.state[i] = state[i] + begin;
    tasks.push_back({rates, piece});
  }
}

void Optimizer::step(const Gradients& gradients, double rate, double gradient_scale) {
  check_argument(rate >= 0 && std::isfinite(rate), name_,
                 ": rate must be finite and at least 0, got ", rate);
  check_argument(std::isfinite(gradient_scale), name_, ": gradient_scale must be finite, got ",
                 gradient_scale);
  for (const Slot& slot : slots_) {
    if (!gradients.reached(slot.value)) continue;  // to ask for its gradient would make zeros
    const Shape shape = gradients.of(slot.value).shape();
    check_shape(shape == slot.value.shape(), name_,
                ": a parameter's shape was changed after its gradient was taken: it is ",
                slot.value.shape(), ", the gradient ", shape);
    for (const Variable& state : slot.state)
      check_shape(state.shape() == shape, name_,
                  ": a parameter's shape was changed after the optimiser was made: its state is ",
                  state.shape(), ", the gradient ", shape);
    check_shape(slot.steps.rank() == 0, name_, ": a count of steps must be one number, got shape ",
                slot.steps.shape());
  }
  std::vector<Variable> held;  // while the tasks point into them
  std::vector<Task> tasks;
  for (Slot& slot : slots_) {
    if (!gradients.reached(slot.value)) continue;
    held.push_back(gradients.of(slot.value));
    const double steps = double(slot.steps.edit().data()[0] += 1);
    add_tasks(slot, {rate, gradient_scale, slot.decay, steps}, held.back().value(), tasks);
  }
  double elements = 0;
  for (const Task& task : tasks) elements += double(task.piece.size);
  constexpr double operations_each = 20;
  parallel_for(
      tasks.size(), [&](std::size_t i) { update(tasks[i].rates, tasks[i].piece); },
      operations_each * elements);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
