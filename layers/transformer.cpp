#include "layers/transformer.hpp"

#include <cmath>

#include "core/ops/reduce.hpp"
#include "core/ops/shape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

const TransformerOptions& checked_options(const TransformerOptions& o) {
  check_argument(o.vocabulary > 0 && o.context > 0 && o.width > 0 && o.heads > 0,
                 "Transformer: vocabulary, context, width and heads must be positive, got ",
                 o.vocabulary, ", ", o.context, ", ", o.width, " and ", o.heads);
  check_argument(std::isfinite(o.deviation) && o.deviation >= 0,
                 "Transformer: deviation must be finite and not negative, got ", o.deviation);
  check_argument(o.width % o.heads == 0, "Transformer: width ", o.width,
                 " is not a multiple of heads ", o.heads);
  check_argument(!o.attention || o.attention->every > 0,
                 "Transformer: MultiToken.every must be positive, got 0");
  check_argument(o.window.value_or(1) > 0, "Transformer: a window must hold a token, got 0");
  return o;
}

namespace {

Initialization weights_of(const TransformerOptions& o) {
  return o.initialization.value_or(normal_weights(o.deviation));
}

NormOptions norm_options(const TransformerOptions& o) {
  if (o.norm == NormKind::rms) return RMSNormOptions{.width = o.width, .epsilon = o.norm_epsilon};
  return LayerNormOptions{.width = o.width, .bias = o.bias, .epsilon = o.norm_epsilon};
}

std::optional<MultiTokenOptions> multi_token_options(const TransformerOptions& o,
                                                     std::size_t layer) {
  if (!o.attention) return std::nullopt;
  MultiTokenOptions options = o.attention->layer;
  const std::size_t first = o.attention->first;
  if (layer < first || (layer - first) % o.attention->every != 0)
    options.before = options.after = std::nullopt;
  if (o.attention->depth_scaled) options.depth = layer;
  return options;
}

MultiHeadAttentionOptions attention_options(const TransformerOptions& o, std::size_t layer,
                                            const Initialization& residual) {
  std::optional<RotaryOptions> rotary;
  if (o.positions == Positions::rotary) {
    rotary = o.rotary;
    rotary->positions = o.context;
  }
  return {.width = o.width,
          .heads = o.heads,
          .key_heads = o.key_heads,
          .bias = o.bias,
          .rotary = rotary,
          .scores = o.scores,
          .multi_token = multi_token_options(o, layer),
          .kernel = o.kernel,
          .initialization = weights_of(o),
          .projection_initialization = residual};
}

TransformerBlockOptions block_options(const TransformerOptions& o, std::size_t layer) {
  // 2 layers sums feed the last norm: each adds its share of variance
  const double share = o.deviation / std::sqrt(2 * double(std::max<std::size_t>(1, o.layers)));
  const Initialization residual = o.initialization.value_or(normal_weights(share));
  return {.attention = attention_options(o, layer, residual),
          .feed_forward = {.width = o.width,
                           .hidden = o.hidden.value_or(4 * o.width),
                           .bias = o.bias,
                           .activation = o.activation,
                           .gated = o.gated,
                           .initialization = weights_of(o),
                           .down_initialization = residual},
          .norm = norm_options(o),
          .dropout = o.dropout};
}

std::optional<AttentionResiduals> residuals_of(const TransformerOptions& o) {
  if (std::holds_alternative<ResidualSum>(o.residual)) return std::nullopt;
  AttentionResidualsOptions options{
      .width = o.width, .sublayers = 2 * o.layers, .epsilon = o.norm_epsilon};
  if (const auto* blocks = std::get_if<BlockAttention>(&o.residual)) {
    options.blocks = blocks->blocks;
    options.gain = blocks->gain;
  } else {
    options.blocks = std::max<std::size_t>(1, options.sublayers);
    options.gain = std::get<FullAttention>(o.residual).gain;
  }
  return AttentionResiduals(options);
}

std::optional<Embedding> learned_positions(const TransformerOptions& o, Rng& rng) {
  if (o.positions != Positions::learned) return std::nullopt;
  return Embedding({.rows = o.context, .width = o.width, .initialization = weights_of(o)}, rng);
}

std::vector<TransformerBlock> make_blocks(const TransformerOptions& o, Rng& rng) {
  std::vector<TransformerBlock> blocks;
  for (std::size_t i = 0; i < o.layers; ++i) blocks.emplace_back(block_options(o, i), rng);
  return blocks;
}

}  // namespace

TransformerBlock::TransformerBlock(const TransformerBlockOptions& o, Rng& rng)
    : options(o),
      norm1(o.norm),
      attention(o.attention, rng),
      norm2(o.norm),
      feed_forward(o.feed_forward, rng),
      dropout({.probability = o.dropout}) {}

Variable TransformerBlock::operator()(const Variable& x, const Mask& mask, Rng* rng) const {
  const auto attend = [&](const MultiHeadAttention& layer, const Variable& normed) {
    return layer(normed, mask, rng);
  };
  return run(x, attend, rng);
}

Variable TransformerBlock::run(const Variable& x, const Attend& attend, Rng* rng) const {
  const Variable change = attended(x, attend, rng);
  const auto [middle, normed] =
      within(*this, norm2, [&](const Norm& norm) { return norm.add(x, change); });
  return middle + dropout(within(*this, feed_forward)(normed), rng);
}

Variable TransformerBlock::attended(const Variable& x, const Attend& attend, Rng* rng) const {
  const Variable normed = within(*this, norm1)(x);
  return dropout(within(*this, attention,
                        [&](const MultiHeadAttention& layer) { return attend(layer, normed); }),
                 rng);
}

Variable TransformerBlock::fed_forward(const Variable& x, Rng* rng) const {
  return dropout(within(*this, feed_forward)(within(*this, norm2)(x)), rng);
}

Transformer::Transformer(const TransformerOptions& o, Rng& rng)
    : options(checked_options(o)),
      token_embedding({.rows = o.vocabulary, .width = o.width, .initialization = weights_of(o)},
                      rng),
      position_embedding(learned_positions(o, rng)),
      blocks(make_blocks(o, rng)),
      norm(norm_options(o)),
      residuals(residuals_of(o)),
      dropout({.probability = o.dropout}) {
  if (!o.tied)
    head.emplace(
        LinearOptions{
            .in = o.width, .out = o.vocabulary, .bias = false, .initialization = weights_of(o)},
        rng);
}

Mask Transformer::mask() const {
  return options.window ? sliding_window(*options.window - 1, 0) : causal();
}

Variable Transformer::through_blocks(Variable x, const Attend& attend, Rng* rng) const {
  const auto in_block = [&](std::size_t i, auto&& f) {
    return within(*this, blocks[i], [&](const TransformerBlock& block) {
      return f(block, [&](const MultiHeadAttention& layer, const Variable& normed) {
        return attend(i, layer, normed);
      });
    });
  };
  if (!residuals) {
    for (std::size_t i = 0; i < blocks.size(); ++i)
      x = in_block(i, [&](const auto& block, const auto& how) { return block.run(x, how, rng); });
    return x;
  }
  ResidualSources sources(*residuals, x);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Variable h;
    const auto next = [&](const AttentionResiduals&) { h = sources.next(); };
    within(*this, *residuals, next);
    sources.add(in_block(
        i, [&](const auto& block, const auto& how) { return block.attended(h, how, rng); }));
    within(*this, *residuals, next);
    sources.add(
        in_block(i, [&](const auto& block, const auto&) { return block.fed_forward(h, rng); }));
  }
  return within(*this, *residuals, [&](const auto&) { return sources.result(); });
}

Variable Transformer::embedded(const Indices& tokens) const {
  const Variable x = within(*this, token_embedding)(tokens);
  return tokens.dimension() == 3 ? sum(x, {2}) : x;
}

Variable Transformer::operator()(const Indices& tokens, Rng* rng) const {
  return (*this)(tokens, Mask(), rng);
}

Variable Transformer::operator()(const Indices& tokens, const Mask& seen, Rng* rng) const {
  check_shape(
      (tokens.dimension() == 2 || tokens.dimension() == 3) && tokens.shape()[1] <= options.context,
      "Transformer: tokens must be (batch, time) or (batch, time, parts) with time at most ",
      options.context, ", got ", tokens.shape());
  Variable x = embedded(tokens);
  if (position_embedding) {
    const auto time = std::ptrdiff_t(tokens.shape()[1]);
    x = x + slice(position_embedding->weight, 0, {.start = 0, .stop = time});
  }
  const Mask whole = mask() & seen;
  const auto attend = [&](std::size_t, const MultiHeadAttention& layer, const Variable& normed) {
    return layer(normed, whole, rng);
  };
  return to_logits(through_blocks(dropout(x, rng), attend, rng));
}

Variable Transformer::to_logits(const Variable& x) const {
  const Variable last = within(*this, norm)(x);
  return head ? within(*this, *head)(last) : linear(last, token_embedding.weight);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
