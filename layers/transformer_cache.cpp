#include "layers/transformer_cache.hpp"

#include "core/ops/elementwise.hpp"
#include "layers/attention/continuation.hpp"
#include "layers/transformer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

std::size_t TransformerCache::bytes() const {
  std::size_t sum = 0;
  for (const KeyValueCache& layer : layers_) sum += layer.bytes();
  return sum;
}

void TransformerCache::truncate(const std::vector<std::size_t>& lengths) {
  check_argument(lengths.size() == batch(), "TransformerCache: needs a length for each of ",
                 batch(), " rows, got ", lengths.size());
  for (std::size_t row = 0; row < batch(); ++row)
    check_argument(lengths[row] <= lengths_[row], "TransformerCache: row ", row, " holds ",
                   lengths_[row], " tokens and cannot be cut to ", lengths[row]);
  for (KeyValueCache& layer : layers_) layer.truncate(lengths);
  lengths_ = lengths;
}

void TransformerCache::make_room(const std::vector<std::size_t>& counts) {
  for (KeyValueCache& layer : layers_) layer.make_room(counts);
  if (!layers_.empty()) lengths_ = layers_[0].lengths();
}

TransformerCache TransformerCache::fork(const std::vector<std::size_t>& rows) const {
  check_argument(!rows.empty(), "TransformerCache: a fork needs a row, got none");
  for (const std::size_t row : rows)
    check_argument(row < batch(), "TransformerCache: rows are in [0, ", batch(), "), got ", row);
  TransformerCache copy(rows.size(), capacity_);
  for (std::size_t i = 0; i < rows.size(); ++i) copy.lengths_[i] = lengths_[rows[i]];
  for (const KeyValueCache& layer : layers_) copy.layers_.push_back(layer.fork(rows));
  return copy;
}

TransformerCache Transformer::make_cache(std::size_t batch,
                                         std::optional<std::size_t> capacity) const {
  return make_cache_of(batch, capacity.value_or(options.context), std::nullopt);
}

TransformerCache Transformer::make_streaming_cache(std::size_t batch, std::size_t capacity,
                                                   std::size_t sinks) const {
  check_argument(!position_embedding,
                 "Transformer: learned positions are in the keys for good and cannot become those "
                 "of a streaming cache's slots");
  return make_cache_of(batch, capacity, sinks);
}

TransformerCache Transformer::make_cache_of(std::size_t batch, std::size_t capacity,
                                            std::optional<std::size_t> sinks) const {
  check_argument(batch > 0 && capacity > 0 && capacity <= options.context,
                 "Transformer: a cache needs rows and room for 1 to ", options.context,
                 " tokens, got ", batch, " rows of ", capacity);
  TransformerCache cache(batch, capacity);
  for (const TransformerBlock& block : blocks)
    cache.layers_.push_back(block.attention.make_cache(batch, capacity, sinks));
  return cache;
}

Variable Transformer::decode(const Indices& tokens, TransformerCache& cache,
                             LessIsMore* less_is_more) const {
  const std::size_t time = tokens.dimension() < 2 ? 0 : tokens.shape()[1];
  return decode(tokens, std::vector<std::size_t>(cache.batch(), time), cache, less_is_more);
}

Variable Transformer::decode(const Indices& tokens, const std::vector<std::size_t>& counts,
                             TransformerCache& cache, LessIsMore* less_is_more) const {
  check_no_tape("Transformer");
  check_shape((tokens.dimension() == 2 || tokens.dimension() == 3) &&
                  tokens.shape()[0] == cache.batch() && tokens.shape()[1] > 0,
              "Transformer: tokens must be (", cache.batch(), ", at least 1), got ",
              tokens.shape());
  const std::size_t time = tokens.shape()[1];
  check_argument(cache.layers_.size() == blocks.size() && cache.capacity() <= options.context,
                 "Transformer: the cache is of another model: it has ", cache.layers_.size(),
                 " layers and room for ", cache.capacity(), " tokens, this one ", blocks.size(),
                 " and at most ", options.context);
  for (const std::size_t count : counts)
    check_argument(count <= time, "Transformer: at most ", time,
                   " tokens of a row can be new, got ", count);
  cache.make_room(counts);
  check_room("Transformer", cache.lengths_, counts, cache.capacity());
  const Continuation rows{cache.lengths_, counts};
  if (less_is_more) less_is_more->begin_step(blocks.size(), time, rows);
  try {
    Variable x = embedded(tokens);
    if (position_embedding)
      x = x +
          within(*this, *position_embedding)(continued_positions(rows, time, cache.capacity() - 1));
    const auto attend = [&](std::size_t i, const MultiHeadAttention& layer,
                            const Variable& normed) {
      return layer.decode(normed, counts, cache.layers_[i], mask(),
                          less_is_more ? less_is_more->kernel(i) : nullptr);
    };
    const Variable logits = to_logits(through_blocks(x, attend, nullptr));
    for (std::size_t row = 0; row < counts.size(); ++row) cache.lengths_[row] += counts[row];
    return logits;
  } catch (...) {  // the layers before the one that failed have grown
    for (KeyValueCache& layer : cache.layers_) layer.truncate(cache.lengths_);
    throw;
  }
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
