// A mask made ready for a call of certain sizes: what kernels ask, tile by tile.
#pragma once

#include "layers/attention/mask.hpp"

namespace attngrad {

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

  T& at(std::size_t i, std::size_t j) const { return scores[i * query_stride + j * key_stride]; }
  // The scores of key j, where those of its queries lie side by side.
  T* row(std::size_t j) const { return scores + j * key_stride; }
};

// How much of a rectangle a mask shows.
enum class Visible { none, some, all };

// The queries begin, ..., end - 1.
struct QueryRange {
  std::size_t begin, end;
};

class SizedMask {
 public:
  // Throws ShapeError unless the mask fits.
  SizedMask(const Mask& mask, const AttentionSizes& sizes);

  const AttentionSizes& sizes() const { return sizes_; }
  bool hides_nothing() const { return keys_.empty() && patterns_.empty(); }

  bool visible(std::size_t batch, std::size_t head, std::size_t query, std::size_t key) const;
  // Nothing outside of these keys is visible to the query, in any head. Neither end falls as the
  // query grows.
  KeyRange keys(std::size_t batch, std::size_t query) const {
    return keys_.empty() ? KeyRange{0, sizes_.keys} : row(batch)[query];
  }
  // Among the queries of the place, nothing outside of these sees any of `count` keys from `key`
  // on, in any head; all are counted from the first query of the place.
  QueryRange queries(const ScorePlace& place, std::size_t key, std::size_t count) const;
  // How much of the rectangle is visible; `some` may be said of one where two masks together hide
  // everything.
  Visible look(const ScorePlace& place) const;
  // Writes `value` over every hidden score of the block, one of whose strides is 1.
  template <class T>
  void overwrite_hidden(const ScoreBlock<T>& block, T value) const;
  // The whole mask as an array of shape (batch, heads, queries, keys).
  Bools dense() const;

 private:
  const KeyRange* row(std::size_t batch) const {
    return keys_.data() + (by_batch_ ? batch : 0) * sizes_.queries;
  }

  AttentionSizes sizes_;
  bool by_batch_ = false;
  std::vector<KeyRange> keys_;  // (batch or 1, queries); empty if no range is less than all
  std::vector<Mask::Pattern> patterns_;
};

}  // namespace attngrad
