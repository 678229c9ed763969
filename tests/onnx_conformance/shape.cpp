// Ops that move elements.
#include "core/ops/shape.hpp"

#include <algorithm>

#include "core/ops/elementwise.hpp"
#include "core/ops/index.hpp"
#include "onnx_conformance/call.hpp"

namespace conformance {
namespace {

using Integers = std::vector<std::ptrdiff_t>;

Integers in_order(std::size_t count) {
  Integers axes(count);
  for (std::size_t i = 0; i < count; ++i) axes[i] = std::ptrdiff_t(i);
  return axes;
}

// The axes counted from the front, in order.
Integers sorted_axes(const Call& call, Integers axes, std::size_t rank) {
  for (std::ptrdiff_t& axis : axes)
    axis = std::ptrdiff_t(ag::check_axis(call.op().c_str(), axis, rank));
  std::sort(axes.begin(), axes.end());
  return axes;
}

std::vector<Value> reshape(const Call& call) {
  const Variable x = call[0];
  Integers shape = call.integers("shape", 1).value();
  if (!call.flag("allowzero"))
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (shape[i] == 0) shape[i] = std::ptrdiff_t(x.shape().at(i));
  return {ag::reshape(x, shape)};
}

std::vector<Value> squeeze(const Call& call) {
  Variable x = call[0];
  const auto axes = call.integers("axes", 1);
  if (!axes) return {ag::squeeze(x)};
  const Integers sorted = sorted_axes(call, *axes, x.rank());
  for (auto axis = sorted.rbegin(); axis != sorted.rend(); ++axis) x = ag::squeeze(x, *axis);
  return {x};
}

std::vector<Value> unsqueeze(const Call& call) {
  Variable x = call[0];
  const Integers axes = call.integers("axes", 1).value();
  for (const std::ptrdiff_t axis : sorted_axes(call, axes, x.rank() + axes.size()))
    x = ag::expand_dims(x, axis);
  return {x};
}

std::vector<Value> flatten(const Call& call) {
  const Variable x = call[0];
  const std::ptrdiff_t rank = std::ptrdiff_t(x.rank());
  std::ptrdiff_t axis = call.integer("axis", 1);
  if (axis < 0) axis += rank;
  std::size_t rows = 1;
  for (std::ptrdiff_t i = 0; i < axis; ++i) rows *= x.size(i);
  std::size_t columns = 1;
  for (std::ptrdiff_t i = axis; i < rank; ++i) columns *= x.size(i);
  return {ag::reshape_to(x, {rows, columns})};
}

std::vector<Value> transpose(const Call& call) {
  const auto order = call.integers("perm");
  if (!order) return {ag::transpose(call[0])};
  return {ag::transpose(call[0], std::vector<std::size_t>(order->begin(), order->end()))};
}

std::vector<Value> concat(const Call& call) {
  std::vector<Variable> parts;
  for (std::size_t i = 0; i < call.inputs(); ++i) parts.push_back(call[i]);
  return {ag::concatenate(parts, call.integer("axis", 1))};  // the default of opset 1
}

std::vector<Value> split(const Call& call) {
  const Variable x = call[0];
  const std::ptrdiff_t axis = call.integer("axis", 0);
  const std::size_t length = x.size(axis),
                    parts =
                        std::size_t(call.integer("num_outputs", std::ptrdiff_t(call.outputs())));
  const auto given = call.integers("split", 1);
  std::vector<std::size_t> sizes;
  if (given) {
    sizes.assign(given->begin(), given->end());
  } else {  // equal parts, the last of which may be smaller
    const std::size_t each = (length + parts - 1) / parts;
    for (std::size_t at = 0; sizes.size() < parts; at += sizes.back())
      sizes.push_back(std::min(each, length - at));
  }
  const std::vector<Variable> all = ag::split(x, sizes, axis);
  return {all.begin(), all.end()};
}

std::vector<Value> slice(const Call& call) {
  Variable x = call[0];
  const Integers starts = call.integers("starts", 1).value(),
                 stops = call.integers("ends", 2).value();
  const Integers axes = call.integers("axes", 3).value_or(in_order(starts.size()));
  const Integers steps = call.list(4).value_or(Integers(starts.size(), 1));
  for (std::size_t i = 0; i < starts.size(); ++i)
    x = ag::slice(x, axes.at(i), {starts[i], stops.at(i), steps.at(i)});
  return {x};
}

// The position that padding reads at place i of an axis, which may lie outside of [0, size).
std::int64_t source(const std::string& mode, std::ptrdiff_t i, std::ptrdiff_t size) {
  if (mode == "edge") return std::clamp<std::ptrdiff_t>(i, 0, size - 1);
  const std::ptrdiff_t period = mode == "wrap" ? size : std::max<std::ptrdiff_t>(1, 2 * size - 2);
  const std::ptrdiff_t folded = (i % period + period) % period;
  return folded < size ? folded : period - folded;
}

// One axis of x with `before` and `after` elements around it, or cut off where they are negative.
Variable padded(const Variable& x, std::ptrdiff_t axis, std::ptrdiff_t before, std::ptrdiff_t after,
                const std::string& mode, Real value) {
  const std::ptrdiff_t size = std::ptrdiff_t(x.size(axis));
  if (mode != "constant") {
    Indices from = Indices::from_shape({std::size_t(size + before + after)});
    for (std::size_t i = 0; i < from.size(); ++i)
      from.data()[i] = source(mode, std::ptrdiff_t(i) - before, size);
    return ag::take(x, from, axis);
  }
  const ag::Slice kept{std::max<std::ptrdiff_t>(0, -before),
                       size - std::max<std::ptrdiff_t>(0, -after)};
  std::vector<std::pair<std::size_t, std::size_t>> widths(x.rank());
  widths[ag::check_axis("Pad", axis, x.rank())] = {std::max<std::ptrdiff_t>(0, before),
                                                   std::max<std::ptrdiff_t>(0, after)};
  return ag::pad(ag::slice(x, axis, kept), widths, value);
}

std::vector<Value> pad(const Call& call) {
  Variable x = call[0];
  const std::string mode = call.text("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    throw Skip("Pad with mode " + mode);
  const Integers pads = call.integers("pads", 1).value();
  const double given = call.number("value", 0), value = call.has(2) ? call.scalar(2) : given;
  const Integers axes = call.list(3).value_or(in_order(x.rank()));
  for (std::size_t i = 0; i < axes.size(); ++i)
    x = padded(x, axes[i], pads.at(i), pads.at(i + axes.size()), mode, Real(value));
  return {x};
}

std::vector<Value> expand(const Call& call) {
  const Variable x = call[0];
  const Integers wanted = call.list(1).value();
  const Shape shape = ag::broadcast_shape("Expand", x.shape(), Shape(wanted.begin(), wanted.end()));
  return {ag::broadcast_to(x, shape)};
}

std::vector<Value> tile(const Call& call) {
  Variable x = call[0];
  const Integers repeats = call.list(1).value();
  for (std::size_t axis = 0; axis < repeats.size(); ++axis)
    x = repeats[axis] == 0 ? ag::slice(x, std::ptrdiff_t(axis), {.stop = 0})
                           : ag::concatenate(std::vector<Variable>(repeats[axis], x), axis);
  return {x};
}

std::vector<Value> triangle(const Call& call) {
  const Variable x = call[0];
  const bool upper = call.flag("upper", true);
  const std::ptrdiff_t diagonal = call.has(1) ? std::ptrdiff_t(call.scalar(1)) : 0;
  const std::size_t rows = x.size(-2), columns = x.size(-1);
  Bools kept = Bools::from_shape({rows, columns});
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      const std::ptrdiff_t right = std::ptrdiff_t(j) - std::ptrdiff_t(i);
      kept(i, j) = upper ? right >= diagonal : right <= diagonal;
    }
  return {ag::where(kept, x, Variable(Real(0)))};
}

}  // namespace

void add_shape(Mappings& mappings) {
  mappings["Reshape"] = reshape;
  mappings["Squeeze"] = squeeze;
  mappings["Unsqueeze"] = unsqueeze;
  mappings["Flatten"] = flatten;
  mappings["Transpose"] = transpose;
  mappings["Concat"] = concat;
  mappings["Split"] = split;
  mappings["Slice"] = slice;
  mappings["Pad"] = pad;
  mappings["Expand"] = expand;
  mappings["Tile"] = tile;
  mappings["Trilu"] = triangle;
}

}  // namespace conformance
