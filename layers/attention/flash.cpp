#include "layers/attention/flash.hpp"

#include <algorithm>

#include "core/kernels/strided.hpp"
#include "core/parallel.hpp"
#include "layers/attention/flash_tiles.hpp"
#include "layers/attention/sources.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::flash_queries;

// What the backward pass needs of the forward.
struct Kept {
  SizedMask mask;
  Real scale;
  Array top, inverse_total;  // (batch, heads, queries), of each softmax
};

// Multiplications and additions of one product of all queries by all keys.
double product_operations(const AttentionSizes& s, std::size_t width) {
  return 2 * double(s.batch * s.heads * width) * double(s.queries * s.keys);
}

std::size_t tiles_of(const AttentionSizes& s) {
  return (s.queries + flash_queries - 1) / flash_queries;
}

AttentionOutput forward(const AttentionInputs& in, Kept& kept) {
  const AttentionSizes& s = kept.mask.sizes();
  const std::size_t heads = s.batch * s.heads, tiles = tiles_of(s);
  const Shape rows{s.batch, s.heads, s.queries};
  Array y = uninitialized({s.batch, s.queries, s.heads * in.v.width});
  kept.top = uninitialized(rows);
  kept.inverse_total = uninitialized(rows);
  Array log_sum_exp = uninitialized(rows);
  // the last queries see most keys under a causal mask: they go first, so that no thread is left
  // with a long one at the end
  parallel_for(
      tiles * heads,
      [&](std::size_t task) {
        const std::size_t head = task % heads, first = (tiles - 1 - task / heads) * flash_queries;
        const std::size_t b = head / s.heads, h = head % s.heads, row = head * s.queries;
        kernels::flash_forward<Real>(
            {kept.mask, b, h}, kept.scale, head_view(in.q, b, h),
            head_view(in.k, b, h / in.group()), head_view(in.v, b, h / in.group()), first,
            std::min(flash_queries, s.queries - first), output_view(y, s, in.v.width, b, h),
            {kept.top.data() + row, kept.inverse_total.data() + row}, log_sum_exp.data() + row);
      },
      2 * product_operations(s, in.q.width));
  return {Variable(std::move(y)), std::move(log_sum_exp)};
}

// Cuts the queries into `count` ranges that see about as many keys each, at bounds of tiles.
std::vector<std::size_t> range_bounds(const SizedMask& mask, std::size_t count) {
  const AttentionSizes& s = mask.sizes();
  const std::size_t tiles = tiles_of(s);
  std::vector<std::size_t> seen(tiles + 1, 0);  // by the tiles before each
  for (std::size_t i = 0; i < tiles; ++i) {
    const std::size_t first = i * flash_queries,
                      last = std::min(first + flash_queries, s.queries) - 1;
    seen[i + 1] = seen[i] + 1;
    for (std::size_t b = 0; b < s.batch; ++b) {
      const std::size_t begin = mask.keys(b, first).begin;
      seen[i + 1] += std::max(begin, mask.keys(b, last).end) - begin;
    }
  }
  std::vector<std::size_t> bounds{0};
  for (std::size_t range = 1; range < count; ++range) {
    const auto bound = std::lower_bound(seen.begin(), seen.end(), range * seen[tiles] / count);
    const std::size_t query = std::size_t(bound - seen.begin()) * flash_queries;
    bounds.push_back(std::min(query, s.queries));
  }
  bounds.push_back(s.queries);
  return bounds;
}

// Where dK and dV of one range of queries collect: the gradients themselves for the first range,
// arrays of its own for any other.
struct KeyGradients {
  Heads k, v;
  Array *dk, *dv;
};

Heads packed(const Heads& like) {
  Heads h = like;
  h.offset = 0;
  h.time_stride = h.width;
  h.head_stride = h.length * h.width;
  h.batch_stride = h.heads * h.head_stride;
  return h;
}

void add_array(Array& from, const Heads& from_places, Array& to, const Heads& places) {
  parallel_for(
      places.batch * places.heads,
      [&](std::size_t i) {
        const auto x = head_view(from, from_places, i / places.heads, i % places.heads);
        const auto y = head_view(to, places, i / places.heads, i % places.heads);
        for (std::size_t t = 0; t < x.length; ++t)
          kernels::add_into(x.data + t * x.stride, y.data + t * y.stride, x.width);
      },
      double(from.size()));
}

// Adds to the gradients.
void backward(const AttentionInputs& in, const Kept& kept, const Array& y, const Array& dy,
              const GradientArrays& gradients) {
  const AttentionSizes& s = kept.mask.sizes();
  const std::size_t heads = s.batch * in.k.heads;
  // with few heads, their queries are shared out too
  constexpr std::size_t wanted_tasks = 8;
  const bool apart = disjoint(in.q, in.k) && disjoint(in.q, in.v) && disjoint(in.k, in.v);
  const std::size_t ranges = heads == 0 || !apart
                                 ? 1
                                 : std::clamp<std::size_t>((wanted_tasks + heads - 1) / heads, 1,
                                                           std::max<std::size_t>(1, tiles_of(s)));
  const std::vector<std::size_t> bounds = range_bounds(kept.mask, ranges);
  const Heads own_k = packed(in.k), own_v = packed(in.v);
  std::vector<Array> own;  // of the ranges after the first: dK and dV
  for (std::size_t range = 1; range < ranges; ++range)
    for (const Heads* h : {&own_k, &own_v})
      own.push_back(zeros({h->batch, h->heads, h->length, h->width}));
  const auto key_gradients = [&](std::size_t range) {
    return range == 0 ? KeyGradients{in.k, in.v, gradients.dk, gradients.dv}
                      : KeyGradients{own_k, own_v, &own[2 * range - 2], &own[2 * range - 1]};
  };

  parallel_for(
      heads * ranges,
      [&](std::size_t task) {
        const std::size_t head = task / ranges, range = task % ranges;
        const std::size_t b = head / in.k.heads, key_head = head % in.k.heads;
        const KeyGradients to = key_gradients(range);
        // the heads of a group add to the same dK and dV, one after the other
        for (std::size_t h = key_head * in.group(); h < (key_head + 1) * in.group(); ++h) {
          const std::size_t row = (b * s.heads + h) * s.queries;
          kernels::flash_backward<Real>(
              {kept.mask, b, h},
              {kept.scale,
               head_view(in.q, b, h),
               head_view(in.k, b, key_head),
               head_view(in.v, b, key_head),
               output_view(y, s, in.v.width, b, h),
               output_view(dy, s, in.v.width, b, h),
               {kept.top.data() + row, kept.inverse_total.data() + row}},
              bounds[range], bounds[range + 1], head_view(*gradients.dq, in.q, b, h),
              head_view(*to.dk, to.k, b, key_head), head_view(*to.dv, to.v, b, key_head));
        }
      },
      5 * product_operations(s, in.q.width));
  for (std::size_t range = 1; range < ranges; ++range) {
    const KeyGradients from = key_gradients(range);
    add_array(*from.dk, from.k, *gradients.dk, in.k);
    add_array(*from.dv, from.v, *gradients.dv, in.v);
  }
}

}  // namespace

AttentionOutput flash_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  auto kept = std::make_shared<Kept>(
      Kept{check_attention(inputs, options), Real(attention_scale(inputs, options)), {}, {}});
  AttentionOutput out = forward(inputs, *kept);
  saves_bytes((kept->top.size() + kept->inverse_total.size()) * sizeof(Real));
  const Sources sources(inputs);
  const auto add = [inputs, kept, y = saved(out.output)](const Array& dy,
                                                         const GradientArrays& to) {
    backward(inputs, *kept, y().value(), dy, to);
  };
  out.output = record_joint("flash_attention", out.output, sources.arrays(), sources.backward(add),
                            sources.composed(options));
  return out;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
