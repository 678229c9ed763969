// Dropout.
#pragma once

#include "core/random.hpp"
#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Sets each element to 0 with this probability and divides the others by 1 - probability, so that
// the mean stays:
//   y = x * mask / (1 - probability)
// At probability 0, y is x itself and nothing is drawn; at 1, y and the gradient are 0. A dropped
// element is exactly 0, even if x was not finite. The mask is a function of the generator's seed
// and offset: the same at any thread count, and made again for the derivative instead of being
// saved. Moves rng on by one block per four elements. Throws ArgumentError unless probability is in
// [0, 1]. Source: Srivastava et al., "Dropout", JMLR 15, 2014, section 10 (the scaling at training
// time).
Variable dropout(const Variable& x, double probability, Rng& rng);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
