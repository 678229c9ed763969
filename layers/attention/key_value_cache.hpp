// The keys and values that an attention layer made of the tokens so far, kept so that the next
// tokens attend to them without computing them again.
//
// A cache is storage, not a Variable: what is in it has no gradient, so nothing is appended while a
// Tape records, and a tape that saved a view of it before an append throws at its gradients.
#pragma once

#include <optional>
#include <vector>

#include "layers/attention/multi_token_decode.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct KeyValueCacheOptions {
  std::size_t batch;     // rows: sequences that grow side by side, each to a length of its own
  std::size_t heads;     // of keys and values
  std::size_t capacity;  // the most tokens of a row
  std::size_t key_width, value_width;  // of each head
  // Of a streaming cache: how many first tokens of a row stay when the others go for new ones.
  std::optional<std::size_t> sinks = {};
};

// Keys are (batch, heads, capacity, key_width), values (batch, heads, capacity, value_width): each
// head lies in one piece. Slot t of a row holds its token t, the key after rotary positions. In a
// streaming cache tokens move to lower slots as older ones go, and keys are held before rotary
// positions, which are those of the slots (Xiao et al., "Efficient streaming language models with
// attention sinks", arXiv:2309.17453, section 3.2). All memory is taken at once. A failed call
// changes nothing, and what make_room() took is not given back. Caches move but do not copy; fork()
// copies.
class KeyValueCache {
 public:
  // Throws ArgumentError for a size of 0, and for sinks that leave no slot to others.
  explicit KeyValueCache(const KeyValueCacheOptions& options);
  KeyValueCache(KeyValueCache&&) = default;
  KeyValueCache& operator=(KeyValueCache&&) = default;
  KeyValueCache(const KeyValueCache&) = delete;
  KeyValueCache& operator=(const KeyValueCache&) = delete;

  const KeyValueCacheOptions& options() const { return options_; }
  // How many tokens of each row are in it.
  const std::vector<std::size_t>& lengths() const { return lengths_; }
  // Of all it holds, written or not.
  std::size_t bytes() const;

  // Of a streaming cache that is full: each row that gets a token loses the oldest behind its
  // sinks. Throws ArgumentError for rows that get several and have no room for them, which must
  // come one at a time. Does nothing to another cache.
  void make_room(const std::vector<std::size_t>& counts);
  // Throws ArgumentError unless there is a count for each row and room for that many more tokens.
  void check_room(const std::vector<std::size_t>& counts) const;
  // Writes the first counts[b] keys and values of row b behind those that are there. keys: (batch,
  // heads, at least every count, key_width), values likewise. Throws TapeError while a Tape
  // records, ArgumentError where room is short, ShapeError for keys or values that do not fit.
  void append(const Heads& keys, const Heads& values, const std::vector<std::size_t>& counts);
  // Forgets what lies behind lengths[b] tokens of row b. Throws ArgumentError for a length above
  // the present one.
  void truncate(const std::vector<std::size_t>& lengths);
  void clear() { truncate(std::vector<std::size_t>(lengths_.size(), 0)); }
  // A cache of its own whose row i is a copy of row rows[i] of this one: a prompt read once may so
  // go on in many ways. Throws ArgumentError for no rows, and for a row that is not there.
  KeyValueCache fork(const std::vector<std::size_t>& rows) const;

  // Of multi-token attention: rows of the last queries beside keys and values; none otherwise. The
  // rows before the last set are kept, so that a call that failed can be taken back; after any
  // other truncate() but to 0 they are out of date, which a layer asks before it reads them.
  void set_token_rows(TokenRows rows);
  const std::optional<TokenRows>& token_rows() const { return token_rows_; }
  bool token_rows_are_fresh() const { return token_rows_lengths_ == lengths_; }

  // Views of (batch, heads, the longest length, width); what lies behind a row's own length holds
  // numbers that a mask must hide.
  Heads keys() const { return view(keys_, options_.key_width); }
  Heads values() const { return view(values_, options_.value_width); }

 private:
  Heads view(const Variable& array, std::size_t width) const;
  void drop_oldest(std::size_t row);
  void cut_token_rows();

  KeyValueCacheOptions options_;
  std::vector<std::size_t> lengths_;
  std::optional<TokenRows> token_rows_, previous_token_rows_;
  std::vector<std::size_t> token_rows_lengths_, previous_lengths_;  // when they were made
  Variable keys_, values_;
};

// Throws TapeError, naming who, while a Tape records.
void check_no_tape(const char* who);
// Throws ArgumentError, naming who, unless rows of these lengths have room for so many more tokens.
void check_room(const char* who, const std::vector<std::size_t>& lengths,
                const std::vector<std::size_t>& counts, std::size_t capacity);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
