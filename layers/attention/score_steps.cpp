#include "layers/attention/score_steps.hpp"

#include <algorithm>
#include <cmath>

#include "core/kernels/formulas.hpp"
#include "core/kernels/tile.hpp"
#include "core/kernels/vector.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/index.hpp"
#include "core/ops/shape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using Sizes = AttentionSizes;
using Scores = ScoreBlock<Real>;
using Before = ScoreBlock<const Real>;

// key - position of the query, for query and key counted from the first of a block.
std::ptrdiff_t distance(const Sizes& s, const ScorePlace& p, std::size_t i, std::size_t j) {
  return std::ptrdiff_t(p.first_key + j + s.queries) - std::ptrdiff_t(p.first_query + i + s.keys);
}

// The pairs of a block have at most so many distances: that of key j and query i has place
// last_place + j - i.
constexpr std::size_t places = 2 * score_block_side - 1, last_place = score_block_side - 1;

std::ptrdiff_t distance_at(const Sizes& s, const ScorePlace& p, std::size_t place) {
  return distance(s, p, 0, 0) + std::ptrdiff_t(place) - std::ptrdiff_t(last_place);
}

// Adds to each score what belongs to its distance.
template <class OfPlace>
void add_by_distance(const Scores& scores, OfPlace of_place) {
  Real of[places];
  for (std::size_t place = 0; place < places; ++place) of[place] = of_place(place);
  for (std::size_t j = 0; j < scores.keys; ++j)
    for (std::size_t i = 0; i < scores.queries; ++i) scores.row(j)[i] += of[last_place + j - i];
}

class SoftCap final : public ScoreStep {
 public:
  explicit SoftCap(double cap) : cap_(Real(cap)) {}
  void check(const Sizes&) const override {}

  void forward(const Sizes&, const Scores& s) const override {
    if (s.queries == 1) return forward_of_one(s);
    for (std::size_t j = 0; j < s.keys; ++j) cap(s.row(j), s.queries);
  }

  void backward(const Sizes&, const Before& before, const Scores& gradient,
                Real* const*) const override {
    constexpr auto formula = formula::Unary::index_of<formula::Tanh>();
    Real capped[score_block_side];
    for (std::size_t j = 0; j < gradient.keys; ++j) {
      tanh_of(before.row(j), gradient.queries, capped);
      Real* row = gradient.row(j);
      kernels::vector_kernels<Real>().unary_slope[formula](row, capped, row, gradient.queries);
    }
  }

  Variable composed(const Sizes&, const Variable& e, const std::vector<Variable>&) const override {
    return cap_ * tanh(e * (1 / cap_));
  }

 private:
  // One query's scores are far apart; side by side they fill vectors.
  void forward_of_one(const Scores& s) const {
    Real all[score_block_side];
    for (std::size_t j = 0; j < s.keys; ++j) all[j] = *s.row(j);
    cap(all, s.keys);
    for (std::size_t j = 0; j < s.keys; ++j) *s.row(j) = all[j];
  }

  void cap(Real* scores, std::size_t n) const {
    tanh_of(scores, n, scores);
    kernels::vector_kernels<Real>().scale(scores, cap_, 0, scores, n);
  }

  void tanh_of(const Real* x, std::size_t n, Real* y) const {
    constexpr auto formula = formula::Unary::index_of<formula::Tanh>();
    kernels::vector_kernels<Real>().scale(x, 1 / cap_, 0, y, n);
    kernels::vector_kernels<Real>().unary[formula](y, y, n);
  }

  Real cap_;
};

class Bias final : public ScoreStep {
 public:
  explicit Bias(const Variable& b) : ScoreStep({b}) {
    check_shape(b.rank() == 2 || b.rank() == 4,
                "bias: needs (queries, keys) or (batch, heads, queries, keys), got ", b.shape());
  }

  void check(const Sizes& s) const override {
    const Shape full{s.batch, s.heads, s.queries, s.keys};
    for (std::size_t axis = 0; axis < 4; ++axis)
      check_shape(size(axis) == full[axis] || size(axis) == 1,
                  "attention: the bias must fit (batch, heads, queries, keys) = ", full, ", got ",
                  parameters()[0].shape());
  }

  void forward(const Sizes&, const Scores& s) const override {
    const Place b = place(s);
    const Real* from = parameters()[0].value().data() + b.first;
    if (b.key_step == 1) {  // a block of b, turned round
      Real turned[score_block_side * score_block_side];
      kernels::tile_kernels<Real>().transpose(from, b.query_step, s.queries, s.keys, Real(1),
                                              turned, score_block_side);
      for (std::size_t j = 0; j < s.keys; ++j)
        kernels::vector_kernels<Real>().accumulate(turned + j * score_block_side, s.row(j),
                                                   s.queries);
    } else {
      for (std::size_t j = 0; j < s.keys; ++j)
        for (std::size_t i = 0; i < s.queries; ++i) s.row(j)[i] += from[i * b.query_step];
    }
  }

  void backward(const Sizes&, const Before&, const Scores& gradient,
                Real* const* gradients) const override {
    const Place b = place(gradient);
    Real* to = gradients[0] + b.first;
    for (std::size_t j = 0; j < gradient.keys; ++j)
      for (std::size_t i = 0; i < gradient.queries; ++i)
        to[i * b.query_step + j * b.key_step] += gradient.row(j)[i];
  }

  Sharing sharing(const Sizes& s) const override {
    return {
        .by_query = size(2) == s.queries, .batch = size(0) < s.batch, .heads = size(1) < s.heads};
  }

  Variable composed(const Sizes&, const Variable& e,
                    const std::vector<Variable>& parameters) const override {
    return e + parameters[0];
  }

 private:
  std::size_t size(std::size_t axis) const {
    const Shape& shape = parameters()[0].shape();
    return shape.size() == 4 ? shape[axis] : axis < 2 ? 1 : shape[axis - 2];
  }

  // Where the bias of a block's first pair lies, and how far apart those of its queries and keys.
  struct Place {
    std::size_t first, query_step, key_step;
  };
  Place place(const ScorePlace& p) const {
    const auto at = [&](std::size_t axis, std::size_t index) {
      return size(axis) == 1 ? 0 : index;
    };
    const std::size_t head = at(0, p.batch) * size(1) + at(1, p.head);
    return {(head * size(2) + at(2, p.first_query)) * size(3) + at(3, p.first_key),
            size(2) == 1 ? 0 : size(3), size(3) == 1 ? std::size_t{0} : std::size_t{1}};
  }
};

class Alibi final : public ScoreStep {
 public:
  explicit Alibi(std::vector<double> slopes) : slopes_(std::move(slopes)) {}

  void check(const Sizes& s) const override {
    check_shape(slopes_.size() == s.heads, "alibi: needs a slope for each of ", s.heads,
                " heads, got ", slopes_.size());
  }

  void forward(const Sizes& s, const Scores& scores) const override {
    const Real slope = Real(slopes_[scores.head]);
    add_by_distance(scores, [&](std::size_t place) {
      return -slope * Real(std::abs(distance_at(s, scores, place)));
    });
  }

  void backward(const Sizes&, const Before&, const Scores&, Real* const*) const override {}

  Variable composed(const Sizes& s, const Variable& e,
                    const std::vector<Variable>&) const override {
    Array b = uninitialized({s.heads, s.queries, s.keys});
    Real* to = b.data();
    for (std::size_t h = 0; h < s.heads; ++h)
      for (std::size_t i = 0; i < s.queries; ++i)
        for (std::size_t j = 0; j < s.keys; ++j)
          *to++ = -Real(slopes_[h]) * Real(std::abs(distance(s, {}, i, j)));
    return e + Variable(std::move(b));
  }

 private:
  std::vector<double> slopes_;
};

class RelativePositions final : public ScoreStep {
 public:
  explicit RelativePositions(const Variable& table) : ScoreStep({table}) {
    check_shape(table.rank() == 2 && table.size(1) % 2 == 1,
                "relative_positions: table must be (heads or 1, 2 reach + 1), got ", table.shape());
  }

  void check(const Sizes& s) const override {
    const std::size_t heads = table().size(0);
    check_shape(heads == s.heads || heads == 1, "relative_positions: table must be for ", s.heads,
                " heads, or for all alike, got ", heads);
  }

  void forward(const Sizes& s, const Scores& scores) const override {
    const Real* row = table().value().data() + row_of(scores.head);
    add_by_distance(scores,
                    [&](std::size_t place) { return row[column(distance_at(s, scores, place))]; });
  }

  void backward(const Sizes& s, const Before&, const Scores& gradient,
                Real* const* gradients) const override {
    Real* row = gradients[0] + row_of(gradient.head);
    Real of[places] = {};  // summed by block first, which also keeps more digits
    for (std::size_t j = 0; j < gradient.keys; ++j)
      for (std::size_t i = 0; i < gradient.queries; ++i)
        of[last_place + j - i] += gradient.row(j)[i];
    for (std::size_t place = 0; place < places; ++place)
      row[column(distance_at(s, gradient, place))] += of[place];
  }

  Variable composed(const Sizes& s, const Variable& e,
                    const std::vector<Variable>& parameters) const override {
    Indices columns = Indices::from_shape({s.queries, s.keys});
    std::int64_t* to = columns.data();
    for (std::size_t i = 0; i < s.queries; ++i)
      for (std::size_t j = 0; j < s.keys; ++j) *to++ = std::int64_t(column(distance(s, {}, i, j)));
    return e + take(parameters[0], columns, 1);
  }

 private:
  const Variable& table() const { return parameters()[0]; }
  std::size_t row_of(std::size_t head) const {
    return (table().size(0) == 1 ? 0 : head) * table().size(1);
  }
  std::size_t column(std::ptrdiff_t distance) const {
    const auto reach = std::ptrdiff_t(table().size(1) / 2);
    return std::size_t(std::clamp(distance, -reach, reach) + reach);
  }
};

}  // namespace

std::shared_ptr<const ScoreStep> soft_cap(double cap) {
  check_argument(std::isfinite(cap) && cap > 0, "soft_cap: cap must be positive and finite, got ",
                 cap);
  return std::make_shared<SoftCap>(cap);
}

std::shared_ptr<const ScoreStep> bias(const Variable& b) { return std::make_shared<Bias>(b); }

std::vector<double> alibi_slopes(std::size_t heads) {
  std::size_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (std::size_t h = 1; h <= std::min(power, heads); ++h)
    slopes.push_back(std::exp2(-8.0 * double(h) / double(power)));
  for (std::size_t h = 1; slopes.size() < heads; h += 2)
    slopes.push_back(std::exp2(-8.0 * double(h) / double(2 * power)));
  return slopes;
}

std::shared_ptr<const ScoreStep> alibi(std::vector<double> slopes) {
  for (const double slope : slopes)
    check_argument(std::isfinite(slope), "alibi: slopes must be finite, got ", slope);
  return std::make_shared<Alibi>(std::move(slopes));
}

std::shared_ptr<const ScoreStep> relative_positions(const Variable& table) {
  return std::make_shared<RelativePositions>(table);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
