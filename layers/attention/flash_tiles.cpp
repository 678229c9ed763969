#include "layers/attention/flash_tiles.hpp"

#include <algorithm>
#include <cmath>

#include "core/kernels/tile.hpp"

namespace attngrad::kernels {
namespace {

constexpr std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

template <class T>
HeadView<T> rows_of(HeadView<T> x, std::size_t first, std::size_t count) {
  return {x.data + first * x.stride, count, x.width, x.stride};
}

// One pair of a query tile and a key tile.
template <class T>
class Tile {
 public:
  Tile(const HeadMask& mask, std::size_t first_query, std::size_t queries, std::size_t first_key)
      : mask_(mask.mask),
        place_{mask.batch, mask.head, first_query,
               queries,    first_key, std::min(flash_keys, mask.mask.sizes().keys - first_key)},
        visible_(mask.mask.look(place_)) {}

  Visible visible() const { return visible_; }
  std::size_t first_key() const { return place_.first_key; }
  std::size_t queries() const { return place_.queries; }
  std::size_t keys() const { return place_.keys; }

  // The hook on a block of scores: after S is computed, and in dS. Both blocks are transposed, as
  // the tile kernels hold them. What a mask hides has no probability, and so no gradient (dS is 0
  // there already).
  void after_scores(ScoreTile<T> scores) const {
    if (visible_ != Visible::some) return;
    ScoreBlock<T> block{place_, scores.data, 1, scores.stride};
    mask_.overwrite_hidden(block, -std::numeric_limits<T>::infinity());
  }

  // Calls f(key, keys, queries) for pieces of the tile's keys, each with the range of queries that
  // see one of them, and likewise f(query, queries, keys): what lies outside is hidden, so products
  // leave it out.
  template <class F>
  void for_key_pieces(F&& f) const {
    if (visible_ == Visible::all) return f(0, keys(), QueryRange{0, queries()});
    const std::size_t piece = tile_kernels<T>().rows;
    for (std::size_t j = 0; j < keys(); j += piece) {
      const std::size_t count = std::min(piece, keys() - j);
      const QueryRange seen = mask_.queries(place_, place_.first_key + j, count);
      if (seen.begin < seen.end) f(j, count, seen);
    }
  }
  template <class F>
  void for_query_pieces(F&& f) const {
    if (visible_ == Visible::all) return f(0, queries(), KeyRange{0, keys()});
    const std::size_t piece = tile_kernels<T>().rows;
    for (std::size_t i = 0; i < queries(); i += piece) {
      const std::size_t count = std::min(piece, queries() - i);
      const KeyRange first = mask_.keys(place_.batch, place_.first_query + i),
                     last = mask_.keys(place_.batch, place_.first_query + i + count - 1);
      const KeyRange seen{inside(first.begin), inside(last.end)};
      if (seen.begin < seen.end) f(i, count, seen);
    }
  }

  // A product with 0 is 0 only beside finite numbers; a hidden pair must add nothing in any case.
  bool must_skip_hidden(HeadView<const T> factor) const {
    return visible_ == Visible::some &&
           !tile_kernels<T>().all_finite(factor.data, factor.stride, factor.length, factor.width);
  }

 private:
  // A key of the whole head, counted from the tile's first and kept inside it.
  std::size_t inside(std::size_t key) const {
    return key > place_.first_key ? std::min(key - place_.first_key, keys()) : 0;
  }

  const SizedMask& mask_;
  ScorePlace place_;
  Visible visible_;
};

// scores = rows * columns, transposed: (keys, queries). rows: keys or values; columns: queries or
// dY, transposed.
template <class T>
void score_product(const Tile<T>& tile, HeadView<const T> rows, const T* columns,
                   ScoreTile<T> scores) {
  tile.for_key_pieces([&](std::size_t j, std::size_t keys, QueryRange queries) {
    const std::size_t from = queries.begin / tile_lanes * tile_lanes;
    const std::size_t to = round_up(queries.end, tile_lanes);
    tile_kernels<T>().multiply({keys, to - from, rows.width},
                               {rows.data + j * rows.stride, rows.stride, 1},
                               {columns + from, scores.stride}, false,
                               scores.data + j * scores.stride + from, scores.stride);
  });
}

// to += weights from, where weights hold 0 for hidden pairs, and what is multiplied by 0 may be
// anything
template <class T>
void add_skipping_zeros(TileSizes sizes, LeftFactor<T> weights, HeadView<const T> from,
                        HeadView<T> to) {
  for (std::size_t i = 0; i < sizes.rows; ++i)
    for (std::size_t k = 0; k < sizes.inner; ++k) {
      const T weight = weights.data[i * weights.row_stride + k * weights.inner_stride];
      if (weight == T(0)) continue;
      for (std::size_t d = 0; d < sizes.columns; ++d)
        to.data[i * to.stride + d] += weight * from.data[k * from.stride + d];
    }
}

// to (queries, width) += weights^T from, with the transposed weights (keys, queries)
template <class T>
void add_to_queries(const Tile<T>& tile, ScoreTile<T> weights, HeadView<const T> from,
                    HeadView<T> to) {
  const bool skip = tile.must_skip_hidden(from);
  tile.for_query_pieces([&](std::size_t i, std::size_t queries, KeyRange keys) {
    const TileSizes sizes{queries, from.width, keys.end - keys.begin};
    const LeftFactor<T> left{weights.data + keys.begin * weights.stride + i, 1, weights.stride};
    const HeadView<const T> seen = rows_of(from, keys.begin, sizes.inner);
    const HeadView<T> rows = rows_of(to, i, queries);
    if (skip) return add_skipping_zeros(sizes, left, seen, rows);
    tile_kernels<T>().multiply(sizes, left, {seen.data, seen.stride}, true, rows.data, rows.stride);
  });
}

// to (keys, width) += weights from
template <class T>
void add_to_keys(const Tile<T>& tile, ScoreTile<T> weights, HeadView<const T> from,
                 HeadView<T> to) {
  const bool skip = tile.must_skip_hidden(from);
  tile.for_key_pieces([&](std::size_t j, std::size_t keys, QueryRange queries) {
    const TileSizes sizes{keys, from.width, queries.end - queries.begin};
    const LeftFactor<T> left{weights.data + j * weights.stride + queries.begin, weights.stride, 1};
    const HeadView<const T> seen = rows_of(from, queries.begin, sizes.inner);
    const HeadView<T> rows = rows_of(to, j, keys);
    if (skip) return add_skipping_zeros(sizes, left, seen, rows);
    tile_kernels<T>().multiply(sizes, left, {seen.data, seen.stride}, true, rows.data, rows.stride);
  });
}

// Calls f(tile) for each key tile of which the queries see something.
template <class T, class F>
void for_key_tiles(const HeadMask& mask, std::size_t first_query, std::size_t queries, F&& f) {
  const std::size_t begin = mask.mask.keys(mask.batch, first_query).begin,
                    end = mask.mask.keys(mask.batch, first_query + queries - 1).end;
  for (std::size_t key = begin / flash_keys * flash_keys; key < end; key += flash_keys) {
    const Tile<T> tile(mask, first_query, queries, key);
    if (tile.visible() != Visible::none) f(tile);
  }
}

}  // namespace

template <class T>
void flash_forward(const HeadMask& mask, T scale, HeadView<const T> q, HeadView<const T> k,
                   HeadView<const T> v, std::size_t first, std::size_t count, HeadView<T> y,
                   RowSoftmax<T> softmax, T* log_sum_exp) {
  const TileKernels<T>& kernels = tile_kernels<T>();
  const std::size_t lanes = round_up(count, tile_lanes);
  auto room = ArrayOf<T>::from_shape({(q.width + flash_keys) * lanes});
  T* columns = room.data();  // Q^T: (width, queries)
  T* scores = columns + q.width * lanes;
  T top[flash_queries], total[flash_queries], factors[flash_queries];
  std::fill_n(top, lanes, -std::numeric_limits<T>::infinity());
  std::fill_n(total, lanes, T(0));

  const HeadView<const T> queries = rows_of(q, first, count);
  const HeadView<T> rows = rows_of(y, first, count);
  kernels.transpose(queries.data, queries.stride, count, q.width, scale, columns, lanes);
  for (std::size_t i = 0; i < count; ++i) std::fill_n(rows.data + i * y.stride, y.width, T(0));

  for_key_tiles<T>(mask, first, count, [&](const Tile<T>& tile) {
    const ScoreTile<T> s{scores, lanes, tile.keys(), lanes};
    score_product(tile, rows_of(k, tile.first_key(), tile.keys()), columns, s);  // S = scale Q K^T
    tile.after_scores(s);
    if (kernels.softmax_step(s, top, total, factors))
      kernels.scale_rows(rows.data, y.stride, count, y.width, factors);
    add_to_queries(tile, s, rows_of(v, tile.first_key(), tile.keys()), rows);  // Y += P V
  });

  for (std::size_t i = 0; i < count; ++i) {
    const bool sees = total[i] != T(0);
    softmax.top[first + i] = sees ? top[i] : T(0);
    softmax.inverse_total[first + i] = factors[i] = sees ? 1 / total[i] : T(0);
    log_sum_exp[first + i] = top[i] + std::log(total[i]);
  }
  kernels.scale_rows(rows.data, y.stride, count, y.width, factors);
}

namespace {

// delta = rowsum(dY * Y), each row's share of dP, with dY transposed and room for as much of Y^T as
// a tile of scores holds. It is summed in the order of dP's products, so that a query that sees one
// key has a gradient of exactly 0.
template <class T>
void sum_deltas(const T* dy_columns, HeadView<const T> y, T* room, T* delta) {
  const TileKernels<T>& kernels = tile_kernels<T>();
  std::fill_n(delta, flash_queries, T(0));
  for (std::size_t d = 0; d < y.width; d += flash_keys) {
    const std::size_t count = std::min(flash_keys, y.width - d);
    kernels.transpose(y.data + d, y.stride, y.length, count, T(1), room, flash_queries);
    kernels.add_column_dots(dy_columns + d * flash_queries, room, flash_queries, count,
                            round_up(y.length, tile_lanes), delta);
  }
}

}  // namespace

template <class T>
void flash_backward(const HeadMask& mask, const FlashBackward<T>& in, std::size_t first,
                    std::size_t last, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv) {
  const TileKernels<T>& kernels = tile_kernels<T>();
  constexpr std::size_t lanes = flash_queries;
  auto room = ArrayOf<T>::from_shape({(in.q.width + in.v.width + 2 * flash_keys) * lanes});
  T* q_columns = room.data();                      // scale Q^T
  T* dy_columns = q_columns + in.q.width * lanes;  // dY^T
  T* scores = dy_columns + in.v.width * lanes;     // S, then P
  T* gradient = scores + flash_keys * lanes;       // dP, then dS
  T top[lanes] = {}, inverse_total[lanes] = {}, delta[lanes];

  for (std::size_t i = first; i < last; i += flash_queries) {
    const std::size_t count = std::min(flash_queries, last - i);
    const HeadView<const T> q = rows_of(in.q, i, count), dy = rows_of(in.dy, i, count);
    const HeadView<T> dq_rows = rows_of(dq, i, count);
    kernels.transpose(q.data, q.stride, count, q.width, in.scale, q_columns, lanes);
    kernels.transpose(dy.data, dy.stride, count, dy.width, T(1), dy_columns, lanes);
    std::copy_n(in.softmax.top + i, count, top);
    std::copy_n(in.softmax.inverse_total + i, count, inverse_total);
    sum_deltas(dy_columns, rows_of(in.y, i, count), scores, delta);

    for_key_tiles<T>(mask, i, count, [&](const Tile<T>& tile) {
      const auto keys_of = [&](auto x) { return rows_of(x, tile.first_key(), tile.keys()); };
      const std::size_t padded = round_up(count, tile_lanes);
      const ScoreTile<T> s{scores, lanes, tile.keys(), padded};
      const ScoreTile<T> ds{gradient, lanes, tile.keys(), padded};
      score_product(tile, keys_of(in.k), q_columns, s);    // S = scale Q K^T
      score_product(tile, keys_of(in.v), dy_columns, ds);  // dP = dY V^T
      tile.after_scores(s);
      kernels.softmax_gradient(s, top, inverse_total, delta, in.scale, gradient);
      add_to_keys(tile, s, dy, keys_of(dv));             // dV += P^T dY
      add_to_keys(tile, ds, q, keys_of(dk));             // dK += scale dS^T Q
      add_to_queries(tile, ds, keys_of(in.k), dq_rows);  // dQ += scale dS K
    });
  }
}

template void flash_forward(const HeadMask&, float, HeadView<const float>, HeadView<const float>,
                            HeadView<const float>, std::size_t, std::size_t, HeadView<float>,
                            RowSoftmax<float>, float*);
template void flash_forward(const HeadMask&, double, HeadView<const double>, HeadView<const double>,
                            HeadView<const double>, std::size_t, std::size_t, HeadView<double>,
                            RowSoftmax<double>, double*);
template void flash_backward(const HeadMask&, const FlashBackward<float>&, std::size_t, std::size_t,
                             HeadView<float>, HeadView<float>, HeadView<float>);
template void flash_backward(const HeadMask&, const FlashBackward<double>&, std::size_t,
                             std::size_t, HeadView<double>, HeadView<double>, HeadView<double>);

}  // namespace attngrad::kernels
