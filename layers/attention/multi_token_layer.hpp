// Multi-token attention as a layer: the learned weights of multi_token_attention, and what is done
// to the output of each head.
#pragma once

#include "layers/attention/multi_token_decode.hpp"
#include "layers/layer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

using MultiTokenKernel = Variable (*)(const AttentionInputs&, const TokenMixing&,
                                      const AttentionOptions&);

struct KernelSize {
  std::size_t queries = 6, keys = 11;  // keys: odd
};

struct MultiTokenOptions {
  std::optional<KernelSize> before = KernelSize();  // convolution of the scores, in each head
  std::optional<KernelSize> after = {};             // and of the weights
  std::size_t heads_before = 1;  // how many neighbouring heads are mixed, of scores; 1: none
  std::size_t heads_after = 1;   // and of weights
  bool learned = true;  // else kernels and matrices stay the identity, and are no parameters
  bool norm = false;    // RMS norm of each head's output; one gain for all heads
  Real norm_epsilon = Real(1e-5);
  // The layer's place in the model, from 0: the output is multiplied by 0.2 + 0.6 exp(-0.3 depth).
  std::optional<std::size_t> depth = {};
  bool gate = false;  // the output o is multiplied by sigmoid(u . o + b); one gate for all heads
  MultiTokenKernel kernel = multi_token_attention;  // ours, or the reference, to decode
};

// For heads of queries whose values are so wide. Kernels and matrices begin as the identity, so
// that without norm, depth and gate the layer begins as plain attention; the gain at 1, the gate's
// u normal with standard deviation 1 / sqrt(heads * width) cut at three of them, its b at 0.
// Source: Golovneva et al., arXiv:2504.00927, section 3; the rule of the depth is that of Ye et
// al., "Differential transformer", arXiv:2410.05258. Throws ArgumentError at construction for
// kernels of size 0 or with an even number of keys, and for groups that do not divide the heads.
struct MultiTokenMixer : Layer {
  struct Options {
    MultiTokenOptions multi_token;
    std::size_t heads, width;
  };
  Options options;
  Variable key_query;        // (heads, queries, keys), or no value
  Variable head_mixing;      // (groups, c, c), or no value
  Variable key_query_after;  // the same of the weights
  Variable head_mixing_after;
  Variable norm;       // (width), or no value
  Variable gate;       // (width), or no value
  Variable gate_bias;  // (1), or no value

  MultiTokenMixer(const Options& options, Rng& rng);

  // (batch, time, heads * width). The options take no score steps and no sink.
  Variable operator()(const AttentionInputs& inputs, const AttentionOptions& call) const;
  // Of new queries that go on from a cache, with the rows that it keeps (multi_token_decode).
  Variable decode(const AttentionInputs& inputs, const AttentionOptions& call,
                  const Continuation& rows, TokenRows& known) const;
  TokenRows empty_rows(std::size_t batch, std::size_t capacity) const {
    return TokenRows(mixing(), batch, options.heads, capacity);
  }
  // What the values are multiplied by: (batch, heads, queries, keys), before dropout; not recorded.
  Variable weights(const AttentionInputs& inputs, const AttentionOptions& call) const;

  void visit(auto&& f) {
    if (options.multi_token.learned) {
      f("key_query", key_query);
      f("head_mixing", head_mixing);
      f("key_query_after", key_query_after);
      f("head_mixing_after", head_mixing_after);
    }
    f("norm", norm);
    f("gate", gate);
    f("gate_bias", gate_bias);
  }

 private:
  bool mixes() const;
  Variable finished(const Variable& y) const;  // norm, depth and gate
  TokenMixing mixing() const {
    return {key_query, head_mixing, key_query_after, head_mixing_after};
  }
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
