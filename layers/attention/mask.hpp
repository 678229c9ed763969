// Which keys a query may see. Masks are values that compose: a & b shows what both show.
//
// A masked position has no influence: not its score, not its value, not even a NaN stored there. A
// query that sees no key gives 0 and receives no gradient.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "core/array.hpp"

namespace attngrad {

// The sizes a mask is used with.
struct AttentionSizes {
  std::size_t batch, heads, queries, keys;
};

// A rectangle of (query, key) pairs of one batch row and head.
struct ScorePlace {
  std::size_t batch, head;
  std::size_t first_query, queries, first_key, keys;
};

// The scores of such a rectangle as a kernel holds them: that of query i and key j, counted from
// the first of each, at scores[i * query_stride + j * key_stride].
template <class T>
struct ScoreBlock : ScorePlace {
  T* scores;
  std::size_t query_stride, key_stride;
};

// How much of a rectangle a mask shows.
enum class Visible { none, some, all };

class Mask {
 public:
  // Everything is visible.
  Mask() = default;

  bool hides_nothing() const { return causal_.empty() && arrays_.empty(); }
  // Throws ShapeError unless every boolean array fits the sizes.
  void check(const AttentionSizes& sizes) const;

  bool visible(const AttentionSizes& sizes, std::size_t batch, std::size_t head, std::size_t query,
               std::size_t key) const;
  // No key from here on is visible to the query, in any batch row or head. Grows with the query.
  std::size_t key_end(const AttentionSizes& sizes, std::size_t query) const;
  // No query before this one sees the key, in any batch row or head. Grows with the key.
  std::size_t query_begin(const AttentionSizes& sizes, std::size_t key) const;
  // How much of the rectangle is visible; `some` may be said of one where two masks together hide
  // everything.
  Visible look(const AttentionSizes& sizes, const ScorePlace& place) const;
  // Writes `value` over every hidden score of the block.
  template <class T>
  void overwrite_hidden(const AttentionSizes& sizes, const ScoreBlock<T>& block, T value) const;
  // The whole mask as an array of shape (batch, heads, queries, keys).
  Bools dense(const AttentionSizes& sizes) const;

  friend Mask operator&(const Mask& a, const Mask& b);
  friend Mask causal(std::optional<std::ptrdiff_t> offset);
  friend Mask visible_where(Bools visible);

 private:
  std::vector<std::optional<std::ptrdiff_t>> causal_;
  std::vector<std::shared_ptr<const Bools>> arrays_;  // shared by the copies that kernels keep
};

Mask operator&(const Mask& a, const Mask& b);

// Query i sees key j where j <= i + offset. Without an offset it is keys - queries: the last query
// sees every key, as when the queries are the newest of a longer sequence. With offset 0 the first
// query sees the first key only.
Mask causal(std::optional<std::ptrdiff_t> offset = std::nullopt);

// Query i sees key j where the array is true. visible: (queries, keys), or (batch, heads, queries,
// keys) where a size of 1 stretches. Throws ShapeError for another rank.
Mask visible_where(Bools visible);

}  // namespace attngrad
