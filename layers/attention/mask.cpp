#include "layers/attention/mask.hpp"

#include <algorithm>

#include "core/kernels/strided.hpp"

namespace attngrad {
namespace {

// Kept between "hides everything" and "hides nothing", so that sums with it do not overflow.
std::ptrdiff_t offset_of(const std::optional<std::ptrdiff_t>& offset, const AttentionSizes& sizes) {
  const auto queries = std::ptrdiff_t(sizes.queries), keys = std::ptrdiff_t(sizes.keys);
  return std::clamp(offset.value_or(keys - queries), -queries - 1, keys);
}

// One row of a boolean array, stretched where its sizes are 1.
struct FlagRow {
  const bool* flags;
  std::size_t step;
  bool operator()(std::size_t key) const { return flags[key * step]; }
};
FlagRow flag_row(const Bools& array, std::size_t batch, std::size_t head, std::size_t query) {
  const Shape& shape = array.shape();
  const std::size_t keys = shape[3];
  const auto at = [](std::size_t index, std::size_t size) { return size == 1 ? 0 : index; };
  const std::size_t row =
      (at(batch, shape[0]) * shape[1] + at(head, shape[1])) * shape[2] + at(query, shape[2]);
  return {array.data() + row * keys, keys == 1 ? std::size_t{0} : std::size_t{1}};
}

}  // namespace

Mask operator&(const Mask& a, const Mask& b) {
  Mask both = a;
  both.causal_.insert(both.causal_.end(), b.causal_.begin(), b.causal_.end());
  both.arrays_.insert(both.arrays_.end(), b.arrays_.begin(), b.arrays_.end());
  return both;
}

Mask causal(std::optional<std::ptrdiff_t> offset) {
  Mask mask;
  mask.causal_.push_back(offset);
  return mask;
}

Mask visible_where(Bools visible) {
  const std::size_t rank = visible.dimension();
  check_shape(rank == 2 || rank == 4,
              "visible_where: needs (queries, keys) or (batch, heads, queries, keys), got ",
              visible.shape());
  if (rank == 2) visible.reshape(Shape{1, 1, visible.shape()[0], visible.shape()[1]});
  Mask mask;
  mask.arrays_.push_back(std::make_shared<const Bools>(std::move(visible)));
  return mask;
}

void Mask::check(const AttentionSizes& sizes) const {
  const Shape full{sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  for (const auto& array : arrays_)
    for (std::size_t axis = 0; axis < 4; ++axis)
      check_shape(array->shape()[axis] == full[axis] || array->shape()[axis] == 1,
                  "attention: the mask must fit (batch, heads, queries, keys) = ", full, ", got ",
                  array->shape());
}

bool Mask::visible(const AttentionSizes& sizes, std::size_t batch, std::size_t head,
                   std::size_t query, std::size_t key) const {
  for (const auto& offset : causal_)
    if (std::ptrdiff_t(key) > std::ptrdiff_t(query) + offset_of(offset, sizes)) return false;
  return std::all_of(arrays_.begin(), arrays_.end(),
                     [&](const auto& array) { return flag_row(*array, batch, head, query)(key); });
}

std::size_t Mask::key_end(const AttentionSizes& sizes, std::size_t query) const {
  std::ptrdiff_t end = std::ptrdiff_t(sizes.keys);
  for (const auto& offset : causal_)
    end = std::min(end, std::ptrdiff_t(query) + offset_of(offset, sizes) + 1);
  return std::size_t(std::max<std::ptrdiff_t>(end, 0));
}

std::size_t Mask::query_begin(const AttentionSizes& sizes, std::size_t key) const {
  std::ptrdiff_t begin = 0;
  for (const auto& offset : causal_)
    begin = std::max(begin, std::ptrdiff_t(key) - offset_of(offset, sizes));
  return std::min(std::size_t(begin), sizes.queries);
}

Visible Mask::look(const AttentionSizes& sizes, const ScorePlace& p) const {
  const std::size_t query_end = p.first_query + p.queries, end = p.first_key + p.keys;
  if (key_end(sizes, query_end - 1) <= p.first_key) return Visible::none;
  bool all = key_end(sizes, p.first_query) >= end;
  for (const auto& array : arrays_) {
    std::size_t shown = 0;
    for (std::size_t query = p.first_query; query < query_end; ++query) {
      const FlagRow row = flag_row(*array, p.batch, p.head, query);
      const bool* first = row.flags + p.first_key * row.step;
      shown +=
          row.step == 0 ? *first * p.keys : std::size_t(std::count(first, first + p.keys, true));
    }
    if (shown == 0) return Visible::none;
    all = all && shown == p.queries * p.keys;
  }
  return all ? Visible::all : Visible::some;
}

template <class T>
void Mask::overwrite_hidden(const AttentionSizes& sizes, const ScoreBlock<T>& block,
                            T value) const {
  const auto at = [&](std::size_t i, std::size_t j) -> T& {
    return block.scores[i * block.query_stride + j * block.key_stride];
  };
  const auto beyond = [](std::size_t end, std::size_t first, std::size_t count) {
    return end > first ? std::min(end - first, count) : 0;
  };
  if (!causal_.empty() && block.key_stride == 1) {
    for (std::size_t i = 0; i < block.queries; ++i) {
      const std::size_t end = key_end(sizes, block.first_query + i);
      for (std::size_t j = beyond(end, block.first_key, block.keys); j < block.keys; ++j)
        at(i, j) = value;
    }
  } else if (!causal_.empty()) {
    for (std::size_t j = 0; j < block.keys; ++j) {
      const std::size_t begin = query_begin(sizes, block.first_key + j);
      const std::size_t hidden = beyond(begin, block.first_query, block.queries);
      for (std::size_t i = 0; i < hidden; ++i) at(i, j) = value;
    }
  }
  for (const auto& array : arrays_)
    for (std::size_t i = 0; i < block.queries; ++i) {
      const FlagRow shows = flag_row(*array, block.batch, block.head, block.first_query + i);
      for (std::size_t j = 0; j < block.keys; ++j)
        if (!shows(block.first_key + j)) at(i, j) = value;
    }
}

template void Mask::overwrite_hidden(const AttentionSizes&, const ScoreBlock<float>&, float) const;
template void Mask::overwrite_hidden(const AttentionSizes&, const ScoreBlock<double>&,
                                     double) const;

Bools Mask::dense(const AttentionSizes& sizes) const {
  Bools all = Bools::from_shape({sizes.batch, sizes.heads, sizes.queries, sizes.keys});
  bool* flag = all.data();
  for (std::size_t b = 0; b < sizes.batch; ++b)
    for (std::size_t h = 0; h < sizes.heads; ++h)
      for (std::size_t i = 0; i < sizes.queries; ++i)
        for (std::size_t j = 0; j < sizes.keys; ++j) *flag++ = visible(sizes, b, h, i, j);
  return all;
}

}  // namespace attngrad
