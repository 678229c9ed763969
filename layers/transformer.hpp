// The decoder-only transformer and the block it is made of.
#pragma once

#include "layers/attention/multi_head.hpp"
#include "layers/dropout.hpp"
#include "layers/embedding.hpp"
#include "layers/feed_forward.hpp"
#include "layers/less_is_more.hpp"
#include "layers/normalization.hpp"
#include "layers/residual/attention_residuals.hpp"
#include "layers/transformer_cache.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct TransformerBlockOptions {
  MultiHeadAttentionOptions attention;
  FeedForwardOptions feed_forward;
  NormOptions norm;
  double dropout = 0;  // on what each half adds
};

// Two residual halves, each normalised first: x += attention(norm1(x)), then x +=
// feed_forward(norm2(x)). x and y: (batch, time, width). Source of the order: Xiong et al., "On
// layer normalization in the transformer architecture", 2020.
struct TransformerBlock : Layer {
  TransformerBlockOptions options;
  Norm norm1;
  MultiHeadAttention attention;
  Norm norm2;
  FeedForward feed_forward;
  Dropout dropout;

  TransformerBlock(const TransformerBlockOptions& options, Rng& rng);
  Variable operator()(const Variable& x, const Mask& mask, Rng* rng = nullptr) const;

  // How what is new attends: to itself, or to a cache too.
  using Attend = std::function<Variable(const MultiHeadAttention&, const Variable& x)>;
  // The call with attention of that kind; and what each half adds, for who sums otherwise.
  Variable run(const Variable& x, const Attend& attend, Rng* rng) const;
  Variable attended(const Variable& x, const Attend& attend, Rng* rng) const;
  Variable fed_forward(const Variable& x, Rng* rng) const;

  void visit(auto&& f) {
    f("norm1", norm1);
    f("attention", attention);
    f("norm2", norm2);
    f("feed_forward", feed_forward);
  }
};

enum class NormKind { layer, rms };
// How a token knows its place: by a learned vector added to it, by rotary positions of queries and
// keys, or not at all, which leaves it to the scores (ALiBi, relative positions) or to the mask.
enum class Positions { learned, rotary, none };

// Multi-token attention in every block, its convolutions in some: blocks first, first + every, ...
struct MultiToken {
  MultiTokenOptions layer = {};
  std::size_t first = 0, every = 1;
  bool depth_scaled = false;  // each layer.depth is the block's place
};

// How a stack of sublayers adds up: by a running sum, or by attention over what each sublayer, or
// each of so many blocks of sublayers, has put out (attention_residuals.hpp; a block of the
// transformer holds two sublayers).
struct ResidualSum {};
struct FullAttention {
  bool gain = false;
};
struct BlockAttention {
  std::size_t blocks = 8;
  bool gain = false;
};
using Residual = std::variant<ResidualSum, FullAttention, BlockAttention>;

struct TransformerOptions {
  std::size_t vocabulary;  // tokens are in [0, vocabulary)
  std::size_t context;     // the longest sequence
  std::size_t width = 128;
  std::size_t heads = 4;
  std::optional<std::size_t> key_heads = {};  // as many as heads unless given; divides them
  std::size_t layers = 4;
  bool bias = true;    // in every linear map and layer norm
  bool tied = true;    // the output head is the token table itself
  double dropout = 0;  // of embeddings and of what each half of a block adds
  NormKind norm = NormKind::layer;
  Real norm_epsilon = Real(1e-5);
  Positions positions = Positions::learned;
  RotaryOptions rotary = {};  // of Positions::rotary; their number is the context
  AttentionScoresOptions scores = {};
  std::optional<MultiToken> attention = {};  // in place of the kernel; goes without `scores`
  Residual residual = ResidualSum();
  std::optional<std::size_t> window = {};  // how many tokens a query sees, itself counted; else all
  Activation activation = gelu;
  bool gated = false;                      // the feed-forward part; with silu: SwiGLU
  std::optional<std::size_t> hidden = {};  // of the feed-forward part; 4 width unless given
  double deviation = 0.02;                 // of the initial weights
  // of all of them, in place of what is said below
  std::optional<Initialization> initialization = {};
  AttentionKernel kernel = flash_attention;
};

// Tokens to logits of the next token, each position seeing itself and those before it.
//   tokens: (batch, time), time <= context; logits: (batch, time, vocabulary)
// Tokens (batch, time, parts) put several at each place: their vectors are added up.
// Weights start normal with standard deviation `deviation`, those that feed a residual sum with
// deviation / sqrt(2 layers); biases at 0, gains at 1 (Radford et al., "Language models are
// unsupervised multitask learners", 2019). With RMS norms, rotary positions, fewer key heads and a
// gate it is shaped like Llama (Touvron et al., arXiv:2302.13971). Throws ArgumentError at
// construction for sizes of 0, heads that do not divide width, and what the parts refuse;
// ShapeError for tokens of another rank or too long.
struct Transformer : Layer {
  TransformerOptions options;
  Embedding token_embedding;                    // (vocabulary, width)
  std::optional<Embedding> position_embedding;  // (context, width), if positions are learned
  std::vector<TransformerBlock> blocks;
  Norm norm;
  std::optional<Linear> head;                   // (vocabulary, width), without bias; none if tied
  std::optional<AttentionResiduals> residuals;  // none for a running sum
  Dropout dropout;

  Transformer(const TransformerOptions& options, Rng& rng);
  // rng: the source of dropout; null means none.
  Variable operator()(const Indices& tokens, Rng* rng = nullptr) const;
  // The same where each position sees what `seen` shows, too: documents(ids) for texts that share a
  // row.
  Variable operator()(const Indices& tokens, const Mask& seen, Rng* rng = nullptr) const;

  // Which keys a query sees.
  Mask mask() const;

  // An empty cache for so many rows of up to `capacity` tokens, the context unless given. Throws
  // ArgumentError for no rows and for a capacity of 0 or above the context.
  TransformerCache make_cache(std::size_t batch,
                              std::optional<std::size_t> capacity = std::nullopt) const;
  // The same for rows without end: once it is full, each new token takes the place of the oldest
  // behind the first `sinks`, and positions are those of the slots, so none is above what the model
  // has learned. Tokens that need such places come one at a time; places that were taken stay so if
  // a call throws. Throws ArgumentError too for learned positions, which are in the keys for good,
  // for multi-token attention, and unless sinks are below the capacity. Source: Xiao et al.,
  // arXiv:2309.17453 (StreamingLLM), section 3.2.
  TransformerCache make_streaming_cache(std::size_t batch, std::size_t capacity,
                                        std::size_t sinks = 4) const;
  // The logits of new tokens, which follow those in the cache and are in it afterwards: what a call
  // with the whole sequences gives in their places, without dropout. tokens: (batch, new) or
  // (batch, new, parts), any number of new ones from 1 on, so a prompt may come in pieces; logits:
  // (batch, new, vocabulary). Rows of different lengths are padded at their ends: of row b the
  // first counts[b] tokens are new, by default all, maybe none; the others may be any of the
  // vocabulary, and their logits mean nothing. less_is_more: where one new token of each row reads
  // what it says (less_is_more.hpp). A call that throws leaves the cache as it was, but for places
  // of a streaming one: TapeError while a Tape records, for there is no gradient; ArgumentError
  // where room is short; ShapeError for another batch.
  Variable decode(const Indices& tokens, TransformerCache& cache,
                  LessIsMore* less_is_more = nullptr) const;
  Variable decode(const Indices& tokens, const std::vector<std::size_t>& counts,
                  TransformerCache& cache, LessIsMore* less_is_more = nullptr) const;

  void visit(auto&& f) {
    f("token_embedding", token_embedding);
    f("position_embedding", position_embedding);
    f("blocks", blocks);
    f("norm", norm);
    f("head", head);
    f("residuals", residuals);
  }

 private:
  TransformerCache make_cache_of(std::size_t batch, std::size_t capacity,
                                 std::optional<std::size_t> sinks) const;
  // attend: also told which block it is for
  using Attend =
      std::function<Variable(std::size_t block, const MultiHeadAttention&, const Variable& x)>;
  Variable through_blocks(Variable x, const Attend& attend, Rng* rng) const;
  Variable embedded(const Indices& tokens) const;
  Variable to_logits(const Variable& x) const;
};

// The options, once they are found to be possible: throws as the constructor does.
const TransformerOptions& checked_options(const TransformerOptions& options);
// How many numbers a transformer with these options would learn, without making one. Throws as the
// constructor for sizes of 0 and heads that do not divide width.
std::size_t parameter_count(const TransformerOptions& options);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
