#include "layers/encoder_decoder.hpp"

#include <algorithm>
#include <cmath>

#include "core/ops/shape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

const EncoderDecoderOptions& checked(const EncoderDecoderOptions& o) {
  check_argument(o.source_vocabulary > 0 && o.target_vocabulary > 0 && o.source_context > 0 &&
                     o.target_context > 0,
                 "EncoderDecoder: vocabularies and contexts must be positive, got ",
                 o.source_vocabulary, ", ", o.target_vocabulary, ", ", o.source_context, " and ",
                 o.target_context);
  check_argument(std::isfinite(o.deviation) && o.deviation >= 0,
                 "EncoderDecoder: deviation must be finite and not negative, got ", o.deviation);
  check_argument(o.width > 0 && o.heads > 0 && o.width % o.heads == 0, "EncoderDecoder: width ",
                 o.width, " is not a multiple of heads ", o.heads);
  return o;
}

// How the parts of a stack begin whose last norm reads `sums` residual sums.
struct Parts {
  Parts(const EncoderDecoderOptions& o, std::size_t sums)
      : weights(normal_weights(o.deviation)),
        residual(normal_weights(o.deviation / std::sqrt(double(std::max<std::size_t>(1, sums))))),
        attention{.width = o.width,
                  .heads = o.heads,
                  .kernel = o.kernel,
                  .initialization = weights,
                  .projection_initialization = residual},
        cross{.width = o.width,
              .heads = o.heads,
              .kernel = o.kernel,
              .initialization = weights,
              .projection_initialization = residual},
        feed_forward{.width = o.width,
                     .hidden = 4 * o.width,
                     .initialization = weights,
                     .down_initialization = residual} {}

  Initialization weights, residual;
  MultiHeadAttentionOptions attention;
  CrossAttentionOptions cross;
  FeedForwardOptions feed_forward;
};

std::vector<TransformerBlock> make_encoder(const EncoderDecoderOptions& o, Rng& rng) {
  const Parts parts(o, 2 * o.encoder_layers);
  std::vector<TransformerBlock> blocks;
  for (std::size_t i = 0; i < o.encoder_layers; ++i)
    blocks.emplace_back(TransformerBlockOptions{.attention = parts.attention,
                                                .feed_forward = parts.feed_forward,
                                                .norm = LayerNormOptions{.width = o.width},
                                                .dropout = o.dropout},
                        rng);
  return blocks;
}

std::vector<DecoderBlock> make_decoder(const EncoderDecoderOptions& o, Rng& rng) {
  const Parts parts(o, 3 * o.decoder_layers);
  std::vector<DecoderBlock> blocks;
  for (std::size_t i = 0; i < o.decoder_layers; ++i)
    blocks.emplace_back(DecoderBlockOptions{.attention = parts.attention,
                                            .cross = parts.cross,
                                            .feed_forward = parts.feed_forward,
                                            .norm = LayerNormOptions{.width = o.width},
                                            .dropout = o.dropout},
                        rng);
  return blocks;
}

EmbeddingOptions table(const EncoderDecoderOptions& o, std::size_t rows) {
  return {.rows = rows, .width = o.width, .initialization = normal_weights(o.deviation)};
}

}  // namespace

DecoderBlock::DecoderBlock(const DecoderBlockOptions& o, Rng& rng)
    : options(o),
      norm1(o.norm),
      attention(o.attention, rng),
      norm2(o.norm),
      cross(o.cross, rng),
      norm3(o.norm),
      feed_forward(o.feed_forward, rng),
      dropout({.probability = o.dropout}) {}

Variable DecoderBlock::operator()(const Variable& x, const Mask& mask, const MemoryKeys& memory,
                                  const Mask& memory_mask, Rng* rng) const {
  const auto add = [&](const Norm& norm, const Variable& sum, const Variable& part) {
    return within(*this, norm, [&](const Norm& n) { return n.add(sum, dropout(part, rng)); });
  };
  const Variable attended = within(*this, attention)(within(*this, norm1)(x), mask, rng);
  const SumAndNorm first = add(norm2, x, attended);
  const Variable seen = within(*this, cross)(first.normed, memory, memory_mask, rng);
  const SumAndNorm second = add(norm3, first.sum, seen);
  return second.sum + dropout(within(*this, feed_forward)(second.normed), rng);
}

EncoderDecoder::EncoderDecoder(const EncoderDecoderOptions& o, Rng& rng)
    : options(checked(o)),
      source_embedding(table(o, o.source_vocabulary), rng),
      source_positions(table(o, o.source_context), rng),
      target_embedding(table(o, o.target_vocabulary), rng),
      target_positions(table(o, o.target_context), rng),
      encoder(make_encoder(o, rng)),
      encoder_norm(LayerNormOptions{.width = o.width}),
      decoder(make_decoder(o, rng)),
      decoder_norm(LayerNormOptions{.width = o.width}),
      dropout({.probability = o.dropout}) {}

Variable EncoderDecoder::embed(const Embedding& tokens, const Embedding& positions,
                               const Indices& indices, const char* what, Rng* rng) const {
  check_shape(indices.dimension() == 2 && indices.shape()[1] <= positions.options.rows,
              "EncoderDecoder: ", what, " must be (batch, length) with length at most ",
              positions.options.rows, ", got ", indices.shape());
  const auto length = std::ptrdiff_t(indices.shape()[1]);
  return dropout(
      within(*this, tokens)(indices) + slice(positions.weight, 0, {.start = 0, .stop = length}),
      rng);
}

EncodedSource EncoderDecoder::encode(const Indices& source, const std::vector<std::size_t>& lengths,
                                     Rng* rng) const {
  EncodedSource encoded{{}, key_lengths(lengths)};
  Variable x = embed(source_embedding, source_positions, source, "source", rng);
  for (const TransformerBlock& block : encoder) x = within(*this, block)(x, encoded.visible, rng);
  x = within(*this, encoder_norm)(x);
  for (const DecoderBlock& block : decoder)
    encoded.keys.push_back(within(*this, block, [&](const DecoderBlock& b) {
      return within(b, b.cross, [&](const CrossAttention& cross) { return cross.remember(x); });
    }));
  return encoded;
}

Variable EncoderDecoder::decode(const Indices& target, const EncodedSource& source,
                                Rng* rng) const {
  check_argument(source.keys.size() == decoder.size(),
                 "EncoderDecoder: the source was encoded for ", source.keys.size(),
                 " layers, the decoder has ", decoder.size());
  Variable x = embed(target_embedding, target_positions, target, "target", rng);
  for (std::size_t i = 0; i < decoder.size(); ++i)
    x = within(*this, decoder[i])(x, causal(), source.keys[i], source.visible, rng);
  return linear(within(*this, decoder_norm)(x), target_embedding.weight);
}

Indices translate(const EncoderDecoder& model, const Indices& source,
                  const std::vector<std::size_t>& lengths, std::int64_t start, std::size_t length) {
  const Pause nothing_recorded;
  const std::size_t batch = source.shape()[0];
  const EncodedSource encoded = model.encode(source, lengths);
  Indices all = Indices::from_shape({batch, length});
  for (std::size_t time = 1; time <= length; ++time) {
    Indices so_far = Indices::from_shape({batch, time});
    for (std::size_t b = 0; b < batch; ++b) {
      so_far.data()[b * time] = start;
      std::copy_n(all.data() + b * length, time - 1, so_far.data() + b * time + 1);
    }
    const Array logits = model.decode(so_far, encoded).value();
    const std::size_t classes = logits.shape()[2];
    for (std::size_t b = 0; b < batch; ++b) {
      const Real* row = logits.data() + (b * time + time - 1) * classes;
      all.data()[b * length + time - 1] = std::max_element(row, row + classes) - row;
    }
  }
  return all;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
