// What an attention kernel is: a function from queries, keys and values to the output. Any two can
// be compared.
//
//   E = scale Q K^T
//   A = softmax of each row of E over the visible keys
//   Y = A V
//
// for each batch row and head.
//
// `composed` is made of generic ops on the tape and is the reference; `fused` carries the analytic
// backward in six steps and keeps the weights; `flash` works in tiles and keeps nothing that grows
// with queries times keys.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "layers/attention/heads.hpp"
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

// The mask made ready for a call, after checking that everything fits.
SizedMask check_attention(const AttentionInputs& inputs, const AttentionOptions& options);
double attention_scale(const AttentionInputs& inputs, const AttentionOptions& options);

// The kernel of that name: composed, fused or flash. Throws ArgumentError for another, listing
// them.
AttentionKernel attention_kernel(const std::string& name);
std::vector<std::string> attention_kernel_names();

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
