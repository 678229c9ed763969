#include "layers/attention/heads.hpp"

#include <algorithm>
#include <array>

#include "core/kernels/strided.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

Shape gathered_shape(const Heads& h) { return {h.batch, h.heads, h.length, h.width}; }

kernels::Strides strides_of(const Heads& h) {
  return {std::ptrdiff_t(h.batch_stride), std::ptrdiff_t(h.head_stride),
          std::ptrdiff_t(h.time_stride), 1};
}

// The other way: g (batch, heads, length, width) written to its places in zeros of shape `to`.
Variable spread(const Variable& g, Heads places, const Shape& to) {
  Array y = zeros(to);
  kernels::copy(g.shape(), g.value().data(), kernels::row_major(g.shape()),
                y.data() + places.offset, strides_of(places));
  return record("spread_heads", Variable(std::move(y)),
                edge(g, [places](const Variable& u) mutable {
                  places.array = u;
                  return gather(places);
                }));
}

}  // namespace

Heads split_heads(const Variable& x, std::size_t heads) { return split_heads(x, heads, 0, 1); }

Heads split_heads(const Variable& x, std::size_t heads, std::size_t part, std::size_t parts) {
  check_argument(heads > 0 && part < parts, "split_heads: needs heads > 0 and part < parts, got ",
                 heads, " heads, part ", part, " of ", parts);
  check_shape(x.rank() == 3 && x.size(2) % parts == 0 && x.size(2) / parts % heads == 0,
              "split_heads: x must be (batch, time, ", parts, " * ", heads, " * width), got ",
              x.shape());
  const std::size_t part_width = x.size(2) / parts;
  return heads_at(x, heads, part_width / heads, part * part_width);
}

Heads heads_at(const Variable& x, std::size_t heads, std::size_t width, std::size_t first) {
  check_shape(
      x.rank() == 3 && first <= x.size(2) && (width == 0 || heads <= (x.size(2) - first) / width),
      "heads_at: x must be (batch, time, at least ", first, " + ", heads, " * ", width, "), got ",
      x.shape());
  return {.array = x,
          .batch = x.size(0),
          .heads = heads,
          .length = x.size(1),
          .width = width,
          .offset = first,
          .batch_stride = x.size(1) * x.size(2),
          .head_stride = width,
          .time_stride = x.size(2)};
}

void check_heads(const char* what, const Heads& h) {
  struct Axis {
    std::size_t count, stride;
  };
  std::array<Axis, 4> axes{{{h.batch, h.batch_stride},
                            {h.heads, h.head_stride},
                            {h.length, h.time_stride},
                            {h.width, 1}}};
  if (std::any_of(axes.begin(), axes.end(), [](const Axis& a) { return a.count == 0; })) return;
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  std::size_t extent = 1;  // of what lies inside of one step along the axis
  bool apart = true;
  for (const auto& [count, stride] : axes) {
    apart = apart && (count == 1 || stride >= extent);
    extent += (count - 1) * stride;
  }
  check_shape(apart && h.offset + extent <= h.array.size(), "attention: ", what,
              " must lie inside their array of ", h.array.size(),
              " elements, no two at one place, got (batch, heads, length, width) = ",
              gathered_shape(h), " from ", h.offset, " with steps ", h.batch_stride, ", ",
              h.head_stride, ", ", h.time_stride, ", 1");
}

bool disjoint(const Heads& a, const Heads& b) {
  if (!a.array.same_as(b.array)) return true;
  // within one time, all heads of the one before those of the other
  const auto end = [](const Heads& h) { return (h.heads - 1) * h.head_stride + h.width; };
  const Heads &low = a.offset <= b.offset ? a : b, &high = a.offset <= b.offset ? b : a;
  return a.heads > 0 && b.heads > 0 && a.batch_stride == b.batch_stride &&
         a.time_stride == b.time_stride && low.offset + end(low) <= high.offset &&
         high.offset - low.offset + end(high) <= a.time_stride;
}

bool all_disjoint(const Heads& q, const Heads& k, const Heads& v) {
  return disjoint(q, k) && disjoint(q, v) && disjoint(k, v);
}

Variable gather(const Heads& h) {
  const Shape shape = gathered_shape(h);
  Array y = uninitialized(shape);
  kernels::copy(shape, h.array.value().data() + h.offset, strides_of(h), y.data(),
                kernels::row_major(shape));
  Heads places = h;
  places.array = Variable();
  return record("gather", Variable(std::move(y)),
                edge(h.array, [places, to = h.array.shape()](const Variable& g) {
                  return spread(g, places, to);
                }));
}

Variable repeat_heads(const Variable& x, std::size_t group) {
  if (group == 1) return x;
  const Shape& s = x.shape();
  const Variable each = broadcast_to(expand_dims(x, 2), {s[0], s[1], group, s[2], s[3]});
  return reshape(each, {std::ptrdiff_t(s[0]), std::ptrdiff_t(s[1] * group), std::ptrdiff_t(s[2]),
                        std::ptrdiff_t(s[3])});
}

Variable merge_heads(const Variable& x) {
  const auto batch = std::ptrdiff_t(x.size(0)), length = std::ptrdiff_t(x.size(2));
  return reshape(transpose(x, {0, 2, 1, 3}),
                 {batch, length, std::ptrdiff_t(x.size(1) * x.size(3))});
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
