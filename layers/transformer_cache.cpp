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
  const std::size_t tokens = capacity.value_or(options.context);
  check_argument(batch > 0 && tokens > 0 && tokens <= options.context,
                 "Transformer: a cache needs rows and room for 1 to ", options.context,
                 " tokens, got ", batch, " rows of ", tokens);
  TransformerCache cache(batch, tokens);
  for (const TransformerBlock& block : blocks)
    cache.layers_.push_back(block.attention.make_cache(batch, tokens));
  return cache;
}

Variable Transformer::decode(const Indices& tokens, TransformerCache& cache) const {
  const std::size_t time = tokens.dimension() == 2 ? tokens.shape()[1] : 0;
  return decode(tokens, std::vector<std::size_t>(cache.batch(), time), cache);
}

Variable Transformer::decode(const Indices& tokens, const std::vector<std::size_t>& counts,
                             TransformerCache& cache) const {
  check_no_tape("Transformer");
  check_shape(
      tokens.dimension() == 2 && tokens.shape()[0] == cache.batch() && tokens.shape()[1] > 0,
      "Transformer: tokens must be (", cache.batch(), ", at least 1), got ", tokens.shape());
  const std::size_t time = tokens.shape()[1];
  check_argument(cache.layers_.size() == blocks.size() && cache.capacity() <= options.context,
                 "Transformer: the cache is of another model");
  check_room("Transformer", cache.lengths_, counts, cache.capacity());
  for (const std::size_t count : counts)
    check_argument(count <= time, "Transformer: at most ", time,
                   " tokens of a row can be new, got ", count);
  const Continuation rows{cache.lengths_, counts};
  try {
    Variable x = within(*this, token_embedding)(tokens);
    if (position_embedding)
      x = x +
          within(*this, *position_embedding)(continued_positions(rows, time, cache.capacity() - 1));
    const auto attend = [&](std::size_t i, const MultiHeadAttention& layer,
                            const Variable& normed) {
      return layer.decode(normed, counts, cache.layers_[i], mask());
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
