#include "layers/attention/mask.hpp"

#include <algorithm>
#include <limits>

namespace attngrad {
namespace {

using Sizes = AttentionSizes;

// Where query i stands among the keys: between "before all" and "after all", so that sums with it
// do not overflow.
std::ptrdiff_t position(std::optional<std::ptrdiff_t> offset, const Sizes& s, std::size_t query) {
  const auto queries = std::ptrdiff_t(s.queries), keys = std::ptrdiff_t(s.keys);
  return std::ptrdiff_t(query) +
         std::clamp(offset.value_or(keys - queries), -queries - keys - 1, 2 * keys + 1);
}

std::size_t clamped(std::ptrdiff_t key, const Sizes& s) {
  return std::size_t(std::clamp<std::ptrdiff_t>(key, 0, std::ptrdiff_t(s.keys)));
}

// The value of a row of the batch, where one stands for all.
template <class T>
T of_row(const std::vector<T>& values, std::size_t batch) {
  return values[values.size() == 1 ? 0 : batch];
}

void check_rows(const char* what, std::size_t count, const Sizes& s) {
  check_shape(count == s.batch || count == 1, what, ": needs one for each of ", s.batch,
              " rows of the batch, got ", count);
}

void no_check(const Sizes&) {}

// A pattern of rank 4.
Mask pattern(const char* what, Bools flags, std::size_t side) {
  const std::size_t rank = flags.dimension();
  check_shape(rank == 2 || rank == 4, what,
              ": needs (queries, keys) or (batch, heads, queries, keys), got ", flags.shape());
  if (rank == 2) flags.reshape(Shape{1, 1, flags.shape()[0], flags.shape()[1]});
  return Mask(Mask::Pattern{std::make_shared<const Bools>(std::move(flags)), side});
}

}  // namespace

Mask operator&(const Mask& a, const Mask& b) {
  Mask both = a;
  both.ranges_.insert(both.ranges_.end(), b.ranges_.begin(), b.ranges_.end());
  both.patterns_.insert(both.patterns_.end(), b.patterns_.begin(), b.patterns_.end());
  return both;
}

void Mask::check(const AttentionSizes& sizes) const {
  for (const RangeRule& rule : ranges_) rule.check(sizes);
  for (const auto& [flags, side] : patterns_) {
    const auto blocks = [side = side](std::size_t n) { return (n + side - 1) / side; };
    const Shape full{sizes.batch, sizes.heads, blocks(sizes.queries), blocks(sizes.keys)};
    for (std::size_t axis = 0; axis < 4; ++axis)
      check_shape(flags->shape()[axis] == full[axis] || flags->shape()[axis] == 1,
                  "attention: the mask must fit (batch, heads, queries, keys) = ", full,
                  side == 1 ? "" : " blocks", ", got ", flags->shape());
  }
}

Mask causal(std::optional<std::ptrdiff_t> offset) {
  return sliding_window(std::nullopt, 0, offset);
}

Mask causal(std::vector<std::ptrdiff_t> offsets) {
  return Mask(
      Mask::RangeRule{[offsets](const Sizes& s, std::size_t batch, std::size_t query) {
                        return KeyRange{0, clamped(position(offsets[batch], s, query) + 1, s)};
                      },
                      [count = offsets.size()](const Sizes& s) {
                        check_shape(count == s.batch, "causal: needs an offset for each of ",
                                    s.batch, " rows of the batch, got ", count);
                      },
                      true});
}

Mask sliding_window(std::optional<std::size_t> left, std::optional<std::size_t> right,
                    std::optional<std::ptrdiff_t> offset) {
  return Mask(Mask::RangeRule{
      [=](const Sizes& s, std::size_t, std::size_t query) {
        const std::ptrdiff_t at = position(offset, s, query);
        const auto reach = [&](std::optional<std::size_t> side) {  // beyond every key from anywhere
          return std::ptrdiff_t(std::min(side.value_or(s.keys), 3 * (s.queries + s.keys) + 2));
        };
        return KeyRange{left ? clamped(at - reach(left), s) : 0,
                        right ? clamped(at + reach(right) + 1, s) : s.keys};
      },
      no_check, false});
}

Mask key_lengths(std::vector<std::size_t> lengths) {
  return Mask(Mask::RangeRule{[lengths](const Sizes&, std::size_t batch, std::size_t) {
                                return KeyRange{0, of_row(lengths, batch)};
                              },
                              [lengths](const Sizes& s) {
                                check_rows("key_lengths", lengths.size(), s);
                                for (const std::size_t length : lengths)
                                  check_shape(length <= s.keys, "key_lengths: must be at most the ",
                                              s.keys, " keys, got ", length);
                              },
                              true});
}

Mask prefix_lm(std::vector<std::size_t> lengths) {
  return Mask(Mask::RangeRule{
      [lengths](const Sizes& s, std::size_t batch, std::size_t query) {
        const std::size_t prefix = std::min(of_row(lengths, batch), s.keys);
        return KeyRange{0, std::max(prefix, clamped(position({}, s, query) + 1, s))};
      },
      [count = lengths.size()](const Sizes& s) { check_rows("prefix_lm", count, s); }, true});
}

Mask documents(const Indices& ids) {
  const std::size_t rank = ids.dimension();
  check_shape(rank == 1 || rank == 2, "documents: ids must be (keys) or (batch, keys), got ",
              ids.shape());
  const std::size_t rows = rank == 1 ? 1 : ids.shape()[0], keys = ids.shape()[rank - 1];
  std::vector<KeyRange> of(rows * keys);  // of each position: its document
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int64_t* id = ids.data() + row * keys;
    std::vector<std::int64_t> seen;
    for (std::size_t begin = 0, end = 0; begin < keys; begin = end) {
      for (end = begin; end < keys && id[end] == id[begin]; ++end) continue;
      const bool padding = id[begin] < 0;
      if (!padding) seen.push_back(id[begin]);
      std::fill(of.begin() + std::ptrdiff_t(row * keys + begin),
                of.begin() + std::ptrdiff_t(row * keys + end),
                KeyRange{begin, padding ? begin : end});
    }
    std::sort(seen.begin(), seen.end());
    const auto twice = std::adjacent_find(seen.begin(), seen.end());
    if (twice != seen.end())
      throw ArgumentError(text("documents: the tokens of a document must lie side by side, but id ",
                               *twice, " of row ", row, " comes back after another"));
  }
  return Mask(Mask::RangeRule{
      [of, rows, keys](const Sizes& s, std::size_t batch, std::size_t query) {
        const std::ptrdiff_t at = position({}, s, query);
        return at < 0 ? KeyRange{0, 0} : of[(rows == 1 ? 0 : batch) * keys + std::size_t(at)];
      },
      [rows, keys](const Sizes& s) {
        check_rows("documents", rows, s);
        check_shape(keys == s.keys, "documents: needs an id for each of ", s.keys, " keys, got ",
                    keys);
      },
      rows > 1});
}

Mask visible_where(Bools visible) { return pattern("visible_where", std::move(visible), 1); }

Mask block_sparse(Bools blocks, std::size_t side) {
  check_argument(side > 0, "block_sparse: side must be at least 1, got 0");
  return pattern("block_sparse", std::move(blocks), side);
}

}  // namespace attngrad
