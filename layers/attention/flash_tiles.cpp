#include "layers/attention/flash_tiles.hpp"

#include <algorithm>
#include <cmath>

#include "core/kernels/tile.hpp"
#include "core/kernels/vector.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::HeadView, kernels::LeftFactor, kernels::ScoreTile, kernels::TileSizes;
using kernels::tile_lanes;

const kernels::TileKernels<Real>& tiles() { return kernels::tile_kernels<Real>(); }

constexpr std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

template <class T>
HeadView<T> rows_of(HeadView<T> x, std::size_t first, std::size_t count) {
  return {x.data + first * x.stride, count, x.width, x.stride};
}

// One pair of a query tile and a key tile.
class Tile {
 public:
  Tile(const FlashHead& in, std::size_t first_query, std::size_t queries, std::size_t first_key)
      : call_(in.call),
        mask_(in.call.mask),
        place_{in.batch, in.head,   first_query,
               queries,  first_key, std::min(flash_keys, mask_.sizes().keys - first_key)},
        visible_(mask_.look(place_)) {}

  Visible visible() const { return visible_; }
  std::size_t first_key() const { return place_.first_key; }
  std::size_t queries() const { return place_.queries; }
  std::size_t keys() const { return place_.keys; }

  // The hook on a block of scores, after S is computed: the score steps, then the mask. Blocks are
  // transposed, as the tile kernels hold them. before: null, or room for the scores before each
  // step.
  void run_steps(ScoreTile<Real> scores, Real* before) const {
    for (const auto& step : call_.steps) {
      if (before != nullptr) {
        std::copy_n(scores.data, scores.keys * scores.stride, before);
        before += flash_keys * scores.stride;
      }
      step->forward(mask_.sizes(), block(scores.data, scores.stride));
    }
    hide(scores, -std::numeric_limits<Real>::infinity());
  }

  // The hook in dS: from the gradient of what the softmax saw to that of S.
  void run_steps_back(const Real* before, ScoreTile<Real> gradient, Real* const* parameters) const {
    for (const auto& step : call_.steps) parameters += step->parameters().size();
    before += call_.steps.size() * flash_keys * gradient.stride;
    for (auto step = call_.steps.rbegin(); step != call_.steps.rend(); ++step) {
      parameters -= (*step)->parameters().size();
      before -= flash_keys * gradient.stride;
      (*step)->backward(mask_.sizes(), block(before, gradient.stride),
                        block(gradient.data, gradient.stride), parameters);
    }
    hide(gradient, 0);
  }

  void drop(ScoreTile<Real> weights) const {
    if (call_.dropout == 0) return;
    static_assert(flash_keys % 4 == 0, "a block of random numbers must not be cut");
    tiles().drop(weights, call_.drop_blocks(place_.batch, place_.head, place_.first_query,
                                            place_.first_key));
  }

  // Calls f(key, keys, queries) for pieces of the tile's keys, each with the range of queries that
  // see one of them, and likewise f(query, queries, keys): what lies outside is hidden, so products
  // leave it out. A tile of a vector or less is one piece.
  template <class F>
  void for_key_pieces(F&& f) const {
    if (visible_ == Visible::all || keys() <= tile_lanes)
      return f(0, keys(), QueryRange{0, queries()});
    const std::size_t piece = tiles().rows;
    for (std::size_t j = 0; j < keys(); j += piece) {
      const std::size_t count = std::min(piece, keys() - j);
      const QueryRange seen = mask_.queries(place_, place_.first_key + j, count);
      if (seen.begin < seen.end) f(j, count, seen);
    }
  }
  template <class F>
  void for_query_pieces(F&& f) const {
    if (visible_ == Visible::all || queries() <= tile_lanes)
      return f(0, queries(), KeyRange{0, keys()});
    const std::size_t piece = tiles().rows;
    for (std::size_t i = 0; i < queries(); i += piece) {
      const std::size_t count = std::min(piece, queries() - i);
      const KeyRange first = mask_.keys(place_.batch, place_.first_query + i),
                     last = mask_.keys(place_.batch, place_.first_query + i + count - 1);
      const KeyRange seen{inside(first.begin), inside(last.end)};
      if (seen.begin < seen.end) f(i, count, seen);
    }
  }

  // A product with 0 is 0 only beside finite numbers; a hidden pair must add nothing in any case.
  bool must_skip_hidden(HeadView<const Real> factor) const {
    return visible_ == Visible::some &&
           !tiles().all_finite(factor.data, factor.stride, factor.length, factor.width);
  }

 private:
  template <class T>
  ScoreBlock<T> block(T* scores, std::size_t stride) const {
    return {place_, scores, 1, stride};
  }

  void hide(ScoreTile<Real> scores, Real value) const {
    if (visible_ == Visible::some) mask_.overwrite_hidden(block(scores.data, scores.stride), value);
  }

  // A key of the whole head, counted from the tile's first and kept inside it.
  std::size_t inside(std::size_t key) const {
    return key > place_.first_key ? std::min(key - place_.first_key, keys()) : 0;
  }

  const AttentionCall& call_;
  const SizedMask& mask_;
  ScorePlace place_;
  Visible visible_;
};

// scores = rows * columns, transposed: (keys, queries). rows: keys or values; columns: queries or
// dY, transposed.
void score_product(const Tile& tile, HeadView<const Real> rows, const Real* columns,
                   ScoreTile<Real> scores) {
  tile.for_key_pieces([&](std::size_t j, std::size_t keys, QueryRange queries) {
    const std::size_t from = queries.begin / tile_lanes * tile_lanes;
    const std::size_t to = round_up(queries.end, tile_lanes);
    tiles().multiply({keys, to - from, rows.width}, {rows.data + j * rows.stride, rows.stride, 1},
                     {columns + from, scores.stride}, false, scores.data + j * scores.stride + from,
                     scores.stride);
  });
}

// to += weights from, where weights hold 0 for hidden pairs, and what is multiplied by 0 may be
// anything
void add_skipping_zeros(TileSizes sizes, LeftFactor<Real> weights, HeadView<const Real> from,
                        HeadView<Real> to) {
  for (std::size_t i = 0; i < sizes.rows; ++i)
    for (std::size_t k = 0; k < sizes.inner; ++k) {
      const Real weight = weights.data[i * weights.row_stride + k * weights.inner_stride];
      if (weight == Real(0)) continue;
      for (std::size_t d = 0; d < sizes.columns; ++d)
        to.data[i * to.stride + d] += weight * from.data[k * from.stride + d];
    }
}

// to (queries, width) += weights^T from, with the transposed weights (keys, queries)
void add_to_queries(const Tile& tile, ScoreTile<Real> weights, HeadView<const Real> from,
                    HeadView<Real> to) {
  const bool skip = tile.must_skip_hidden(from);
  tile.for_query_pieces([&](std::size_t i, std::size_t queries, KeyRange keys) {
    const TileSizes sizes{queries, from.width, keys.end - keys.begin};
    const LeftFactor<Real> left{weights.data + keys.begin * weights.stride + i, 1, weights.stride};
    const HeadView<const Real> seen = rows_of(from, keys.begin, sizes.inner);
    const HeadView<Real> rows = rows_of(to, i, queries);
    if (skip) return add_skipping_zeros(sizes, left, seen, rows);
    tiles().multiply(sizes, left, {seen.data, seen.stride}, true, rows.data, rows.stride);
  });
}

// to (keys, width) += weights from
void add_to_keys(const Tile& tile, ScoreTile<Real> weights, HeadView<const Real> from,
                 HeadView<Real> to) {
  const bool skip = tile.must_skip_hidden(from);
  tile.for_key_pieces([&](std::size_t j, std::size_t keys, QueryRange queries) {
    const TileSizes sizes{keys, from.width, queries.end - queries.begin};
    const LeftFactor<Real> left{weights.data + j * weights.stride + queries.begin, weights.stride,
                                1};
    const HeadView<const Real> seen = rows_of(from, queries.begin, sizes.inner);
    const HeadView<Real> rows = rows_of(to, j, keys);
    if (skip) return add_skipping_zeros(sizes, left, seen, rows);
    tiles().multiply(sizes, left, {seen.data, seen.stride}, true, rows.data, rows.stride);
  });
}

// Calls f(tile) for each key tile of which the queries see something.
template <class F>
void for_key_tiles(const FlashHead& in, std::size_t first_query, std::size_t queries, F&& f) {
  const SizedMask& mask = in.call.mask;
  const std::size_t begin = mask.keys(in.batch, first_query).begin,
                    end = mask.keys(in.batch, first_query + queries - 1).end;
  for (std::size_t key = begin / flash_keys * flash_keys; key < end; key += flash_keys) {
    const Tile tile(in, first_query, queries, key);
    if (tile.visible() != Visible::none) f(tile);
  }
}

// The score of the head's sink; -infinity without one.
Real sink_of(const FlashHead& in) {
  return in.call.sink ? in.call.sink->value().data()[in.head]
                      : -std::numeric_limits<Real>::infinity();
}

}  // namespace

void flash_forward(const FlashHead& in, std::size_t first, std::size_t count, HeadView<Real> y,
                   RowSoftmax<Real> softmax, Real* log_sum_exp) {
  const std::size_t lanes = round_up(count, tile_lanes);
  Array room = uninitialized({(in.q.width + flash_keys) * lanes});
  Real* columns = room.data();  // Q^T: (width, queries)
  Real* scores = columns + in.q.width * lanes;
  Real top[flash_queries], total[flash_queries], factors[flash_queries];
  // the sink is there before any key
  const Real sink = sink_of(in);
  std::fill_n(top, lanes, sink);
  std::fill_n(total, lanes, sink == -std::numeric_limits<Real>::infinity() ? Real(0) : Real(1));

  const HeadView<const Real> queries = rows_of(in.q, first, count);
  const HeadView<Real> rows = rows_of(y, first, count);
  tiles().transpose(queries.data, queries.stride, count, in.q.width, in.call.scale, columns, lanes);
  for (std::size_t i = 0; i < count; ++i) std::fill_n(rows.data + i * y.stride, y.width, Real(0));

  for_key_tiles(in, first, count, [&](const Tile& tile) {
    const ScoreTile<Real> s{scores, lanes, tile.keys(), lanes};
    score_product(tile, rows_of(in.k, tile.first_key(), tile.keys()), columns,
                  s);  // S = scale Q K^T
    tile.run_steps(s, nullptr);
    if (tiles().softmax_step(s, top, total, factors))
      tiles().scale_rows(rows.data, y.stride, count, y.width, factors);
    tile.drop(s);
    add_to_queries(tile, s, rows_of(in.v, tile.first_key(), tile.keys()), rows);  // Y += P V
  });

  for (std::size_t i = 0; i < count; ++i) {
    const bool sees = total[i] != Real(0);
    softmax.top[first + i] = sees ? top[i] : Real(0);
    softmax.inverse_total[first + i] = factors[i] = sees ? 1 / total[i] : Real(0);
    log_sum_exp[first + i] = top[i] + std::log(total[i]);
  }
  tiles().scale_rows(rows.data, y.stride, count, y.width, factors);
}

namespace {

// delta = rowsum(dY * Y), each row's share of dP, with dY transposed and room for as much of Y^T as
// a tile of scores holds. It is summed in the order of dP's products, so that a query that sees one
// key has a gradient of exactly 0.
void sum_deltas(const Real* dy_columns, HeadView<const Real> y, Real* room, Real* delta) {
  std::fill_n(delta, flash_queries, Real(0));
  for (std::size_t d = 0; d < y.width; d += flash_keys) {
    const std::size_t count = std::min(flash_keys, y.width - d);
    tiles().transpose(y.data + d, y.stride, y.length, count, Real(1), room, flash_queries);
    tiles().add_column_dots(dy_columns + d * flash_queries, room, flash_queries, count,
                            round_up(y.length, tile_lanes), delta);
  }
}

// The sink has value 0, so its dP is 0: dE = P * (0 - delta), summed over the queries.
Real sink_gradient(Real sink, std::size_t count, const Real* top, const Real* inverse_total,
                   const Real* delta) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum -= double(std::exp(sink - top[i]) * inverse_total[i] * delta[i]);
  return Real(sum);
}

}  // namespace

void flash_backward(const FlashHead& in, const FlashKept& kept, std::size_t first, std::size_t last,
                    const FlashGradients& to) {
  constexpr std::size_t lanes = flash_queries, tile_size = flash_keys * lanes;
  const AttentionCall& call = in.call;
  const bool has_steps = !call.steps.empty();
  Array room =
      uninitialized({(in.q.width + in.v.width) * lanes + (2 + call.steps.size()) * tile_size});
  Real* q_columns = room.data();                      // scale Q^T
  Real* dy_columns = q_columns + in.q.width * lanes;  // dY^T
  Real* scores = dy_columns + in.v.width * lanes;     // S, then P
  Real* gradient = scores + tile_size;                // dP, then dS
  Real* before_steps = gradient + tile_size;
  Real top[lanes] = {}, inverse_total[lanes] = {}, delta[lanes];

  for (std::size_t i = first; i < last; i += flash_queries) {
    const std::size_t count = std::min(flash_queries, last - i);
    const HeadView<const Real> q = rows_of(in.q, i, count), dy = rows_of(kept.dy, i, count);
    const HeadView<Real> dq_rows = rows_of(to.dq, i, count);
    tiles().transpose(q.data, q.stride, count, q.width, call.scale, q_columns, lanes);
    tiles().transpose(dy.data, dy.stride, count, dy.width, Real(1), dy_columns, lanes);
    std::copy_n(kept.softmax.top + i, count, top);
    std::copy_n(kept.softmax.inverse_total + i, count, inverse_total);
    sum_deltas(dy_columns, rows_of(kept.y, i, count), scores, delta);
    if (call.sink)
      to.parameters[0][in.head] += sink_gradient(sink_of(in), count, top, inverse_total, delta);

    for_key_tiles(in, i, count, [&](const Tile& tile) {
      const auto keys_of = [&](auto x) { return rows_of(x, tile.first_key(), tile.keys()); };
      const std::size_t padded = round_up(count, tile_lanes);
      const ScoreTile<Real> s{scores, lanes, tile.keys(), padded};
      const ScoreTile<Real> ds{gradient, lanes, tile.keys(), padded};
      score_product(tile, keys_of(in.k), q_columns, s);    // S = scale Q K^T
      score_product(tile, keys_of(in.v), dy_columns, ds);  // dP = dY V^T
      tile.run_steps(s, before_steps);
      tile.drop(ds);
      tiles().softmax_gradient(s, top, inverse_total, delta, has_steps ? Real(1) : call.scale,
                               gradient);
      if (has_steps) {
        tile.run_steps_back(before_steps, ds, to.parameters + (call.sink ? 1 : 0));
        kernels::vector_kernels<Real>().scale(gradient, call.scale, 0, gradient,
                                              tile.keys() * lanes);
      }
      tile.drop(s);
      add_to_keys(tile, s, dy, keys_of(to.dv));          // dV += P^T dY
      add_to_keys(tile, ds, q, keys_of(to.dk));          // dK += scale dS^T Q
      add_to_queries(tile, ds, keys_of(in.k), dq_rows);  // dQ += scale dS K
    });
  }
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
