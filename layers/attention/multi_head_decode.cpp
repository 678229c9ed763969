// The call of multi-head attention that goes on from a cache.
#include <algorithm>

#include "core/ops/shape.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/continuation.hpp"
#include "layers/attention/decode.hpp"
#include "layers/attention/fused.hpp"
#include "layers/attention/multi_head.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

void check_cache(const MultiHeadAttention& layer, const Variable& x,
                 const std::vector<std::size_t>& counts, const KeyValueCache& cache) {
  const KeyValueCacheOptions& o = cache.options();
  check_shape(
      x.rank() == 3 && x.size(0) == o.batch && x.size(1) > 0 && x.size(2) == layer.options.width,
      "MultiHeadAttention: x must be (", o.batch, ", at least 1, ", layer.options.width, "), got ",
      x.shape());
  check_argument(o.heads == layer.key_heads() && o.key_width == layer.head_width() &&
                     o.value_width == layer.value_width(),
                 "MultiHeadAttention: the cache must be for ", layer.key_heads(),
                 " heads of widths ", layer.head_width(), " and ", layer.value_width(), ", got ",
                 o.heads, " of ", o.key_width, " and ", o.value_width);
  const auto& rotary = layer.options.rotary;
  check_argument(!rotary || o.capacity <= rotary->positions,
                 "MultiHeadAttention: rotary positions are for up to ",
                 rotary ? rotary->positions : 0, " tokens, got a cache for ", o.capacity);
  if (layer.multi_token) {
    check_argument(cache.token_rows().has_value(),
                   "MultiHeadAttention: the cache must be for multi-token attention, got one "
                   "without rows of scores");
    const TokenRows& rows = *cache.token_rows();
    const TokenRows own = layer.multi_token->empty_rows(0, o.capacity);  // for its shapes
    const auto fits = [&](const Array& x, Shape shape) {
      shape[0] = o.batch;
      return x.shape() == shape;
    };
    check_argument(fits(rows.scores, own.scores.shape()) && fits(rows.weights, own.weights.shape()),
                   "MultiHeadAttention: the cache is of a layer with other kernels or heads");
  }
  check_argument(!layer.multi_token || cache.token_rows_are_fresh(),
                 "MultiHeadAttention: the cache was cut back, and multi-token attention cannot go "
                 "on from there; clear it");
  for (const std::size_t count : counts)
    check_argument(count <= x.size(1), "MultiHeadAttention: at most ", x.size(1),
                   " tokens of a row can be new, got ", count);
}

// All slots of a streaming cache turned, each by its place.
Heads turned_by_slot(const Heads& keys, std::size_t capacity,
                     const std::shared_ptr<const RotaryTable>& table, RotaryPairs pairs) {
  const Variable rows =
      reshape(keys.array, {-1, std::ptrdiff_t(capacity), std::ptrdiff_t(keys.width)});
  Heads turned = keys;
  turned.array = rotary(rows, 1, keys.width, table, pairs, positions_from(0, capacity));
  return turned;
}

// One query has a kernel of its own, in the place of ours; the reference, and the caller's own, run
// as they are.
AttentionKernel kernel_for(const AttentionKernel& kernel, std::size_t queries) {
  using Function = AttentionOutput (*)(const AttentionInputs&, const AttentionOptions&);
  const Function* known = kernel.target<Function>();
  const bool ours = known != nullptr && (*known == flash_attention || *known == fused_attention);
  return ours && queries == 1 ? AttentionKernel(decode_attention) : kernel;
}

}  // namespace

KeyValueCache MultiHeadAttention::make_cache(std::size_t batch, std::size_t capacity,
                                             std::optional<std::size_t> sinks) const {
  check_argument(!sinks || !multi_token,
                 "MultiHeadAttention: multi-token attention has no streaming cache");
  KeyValueCache cache({.batch = batch,
                       .heads = key_heads(),
                       .capacity = capacity,
                       .key_width = head_width(),
                       .value_width = value_width(),
                       .sinks = sinks});
  if (multi_token) cache.set_token_rows(multi_token->empty_rows(batch, capacity));
  return cache;
}

Variable MultiHeadAttention::decode(const Variable& x, KeyValueCache& cache,
                                    const Mask& mask) const {
  return decode(x, std::vector<std::size_t>(cache.options().batch, x.rank() == 3 ? x.size(1) : 0),
                cache, mask);
}

Variable MultiHeadAttention::decode(const Variable& x, const std::vector<std::size_t>& counts,
                                    KeyValueCache& cache, const Mask& mask) const {
  return decode(x, counts, cache, mask, nullptr);
}

Variable MultiHeadAttention::decode(const Variable& x, const std::vector<std::size_t>& counts,
                                    KeyValueCache& cache, const Mask& mask,
                                    const AttentionKernel& kernel) const {
  check_no_tape("MultiHeadAttention");
  check_cache(*this, x, counts, cache);
  check_argument(!kernel || !multi_token,
                 "MultiHeadAttention: multi-token attention takes no other kernel");
  cache.make_room(counts);
  cache.check_room(counts);
  const Continuation rows{cache.lengths(), counts};
  AttentionOptions call = within(*this, scores)(continued(mask, rows), nullptr);
  call.scores = continued(call.scores, rows);
  Variable packed = within(*this, qkv)(x);
  const std::size_t capacity = cache.options().capacity;
  const bool turn_by_slot = rotary_ && cache.options().sinks;
  if (rotary_)
    packed = rotary(packed, options.heads + (turn_by_slot ? 0 : key_heads()), head_width(), rotary_,
                    options.rotary->pairs, continued_positions(rows, x.size(1), capacity - 1));
  const std::size_t keys = options.width, values = keys + key_heads() * head_width();
  try {
    cache.append(heads_at(packed, key_heads(), head_width(), keys),
                 heads_at(packed, key_heads(), value_width(), values), counts);
    const AttentionInputs inputs{
        .q = heads_at(packed, options.heads, head_width(), 0),
        .k = turn_by_slot ? turned_by_slot(cache.keys(), capacity, rotary_, options.rotary->pairs)
                          : cache.keys(),
        .v = cache.values()};
    if (multi_token) {
      TokenRows known = *cache.token_rows();
      const Variable y = within(*this, *multi_token, [&](const MultiTokenMixer& mixer) {
        return mixer.decode(inputs, call, rows, known);
      });
      const Variable projected = within(*this, projection)(y);
      cache.set_token_rows(std::move(known));
      return projected;
    }
    offer("weights", [&] { return attention_weights(inputs, call); });
    const AttentionKernel& chosen = kernel ? kernel : kernel_for(options.kernel, x.size(1));
    return within(*this, projection)(chosen(inputs, call).output);
  } catch (...) {
    cache.truncate(rows.past);
    throw;
  }
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
