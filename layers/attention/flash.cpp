#include "layers/attention/flash.hpp"

#include <algorithm>

#include "core/kernels/strided.hpp"
#include "core/parallel.hpp"
#include "layers/attention/flash_tiles.hpp"
#include "layers/attention/sources.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// What the backward pass needs of the forward.
struct Kept {
  AttentionCall call;
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
  const AttentionSizes& s = kept.call.sizes();
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
        const std::size_t key_head = h / in.group();
        flash_forward(
            {kept.call, b, h, head_view(in.q, b, h), head_view(in.k, b, key_head),
             head_view(in.v, b, key_head)},
            first, std::min(flash_queries, s.queries - first), output_view(y, s, in.v.width, b, h),
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

// How the backward pass is shared out: by batch row, head of keys and range of queries. Rows and
// heads whose queries add to the same elements of a parameter's gradient run one after the other.
struct Tasks {
  std::size_t batch_tasks, head_tasks;  // the batch, or 1; the heads of keys, or 1
  std::size_t ranges;
  std::vector<bool> direct;  // which parameters' gradients are added to in place

  std::size_t count() const { return batch_tasks * head_tasks * ranges; }
};

Tasks share_out(const AttentionInputs& in, const AttentionCall& call) {
  const AttentionSizes& s = call.sizes();
  Tasks tasks{s.batch, in.k.heads, 1, {}};
  if (call.sink) tasks.direct.push_back(false);
  for (const auto& step : call.steps) {
    const ScoreStep::Sharing sharing = step->sharing(s);
    tasks.direct.insert(tasks.direct.end(), step->parameters().size(), sharing.by_query);
    if (sharing.by_query && sharing.batch) tasks.batch_tasks = std::min<std::size_t>(1, s.batch);
    if (sharing.by_query && sharing.heads) tasks.head_tasks = std::min<std::size_t>(1, in.k.heads);
  }
  const bool apart = all_disjoint(in.q, in.k, in.v);
  if (!apart) tasks.head_tasks = std::min<std::size_t>(1, in.k.heads);
  // with few of them, their queries are shared out too
  constexpr std::size_t wanted_tasks = 8;
  const std::size_t units = tasks.batch_tasks * tasks.head_tasks;
  if (units > 0 && apart)
    tasks.ranges = std::clamp<std::size_t>((wanted_tasks + units - 1) / units, 1,
                                           std::max<std::size_t>(1, tiles_of(s)));
  return tasks;
}

// Arrays in which tasks collect the gradients of parameters that several of them add to.
class ParameterGradients {
 public:
  ParameterGradients(const Tasks& tasks, const GradientArrays& gradients) : gradients_(gradients) {
    for (std::size_t task = 0; task < tasks.count(); ++task)
      for (std::size_t p = 0; p < tasks.direct.size(); ++p) {
        Array* whole = gradients.parameters[p];
        own_.push_back(tasks.direct[p] ? Array() : zeros(whole->shape()));
        places_.push_back(tasks.direct[p] ? whole->data() : own_.back().data());
      }
  }

  Real* const* of_task(std::size_t task) const {
    return places_.data() + task * gradients_.parameters.size();
  }

  void add_up() const {
    const std::size_t count = gradients_.parameters.size();
    for (std::size_t i = 0; i < own_.size(); ++i) {
      Array& whole = *gradients_.parameters[i % count];
      if (places_[i] != whole.data()) kernels::add_into(places_[i], whole.data(), whole.size());
    }
  }

 private:
  const GradientArrays& gradients_;
  std::vector<Array> own_;
  std::vector<Real*> places_;
};

// Adds to the gradients.
void backward(const AttentionInputs& in, const Kept& kept, const Array& y, const Array& dy,
              const GradientArrays& gradients) {
  const AttentionSizes& s = kept.call.sizes();
  const Tasks tasks = share_out(in, kept.call);
  const std::vector<std::size_t> bounds = range_bounds(kept.call.mask, tasks.ranges);
  const Heads own_k = packed(in.k), own_v = packed(in.v);
  std::vector<Array> own;  // of the ranges after the first: dK and dV
  for (std::size_t range = 1; range < tasks.ranges; ++range)
    for (const Heads* h : {&own_k, &own_v})
      own.push_back(zeros({h->batch, h->heads, h->length, h->width}));
  const auto key_gradients = [&](std::size_t range) {
    return range == 0 ? KeyGradients{in.k, in.v, gradients.dk, gradients.dv}
                      : KeyGradients{own_k, own_v, &own[2 * range - 2], &own[2 * range - 1]};
  };
  const ParameterGradients parameters(tasks, gradients);

  const auto one_head = [&](std::size_t task, std::size_t b, std::size_t h) {
    const std::size_t range = task % tasks.ranges, key_head = h / in.group();
    const std::size_t row = (b * s.heads + h) * s.queries;
    const KeyGradients to = key_gradients(range);
    flash_backward({kept.call, b, h, head_view(in.q, b, h), head_view(in.k, b, key_head),
                    head_view(in.v, b, key_head)},
                   {output_view(y, s, in.v.width, b, h),
                    output_view(dy, s, in.v.width, b, h),
                    {kept.top.data() + row, kept.inverse_total.data() + row}},
                   bounds[range], bounds[range + 1],
                   {head_view(*gradients.dq, in.q, b, h), head_view(*to.dk, to.k, b, key_head),
                    head_view(*to.dv, to.v, b, key_head), parameters.of_task(task)});
  };
  parallel_for(
      tasks.count(),
      [&](std::size_t task) {
        const std::size_t unit = task / tasks.ranges;
        const std::size_t rows = s.batch / tasks.batch_tasks, heads = s.heads / tasks.head_tasks;
        const std::size_t b = unit / tasks.head_tasks * rows, h = unit % tasks.head_tasks * heads;
        // the heads of a group add to the same dK and dV too
        for (std::size_t i = 0; i < rows * heads; ++i) one_head(task, b + i / heads, h + i % heads);
      },
      5 * product_operations(s, in.q.width));
  for (std::size_t range = 1; range < tasks.ranges; ++range) {
    const KeyGradients from = key_gradients(range);
    add_array(*from.dk, from.k, *gradients.dk, in.k);
    add_array(*from.dv, from.v, *gradients.dv, in.v);
  }
  parameters.add_up();
}

}  // namespace

AttentionOutput flash_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  auto kept = std::make_shared<Kept>(Kept{prepare_attention(inputs, options), {}, {}});
  AttentionOutput out = forward(inputs, *kept);
  saves_bytes((kept->top.size() + kept->inverse_total.size()) * sizeof(Real));
  const Sources sources(inputs, kept->call);
  const auto add = [inputs, kept, y = saved(out.output)](const Array& dy,
                                                         const GradientArrays& to) {
    backward(inputs, *kept, y().value(), dy, to);
  };
  out.output = record_joint("flash_attention", out.output, sources.variables(),
                            sources.backward(add), sources.composed());
  return out;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
