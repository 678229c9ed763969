// Recall: which value stands beside a key? A decoder reads
//
//   begin  k1:v1  k2:v2 ... kn:vn  kj:?         and answers vj
//
// A place holds two tokens, key and value, whose vectors the model adds up; nothing tells it where
// a place lies. In a chain some values are keys: asked for a key whose value is another key, the
// model answers the value of that one.
#pragma once

#include <vector>

#include "core/array.hpp"
#include "core/random.hpp"

namespace ag = attngrad;

struct RecallBatch {
  ag::Indices tokens;   // (batch, 1 + records + queries, 2)
  ag::Indices targets;  // (batch, 1 + records + queries): not_asked but for queries
  // For each query of each row, where the records lie that hold the answer, first the one of the
  // key in the query: (batch, queries, hops)
  ag::Indices needles;
};

class RecallTask {
 public:
  static constexpr std::int64_t keys = 160, values = 32, not_asked = -1;
  static constexpr std::size_t vocabulary = 2 + keys + values;  // '?' and a beginning come first

  // chain: every other record leads to another record, and every other query asks for such a one.
  explicit RecallTask(bool chain) : chain_(chain) {}

  // Keys differ within a row, so there are at most `keys` records; of a chain, an even number.
  RecallBatch random_batch(std::size_t count, std::size_t records, std::size_t queries,
                           ag::Rng& rng) const;

 private:
  bool chain_;
};
