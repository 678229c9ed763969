#include "core/ops/shape.hpp"

#include <algorithm>
#include <numeric>

#include "core/kernels/strided.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::row_major;
using kernels::Strides;

// ---- windows: what slice, pad, concatenate and split are made of ------------------------------

// Elements of a row-major array of shape `whole`, as an array of shape `part`: the first is at
// `offset`.
struct Window {
  Shape whole, part;
  Strides strides;
  std::ptrdiff_t offset = 0;

  explicit Window(const Shape& shape) : whole(shape), part(shape), strides(row_major(shape)) {}

  // Keeps `count` positions of an axis from `start` on, `step` apart.
  Window& cut(std::size_t axis, std::ptrdiff_t start, std::size_t count, std::ptrdiff_t step = 1) {
    offset += start * strides[axis];
    strides[axis] *= step;
    part[axis] = count;
    return *this;
  }
  // of an empty part there is no first element, and the offset means nothing
  std::ptrdiff_t first() const { return element_count(part) == 0 ? 0 : offset; }
};

void write_window(const Array& x, const Window& window, Array& whole) {
  kernels::copy(window.part, x.data(), row_major(window.part), whole.data() + window.first(),
                window.strides);
}

Variable place(const char* op, const Variable& x, const Window& window, Real around);

Variable cut_out(const char* op, const Variable& x, const Window& window) {
  Array y = uninitialized(window.part);
  kernels::copy(window.part, x.value().data() + window.first(), window.strides, y.data(),
                row_major(window.part));
  return record(op, Variable(std::move(y)),
                edge(x, [op, window](const Variable& g) { return place(op, g, window, 0); }));
}

// x at the window's place in an array that is `around` everywhere else.
Variable place(const char* op, const Variable& x, const Window& window, Real around) {
  Array y = filled(window.whole, around);
  write_window(x.value(), window, y);
  return record(op, Variable(std::move(y)),
                edge(x, [op, window](const Variable& g) { return cut_out(op, g, window); }));
}

// ---- shapes -----------------------------------------------------------------------------------

Variable with_shape(const char* op, const Variable& x, const Shape& shape) {
  Array y = uninitialized(shape);
  const Shape flat{x.size()};
  kernels::copy(flat, x.value().data(), row_major(flat), y.data(), row_major(flat));
  return record(op, Variable(std::move(y)),
                edge(x, [op, to = x.shape()](const Variable& g) { return with_shape(op, g, to); }));
}

// The sizes given, with the one that is -1 worked out.
Shape complete_shape(const Variable& x, const std::vector<std::ptrdiff_t>& sizes) {
  Shape shape;
  std::size_t known = 1;
  std::optional<std::size_t> open;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    check_shape(sizes[axis] >= -1, "reshape: a size must be 0 or more, or -1, got ", sizes);
    check_shape(sizes[axis] != -1 || !open, "reshape: only one size may be -1, got ", sizes);
    if (sizes[axis] == -1)
      open = axis;
    else
      known *= static_cast<std::size_t>(sizes[axis]);
    shape.push_back(sizes[axis] == -1 ? 1 : static_cast<std::size_t>(sizes[axis]));
  }
  check_shape(!open || known > 0, "reshape: -1 has no definite value in ", sizes);
  if (open) shape[*open] = x.size() / known;
  check_shape(element_count(shape) == x.size(), "reshape: ", x.shape(), " has ", x.size(),
              " elements, which ", sizes, " does not hold");
  return shape;
}

// Where a slice of an axis of `size` positions starts, and how many it has.
struct Range {
  std::ptrdiff_t start;
  std::size_t count;
};
Range resolve(const Slice& s, std::size_t axis_size) {
  const auto size = static_cast<std::ptrdiff_t>(axis_size);
  const std::ptrdiff_t lowest = s.step > 0 ? 0 : -1, highest = s.step > 0 ? size : size - 1;
  const auto bound = [&](std::ptrdiff_t at) {
    return std::clamp(at < 0 ? at + size : at, lowest, highest);
  };
  const std::ptrdiff_t start = s.start ? bound(*s.start) : s.step > 0 ? lowest : highest;
  const std::ptrdiff_t stop = s.stop ? bound(*s.stop) : s.step > 0 ? highest : lowest;
  if (s.step > 0) return {start, start < stop ? std::size_t((stop - start - 1) / s.step + 1) : 0};
  return {start, stop < start ? std::size_t((stop - start + 1) / s.step + 1) : 0};
}

// Copies x, seen through its strides, to the row-major y. Its elements lie side by side along axis
// `inner`, those of y along the last: small blocks of both axes keep the lines that are read and
// those that are written in the cache.
void copy_blocks(const Shape& shape, std::size_t inner, const Real* x, const Strides& x_strides,
                 Real* y) {
  constexpr std::size_t side = 32;
  const std::size_t last = shape.size() - 1;
  const Strides y_strides = row_major(shape);
  Shape blocks = shape;
  for (const std::size_t axis : {inner, last}) blocks[axis] = (shape[axis] + side - 1) / side;
  const auto copy_block = [&](std::size_t block) {
    const Real* from = x;
    Real* to = y;
    std::size_t rows = 0, columns = 0;
    for (std::size_t axis = shape.size(); axis-- > 0; block /= blocks[axis]) {
      const std::size_t at = block % blocks[axis] * (axis == inner || axis == last ? side : 1);
      from += static_cast<std::ptrdiff_t>(at) * x_strides[axis];
      to += static_cast<std::ptrdiff_t>(at) * y_strides[axis];
      if (axis == inner) rows = std::min(side, shape[axis] - at);
      if (axis == last) columns = std::min(side, shape[axis] - at);
    }
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        to[std::ptrdiff_t(i) * y_strides[inner] + std::ptrdiff_t(j)] =
            from[std::ptrdiff_t(j) * x_strides[last] + std::ptrdiff_t(i)];
  };
  parallel_chunks(element_count(blocks), kernels::task_size / (side * side),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t block = begin; block < end; ++block) copy_block(block);
                  });
}

}  // namespace

// ---- the same elements in the same order ------------------------------------------------------

Variable reshape(const Variable& x, const std::vector<std::ptrdiff_t>& shape) {
  return with_shape("reshape", x, complete_shape(x, shape));
}

Variable reshape_to(const Variable& x, const Shape& shape) {
  return reshape(x, std::vector<std::ptrdiff_t>(shape.begin(), shape.end()));
}

Variable flatten(const Variable& x, std::ptrdiff_t first) {
  if (x.rank() == 0) return with_shape("flatten", x, {1});
  const auto from =
      x.shape().begin() + static_cast<std::ptrdiff_t>(check_axis("flatten", first, x.rank()));
  Shape shape(x.shape().begin(), from);
  shape.push_back(std::accumulate(from, x.shape().end(), std::size_t{1}, std::multiplies<>()));
  return with_shape("flatten", x, shape);
}

Variable expand_dims(const Variable& x, std::ptrdiff_t axis) {
  const std::size_t at = check_axis("expand_dims", axis, x.rank() + 1);
  Shape shape;
  for (std::size_t i = 0; i <= x.rank(); ++i)
    shape.push_back(i == at ? 1 : x.shape()[i < at ? i : i - 1]);
  return with_shape("expand_dims", x, shape);
}

Variable squeeze(const Variable& x, std::ptrdiff_t axis) {
  const std::size_t at = check_axis("squeeze", axis, x.rank());
  check_shape(x.shape()[at] == 1, "squeeze: axis ", at, " must have size 1, got ", x.shape());
  Shape shape;
  for (std::size_t i = 0; i < x.rank(); ++i)
    if (i != at) shape.push_back(x.shape()[i]);
  return with_shape("squeeze", x, shape);
}

Variable squeeze(const Variable& x) {
  Shape shape;
  for (const std::size_t size : x.shape())
    if (size != 1) shape.push_back(size);
  return with_shape("squeeze", x, shape);
}

// ---- the same elements in another order -------------------------------------------------------

Variable transpose(const Variable& x, const std::vector<std::size_t>& order) {
  std::vector<std::size_t> inverse(x.rank(), x.rank());
  bool each_once = order.size() == x.rank();
  for (std::size_t i = 0; i < order.size() && each_once; ++i) {
    each_once = order[i] < x.rank() && inverse[order[i]] == x.rank();
    if (each_once) inverse[order[i]] = i;
  }
  check_argument(each_once, "transpose: order must name each axis of ", x.shape(), " once, got ",
                 order);

  const Strides own = row_major(x.shape());
  Shape shape(x.rank());
  Strides strides(x.rank());
  for (std::size_t i = 0; i < x.rank(); ++i) {
    shape[i] = x.shape()[order[i]];
    strides[i] = own[order[i]];
  }
  Array y = uninitialized(shape);
  if (x.rank() == 0 || order.back() + 1 == x.rank()) {
    kernels::copy(shape, x.value().data(), strides, y.data(), row_major(shape));
  } else {
    copy_blocks(shape, inverse.back(), x.value().data(), strides, y.data());
  }
  return record("transpose", Variable(std::move(y)),
                edge(x, [inverse](const Variable& g) { return transpose(g, inverse); }));
}

Variable transpose(const Variable& x) {
  std::vector<std::size_t> order(x.rank());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return transpose(x, order);
}

Variable swap_axes(const Variable& x, std::ptrdiff_t a, std::ptrdiff_t b) {
  std::vector<std::size_t> order(x.rank());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::swap(order[check_axis("swap_axes", a, x.rank())],
            order[check_axis("swap_axes", b, x.rank())]);
  return transpose(x, order);
}

// ---- parts and wholes -------------------------------------------------------------------------

Variable slice(const Variable& x, std::ptrdiff_t axis, Slice positions) {
  const std::size_t at = check_axis("slice", axis, x.rank());
  check_argument(positions.step != 0, "slice: step must not be 0");
  const Range range = resolve(positions, x.shape()[at]);
  return cut_out("slice", x, Window(x.shape()).cut(at, range.start, range.count, positions.step));
}

Variable select(const Variable& x, std::ptrdiff_t axis, std::ptrdiff_t position) {
  const std::size_t at = check_axis("select", axis, x.rank());
  const auto size = static_cast<std::ptrdiff_t>(x.shape()[at]);
  check_argument(-size <= position && position < size, "select: position must be in [", -size, ", ",
                 size, "), got ", position);
  return squeeze(
      cut_out("select", x, Window(x.shape()).cut(at, position < 0 ? position + size : position, 1)),
      axis);
}

Variable concatenate(const std::vector<Variable>& parts, std::ptrdiff_t axis) {
  check_argument(!parts.empty(), "concatenate: needs one part or more");
  Shape shape = parts[0].shape();
  check_shape(!shape.empty(), "concatenate: needs rank 1 or more, use stack for rank 0");
  const std::size_t at = check_axis("concatenate", axis, shape.size());
  shape[at] = 0;
  for (const Variable& part : parts) {
    Shape expected = parts[0].shape();
    if (part.rank() == expected.size()) expected[at] = part.shape()[at];
    check_shape(part.shape() == expected, "concatenate: parts may differ along axis ", at,
                " only, got ", parts[0].shape(), " and ", part.shape());
    shape[at] += part.shape()[at];
  }

  Array y = uninitialized(shape);
  std::vector<Window> windows;
  std::ptrdiff_t start = 0;
  for (const Variable& part : parts) {
    windows.push_back(Window(shape).cut(at, start, part.shape()[at]));
    write_window(part.value(), windows.back(), y);
    start += static_cast<std::ptrdiff_t>(part.shape()[at]);
  }
  return record_list("concatenate", Variable(std::move(y)), parts,
                     [windows](std::size_t i, const Variable& g) {
                       return cut_out("concatenate", g, windows[i]);
                     });
}

Variable stack(const std::vector<Variable>& parts, std::ptrdiff_t axis) {
  check_argument(!parts.empty(), "stack: needs one part or more");
  const std::size_t at = check_axis("stack", axis, parts[0].rank() + 1);
  std::vector<Variable> layers;
  for (const Variable& part : parts) {
    check_shape(part.shape() == parts[0].shape(), "stack: parts must have one shape, got ",
                parts[0].shape(), " and ", part.shape());
    layers.push_back(expand_dims(part, static_cast<std::ptrdiff_t>(at)));
  }
  return concatenate(layers, static_cast<std::ptrdiff_t>(at));
}

std::vector<Variable> split(const Variable& x, const std::vector<std::size_t>& sizes,
                            std::ptrdiff_t axis) {
  const std::size_t at = check_axis("split", axis, x.rank());
  check_shape(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) == x.shape()[at],
              "split: sizes ", sizes, " must add up to axis ", at, " of ", x.shape());
  std::vector<Variable> parts;
  std::ptrdiff_t start = 0;
  for (const std::size_t size : sizes) {
    parts.push_back(cut_out("split", x, Window(x.shape()).cut(at, start, size)));
    start += static_cast<std::ptrdiff_t>(size);
  }
  return parts;
}

std::vector<Variable> split_evenly(const Variable& x, std::ptrdiff_t count, std::ptrdiff_t axis) {
  const std::size_t at = check_axis("split", axis, x.rank());
  check_shape(count > 0 && x.shape()[at] % std::size_t(count) == 0, "split: axis ", at, " of ",
              x.shape(), " cannot be cut into ", count, " equal parts");
  return split(x, std::vector<std::size_t>(std::size_t(count), x.shape()[at] / std::size_t(count)),
               axis);
}

Variable pad(const Variable& x, const std::vector<std::pair<std::size_t, std::size_t>>& widths,
             Real value) {
  check_shape(widths.size() == x.rank(), "pad: needs one pair of widths for each axis of ",
              x.shape(), ", got ", widths.size());
  Shape shape = x.shape();
  for (std::size_t axis = 0; axis < x.rank(); ++axis) {
    const auto [before, after] = widths[axis];
    constexpr std::size_t most = std::size_t{1} << 48;  // no array is longer; -1 is not a width
    check_shape(before <= most && after <= most, "pad: widths of axis ", axis, " are ", before,
                " and ", after, ", more than memory could hold");
    shape[axis] += before + after;
  }
  Window window(shape);
  for (std::size_t axis = 0; axis < x.rank(); ++axis)
    window.cut(axis, static_cast<std::ptrdiff_t>(widths[axis].first), x.shape()[axis]);
  return place("pad", x, window, value);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
