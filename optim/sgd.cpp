#include "optim/sgd.hpp"

#include "core/kernels/vector.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

std::vector<const char*> kinds(const SgdOptions& options) {
  if (options.momentum == 0) return {};
  return {"velocity"};
}

const SgdOptions& checked(const SgdOptions& options) {
  check_argument(options.momentum >= 0 && options.momentum < 1,
                 "sgd: momentum must be in [0, 1), got ", options.momentum);
  check_argument(!options.nesterov || options.momentum > 0, "sgd: nesterov needs momentum");
  return options;
}

}  // namespace

Sgd::Sgd(const Parameters& parameters, const SgdOptions& options)
    : Optimizer("sgd", parameters, kinds(checked(options)), options.weight_decay, options.decays),
      options_(options) {}

void Sgd::update(const Rates& rates, const Piece& piece) const {
  const kernels::SgdStep step{rates.rate, options_.momentum, rates.decay, rates.gradient_scale,
                              options_.nesterov};
  kernels::vector_kernels<Real>().sgd(step, piece.gradient, piece.value, piece.state[0],
                                      piece.size);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
