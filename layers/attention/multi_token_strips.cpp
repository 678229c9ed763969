#include "layers/attention/multi_token_strips.hpp"

#include <numeric>

#include "core/kernels/rows.hpp"
#include "core/kernels/vector.hpp"
#include "core/parallel.hpp"
#include "layers/attention/block_product.hpp"
#include "layers/attention/multi_token_unit.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::HeadView;
using kernels::inner_products;
using kernels::vector_kernels;

// Calls body(from, to) for the rows of a strip and those beside it, each apart: so the products
// have the same sizes, and bits, with any kernels.
template <class Body>
void for_each_part(std::size_t begin, std::size_t middle, std::size_t end, const Body& body) {
  if (begin < middle) body(begin, middle);
  if (middle < end) body(middle, end);
}

}  // namespace

void Unit::softmax(Planes& x) const {
  hide(x, -std::numeric_limits<Real>::infinity());
  for (std::size_t h = 0; h < heads_; ++h)
    for (std::size_t i = x.first(); i < x.end(); ++i)
      kernels::row_kernels<Real>().softmax(x.row(h, i), x.row(h, i), x.keys());
}

void Unit::convolve(const Variable& kernel, const Planes& from, Planes& to) const {
  const std::size_t rows = kernel.size(1), taps = kernel.size(2), keys = to.keys();
  Array seen = zeros({keys + taps - 1});  // a row between zeros
  Real* const middle = seen.data() + taps / 2;
  to.clear();
  for (std::size_t h = 0; h < heads_; ++h)
    for (std::size_t i = to.first(); i < to.end(); ++i)
      for (std::size_t a = rows - 1 - std::min(rows - 1, i); a < rows; ++a) {
        std::copy_n(from.row(h, i + a - (rows - 1)), keys, middle);
        hide_row(h, i, middle, keys);
        const Real* of_row = kernel.value().data() + ((first_head_ + h) * rows + a) * taps;
        vector_kernels<Real>().convolve(seen.data(), of_row, taps, to.row(h, i), keys);
      }
}

// g: of the convolved rows; to: that of the rows they were made of. The kernel's sums take the rows
// of g that `from` reaches.
void Unit::convolve_back(const Variable& kernel, const Planes& from, const Planes& g, Planes& to,
                         double* sums) const {
  const std::size_t rows = kernel.size(1), taps = kernel.size(2), keys = g.keys();
  Array seen = zeros({keys + taps - 1}), slopes = zeros({keys + taps - 1});
  Array back = uninitialized({keys}), turned = uninitialized({taps});
  Real* const middle = seen.data() + taps / 2;
  to.clear();
  for (std::size_t h = 0; h < heads_; ++h)
    for (std::size_t i = g.first(); i < g.end(); ++i) {
      std::copy_n(g.row(h, i), keys, slopes.data() + taps / 2);
      for (std::size_t a = rows - 1 - std::min(rows - 1, i); a < rows; ++a) {
        const std::size_t source = i + a - (rows - 1), at = ((first_head_ + h) * rows + a) * taps;
        if (i < from.end() && kernel.needs_grad()) {
          std::copy_n(from.row(h, source), keys, middle);
          hide_row(h, i, middle, keys);
          for (std::size_t b = 0; b < taps; ++b)
            sums[at + b] += kernels::row_kernels<Real>().dot(g.row(h, i), seen.data() + b, keys);
        }
        if (source < to.first() || source >= to.end()) continue;
        std::reverse_copy(kernel.value().data() + at, kernel.value().data() + at + taps,
                          turned.data());
        back.fill(Real(0));
        vector_kernels<Real>().convolve(slopes.data(), turned.data(), taps, back.data(), keys);
        hide_row(h, i, back.data(), keys);
        vector_kernels<Real>().accumulate(back.data(), to.row(h, source), keys);
      }
    }
}

void Unit::mix(const Variable& matrices, bool transposed, const Planes& from, Planes& to) const {
  const std::size_t c = group_of(matrices);
  for (std::size_t h = 0; h < heads_; h += c)
    kernels::gemm<Real>({c, from.plane_size(), c}, 1,
                        {matrices.value().data() + (first_head_ + h) * c, c, transposed},
                        {from.row(h, from.first()), from.plane_size()}, 0, to.row(h, to.first()),
                        to.plane_size());
}

// Of the rows that both have.
void Unit::mix_back(const Variable& matrices, const Planes& from, const Planes& g,
                    double* sums) const {
  const std::size_t c = group_of(matrices), first = std::max(from.first(), g.first());
  const std::size_t count = (std::min(from.end(), g.end()) - first) * g.keys();
  Array product = uninitialized({c, c});
  for (std::size_t h = 0; h < heads_; h += c) {
    kernels::gemm<Real>({c, c, count}, 1, {g.row(h, first), g.plane_size()},
                        {from.row(h, first), from.plane_size(), true}, 0, product.data(), c);
    vector_kernels<Real>().accumulate_wide(product.data(), 1, sums + (first_head_ + h) * c, c * c);
  }
}

// rows: (batch, heads, count, capacity), of which `to` takes what it needs before row `begin`.
void Unit::copy_known(const Array& rows, Planes& to, std::size_t begin) const {
  const Shape& shape = rows.shape();
  for (std::size_t h = 0; h < heads_; ++h)
    for (std::size_t i = to.first(); i < begin; ++i) {
      const std::size_t place =
          (batch_ * shape[1] + first_head_ + h) * shape[2] + shape[2] - (begin - i);
      std::copy_n(rows.data() + place * shape[3], to.keys(), to.row(h, i));
    }
}

void Unit::keep_last(const Planes& from, Array& to) const {
  const Shape& shape = to.shape();
  for (std::size_t h = 0; h < heads_; ++h)
    for (std::size_t r = 0; r < shape[2]; ++r) {
      const std::size_t place = (batch_ * shape[1] + first_head_ + h) * shape[2] + r;
      Real* row = to.data() + place * shape[3];
      std::copy_n(from.row(h, from.end() - shape[2] + r), from.keys(), row);
      std::fill(row + from.keys(), row + shape[3], Real(0));
    }
}

Unit::Strip Unit::run(std::size_t begin, std::size_t end, std::size_t keys,
                      const TokenRows* known) const {
  const TokenMixing& m = c_.mixing;
  const std::size_t first = known ? begin : before(begin, reach(m.key_query_after));
  Strip s;
  s.raw = planes(before(first, reach(m.key_query)), end, keys);
  if (known) copy_known(known->scores, *s.raw, begin);
  for (std::size_t h = 0; h < heads_; ++h) {
    const auto k = times(head(c_.inputs.k, h, c_.inputs.group()), 0, keys);
    for_each_part(known ? begin : s.raw->first(), begin, end,
                  [&](std::size_t from, std::size_t to) {
                    inner_products(c_.call.scale, times(head(c_.inputs.q, h, 1), from, to), k,
                                   s.raw->row(h, from));
                  });
  }
  hide(*s.raw, 0);
  s.convolved = s.raw;
  if (m.key_query.holds_value())
    convolve(m.key_query, *s.raw, *(s.convolved = planes(first, end, keys)));
  s.weights = s.convolved;
  if (m.heads.holds_value())
    mix(m.heads, false, *s.convolved, *(s.weights = planes(first, end, keys)));
  if (known && s.weights == s.raw) s.weights = std::make_shared<Planes>(*s.raw);
  softmax(*s.weights);  // what is overwritten, no step of the backward reads
  if (known && reach(m.key_query_after) > 0) {  // behind those of before
    const PlanesPointer all = planes(begin - reach(m.key_query_after), end, keys);
    copy_known(known->weights, *all, begin);
    for (std::size_t h = 0; h < heads_; ++h)
      std::copy_n(s.weights->row(h, begin), (end - begin) * keys, all->row(h, begin));
    s.weights = all;
  }
  s.convolved_after = s.weights;
  if (m.key_query_after.holds_value()) {
    convolve(m.key_query_after, *s.weights, *(s.convolved_after = planes(begin, end, keys)));
    hide(*s.convolved_after, 0);
  }
  s.last = s.convolved_after;
  if (m.heads_after.holds_value()) {  // masks may differ by head
    mix(m.heads_after, false, *s.convolved_after, *(s.last = planes(begin, end, keys)));
    hide(*s.last, 0);
  }
  if (c_.call.dropout > 0) {
    if (s.last == s.weights) s.last = std::make_shared<Planes>(*s.weights);
    drop(*s.last);
  }
  return s;
}

void Unit::add_output(const Planes& weights, std::size_t begin, std::size_t end, Array& y) const {
  for (std::size_t h = 0; h < heads_; ++h) {
    const auto v = head(c_.inputs.v, h, c_.inputs.group());
    const auto to = output_view(y, mask().sizes(), v.width, batch_, first_head_ + h);
    kernels::add_product<Real>(mask(), block(weights, h, begin, end), 1, false,
                               times(v, 0, weights.keys()), times(to, begin, end));
  }
}

// The gradient of what was mixed.
PlanesPointer Unit::mixed_back(const Variable& matrices, const Planes& from, const PlanesPointer& g,
                               double* sums) const {
  if (!matrices.holds_value()) return g;
  mix_back(matrices, from, *g, sums);
  PlanesPointer back = planes(g->first(), g->end(), g->keys());
  mix(matrices, true, *g, *back);
  return back;
}

void Unit::run_back(std::size_t begin, std::size_t end, const Array& dy, const GradientArrays& to,
                    const std::vector<double*>& sums) const {
  const TokenMixing& m = c_.mixing;
  const AttentionSizes& s = mask().sizes();
  const std::size_t group = c_.inputs.group();
  // later queries read the weights of these
  const std::size_t ahead = std::min(s.queries, end + reach(m.key_query_after));
  const std::size_t keys = visible_keys(ahead);
  const Strip strip = run(begin, end, keys);

  PlanesPointer g = planes(begin, ahead, keys);  // of the last weights
  for (std::size_t h = 0; h < heads_; ++h) {
    const auto v = times(head(c_.inputs.v, h, group), 0, keys);
    const auto of_y = output_view(dy, s, v.width, batch_, first_head_ + h);
    const auto dv = head_view(*to.dv, c_.inputs.v, batch_, (first_head_ + h) / group);
    for_each_part(begin, end, ahead, [&](std::size_t from, std::size_t until) {
      inner_products(1, times(of_y, from, until), v, g->row(h, from));
    });
    kernels::add_product<Real>(mask(), block(std::as_const(*strip.last), h, begin, end), 1, true,
                               times(of_y, begin, end), times(dv, 0, keys));
  }
  hide(*g, 0);
  if (c_.call.dropout > 0) drop(*g);
  g = mixed_back(m.heads_after, *strip.convolved_after, g, sums[3]);
  if (m.key_query_after.holds_value()) {
    hide(*g, 0);
    PlanesPointer back = planes(begin, end, keys);
    convolve_back(m.key_query_after, *strip.weights, *g, *back, sums[2]);
    g = back;
  }
  for (std::size_t h = 0; h < heads_; ++h)
    for (std::size_t i = begin; i < end; ++i)
      kernels::row_kernels<Real>().softmax_backward(strip.weights->row(h, i), g->row(h, i),
                                                    g->row(h, i), keys);
  g = mixed_back(m.heads, *strip.convolved, g, sums[1]);
  if (m.key_query.holds_value()) {
    PlanesPointer back = planes(before(begin, reach(m.key_query)), end, keys);
    convolve_back(m.key_query, *strip.raw, *g, *back, sums[0]);
    g = back;
  }
  hide(*g, 0);
  for (std::size_t h = 0; h < heads_; ++h) {
    const std::size_t key_head = (first_head_ + h) / group;
    const auto q = head(c_.inputs.q, h, 1), k = times(head(c_.inputs.k, h, group), 0, keys);
    const auto dq = head_view(*to.dq, c_.inputs.q, batch_, first_head_ + h);
    const auto dk = times(head_view(*to.dk, c_.inputs.k, batch_, key_head), 0, keys);
    for_each_part(g->first(), begin, end, [&](std::size_t from, std::size_t until) {
      const auto scores = block(std::as_const(*g), h, from, until);
      kernels::add_product<Real>(mask(), scores, c_.call.scale, false, k, times(dq, from, until));
      kernels::add_product<Real>(mask(), scores, c_.call.scale, true, times(q, from, until), dk);
    });
  }
}

std::size_t heads_of_unit(const MultiTokenCall& c) {
  return std::lcm(std::lcm(group_of(c.mixing.heads), group_of(c.mixing.heads_after)),
                  c.inputs.group());
}

namespace {

// How the work is cut: by the sizes alone.
struct Cut {
  std::size_t heads;  // of a unit
  std::size_t units;  // of a batch row
  std::size_t rows;   // of a strip
  std::size_t strips;
  double operations;

  explicit Cut(const MultiTokenCall& c) {
    const AttentionSizes& s = c.call.sizes();
    heads = heads_of_unit(c);
    units = s.heads / heads;
    // a plane stays in the cache, but is not mostly the rows before the strip
    rows = std::clamp<std::size_t>(65536 / s.keys, 32, 64);
    strips = (s.queries + rows - 1) / rows;
    operations = 4.0 * double(s.batch * s.heads * s.queries * s.keys * (c.inputs.q.width + 1));
  }
};

}  // namespace

std::vector<Variable*> weights_of(TokenMixing& m) {
  std::vector<Variable*> all;
  for (Variable* weight : {&m.key_query, &m.heads, &m.key_query_after, &m.heads_after})
    if (weight->holds_value()) all.push_back(weight);
  return all;
}

Array multi_token_forward(const MultiTokenCall& c) {
  const AttentionSizes& s = c.call.sizes();
  Array y = zeros({s.batch, s.queries, s.heads * c.inputs.v.width});
  if (s.keys == 0 || s.heads == 0) return y;
  const Cut cut(c);
  const kernels::SingleThreadedBlas guard;
  parallel_for(
      s.batch * cut.units * cut.strips,
      [&](std::size_t task) {
        const std::size_t unit = task / cut.strips, begin = task % cut.strips * cut.rows;
        const std::size_t end = std::min(s.queries, begin + cut.rows);
        const Unit of(c, unit / cut.units, unit % cut.units * cut.heads, cut.heads);
        of.add_output(*of.run(begin, end, of.visible_keys(end)).last, begin, end, y);
      },
      cut.operations);
  return y;
}

void multi_token_backward(const MultiTokenCall& c, const Array& dy, const GradientArrays& to) {
  const AttentionSizes& s = c.call.sizes();
  if (s.keys == 0 || s.queries == 0 || s.heads == 0) return;
  const TokenMixing& m = c.mixing;
  const Variable* weights[]{&m.key_query, &m.heads, &m.key_query_after, &m.heads_after};
  std::vector<double> sums[4];  // a part for each batch row, so that no two tasks meet
  for (std::size_t w = 0; w < 4; ++w)
    if (weights[w]->holds_value()) sums[w].assign(s.batch * weights[w]->size(), 0.0);
  const Cut cut(c);
  const auto run_unit = [&](std::size_t batch, std::size_t first_head) {
    const Unit unit(c, batch, first_head, cut.heads);
    std::vector<double*> of_batch;
    for (auto& sum : sums) of_batch.push_back(sum.data() + batch * (sum.size() / s.batch));
    for (std::size_t begin = 0; begin < s.queries; begin += cut.rows)
      unit.run_back(begin, std::min(s.queries, begin + cut.rows), dy, to, of_batch);
  };
  const kernels::SingleThreadedBlas guard;
  // one after the other where queries, keys and values share places
  const std::size_t tasks = all_disjoint(c.inputs.q, c.inputs.k, c.inputs.v) ? cut.units : 1;
  parallel_for(
      s.batch * tasks,
      [&](std::size_t task) {
        const std::size_t count = cut.units / tasks, first = task % tasks * count;
        for (std::size_t unit = first; unit < first + count; ++unit)
          run_unit(task / tasks, unit * cut.heads);
      },
      3 * cut.operations);
  auto gradient = to.parameters.begin();
  for (std::size_t w = 0; w < 4; ++w) {
    if (!weights[w]->holds_value()) continue;
    Array& total = **gradient++;
    for (std::size_t e = 0; e < total.size(); ++e) {
      double sum = 0;
      for (std::size_t b = 0; b < s.batch; ++b) sum += sums[w][b * total.size() + e];
      total.data()[e] += Real(sum);
    }
  }
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
