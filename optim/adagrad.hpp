// Adagrad: a rate for each number, which falls as its gradients add up.
#pragma once

#include "optim/optimizer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct AdagradOptions {
  double epsilon = 1e-10;   // > 0, added to the root
  double weight_decay = 0;  // times the parameter, added to the gradient
  DecayRule decays = decay_matrices;
};

// Each step, with g the gradient, w the parameter, s its sum of squares, which starts at 0:
//   g += weight_decay w
//   s += g^2
//   w -= rate g / (sqrt(s) + epsilon)
// A gradient that has always been 0 moves nothing. Throws ArgumentError for an option outside its
// range. Source: Duchi, Hazan, Singer, "Adaptive Subgradient Methods for Online Learning and
// Stochastic Optimization", JMLR 12, 2011, figure 1 (the diagonal form); decay and epsilon as in
// PyTorch's Adagrad.
class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(const Parameters& parameters, const AdagradOptions& options = {});

 private:
  void update(const Rates& rates, const Piece& piece) const override;

  AdagradOptions options_;
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
