// Decoding that reads a part of the cache: a few layers choose the tokens, the others read only
// those.
//
// Each layer has a role, and in each step of one new token
//   dense   layers attend to all tokens
//   select  layers do so too, and choose tokens by their scores (token_selection.hpp)
//   sparse  layers attend to what the last selecting layer before them chose in this step
// The cache stays whole, and pieces of two tokens or more, as prompts are, are read densely. Dense
// and selecting layers run decode_attention, whatever the model's kernel is. It needs no training.
// Source: Yang et al., "Less is more", arXiv:2508.07101, sections 4 and 5.
#pragma once

#include <vector>

#include "layers/attention/continuation.hpp"
#include "layers/attention/kernel.hpp"
#include "layers/attention/token_selection.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

enum class DecodeRole { dense, select, sparse };

// The paper's: dense below the first of `selecting`, sparse above it but for the others. Throws
// ArgumentError unless `selecting` rises and is below `layers`, and for none.
std::vector<DecodeRole> decode_roles(std::size_t layers, const std::vector<std::size_t>& selecting);

struct LessIsMoreOptions {
  std::vector<DecodeRole> roles;  // of each layer of the model
  SelectionOptions selection = {};
  // Whether selecting layers read only what they chose, too. Not in the paper.
  bool sparse_selection = false;
  std::uint64_t seed = 0;  // of Selector::random_head
};

// How one generation decodes: pass it to Transformer::decode. Works with any trained model whose
// attention goes without multi-token convolutions. Throws ArgumentError at construction for a
// sparse layer with no selecting one before it, and as checked_selection().
class LessIsMore {
 public:
  explicit LessIsMore(const LessIsMoreOptions& options);

  const LessIsMoreOptions& options() const { return options_; }
  // What was chosen by the selecting layer that `layer` goes by, in the last step; null if that
  // step read more than one token, or for a dense layer.
  const TokenSets* sets(std::size_t layer) const;
  // Bytes of keys and values that the attention of all layers has gone over since the beginning,
  // and would have in dense layers; of a window too what it hides. Steps of one token alone count,
  // for rows that got it.
  std::size_t bytes_read() const { return bytes_read_; }
  std::size_t dense_bytes() const { return dense_bytes_; }

  // Of Transformer::decode: a step begins, of so many new tokens; what a layer attends with in it,
  // or no kernel for its own. Throws ArgumentError for another number of layers than of roles.
  void begin_step(std::size_t layers, std::size_t time, const Continuation& rows);
  AttentionKernel kernel(std::size_t layer);

 private:
  AttentionOutput select(std::size_t layer, const AttentionInputs& in, const AttentionOptions& o);
  void count(const AttentionInputs& in, const TokenSets* sets);

  LessIsMoreOptions options_;
  Rng rng_;
  bool one_token_ = false;
  std::vector<std::size_t> lengths_, new_;  // of the rows, the new tokens counted; and these
  std::vector<TokenSets> chosen_;           // by each selecting layer
  std::size_t bytes_read_ = 0, dense_bytes_ = 0;
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
