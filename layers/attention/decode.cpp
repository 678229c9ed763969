#include "layers/attention/decode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

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

// What is read, and what is handed out beside the output.
struct Work {
  const AttentionInputs& in;
  const AttentionCall& call;
  const TokenSets* sets = nullptr;  // or null: all keys
  Real* scores = nullptr;           // or null: (batch, heads, keys)

  // How many query heads in a row read the same keys at once.
  std::size_t together() const { return sets == nullptr || sets->shared() ? in.group() : 1; }
  std::size_t most_keys() const {
    if (sets == nullptr) return call.sizes().keys;
    std::size_t most = 0;
    for (std::size_t row = 0; row < sets->rows(); ++row)
      for (std::size_t i = 0; i < sets->per_row(); ++i)
        most = std::max(most, sets->of(row, i).size());
    return most;
  }
};

// Up to score_block_side keys of a piece: the most that a score step takes, and few enough to stay
// near the processor while the heads of a group pass over them.
struct Block {
  std::size_t at;              // how many keys of the piece come before
  std::size_t keys = 0;        // how many these are
  std::vector<KeyRange> runs;  // they, as runs of neighbours
};

// Adds keys to the last block, and to new ones where it is full.
void add_keys(KeyRange run, std::vector<Block>& blocks) {
  while (run.begin < run.end) {
    if (blocks.empty() || blocks.back().keys == score_block_side)
      blocks.push_back({.at = blocks.size() * score_block_side, .runs = {}});
    Block& block = blocks.back();
    const std::size_t count = std::min(run.end - run.begin, score_block_side - block.keys);
    if (!block.runs.empty() && block.runs.back().end == run.begin)
      block.runs.back().end += count;
    else
      block.runs.push_back({run.begin, run.begin + count});
    block.keys += count;
    run.begin += count;
  }
}

// The keys of one piece that lie within `seen`.
std::vector<Block> blocks_of(const Work& work, std::size_t batch, std::size_t head,
                             std::size_t piece, KeyRange seen) {
  const std::size_t first = piece * decode_keys, last = first + decode_keys;
  std::vector<Block> blocks;
  if (work.sets == nullptr) {
    add_keys({std::max(seen.begin, first), std::min(seen.end, last)}, blocks);
    return blocks;
  }
  const TokenSet& set = work.sets->of(batch, head);
  for (std::size_t i = first; i < std::min(set.size(), last); ++i)
    if (set[i] >= seen.begin && set[i] < seen.end) add_keys({set[i], set[i] + 1}, blocks);
  return blocks;
}

// The vectors of a block: where they are, or one behind the other in `room`.
kernels::HeadView<const Real> gathered(const kernels::HeadView<const Real>& all, const Block& block,
                                       Array& room) {
  if (block.runs.size() == 1)
    return {all.data + block.runs[0].begin * all.stride, block.keys, all.width, all.stride};
  Real* to = room.data();
  for (const KeyRange& run : block.runs)
    for (std::size_t key = run.begin; key < run.end; ++key, to += all.width)
      std::copy_n(all.data + key * all.stride, all.width, to);
  return {room.data(), block.keys, all.width, all.width};
}

// One piece of keys, of one batch row, for query heads in a row that share a head of keys.
class Piece {
 public:
  Piece(const Work& work, std::size_t batch, std::size_t first_head, std::size_t piece)
      : work_(work),
        batch_(batch),
        first_head_(first_head),
        piece_(piece),
        k_(head_view(work.in.k, batch, first_head / work.in.group())),
        v_(head_view(work.in.v, batch, first_head / work.in.group())),
        blocks_(blocks_of(work, batch, first_head, piece, work.call.mask.keys(batch, 0))) {
    if (blocks_.empty()) return;
    const std::size_t begin = blocks_.front().runs.front().begin,
                      end = blocks_.back().runs.back().end;
    for (std::size_t i = 0; i < work.together(); ++i)
      all_visible_ = all_visible_ && work.call.mask.look(place(i, {begin, end})) == Visible::all;
  }

  void run(Pieces& out) const {
    if (blocks_.empty()) return;
    const std::size_t heads = work_.together(), count = blocks_.back().at + blocks_.back().keys;
    Array scores = uninitialized({heads, decode_keys}),
          room = uninitialized({score_block_side, std::max(k_.width, v_.width)});
    const auto scores_of = [&](std::size_t i) { return scores.data() + i * decode_keys; };
    for (const Block& block : blocks_) {
      const auto keys = gathered(k_, block, room);
      for (std::size_t i = 0; i < heads; ++i) score(i, block, keys, scores_of(i) + block.at);
    }
    for (std::size_t i = 0; i < heads; ++i) {
      const std::size_t place = place_of(out, i);
      const Real top = kernels::vector_kernels<Real>().max(scores_of(i), count);
      if (top == nothing) continue;
      out.top[place] = top;
      out.total[place] = rows().powers(scores_of(i), top, count);
    }
    for (const Block& block : blocks_) {
      const auto values = gathered(v_, block, room);
      // a product with 0 is 0 only beside finite numbers; a hidden key must add nothing in any case
      const bool whole = all_visible_ || kernels::tile_kernels<Real>().all_finite(
                                             values.data, values.stride, block.keys, v_.width);
      for (std::size_t i = 0; i < heads; ++i)
        if (const std::size_t place = place_of(out, i); out.top[place] != nothing)
          add_values(values, scores_of(i) + block.at, whole, out.sum(place));
    }
  }

 private:
  std::size_t place_of(const Pieces& out, std::size_t i) const {
    return out.place(batch_ * work_.call.sizes().heads + first_head_ + i, piece_);
  }

  ScorePlace place(std::size_t i, KeyRange run) const {
    return {batch_, first_head_ + i, 0, 1, run.begin, run.end - run.begin};
  }

  void score(std::size_t i, const Block& block, const kernels::HeadView<const Real>& keys,
             Real* scores) const {
    const Heads& queries = work_.in.q;
    const Real* q = queries.array.value().data() + queries.at(batch_, first_head_ + i);
    rows().dots(q, keys.data, keys.stride, block.keys, keys.width, work_.call.scale, scores);
    if (work_.call.steps.empty() && all_visible_ && work_.scores == nullptr) return;
    const AttentionSizes& s = work_.call.sizes();
    for (const KeyRange& run : block.runs) {
      const ScorePlace at = place(i, run);
      if (!work_.call.steps.empty()) run_steps(at, scores);
      if (!all_visible_)
        work_.call.mask.overwrite_hidden(ScoreBlock<Real>{at, scores, at.keys, 1}, nothing);
      if (work_.scores != nullptr)
        std::copy_n(scores, at.keys,
                    work_.scores + (batch_ * s.heads + first_head_ + i) * s.keys + run.begin);
      scores += at.keys;
    }
  }

  // A score step takes queries side by side, a vector of them for each key.
  void run_steps(const ScorePlace& at, Real* scores) const {
    constexpr std::size_t lanes = kernels::tile_lanes;
    Real spread[score_block_side * lanes] = {};
    for (std::size_t j = 0; j < at.keys; ++j) spread[j * lanes] = scores[j];
    for (const auto& step : work_.call.steps)
      step->forward(work_.call.sizes(), ScoreBlock<Real>{at, spread, 1, lanes});
    for (std::size_t j = 0; j < at.keys; ++j) scores[j] = spread[j * lanes];
  }

  // whole: nothing is hidden that is not finite
  void add_values(const kernels::HeadView<const Real>& values, const Real* weights, bool whole,
                  Real* sum) const {
    if (whole)
      return rows().add_rows(weights, values.data, values.stride, values.length, values.width, sum);
    for (std::size_t j = 0; j < values.length; ++j)
      if (weights[j] != Real(0))
        rows().add_rows(weights + j, values.data + j * values.stride, values.stride, 1,
                        values.width, sum);
  }

  const Work& work_;
  std::size_t batch_, first_head_, piece_;
  kernels::HeadView<const Real> k_, v_;
  std::vector<Block> blocks_;
  bool all_visible_ = true;  // all keys of the blocks and between them, to each of the heads
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

AttentionCall prepare(const AttentionInputs& in, const AttentionOptions& options) {
  check_shape(in.q.length == 1, "decode_attention: takes one query in each row, got ", in.q.length);
  if (recording())
    throw TapeError("decode_attention: has no gradient, so it may not run while a Tape records");
  check_argument(options.rng == nullptr || options.dropout == 0,
                 "decode_attention: drops no weights, got dropout ", options.dropout);
  return prepare_attention(in, options);
}

AttentionOutput decode(const Work& work) {
  const AttentionInputs& in = work.in;
  const AttentionSizes& s = work.call.sizes();
  Pieces pieces(s.batch * s.heads, work.most_keys(), in.v.width);
  const std::size_t together = work.together(), of_row = s.heads / together * pieces.per_head;
  parallel_for(
      s.batch * of_row,
      [&](std::size_t task) {
        const std::size_t first_head = task % of_row / pieces.per_head * together;
        Piece(work, task / of_row, first_head, task % pieces.per_head).run(pieces);
      },
      2 * double(s.batch * s.heads * work.most_keys()) * double(in.k.width + in.v.width));
  Array y = uninitialized({s.batch, 1, s.heads * in.v.width});
  Array log_sum_exp = uninitialized({s.batch, s.heads, 1});
  for (std::size_t head = 0; head < s.batch * s.heads; ++head) {
    const Real sink = work.call.sink ? work.call.sink->value().data()[head % s.heads] : nothing;
    log_sum_exp.data()[head] = merge(pieces, head, sink, y.data() + head * in.v.width);
  }
  return {Variable(std::move(y)), std::move(log_sum_exp)};
}

}  // namespace

AttentionOutput decode_attention(const AttentionInputs& in, const AttentionOptions& options) {
  const AttentionCall call = prepare(in, options);
  return decode({.in = in, .call = call});
}

ScoredAttention decode_with_scores(const AttentionInputs& in, const AttentionOptions& options) {
  const AttentionCall call = prepare(in, options);
  Array scores({call.sizes().batch, call.sizes().heads, call.sizes().keys}, nothing);
  AttentionOutput attention = decode({.in = in, .call = call, .scores = scores.data()});
  return {std::move(attention), std::move(scores)};
}

AttentionOutput sparse_decode_attention(const AttentionInputs& in, const AttentionOptions& options,
                                        const TokenSets& sets) {
  const AttentionCall call = prepare(in, options);
  const AttentionSizes& s = call.sizes();
  check_shape(sets.rows() == s.batch && (sets.shared() || sets.per_row() == s.heads),
              "sparse_decode_attention: needs a set for each of ", s.batch,
              " rows, or for each of their ", s.heads, " heads, got ", sets.per_row(),
              " for each of ", sets.rows(), " rows");
  for (std::size_t row = 0; row < s.batch; ++row)
    for (std::size_t i = 0; i < sets.per_row(); ++i)
      check_shape(sets.of(row, i).empty() || sets.of(row, i).back() < s.keys,
                  "sparse_decode_attention: tokens are below ", s.keys, ", got ",
                  sets.of(row, i).empty() ? 0 : sets.of(row, i).back());
  return decode({.in = in, .call = call, .sets = &sets});
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
