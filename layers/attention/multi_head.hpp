// Multi-head attention with its projections: of a sequence to itself, and to a memory.
#pragma once

#include "layers/attention/attention_scores.hpp"
#include "layers/attention/flash.hpp"
#include "layers/attention/key_value_cache.hpp"
#include "layers/attention/multi_token_layer.hpp"
#include "layers/attention/rotary.hpp"
#include "layers/linear.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Rotary positions 0, 1, ... of queries and keys.
struct RotaryOptions {
  std::size_t positions = 0;  // the longest sequence
  // how many numbers of each head turn, the first ones; all unless given; even
  std::optional<std::size_t> width = {};
  double base = 10000;
  double position_scale = 1;
  RotaryPairs pairs = RotaryPairs::halves;
};

struct MultiHeadAttentionOptions {
  std::size_t width;
  std::size_t heads;  // of queries; divides width
  // of keys and values; divides heads; as many unless given
  std::optional<std::size_t> key_heads = {};
  std::optional<std::size_t> value_width = {};  // of each head; width / heads unless given
  bool bias = true;
  std::optional<RotaryOptions> rotary = {};
  AttentionScoresOptions scores = {};
  // Multi-token attention in place of the kernel below; goes with dropout and a scale, and none of
  // the other scores.
  std::optional<MultiTokenOptions> multi_token = {};
  AttentionKernel kernel = flash_attention;
  Initialization initialization = uniform_fan_in();
  Initialization projection_initialization = uniform_fan_in();
};

// Each head attends with its share of the width; the heads' outputs, side by side, are projected
// once more. x and y: (batch, time, width). With fewer key_heads, neighbouring heads share keys and
// values (one: multi-query attention). rng: the source of dropout; null means none. Sources:
// Vaswani et al., "Attention is all you need", 2017, section 3.2.2; Ainslie et al.,
// arXiv:2305.13245. Throws ArgumentError at construction unless heads divides width and key_heads
// divides heads, for rotary positions that do not fit a head, and for scores that do not go
// together or with the kernel. Offers capture() "weights": (batch, heads, time, time), 0 where
// hidden, before dropout.
struct MultiHeadAttention : Layer {
  MultiHeadAttentionOptions options;
  Linear qkv;         // queries, keys and values side by side
  Linear projection;  // (width, heads * value width)
  AttentionScores scores;
  std::optional<MultiTokenMixer> multi_token;

  MultiHeadAttention(const MultiHeadAttentionOptions& options, Rng& rng);
  Variable operator()(const Variable& x, const Mask& mask = {}, Rng* rng = nullptr) const;

  // A cache of this layer's keys and values for so many rows of up to `capacity` tokens; with
  // `sinks` a streaming one, which goes on for ever with that many first tokens and the last ones
  // (key_value_cache.hpp). Throws ArgumentError for multi-token attention with sinks.
  KeyValueCache make_cache(std::size_t batch, std::size_t capacity,
                           std::optional<std::size_t> sinks = std::nullopt) const;
  // The outputs of new tokens, which attend to those in the cache and to each other, and are in it
  // afterwards: what a call with the whole sequence and the same mask gives in their places. x:
  // (batch, new, width) with any number of new tokens from 1 on; y shaped like it. Of row b the
  // first counts[b] are new, by default all, and the others padding, whose output means nothing.
  // Mask and scores count positions by slots of the cache. No dropout. A single new token runs
  // decode_attention in the place of flash_attention and fused_attention. A call that throws leaves
  // the cache as it was, but for places of a streaming one: TapeError while a Tape records, for
  // there is no gradient; ArgumentError where room or rotary positions are short, for a cache of
  // another layer and for a mask given pair by pair; ShapeError for another x. Offers capture()
  // "weights": (batch, heads, new, longest), but not of multi-token attention.
  Variable decode(const Variable& x, KeyValueCache& cache, const Mask& mask = causal()) const;
  Variable decode(const Variable& x, const std::vector<std::size_t>& counts, KeyValueCache& cache,
                  const Mask& mask = causal()) const;
  // The same with another kernel for this call, or none (null); captured weights stay those of full
  // attention. Throws ArgumentError where multi-token attention has taken the kernel's place.
  Variable decode(const Variable& x, const std::vector<std::size_t>& counts, KeyValueCache& cache,
                  const Mask& mask, const AttentionKernel& kernel) const;

  void visit(auto&& f) {
    f("qkv", qkv);
    f("projection", projection);
    f("scores", scores);
    f("multi_token", multi_token);
  }

  std::size_t head_width() const { return options.width / options.heads; }
  std::size_t key_heads() const { return options.key_heads.value_or(options.heads); }
  std::size_t value_width() const { return options.value_width.value_or(head_width()); }

 private:
  std::shared_ptr<const RotaryTable> rotary_;  // or null
};

struct CrossAttentionOptions {
  std::size_t width;
  std::size_t heads;                             // of queries; divides width
  std::optional<std::size_t> memory_width = {};  // width unless given
  std::optional<std::size_t> key_heads = {};     // divides heads; as many unless given
  std::optional<std::size_t> value_width = {};   // of each head; width / heads unless given
  bool bias = true;
  AttentionScoresOptions scores = {};  // without what counts distances
  AttentionKernel kernel = flash_attention;
  Initialization initialization = uniform_fan_in();
  Initialization projection_initialization = uniform_fan_in();
};

// The keys and values that a layer made of a memory: made once, they serve any number of queries.
struct MemoryKeys {
  Variable keys_and_values;
};

// The same with keys and values from a memory, as a decoder looks at an encoder. x, y: (batch,
// time, width); memory: (batch, length, memory_width), a length of its own; mask: which of it each
// query sees, as key_lengths for padding. Throws ArgumentError at construction as
// MultiHeadAttention, and for ALiBi or relative positions: queries and memory have no distance.
// Offers capture() "weights": (batch, heads, time, length).
struct CrossAttention : Layer {
  CrossAttentionOptions options;
  Linear query;       // (width, width)
  Linear key_value;   // keys and values side by side
  Linear projection;  // (width, heads * value width)
  AttentionScores scores;

  CrossAttention(const CrossAttentionOptions& options, Rng& rng);
  MemoryKeys remember(const Variable& memory) const;
  Variable operator()(const Variable& x, const MemoryKeys& memory, const Mask& mask = {},
                      Rng* rng = nullptr) const;

  void visit(auto&& f) {
    f("query", query);
    f("key_value", key_value);
    f("projection", projection);
    f("scores", scores);
  }

  std::size_t head_width() const { return options.width / options.heads; }
  std::size_t key_heads() const { return options.key_heads.value_or(options.heads); }
  std::size_t value_width() const { return options.value_width.value_or(head_width()); }
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
