// parameter_count(), from the options alone: a model need not fit into memory to be counted.
#include "layers/transformer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

std::size_t linear_count(std::size_t in, std::size_t out, bool bias) {
  return (in + (bias ? 1 : 0)) * out;
}

std::size_t norm_count(const TransformerOptions& o) {
  return o.norm == NormKind::layer && o.bias ? 2 * o.width : o.width;
}

std::size_t multi_token_count(const TransformerOptions& o, std::size_t layer) {
  if (!o.attention) return 0;
  const MultiTokenOptions& m = o.attention->layer;
  const MultiToken& where = *o.attention;
  std::size_t count = 0;
  if (m.learned && layer >= where.first && (layer - where.first) % where.every == 0)
    for (const auto& size : {m.before, m.after})
      if (size) count += o.heads * size->queries * size->keys;
  for (const std::size_t group : {m.heads_before, m.heads_after})
    if (m.learned && group > 1) count += o.heads * group;
  const std::size_t head_width = o.width / o.heads;
  return count + (m.norm ? head_width : 0) + (m.gate ? head_width + 1 : 0);
}

std::size_t scores_count(const TransformerOptions& o) {
  return (o.scores.relative_reach ? o.heads * (2 * *o.scores.relative_reach + 1) : 0) +
         (o.scores.sink == Sink::learned ? o.heads : 0);
}

std::size_t residual_count(const TransformerOptions& o) {
  if (std::holds_alternative<ResidualSum>(o.residual)) return 0;
  const auto* blocks = std::get_if<BlockAttention>(&o.residual);
  const bool gain = blocks ? blocks->gain : std::get<FullAttention>(o.residual).gain;
  return (2 * o.layers + 1) * o.width * (gain ? 2 : 1);
}

}  // namespace

std::size_t parameter_count(const TransformerOptions& options) {
  const TransformerOptions& o = checked_options(options);
  const std::size_t key_heads = o.key_heads.value_or(o.heads),
                    hidden = o.hidden.value_or(4 * o.width);
  const std::size_t attention =
      linear_count(o.width, o.width + 2 * key_heads * (o.width / o.heads), o.bias) +
      linear_count(o.width, o.width, o.bias) + scores_count(o);
  const std::size_t feed_forward = linear_count(o.width, (o.gated ? 2 : 1) * hidden, o.bias) +
                                   linear_count(hidden, o.width, o.bias);
  std::size_t count = (o.tied ? 1 : 2) * o.vocabulary * o.width + norm_count(o) + residual_count(o);
  if (o.positions == Positions::learned) count += o.context * o.width;
  for (std::size_t layer = 0; layer < o.layers; ++layer)
    count += attention + feed_forward + 2 * norm_count(o) + multi_token_count(o, layer);
  return count;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
