// Optimizer: what all optimisers share. A step reads gradients, never changes them, and writes
// parameters in place.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "core/parameters.hpp"
#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Which parameters weight decay applies to.
using DecayRule = std::function<bool(const std::string& name, const Variable& parameter)>;
// Those of rank 2 or more: weights and embeddings, but neither biases nor the gains and shifts of
// norms.
bool decay_matrices(const std::string& name, const Variable& parameter);
bool decay_all(const std::string& name, const Variable& parameter);

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step: every gradient is multiplied by gradient_scale (the factor of clip_norm, or 1 /
  // parts), then the rule of the class updates the parameter, at `rate`. A parameter that the loss
  // does not reach is left alone, with its state: no decay, no momentum, no step counted. It runs
  // in parallel, with the same bits at any thread count. Throws ArgumentError unless rate is finite
  // and at least 0 and gradient_scale is finite.
  void step(const Gradients& gradients, double rate, double gradient_scale = 1);

  // The parameters that are updated: those given at construction, without constants.
  const Parameters& parameters() const { return parameters_; }

  // All that the optimiser remembers, for a checkpoint: named variables
  // ("velocity.blocks.0.weight") that share their values with it, so that load() into this list
  // restores it.
  const Parameters& state() const { return state_; }

 protected:
  struct Rates {
    double rate, gradient_scale, decay;
    double steps;  // how often the parameter has been updated, this time included
  };
  // The data of a parameter, or of a part of it; state[i] is that of the i-th kind.
  struct Piece {
    const Real* gradient;
    Real* value;
    std::array<Real*, 2> state;
    std::size_t size;
  };

  // kinds: names of the arrays of state that each parameter has, two at most. Throws ArgumentError
  // unless weight_decay >= 0 and a parameter needs a gradient.
  Optimizer(const char* name, const Parameters& parameters, const std::vector<const char*>& kinds,
            double weight_decay, const DecayRule& decays);

  // The rule of the class. Called in parallel for pieces of parameters.
  virtual void update(const Rates& rates, const Piece& piece) const = 0;

 private:
  struct Slot {
    Variable value;
    std::vector<Variable> state;
    // one number; a float counts to 2^24, and bias corrections are 1 long before that
    Variable steps;
    double decay;
  };
  struct Task {
    Rates rates;
    Piece piece;
  };
  static void add_tasks(Slot& slot, Rates rates, const Array& gradient, std::vector<Task>& tasks);

  const char* name_;
  Parameters parameters_, state_;
  std::vector<Slot> slots_;
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
