// Stochastic gradient descent, with momentum if wanted.
#pragma once

#include "optim/optimizer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct SgdOptions {
  double momentum = 0;      // in [0, 1)
  bool nesterov = false;    // needs momentum
  double weight_decay = 0;  // times the parameter, added to the gradient
  DecayRule decays = decay_matrices;
};

// Each step, with g the gradient, w the parameter, u its velocity, which starts at 0:
//   g += weight_decay w
//   u = momentum u + g             (only with momentum)
//   w -= rate g                    without momentum
//   w -= rate u                    with momentum
//   w -= rate (g + momentum u)     with nesterov
// Throws ArgumentError for an option outside its range.
// Source: Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in
// deep learning", 2013; in the form of PyTorch's SGD, where the rate stands outside the velocity.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const Parameters& parameters, const SgdOptions& options = {});

 private:
  void update(const Rates& rates, const Piece& piece) const override;

  SgdOptions options_;
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
