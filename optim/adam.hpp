// Adam, and AdamW, which decays weights apart from the gradient.
#pragma once

#include "optim/optimizer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;  // in [0, 1)
  double epsilon = 1e-8;              // > 0, added to the root
  double weight_decay = 0;            // times the parameter, added to the gradient
  DecayRule decays = decay_matrices;
};

// Each step, with g the gradient, w the parameter, its moments m and v, which start at 0, and t the
// number of its steps, this one included:
//   g += weight_decay w
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   w -= rate m' / (sqrt(v') + epsilon)    with m' = m / (1 - beta1^t), v' = v / (1 - beta2^t)
// A gradient that has always been 0 moves nothing. Throws ArgumentError for an option outside its
// range. Source: Kingma, Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1; decay
// as in PyTorch's Adam.
class Adam final : public Optimizer {
 public:
  explicit Adam(const Parameters& parameters, const AdamOptions& options = {});

 private:
  void update(const Rates& rates, const Piece& piece) const override;

  AdamOptions options_;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // times the rate, the part of the parameter that is taken away
  DecayRule decays = decay_matrices;
};

// The same, but the decay does not enter the moments: w is multiplied by 1 - rate weight_decay
// before it is moved. Source: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", 2019,
// algorithm 2; as in PyTorch, the decay is multiplied by the whole rate, not by the schedule's
// factor alone.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(const Parameters& parameters, const AdamWOptions& options = {});

 private:
  void update(const Rates& rates, const Piece& piece) const override;

  AdamWOptions options_;
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
