// The encoder-decoder transformer: a source is read as a whole, and a target written from it.
#pragma once

#include "layers/transformer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct DecoderBlockOptions {
  MultiHeadAttentionOptions attention;
  CrossAttentionOptions cross;
  FeedForwardOptions feed_forward;
  NormOptions norm;
  double dropout = 0;  // on what each part adds
};

// Three residual parts, each normalised first: x += attention(norm1(x)), x += cross(norm2(x),
// memory), x += feed_forward(norm3(x)). x, y: (batch, time, width).
struct DecoderBlock : Layer {
  DecoderBlockOptions options;
  Norm norm1;
  MultiHeadAttention attention;
  Norm norm2;
  CrossAttention cross;
  Norm norm3;
  FeedForward feed_forward;
  Dropout dropout;

  DecoderBlock(const DecoderBlockOptions& options, Rng& rng);
  // mask: of the target; memory_mask: which of the memory each position sees.
  Variable operator()(const Variable& x, const Mask& mask, const MemoryKeys& memory,
                      const Mask& memory_mask, Rng* rng = nullptr) const;

  void visit(auto&& f) {
    f("norm1", norm1);
    f("attention", attention);
    f("norm2", norm2);
    f("cross", cross);
    f("norm3", norm3);
    f("feed_forward", feed_forward);
  }
};

struct EncoderDecoderOptions {
  std::size_t source_vocabulary, target_vocabulary;  // tokens are in [0, vocabulary)
  std::size_t source_context, target_context;        // the longest of each; positions are learned
  std::size_t width = 128;
  std::size_t heads = 4;
  std::size_t encoder_layers = 2, decoder_layers = 2;
  double dropout = 0;
  double deviation = 0.02;  // of the initial weights
  AttentionKernel kernel = flash_attention;
};

// What an encoder made of a source: keys and values for each layer of the decoder.
struct EncodedSource {
  std::vector<MemoryKeys> keys;
  Mask visible;  // hides padding
};

// Source tokens and target tokens to logits of the next target token. Each position of the source
// sees all of it but padding; each position of the target sees itself, those before it, and the
// source. Starts as Transformer does; the head is the target's token table. Throws ArgumentError at
// construction for sizes of 0 or heads that do not divide width; ShapeError for tokens of another
// rank or too long. Source: Vaswani et al., "Attention is all you need", 2017, with norms first.
struct EncoderDecoder : Layer {
  EncoderDecoderOptions options;
  Embedding source_embedding, source_positions, target_embedding, target_positions;
  std::vector<TransformerBlock> encoder;
  Norm encoder_norm;
  std::vector<DecoderBlock> decoder;
  Norm decoder_norm;
  Dropout dropout;

  EncoderDecoder(const EncoderDecoderOptions& options, Rng& rng);

  // source: (batch, length), padded behind lengths[b] tokens with any token. rng: the source of
  // dropout; null means none.
  EncodedSource encode(const Indices& source, const std::vector<std::size_t>& lengths,
                       Rng* rng = nullptr) const;
  // target: (batch, time); logits: (batch, time, target_vocabulary).
  Variable decode(const Indices& target, const EncodedSource& source, Rng* rng = nullptr) const;

  void visit(auto&& f) {
    f("source_embedding", source_embedding);
    f("source_positions", source_positions);
    f("target_embedding", target_embedding);
    f("target_positions", target_positions);
    f("encoder", encoder);
    f("encoder_norm", encoder_norm);
    f("decoder", decoder);
    f("decoder_norm", decoder_norm);
  }

 private:
  Variable embed(const Embedding& tokens, const Embedding& positions, const Indices& indices,
                 const char* what, Rng* rng) const;
};

// The most likely target, token by token: `length` tokens for each row, the first of which follows
// `start`. Records nothing.
Indices translate(const EncoderDecoder& model, const Indices& source,
                  const std::vector<std::size_t>& lengths, std::int64_t start, std::size_t length);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
