// Which keys a query may see. Masks are values that compose: a & b shows what both show.
//
// A masked position has no influence: not its score, not its value, not even a NaN stored there. A
// query that sees no key gives 0 and receives no gradient.
//
// Queries are taken to be the last of the keys: query i stands at key i + keys - queries, its own
// position, unless an offset says otherwise. So one query beside a longer memory sees all of it
// under causal(), as the newest of a sequence should.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/array.hpp"

namespace attngrad {

// The sizes a mask is used with.
struct AttentionSizes {
  std::size_t batch, heads, queries, keys;
};

// The keys begin, begin + 1, ..., end - 1; none where end <= begin.
struct KeyRange {
  std::size_t begin, end;
};

class Mask {
 public:
  // Everything is visible.
  Mask() = default;

  bool hides_nothing() const { return ranges_.empty() && patterns_.empty(); }
  // Throws ShapeError unless every part of the mask fits the sizes.
  void check(const AttentionSizes& sizes) const;

  // A rule that shows each query one range of keys, of which neither end falls as the query grows.
  struct RangeRule {
    std::function<KeyRange(const AttentionSizes&, std::size_t batch, std::size_t query)> keys;
    std::function<void(const AttentionSizes&)> check;
    bool by_batch;  // whether rows of the batch differ
  };
  // A rule that shows pair (i, j) where flags(i / side, j / side) is true; flags are of rank 4, and
  // a size of 1 stretches.
  struct Pattern {
    std::shared_ptr<const Bools> flags;  // shared by the copies that kernels keep
    std::size_t side;
  };
  const std::vector<RangeRule>& ranges() const { return ranges_; }
  const std::vector<Pattern>& patterns() const { return patterns_; }

  explicit Mask(RangeRule rule) : ranges_{std::move(rule)} {}
  explicit Mask(Pattern pattern) : patterns_{std::move(pattern)} {}
  friend Mask operator&(const Mask& a, const Mask& b);

 private:
  std::vector<RangeRule> ranges_;
  std::vector<Pattern> patterns_;
};

Mask operator&(const Mask& a, const Mask& b);

// Query i sees key j where j <= i + offset. Without an offset it is keys - queries: the last query
// sees every key. With offset 0 the first query sees the first key only.
Mask causal(std::optional<std::ptrdiff_t> offset = std::nullopt);
// The same with an offset for each row of the batch, for sequences that have come to different
// lengths. Throws ShapeError in use unless there is one for each row.
Mask causal(std::vector<std::ptrdiff_t> offsets);

// Query i sees keys from i + offset - left to i + offset + right, both counted in, so left + right
// + 1 of them in the middle of a sequence: a window of 256 tokens up to the query itself is
// sliding_window(255, 0). A side that is not given has no bound; the offset is keys - queries
// unless given.
Mask sliding_window(std::optional<std::size_t> left, std::optional<std::size_t> right,
                    std::optional<std::ptrdiff_t> offset = std::nullopt);

// Row b of the batch has keys [0, lengths[b]); what follows is padding. Throws ShapeError in use
// unless there is one length for each row (or one for all), none above the number of keys.
Mask key_lengths(std::vector<std::size_t> lengths);

// Prefix-LM: every query sees the first lengths[b] keys, and what is not after its own position.
// Throws ShapeError in use unless there is one length for each row, or one for all. Source: Raffel
// et al., "Exploring the limits of transfer learning", 2020, section 3.2.1.
Mask prefix_lm(std::vector<std::size_t> lengths);

// Packed sequences: a query sees the keys of its own document. ids: (keys) or (batch, keys), those
// of a document side by side; negative ones are padding, which sees and shows nothing. Throws
// ArgumentError where an id comes back after another; ShapeError in use for another number of keys.
Mask documents(const Indices& ids);

// Query i sees key j where the array is true. visible: (queries, keys), or (batch, heads, queries,
// keys) where a size of 1 stretches. Throws ShapeError for another rank.
Mask visible_where(Bools visible);

// Query i sees key j where blocks(i / side, j / side) is true. blocks: (query blocks, key blocks)
// or (batch, heads, query blocks, key blocks) where a size of 1 stretches; the last blocks may be
// cut. flash_attention skips whole tiles of 96 by 96, so a multiple of 96 serves best. Throws
// ShapeError for another rank, ArgumentError for side 0.
Mask block_sparse(Bools blocks, std::size_t side);

}  // namespace attngrad
