#include "layers/attention/key_value_cache.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

const KeyValueCacheOptions& checked(const KeyValueCacheOptions& o) {
  check_argument(
      o.batch > 0 && o.heads > 0 && o.capacity > 0 && o.key_width > 0 && o.value_width > 0,
      "KeyValueCache: batch, heads, capacity and widths must be positive, got ", o.batch, ", ",
      o.heads, ", ", o.capacity, ", ", o.key_width, " and ", o.value_width);
  check_argument(o.sinks.value_or(0) < o.capacity, "KeyValueCache: sinks must be fewer than the ",
                 o.capacity, " slots, got ", o.sinks.value_or(0));
  return o;
}

void check_fits(const char* what, const Heads& heads, const KeyValueCacheOptions& o,
                std::size_t width, std::size_t longest) {
  check_shape(heads.batch == o.batch && heads.heads == o.heads && heads.length >= longest &&
                  heads.width == width,
              "KeyValueCache: ", what, " must be (", o.batch, ", ", o.heads, ", at least ", longest,
              ", ", width, "), got ", Shape{heads.batch, heads.heads, heads.length, heads.width});
  check_heads(what, heads);
}

}  // namespace

void check_no_tape(const char* who) {
  if (recording())
    throw TapeError(text(who,
                         ": a cache keeps values without their gradients, so it may not grow while "
                         "a Tape records"));
}

void check_room(const char* who, const std::vector<std::size_t>& lengths,
                const std::vector<std::size_t>& counts, std::size_t capacity) {
  check_argument(counts.size() == lengths.size(), who, ": needs a count for each of ",
                 lengths.size(), " rows, got ", counts.size());
  for (std::size_t row = 0; row < lengths.size(); ++row)
    check_argument(counts[row] <= capacity - lengths[row], who, ": a cache for ", capacity,
                   " tokens holds ", lengths[row], " in row ", row, " and has no room for ",
                   counts[row], " more");
}

KeyValueCache::KeyValueCache(const KeyValueCacheOptions& o)
    : options_(checked(o)),
      lengths_(o.batch, 0),
      keys_(zeros({o.batch, o.heads, o.capacity, o.key_width})),
      values_(zeros({o.batch, o.heads, o.capacity, o.value_width})) {}

std::size_t KeyValueCache::bytes() const {
  const std::size_t rows =
      token_rows_ ? token_rows_->scores.size() + token_rows_->weights.size() : 0;
  return (keys_.size() + values_.size() + rows) * sizeof(Real);
}

void KeyValueCache::check_room(const std::vector<std::size_t>& counts) const {
  attngrad::check_room("KeyValueCache", lengths_, counts, options_.capacity);
}

void KeyValueCache::make_room(const std::vector<std::size_t>& counts) {
  if (!options_.sinks) return;
  check_argument(counts.size() == lengths_.size(), "KeyValueCache: needs a count for each of ",
                 lengths_.size(), " rows, got ", counts.size());
  for (std::size_t row = 0; row < counts.size(); ++row)
    check_argument(counts[row] <= std::max<std::size_t>(1, options_.capacity - lengths_[row]),
                   "KeyValueCache: a streaming cache for ", options_.capacity, " tokens holds ",
                   lengths_[row], " in row ", row, " and takes ", counts[row],
                   " more one at a time only");
  for (std::size_t row = 0; row < counts.size(); ++row)
    if (lengths_[row] + counts[row] > options_.capacity) drop_oldest(row);
}

void KeyValueCache::drop_oldest(std::size_t row) {
  const auto move_up = [&](Variable& x, std::size_t width) {
    for (std::size_t head = 0; head < options_.heads; ++head) {
      Real* slots = x.edit().data() + (row * options_.heads + head) * options_.capacity * width;
      std::copy(slots + (*options_.sinks + 1) * width, slots + lengths_[row] * width,
                slots + *options_.sinks * width);
    }
  };
  move_up(keys_, options_.key_width);
  move_up(values_, options_.value_width);
  --lengths_[row];
}

void KeyValueCache::append(const Heads& keys, const Heads& values,
                           const std::vector<std::size_t>& counts) {
  check_no_tape("KeyValueCache");
  check_room(counts);
  const std::size_t longest = *std::max_element(counts.begin(), counts.end());
  check_fits("keys", keys, options_, options_.key_width, longest);
  check_fits("values", values, options_, options_.value_width, longest);
  const auto write = [&](const Heads& from, Variable& to) {
    Real* slots = to.edit().data();
    for (std::size_t b = 0; b < options_.batch; ++b)
      for (std::size_t h = 0; h < options_.heads; ++h) {
        const Real* head = from.array.value().data() + from.at(b, h);
        Real* slot =
            slots + ((b * options_.heads + h) * options_.capacity + lengths_[b]) * from.width;
        for (std::size_t t = 0; t < counts[b]; ++t)
          std::copy_n(head + t * from.time_stride, from.width, slot + t * from.width);
      }
  };
  write(keys, keys_);
  write(values, values_);
  for (std::size_t b = 0; b < options_.batch; ++b) lengths_[b] += counts[b];
}

void KeyValueCache::truncate(const std::vector<std::size_t>& lengths) {
  check_argument(lengths.size() == lengths_.size(), "KeyValueCache: needs a length for each of ",
                 lengths_.size(), " rows, got ", lengths.size());
  for (std::size_t row = 0; row < lengths.size(); ++row)
    check_argument(lengths[row] <= lengths_[row], "KeyValueCache: row ", row, " holds ",
                   lengths_[row], " tokens and cannot be cut to ", lengths[row]);
  lengths_ = lengths;
  if (token_rows_) cut_token_rows();
}

void KeyValueCache::cut_token_rows() {
  if (previous_token_rows_ && lengths_ == previous_lengths_ && lengths_ != token_rows_lengths_) {
    token_rows_ = std::exchange(previous_token_rows_, std::nullopt);
    token_rows_lengths_ = previous_lengths_;
  }
  for (std::size_t row = 0; row < lengths_.size(); ++row) {
    if (lengths_[row] >= token_rows_lengths_[row]) continue;
    // of no length, until all is forgotten: then they are as new
    token_rows_lengths_[row] = lengths_[row] == 0 ? 0 : std::numeric_limits<std::size_t>::max();
    for (Array* rows : {&token_rows_->scores, &token_rows_->weights}) {
      const std::size_t size = rows->size() / lengths_.size();
      std::fill_n(rows->data() + row * size, size, Real(0));
    }
  }
}

void KeyValueCache::set_token_rows(TokenRows rows) {
  previous_token_rows_ = std::exchange(token_rows_, std::move(rows));
  previous_lengths_ = std::exchange(token_rows_lengths_, lengths_);
}

KeyValueCache KeyValueCache::fork(const std::vector<std::size_t>& rows) const {
  for (const std::size_t row : rows)
    check_argument(row < options_.batch, "KeyValueCache: rows are in [0, ", options_.batch,
                   "), got ", row);
  KeyValueCacheOptions copied = options_;
  copied.batch = rows.size();
  KeyValueCache copy(copied);
  const auto read = [&](const Variable& from, Variable& to, std::size_t width) {
    Real* slots = to.edit().data();
    const std::size_t head_size = options_.capacity * width;
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t h = 0; h < options_.heads; ++h)
        std::copy_n(from.value().data() + (rows[i] * options_.heads + h) * head_size,
                    lengths_[rows[i]] * width, slots + (i * options_.heads + h) * head_size);
  };
  read(keys_, copy.keys_, options_.key_width);
  read(values_, copy.values_, options_.value_width);
  for (std::size_t i = 0; i < rows.size(); ++i) copy.lengths_[i] = lengths_[rows[i]];
  if (token_rows_) {
    const auto chosen = [&](const Array& from) {
      Shape shape = from.shape();
      const std::size_t size = from.size() / shape[0];
      shape[0] = rows.size();
      Array to = uninitialized(shape);
      for (std::size_t i = 0; i < rows.size(); ++i)
        std::copy_n(from.data() + rows[i] * size, size, to.data() + i * size);
      return to;
    };
    copy.token_rows_.emplace();
    copy.token_rows_->scores = chosen(token_rows_->scores);
    copy.token_rows_->weights = chosen(token_rows_->weights);
    for (const std::size_t row : rows) copy.token_rows_lengths_.push_back(token_rows_lengths_[row]);
  }
  return copy;
}

Heads KeyValueCache::view(const Variable& array, std::size_t width) const {
  return {.array = array,
          .batch = options_.batch,
          .heads = options_.heads,
          .length = *std::max_element(lengths_.begin(), lengths_.end()),
          .width = width,
          .offset = 0,
          .batch_stride = options_.heads * options_.capacity * width,
          .head_stride = options_.capacity * width,
          .time_stride = width};
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
