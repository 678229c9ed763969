// Losses.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tape.hpp"

namespace attngrad {

// What becomes of the losses of the rows.
enum class Reduction { mean, sum, none };

inline namespace ATTNGRAD_PRECISION {

struct CrossEntropyOptions {
  std::optional<std::int64_t> ignore_index = std::nullopt;  // a target that stands for "none here"
  Real label_smoothing = 0;                                 // in [0, 1]
  Reduction reduction = Reduction::mean;
  std::optional<Array> weights = std::nullopt;  // of each target, shaped like them; at least 0
};

// How far the distribution softmax(logits) is from the targets:
//   loss = -log softmax(logits)[target]
// and with label smoothing s the target keeps 1 - s, while s is shared evenly by all classes, the
// target among them. logits: (..., classes); targets: (...), each in [0, classes); the loss is a
// number, or shaped like targets for none. Where the target is ignore_index the loss is 0 with
// gradient 0, and the mean does not count the row; the mean of no rows is 0. An ignore_index that
// is a class still stands in the softmax of the other rows. A row with a weight w counts w times,
// in the mean too, and with the weight 0 as if it were ignored: its gradient is exactly 0. Saves
// logits, two numbers per row and the weights, no probabilities. Throws ShapeError unless targets
// and weights fit, ArgumentError for any other target, a smoothing outside [0, 1], and weights that
// are negative or not finite. Source of smoothing: Szegedy et al., "Rethinking the Inception
// Architecture", 2015, arXiv:1512.00567, section 7.
Variable cross_entropy(const Variable& logits, const Indices& targets,
                       CrossEntropyOptions options = {});

// The same from log_softmax and a product with the targets' distributions.
Variable composed_cross_entropy(const Variable& logits, const Indices& targets,
                                CrossEntropyOptions options = {});

// mean((prediction - target)^2), a number; of nothing, NaN.
// Throws ShapeError unless the shapes are equal: a broadcast here is nearly always a mistake.
Variable mean_square(const Variable& prediction, const Variable& target);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
