#include "layers/attention/continuation.hpp"

#include <algorithm>

#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// The sizes of a call with the whole sequence of one row.
AttentionSizes whole(const AttentionSizes& s, const Continuation& rows, std::size_t row) {
  return {s.batch, s.heads, rows.length(row), rows.length(row)};
}

bool rows_differ(const Continuation& rows) {
  const auto differ = [](const std::vector<std::size_t>& numbers) {
    return std::adjacent_find(numbers.begin(), numbers.end(), std::not_equal_to<>()) !=
           numbers.end();
  };
  return differ(rows.past) || differ(rows.counts);
}

class ContinuedStep final : public ScoreStep {
 public:
  ContinuedStep(std::shared_ptr<const ScoreStep> step, const Continuation& rows)
      : ScoreStep(step->parameters()), step_(std::move(step)), rows_(rows) {}

  void check(const AttentionSizes& s) const override {
    for (std::size_t row = 0; row < s.batch; ++row)
      if (rows_.counts[row] > 0) step_->check(whole(s, rows_, row));
  }

  void forward(const AttentionSizes& s, const ScoreBlock<Real>& scores) const override {
    step_->forward(whole(s, rows_, scores.batch), placed(scores));
  }

  void backward(const AttentionSizes& s, const ScoreBlock<const Real>& before,
                const ScoreBlock<Real>& gradient, Real* const* gradients) const override {
    step_->backward(whole(s, rows_, gradient.batch), placed(before), placed(gradient), gradients);
  }

  // Row by row, each within zeros for the queries of before.
  Variable composed(const AttentionSizes& s, const Variable& scores,
                    const std::vector<Variable>& parameters) const override {
    const auto part = [](const Variable& x, std::ptrdiff_t axis, std::size_t start,
                         std::size_t size) {
      return slice(x, axis, {.start = std::ptrdiff_t(start), .stop = std::ptrdiff_t(start + size)});
    };
    std::vector<Variable> all;
    for (std::size_t row = 0; row < s.batch; ++row) {
      const std::size_t past = rows_.past[row], count = rows_.counts[row], length = past + count;
      Variable own = part(part(part(scores, 0, row, 1), 2, 0, count), 3, 0, length);
      if (count > 0) {
        own = pad(own, {{0, 0}, {0, 0}, {past, 0}, {0, 0}});
        own = step_->composed(whole(s, rows_, row),
                              broadcast_to(own, {s.batch, s.heads, length, length}), parameters);
        own = part(part(own, 0, row, 1), 2, past, count);
      }
      all.push_back(pad(own, {{0, 0}, {0, 0}, {0, s.queries - count}, {0, s.keys - length}}));
    }
    return concatenate(all, 0);
  }

 private:
  // The block at its place in the whole sequence, without what lies beyond the row.
  template <class T>
  ScoreBlock<T> placed(ScoreBlock<T> block) const {
    const auto inside = [](std::size_t first, std::size_t count, std::size_t size) {
      return std::min(count, size - std::min(first, size));
    };
    block.queries = inside(block.first_query, block.queries, rows_.counts[block.batch]);
    block.keys = inside(block.first_key, block.keys, rows_.length(block.batch));
    block.first_query += rows_.past[block.batch];
    return block;
  }

  std::shared_ptr<const ScoreStep> step_;
  Continuation rows_;
};

}  // namespace

Mask continued(const Mask& mask, const Continuation& rows) {
  check_argument(mask.patterns().empty(),
                 "attention: a mask given pair by pair is for one length, and a cache grows");
  const auto keys = [ranges = mask.ranges(), rows](const AttentionSizes& s, std::size_t row,
                                                   std::size_t query) {
    KeyRange seen{0, rows.length(row)};
    if (query >= rows.counts[row]) return KeyRange{seen.end, seen.end};
    for (const Mask::RangeRule& rule : ranges) {
      const KeyRange one = rule.keys(whole(s, rows, row), row, rows.past[row] + query);
      seen = {std::max(seen.begin, one.begin), std::min(seen.end, one.end)};
    }
    return seen;
  };
  const auto check = [ranges = mask.ranges(), rows](const AttentionSizes& s) {
    for (std::size_t row = 0; row < s.batch; ++row)
      for (const Mask::RangeRule& rule : ranges)
        if (rows.counts[row] > 0) rule.check(whole(s, rows, row));
  };
  bool by_batch = rows_differ(rows);
  for (const Mask::RangeRule& rule : mask.ranges()) by_batch = by_batch || rule.by_batch;
  return Mask(Mask::RangeRule{keys, check, by_batch});
}

ScoreSteps continued(const ScoreSteps& steps, const Continuation& rows) {
  ScoreSteps all;
  for (const auto& step : steps) {
    check_argument(step != nullptr, "attention: a score step is null");
    all.push_back(std::make_shared<ContinuedStep>(step, rows));
  }
  return all;
}

Indices continued_positions(const Continuation& rows, std::size_t time, std::size_t last) {
  Indices positions = Indices::from_shape({rows.past.size(), time});
  std::int64_t* to = positions.data();
  for (const std::size_t past : rows.past)
    for (std::size_t t = 0; t < time; ++t) *to++ = std::int64_t(std::min(past + t, last));
  return positions;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
