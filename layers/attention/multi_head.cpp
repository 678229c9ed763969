#include "layers/attention/multi_head.hpp"

#include "layers/attention/composed.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// What both layers ask of their options, which have the same names.
template <class Options>
const Options& checked(const char* layer, const Options& o) {
  check_argument(o.heads > 0 && o.width > 0 && o.width % o.heads == 0, layer, ": width ", o.width,
                 " is not a multiple of heads ", o.heads);
  const std::size_t key_heads = o.key_heads.value_or(o.heads);
  check_argument(key_heads > 0 && o.heads % key_heads == 0, layer, ": heads ", o.heads,
                 " is not a multiple of key_heads ", key_heads);
  check_argument(o.value_width.value_or(1) > 0, layer, ": value_width must be positive, got 0");
  check_kernel(layer, o.kernel, o.scores);
  return o;
}

// The map of the heads' outputs, side by side, back to the width.
template <class Options>
LinearOptions projection_options(const Options& o, std::size_t value_width) {
  return {.in = o.heads * value_width,
          .out = o.width,
          .bias = o.bias,
          .initialization = o.projection_initialization};
}

const CrossAttentionOptions& checked_cross(const CrossAttentionOptions& o) {
  checked("CrossAttention", o);
  check_argument(!o.scores.alibi && !o.scores.relative_reach,
                 "CrossAttention: ALiBi and relative positions need a distance, and queries and "
                 "memory have none");
  check_argument(o.memory_width.value_or(1) > 0,
                 "CrossAttention: memory_width must be positive, got 0");
  return o;
}

const MultiHeadAttentionOptions& checked_self(const MultiHeadAttentionOptions& o) {
  checked("MultiHeadAttention", o);
  const AttentionScoresOptions& s = o.scores;
  check_argument(!o.multi_token || (!s.soft_cap && !s.alibi && !s.relative_reach &&
                                    s.steps.empty() && s.sink == Sink::none),
                 "MultiHeadAttention: multi-token attention takes dropout and a scale, but no "
                 "score steps and no sink");
  return o;
}

std::optional<MultiTokenMixer> mixer_of(const MultiHeadAttentionOptions& o, std::size_t value_width,
                                        Rng& rng) {
  if (!o.multi_token) return std::nullopt;
  return MultiTokenMixer({*o.multi_token, o.heads, value_width}, rng);
}

Variable attend(const AttentionKernel& kernel, const AttentionInputs& inputs,
                const AttentionOptions& options) {
  offer("weights", [&] { return attention_weights(inputs, options); });
  return kernel(inputs, options).output;
}

std::shared_ptr<const RotaryTable> table_for(const MultiHeadAttentionOptions& o) {
  if (!o.rotary) return nullptr;
  const std::size_t head_width = o.width / o.heads, width = o.rotary->width.value_or(head_width);
  check_argument(width <= head_width, "MultiHeadAttention: rotary positions of width ", width,
                 " do not fit a head of width ", head_width);
  return rotary_table(o.rotary->positions, width, o.rotary->base, o.rotary->position_scale);
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& o, Rng& rng)
    : options(checked_self(o)),
      qkv({.in = o.width,
           .out = o.width + key_heads() * (head_width() + value_width()),
           .bias = o.bias,
           .initialization = o.initialization},
          rng),
      projection(projection_options(o, value_width()), rng),
      scores(o.scores, o.heads),
      multi_token(mixer_of(o, value_width(), rng)),
      rotary_(table_for(o)) {}

Variable MultiHeadAttention::operator()(const Variable& x, const Mask& mask, Rng* rng) const {
  check_shape(x.rank() == 3 && x.size(2) == options.width,
              "MultiHeadAttention: x must be (batch, time, ", options.width, "), got ", x.shape());
  Variable packed = within(*this, qkv)(x);
  if (rotary_) {
    check_shape(x.size(1) <= options.rotary->positions, "MultiHeadAttention: rotary positions are ",
                "for up to ", options.rotary->positions, " of them, got ", x.shape());
    packed = rotary(packed, options.heads + key_heads(), head_width(), rotary_,
                    options.rotary->pairs, positions_from(0, x.size(1)));
  }
  const std::size_t keys = options.width, values = keys + key_heads() * head_width();
  const AttentionInputs inputs{.q = heads_at(packed, options.heads, head_width(), 0),
                               .k = heads_at(packed, key_heads(), head_width(), keys),
                               .v = heads_at(packed, key_heads(), value_width(), values)};
  const AttentionOptions call = within(*this, scores)(mask, rng);
  if (!multi_token) return within(*this, projection)(attend(options.kernel, inputs, call));
  offer("weights", [&] { return multi_token->weights(inputs, call); });
  return within(*this, projection)(within(*this, *multi_token)(inputs, call));
}

CrossAttention::CrossAttention(const CrossAttentionOptions& o, Rng& rng)
    : options(checked_cross(o)),
      query({.in = o.width, .out = o.width, .bias = o.bias, .initialization = o.initialization},
            rng),
      key_value({.in = o.memory_width.value_or(o.width),
                 .out = key_heads() * (head_width() + value_width()),
                 .bias = o.bias,
                 .initialization = o.initialization},
                rng),
      projection(projection_options(o, value_width()), rng),
      scores(o.scores, o.heads) {}

MemoryKeys CrossAttention::remember(const Variable& memory) const {
  check_shape(memory.rank() == 3 && memory.size(2) == key_value.options.in,
              "CrossAttention: memory must be (batch, length, ", key_value.options.in, "), got ",
              memory.shape());
  return {within(*this, key_value)(memory)};
}

Variable CrossAttention::operator()(const Variable& x, const MemoryKeys& memory, const Mask& mask,
                                    Rng* rng) const {
  check_shape(x.rank() == 3 && x.size(2) == options.width, "CrossAttention: x must be (batch, ",
              "time, ", options.width, "), got ", x.shape());
  const Variable& packed = memory.keys_and_values;
  const AttentionInputs inputs{
      .q = split_heads(within(*this, query)(x), options.heads),
      .k = heads_at(packed, key_heads(), head_width(), 0),
      .v = heads_at(packed, key_heads(), value_width(), key_heads() * head_width())};
  const Variable attended = attend(options.kernel, inputs, within(*this, scores)(mask, rng));
  return within(*this, projection)(attended);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
