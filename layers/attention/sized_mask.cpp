#include "layers/attention/sized_mask.hpp"

#include <algorithm>

namespace attngrad {
namespace {

// One row of blocks of a pattern, stretched where its sizes are 1.
struct FlagRow {
  const bool* flags;
  std::size_t side;
  bool stretched;
  bool operator()(std::size_t key) const { return flags[stretched ? 0 : key / side]; }
};
FlagRow flag_row(const Mask::Pattern& pattern, std::size_t batch, std::size_t head,
                 std::size_t query) {
  const Shape& shape = pattern.flags->shape();
  const auto at = [](std::size_t index, std::size_t size) { return size == 1 ? 0 : index; };
  const std::size_t row = (at(batch, shape[0]) * shape[1] + at(head, shape[1])) * shape[2] +
                          at(query / pattern.side, shape[2]);
  return {pattern.flags->data() + row * shape[3], pattern.side, shape[3] == 1};
}

Visible look_at(const Mask::Pattern& pattern, const ScorePlace& p) {
  const std::size_t side = pattern.side;
  const std::size_t first = p.first_key / side, last = (p.first_key + p.keys - 1) / side;
  bool some = false, all = true;
  for (std::size_t i = p.first_query / side; i <= (p.first_query + p.queries - 1) / side; ++i) {
    const FlagRow row = flag_row(pattern, p.batch, p.head, i * side);
    const bool* from = row.flags + (row.stretched ? 0 : first);
    const std::size_t count = row.stretched ? 1 : last - first + 1;
    const auto shown = std::size_t(std::count(from, from + count, true));
    some = some || shown > 0;
    all = all && shown == count;
  }
  return all ? Visible::all : some ? Visible::some : Visible::none;
}

}  // namespace

SizedMask::SizedMask(const Mask& mask, const AttentionSizes& sizes)
    : sizes_(sizes), patterns_(mask.patterns()) {
  mask.check(sizes);
  if (mask.ranges().empty()) return;
  for (const Mask::RangeRule& rule : mask.ranges()) by_batch_ = by_batch_ || rule.by_batch;
  const std::size_t rows = by_batch_ ? sizes.batch : std::min<std::size_t>(sizes.batch, 1);
  keys_.reserve(rows * sizes.queries);
  for (std::size_t b = 0; b < rows; ++b)
    for (std::size_t i = 0; i < sizes.queries; ++i) {
      KeyRange both{0, sizes.keys};
      for (const Mask::RangeRule& rule : mask.ranges()) {
        const KeyRange one = rule.keys(sizes, b, i);
        both = {std::max(both.begin, one.begin), std::min(both.end, one.end)};
      }
      keys_.push_back(both);
    }
}

bool SizedMask::visible(std::size_t batch, std::size_t head, std::size_t query,
                        std::size_t key) const {
  const KeyRange range = keys(batch, query);
  return key >= range.begin && key < range.end &&
         std::all_of(
             patterns_.begin(), patterns_.end(),
             [&](const Mask::Pattern& pattern) {
               return flag_row(pattern, batch, head, query)(key);
             });
}

QueryRange SizedMask::queries(const ScorePlace& place, std::size_t key, std::size_t count) const {
  if (keys_.empty()) return {0, place.queries};
  const KeyRange* first = row(place.batch) + place.first_query;
  const KeyRange* last = first + place.queries;
  const auto begin = std::partition_point(first, last, [&](KeyRange r) { return r.end <= key; });
  const auto end =
      std::partition_point(first, last, [&](KeyRange r) { return r.begin < key + count; });
  return {std::size_t(begin - first),
          std::max(std::size_t(begin - first), std::size_t(end - first))};
}

Visible SizedMask::look(const ScorePlace& p) const {
  const std::size_t last_query = p.first_query + p.queries - 1, end = p.first_key + p.keys;
  const KeyRange first = keys(p.batch, p.first_query), last = keys(p.batch, last_query);
  if (last.end <= p.first_key || first.begin >= end) return Visible::none;
  bool all = last.begin <= p.first_key && first.end >= end;
  for (const Mask::Pattern& pattern : patterns_) {
    const Visible shown = look_at(pattern, p);
    if (shown == Visible::none) return Visible::none;
    all = all && shown == Visible::all;
  }
  return all ? Visible::all : Visible::some;
}

template <class T>
void SizedMask::overwrite_hidden(const ScoreBlock<T>& block, T value) const {
  const auto inside = [](std::size_t at, std::size_t first, std::size_t count) {
    return at > first ? std::min(at - first, count) : 0;
  };
  if (!keys_.empty() && block.key_stride == 1) {
    for (std::size_t i = 0; i < block.queries; ++i) {
      const KeyRange seen = keys(block.batch, block.first_query + i);
      const std::size_t begin = inside(seen.begin, block.first_key, block.keys),
                        end = std::max(begin, inside(seen.end, block.first_key, block.keys));
      std::fill(&block.at(i, 0), &block.at(i, begin), value);
      std::fill(&block.at(i, end), &block.at(i, block.keys), value);
    }
  } else if (!keys_.empty()) {
    const KeyRange* seen = row(block.batch) + block.first_query;
    std::size_t begin = 0, end = 0;  // of the queries that see key j: neither falls as it grows
    for (std::size_t j = 0; j < block.keys; ++j) {
      while (begin < block.queries && seen[begin].end <= block.first_key + j) ++begin;
      while (end < block.queries && seen[end].begin <= block.first_key + j) ++end;
      std::fill_n(block.row(j), begin, value);
      std::fill(block.row(j) + std::max(begin, end), block.row(j) + block.queries, value);
    }
  }
  for (const Mask::Pattern& pattern : patterns_)
    for (std::size_t i = 0; i < block.queries; ++i) {
      const FlagRow shows = flag_row(pattern, block.batch, block.head, block.first_query + i);
      for (std::size_t j = 0; j < block.keys; ++j)
        if (!shows(block.first_key + j)) block.at(i, j) = value;
    }
}

template void SizedMask::overwrite_hidden(const ScoreBlock<float>&, float) const;
template void SizedMask::overwrite_hidden(const ScoreBlock<double>&, double) const;

Bools SizedMask::dense() const {
  Bools all = Bools::from_shape({sizes_.batch, sizes_.heads, sizes_.queries, sizes_.keys});
  bool* flag = all.data();
  for (std::size_t b = 0; b < sizes_.batch; ++b)
    for (std::size_t h = 0; h < sizes_.heads; ++h)
      for (std::size_t i = 0; i < sizes_.queries; ++i)
        for (std::size_t j = 0; j < sizes_.keys; ++j) *flag++ = visible(b, h, i, j);
  return all;
}

}  // namespace attngrad
