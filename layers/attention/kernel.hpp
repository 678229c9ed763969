// What an attention kernel is: a function from queries, keys and values to the output. Any two can
// be compared.
//
//   E = scale Q K^T, and what the score steps make of it
//   A = softmax of each row of E over the visible keys, and the sink
//   Y = A V, of A with dropout
//
// for each batch row and head.
//
// `composed` is made of generic ops on the tape and is the reference; `fused` carries the analytic
// backward in six steps and keeps the weights, and takes masks and scales only; `flash` works in
// tiles and keeps nothing that grows with queries times keys.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/kernels/tile.hpp"
#include "core/random.hpp"
#include "layers/attention/heads.hpp"
#include "layers/attention/score_step.hpp"
#include "layers/attention/sized_mask.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// q: queries of (batch, heads, queries, width); k: (batch, key heads, keys, width); v: (batch, key
// heads, keys, value width). Several heads of queries in a row may share one of keys and values:
// query head h reads key head h / group. Source: Ainslie et al., "GQA: training generalized
// multi-query transformer models", 2023, arXiv:2305.13245.
struct AttentionInputs {
  Heads q, k, v;

  // How many heads of queries share one of keys.
  std::size_t group() const { return k.heads == 0 ? 1 : q.heads / k.heads; }
};

struct AttentionOptions {
  Mask mask = {};
  std::optional<double> scale = {};  // 1 / sqrt(width) unless given
  ScoreSteps scores = {};            // run in this order, before the mask
  // A score for each head, of shape (heads), of a key that every query sees and whose value is 0:
  // part of the weight goes there. It gets its gradient. Zeros give exp(e) / (1 + sum exp(e)).
  // Sources: Xiao et al., arXiv:2309.17453, section 3.3; OpenAI, gpt-oss model card, 2025.
  std::optional<Variable> sink = {};
  // Each weight becomes 0 with probability `dropout` in [0, 1], and is divided by 1 - dropout
  // otherwise, as drawn from rng; no rng, no dropout. Which weights depends on the rng and the
  // sizes alone, not on the kernel or its tiles.
  double dropout = 0;
  Rng* rng = nullptr;
};

struct AttentionOutput {
  Variable output;    // (batch, queries, heads * value width), the heads side by side
  Array log_sum_exp;  // (batch, heads, queries): of the visible scores of each row; -infinity where
                      // there are none
};

// Throws ShapeError, before any work, unless batch, heads, widths and lengths agree and the mask
// fits.
using AttentionKernel =
    std::function<AttentionOutput(const AttentionInputs&, const AttentionOptions&)>;

// The options made ready for one call: what kernels work with and keep for the backward pass.
struct AttentionCall {
  SizedMask mask;
  Real scale;
  ScoreSteps steps;
  std::optional<Variable> sink;
  double dropout = 0;  // with the blocks of random numbers that it takes
  std::uint64_t seed = 0, first_block = 0;

  const AttentionSizes& sizes() const { return mask.sizes(); }
  // The sink, if there is one, and the parameters of the steps, in order: what the op reads beside
  // queries, keys and values.
  std::vector<Variable> parameters() const;
  // A query's weights of the first `keys` keys, or their gradient, after dropout.
  void drop_row(std::size_t batch, std::size_t head, std::size_t query, Real* weights,
                std::size_t keys) const;
  // Which weights from this query and key on are dropped; the key is a multiple of 4.
  kernels::DropBlocks drop_blocks(std::size_t batch, std::size_t head, std::size_t query,
                                  std::size_t key) const;
};

// Checks that everything fits, then draws the dropout.
AttentionCall prepare_attention(const AttentionInputs& inputs, const AttentionOptions& options);

// The kernel of that name: composed, fused or flash. Throws ArgumentError for another, listing
// them.
AttentionKernel attention_kernel(const std::string& name);
std::vector<std::string> attention_kernel_names();

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
