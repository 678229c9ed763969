#include "layers/attention/decode.hpp"

#include <algorithm>
#include <cmath>

#include "core/kernels/rows.hpp"
#include "core/kernels/tile.hpp"
#include "core/kernels/vector.hpp"
#include "core/parallel.hpp"
#include "layers/attention/sources.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

constexpr Real nothing = -std::numeric_limits<Real>::infinity();

const kernels::RowKernels<Real>& rows() { return kernels::row_kernels<Real>(); }

// What the pieces of all heads left: a piece of a head is at place(head of the batch, piece).
struct Pieces {
  std::size_t per_head, width;
  std::vector<Real> top;  // -infinity where nothing was visible
  std::vector<double> total;
  Array sums;  // (heads, pieces, width): the weighted sums of values

  Pieces(std::size_t heads, std::size_t keys, std::size_t width)
      : per_head((keys + decode_keys - 1) / decode_keys),
        width(width),
        top(heads * per_head, nothing),
        total(heads * per_head, 0),
        sums(zeros({heads, per_head, width})) {}

  std::size_t place(std::size_t head, std::size_t piece) const { return head * per_head + piece; }
  Real* sum(std::size_t place) { return sums.data() + place * width; }
};

// One piece of keys, of one batch row and head of keys, for the query heads that share it.
class Piece {
 public:
  Piece(const AttentionInputs& in, const AttentionCall& call, std::size_t batch,
        std::size_t key_head, std::size_t piece)
      : in_(in),
        call_(call),
        batch_(batch),
        first_head_(key_head * in.group()),
        k_(head_view(in.k, batch, key_head)),
        v_(head_view(in.v, batch, key_head)),
        seen_(call.mask.keys(batch, 0)) {
    seen_.begin = std::max(seen_.begin, piece * decode_keys);
    seen_.end = std::max(seen_.begin, std::min(seen_.end, (piece + 1) * decode_keys));
  }

  void run(Pieces& out, std::size_t piece) const {
    Array room = uninitialized({in_.group(), decode_keys});
    for_blocks([&](std::size_t first, std::size_t keys) {
      for (std::size_t i = 0; i < in_.group(); ++i)
        score(i, first, keys, room.data() + i * decode_keys + (first - seen_.begin));
    });
    for (std::size_t i = 0; i < in_.group(); ++i) {
      Real* scores = room.data() + i * decode_keys;
      const std::size_t count = seen_.end - seen_.begin, place = place_of(out, i, piece);
      const Real top = kernels::vector_kernels<Real>().max(scores, count);
      if (top == nothing) continue;
      out.top[place] = top;
      out.total[place] = rows().powers(scores, top, count);
    }
    for_blocks([&](std::size_t first, std::size_t keys) {
      for (std::size_t i = 0; i < in_.group(); ++i) {
        const std::size_t place = place_of(out, i, piece);
        if (out.top[place] == nothing) continue;
        add_values(i, first, keys, room.data() + i * decode_keys + (first - seen_.begin),
                   out.sum(place));
      }
    });
  }

 private:
  // Calls f(first, keys) for blocks that the score steps take and that stay near the processor
  // while the heads of a group pass over them.
  template <class F>
  void for_blocks(F&& f) const {
    for (std::size_t first = seen_.begin; first < seen_.end; first += score_block_side)
      f(first, std::min(score_block_side, seen_.end - first));
  }

  std::size_t place_of(const Pieces& out, std::size_t i, std::size_t piece) const {
    return out.place(batch_ * call_.sizes().heads + first_head_ + i, piece);
  }

  ScorePlace place(std::size_t i, std::size_t first, std::size_t keys) const {
    return {batch_, first_head_ + i, 0, 1, first, keys};
  }

  void score(std::size_t i, std::size_t first, std::size_t keys, Real* scores) const {
    const Real* q = in_.q.array.value().data() + in_.q.at(batch_, first_head_ + i);
    rows().dots(q, k_.data + first * k_.stride, k_.stride, keys, k_.width, call_.scale, scores);
    const ScorePlace at = place(i, first, keys);
    if (!call_.steps.empty()) run_steps(at, scores);
    if (call_.mask.look(at) != Visible::all)
      call_.mask.overwrite_hidden(ScoreBlock<Real>{at, scores, keys, 1}, nothing);
  }

  // A score step takes queries side by side, a vector of them for each key.
  void run_steps(const ScorePlace& at, Real* scores) const {
    constexpr std::size_t lanes = kernels::tile_lanes;
    Real spread[score_block_side * lanes] = {};
    for (std::size_t j = 0; j < at.keys; ++j) spread[j * lanes] = scores[j];
    for (const auto& step : call_.steps)
      step->forward(call_.sizes(), ScoreBlock<Real>{at, spread, 1, lanes});
    for (std::size_t j = 0; j < at.keys; ++j) scores[j] = spread[j * lanes];
  }

  void add_values(std::size_t i, std::size_t first, std::size_t keys, const Real* weights,
                  Real* sum) const {
    const Real* values = v_.data + first * v_.stride;
    // a product with 0 is 0 only beside finite numbers; a hidden key must add nothing in any case
    if (call_.mask.look(place(i, first, keys)) == Visible::all ||
        kernels::tile_kernels<Real>().all_finite(values, v_.stride, keys, v_.width))
      return rows().add_rows(weights, values, v_.stride, keys, v_.width, sum);
    for (std::size_t j = 0; j < keys; ++j)
      if (weights[j] != Real(0))
        rows().add_rows(weights + j, values + j * v_.stride, v_.stride, 1, v_.width, sum);
  }

  const AttentionInputs& in_;
  const AttentionCall& call_;
  std::size_t batch_, first_head_;
  kernels::HeadView<const Real> k_, v_;
  KeyRange seen_;
};

// The output of one head from its pieces; returns its log-sum-exp.
Real merge(Pieces& pieces, std::size_t head, Real sink, Real* y) {
  Real top = sink;
  for (std::size_t i = 0; i < pieces.per_head; ++i) {
    const Real one = pieces.top[pieces.place(head, i)];
    if (one > top || std::isnan(one)) top = one;
  }
  std::fill_n(y, pieces.width, Real(0));
  if (top == nothing) return nothing;
  double total = sink == nothing ? 0 : std::exp(double(sink) - double(top));
  for (std::size_t i = 0; i < pieces.per_head; ++i) {
    const std::size_t place = pieces.place(head, i);
    if (pieces.top[place] == nothing) continue;
    const double factor = std::exp(double(pieces.top[place]) - double(top));
    total += factor * pieces.total[place];
    const Real weight = Real(factor);
    rows().add_rows(&weight, pieces.sum(place), pieces.width, 1, pieces.width, y);
  }
  kernels::vector_kernels<Real>().scale(y, Real(1 / total), 0, y, pieces.width);
  return top + Real(std::log(total));
}

}  // namespace

AttentionOutput decode_attention(const AttentionInputs& in, const AttentionOptions& options) {
  check_shape(in.q.length == 1, "decode_attention: takes one query in each row, got ", in.q.length);
  if (recording())
    throw TapeError("decode_attention: has no gradient, so it may not run while a Tape records");
  check_argument(options.rng == nullptr || options.dropout == 0,
                 "decode_attention: drops no weights, got dropout ", options.dropout);
  const AttentionCall call = prepare_attention(in, options);
  const AttentionSizes& s = call.sizes();
  Pieces pieces(s.batch * s.heads, s.keys, in.v.width);
  const std::size_t of_row = in.k.heads * pieces.per_head;
  parallel_for(
      s.batch * of_row,
      [&](std::size_t task) {
        const std::size_t piece = task % pieces.per_head;
        Piece(in, call, task / of_row, task % of_row / pieces.per_head, piece).run(pieces, piece);
      },
      2 * double(s.batch * s.heads * s.keys) * double(in.k.width + in.v.width));
  Array y = uninitialized({s.batch, 1, s.heads * in.v.width});
  Array log_sum_exp = uninitialized({s.batch, s.heads, 1});
  for (std::size_t head = 0; head < s.batch * s.heads; ++head) {
    const Real sink = call.sink ? call.sink->value().data()[head % s.heads] : nothing;
    log_sum_exp.data()[head] = merge(pieces, head, sink, y.data() + head * in.v.width);
  }
  return {Variable(std::move(y)), std::move(log_sum_exp)};
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
