// What an attention layer does to scores and weights, and the parameters that takes.
#pragma once

#include "layers/attention/kernel.hpp"
#include "layers/attention/score_steps.hpp"
#include "layers/layer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// A key that every query sees and whose value is 0: none, with score 0, or with a learned score for
// each head.
enum class Sink { none, zero, learned };

struct AttentionScoresOptions {
  std::optional<double> scale = {};  // 1 / sqrt(head width) unless given
  // these run in this order, before the mask
  std::optional<double> soft_cap = {};
  bool alibi = false;
  std::optional<std::size_t> relative_reach = {};  // learned biases up to this distance, from 0
  ScoreSteps steps = {};                           // the caller's own
  Sink sink = Sink::none;
  double dropout = 0;  // of the weights, while there is an rng
};

// Throws ArgumentError at construction for a soft-cap that is not positive, a dropout outside of
// [0, 1], and ALiBi beside learned relative positions: one of them says how distance counts.
struct AttentionScores : Layer {
  AttentionScoresOptions options;
  std::size_t heads;
  Variable relative_table;  // (heads, 2 reach + 1), or no value
  Variable sink;            // (heads), or no value; learned

  AttentionScores(const AttentionScoresOptions& o, std::size_t heads);

  // The options of one call.
  AttentionOptions operator()(const Mask& mask, Rng* rng) const;

  void visit(auto&& f) {
    f("relative_table", relative_table);
    f("sink", sink);
  }

 private:
  ScoreSteps fixed_;  // the steps without parameters
};

// Throws ArgumentError if the kernel is missing, or is fused_attention and the options ask for more
// than it has. layer: its name, for the message.
void check_kernel(const char* layer, const AttentionKernel& kernel,
                  const AttentionScoresOptions& options);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
