// What a transformer remembers of the tokens it has read: the caches of all its layers, which grow
// together.
#pragma once

#include "layers/attention/key_value_cache.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct Transformer;

// Made by Transformer::make_cache, filled by Transformer::decode. Rows of the batch may come to
// different lengths. A failed call changes nothing, but
// that a streaming cache may have lost its oldest token to it.
class TransformerCache {
 public:
  std::size_t batch() const { return lengths_.size(); }
  std::size_t capacity() const { return capacity_; }  // the most tokens of a row
  const std::vector<std::size_t>& lengths() const { return lengths_; }
  std::size_t bytes() const;

  // Forgets what lies behind lengths[b] tokens of row b. Throws ArgumentError for a length above
  // the present one. Multi-token attention cannot go on from a row that was cut to more than 0
  // (ArgumentError of decode).
  void truncate(const std::vector<std::size_t>& lengths);
  void clear() { truncate(std::vector<std::size_t>(batch(), 0)); }
  // A cache of its own whose row i is a copy of row rows[i] of this one. Throws ArgumentError for
  // no rows, and for a row that is not there.
  TransformerCache fork(const std::vector<std::size_t>& rows) const;

 private:
  friend struct Transformer;
  TransformerCache(std::size_t batch, std::size_t capacity)
      : capacity_(capacity), lengths_(batch, 0) {}
  void make_room(const std::vector<std::size_t>& counts);  // in a streaming cache

  std::size_t capacity_;
  std::vector<std::size_t> lengths_;  // those of every layer, between calls
  std::vector<KeyValueCache> layers_;
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
