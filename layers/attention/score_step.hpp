// A step from scores to scores, between E = scale Q K^T and the mask: a bias, a cap, a function of
// the user's. Kernels run it on blocks, forward and backward; `composed` is made of generic ops and
// says what it means.
//
// Ready-made steps are in score_steps.hpp; score_function.hpp makes one of a function of one score.
#pragma once

#include <memory>
#include <vector>

#include "core/tape.hpp"
#include "layers/attention/sized_mask.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

inline constexpr std::size_t score_block_side = 96;

class ScoreStep {
 public:
  // parameters: the Variables that the step reads, which may get gradients.
  explicit ScoreStep(std::vector<Variable> parameters = {}) : parameters_(std::move(parameters)) {}
  virtual ~ScoreStep() = default;
  ScoreStep(const ScoreStep&) = delete;
  ScoreStep& operator=(const ScoreStep&) = delete;

  const std::vector<Variable>& parameters() const { return parameters_; }

  // Throws ShapeError unless the step fits the sizes.
  virtual void check(const AttentionSizes& sizes) const = 0;

  // Blocks are transposed, block.row(key) pointing to its queries side by side, and at most
  // score_block_side long and wide. Those that a mask hides hold anything, and are
  // overwritten afterwards.
  virtual void forward(const AttentionSizes& sizes, const ScoreBlock<Real>& scores) const = 0;
  // From the scores before the step and the gradient of those after it: the gradient of those
  // before, in place. Adds the parameters' gradients, each at an array of its parameter's shape.
  // Where the gradient is 0 it stays so and adds nothing, whatever the score: the pair may be
  // hidden.
  virtual void backward(const AttentionSizes& sizes, const ScoreBlock<const Real>& before,
                        const ScoreBlock<Real>& gradient, Real* const* gradients) const = 0;

  // Which blocks add to the same elements of the parameters' gradients. Kernels give each thread an
  // array of its own and add those up at the end; where each query has its own elements they do
  // without, and run what shares them one after the other.
  struct Sharing {
    bool by_query = false;              // each (batch row, head, query) has its own elements ...
    bool batch = false, heads = false;  // ... but for rows of the batch, or heads, that share them
  };
  virtual Sharing sharing(const AttentionSizes&) const { return {}; }

  // The same for all scores at once, (batch, heads, queries, keys), with other Variables in the
  // parameters' place.
  virtual Variable composed(const AttentionSizes& sizes, const Variable& scores,
                            const std::vector<Variable>& parameters) const = 0;

 private:
  std::vector<Variable> parameters_;
};

// In the order in which they run.
using ScoreSteps = std::vector<std::shared_ptr<const ScoreStep>>;

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
