// Gather and scatter.
#include "core/ops/index.hpp"

#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"
#include "onnx_conformance/call.hpp"

namespace conformance {
namespace {

// ONNX counts a negative index from the end of the axis.
Indices from_the_front(Indices indices, std::size_t size) {
  for (std::int64_t& index : indices)
    if (index < 0) index += std::int64_t(size);
  return indices;
}

std::vector<Value> gather(const Call& call) {
  const Variable x = call[0];
  const std::ptrdiff_t axis = call.integer("axis", 0);
  return {ag::take(x, from_the_front(call.value(1).indices(), x.size(axis)), axis)};
}

std::vector<Value> gather_elements(const Call& call) {
  Variable x = call[0];
  const std::size_t along = ag::check_axis("GatherElements", call.integer("axis", 0), x.rank());
  const Indices indices = from_the_front(call.value(1).indices(), x.shape()[along]);
  // indices may leave out what lies at the end of other axes
  for (std::size_t axis = 0; axis < x.rank(); ++axis)
    if (axis != along)
      x = ag::slice(x, std::ptrdiff_t(axis), {.stop = std::ptrdiff_t(indices.shape(axis))});
  return {ag::take_along(x, indices, std::ptrdiff_t(along))};
}

// Which rows of x, seen as a matrix, the tuples along the last axis of indices name: they stand for
// the axes behind the first `batch`, of which each has tuples of its own.
struct Rows {
  std::size_t count = 1;  // how many rows there are
  Indices named;          // of them, shaped like indices without the last axis
  Shape behind;           // the axes that make a row
};

Rows rows_named(const Shape& x, const Indices& indices, std::size_t batch) {
  const Shape& s = indices.shape();
  const std::size_t tuple = s.back(), axes = batch + tuple;
  Rows rows;
  rows.named = Indices::from_shape(Shape(s.begin(), s.end() - 1));
  rows.behind = Shape(x.begin() + std::ptrdiff_t(axes), x.end());
  for (std::size_t axis = 0; axis < axes; ++axis) rows.count *= x[axis];
  const Shape batches(x.begin(), x.begin() + std::ptrdiff_t(batch));
  const std::size_t tuples =
      rows.named.size() / std::max<std::size_t>(1, ag::element_count(batches));
  for (std::size_t i = 0; i < rows.named.size(); ++i) {
    std::int64_t row = std::int64_t(i / tuples);
    for (std::size_t k = 0; k < tuple; ++k) {
      const std::int64_t size = std::int64_t(x[batch + k]), at = indices.data()[i * tuple + k];
      if (at < -size || at >= size)
        throw std::invalid_argument(ag::text("the index ", at, " is outside of ", size));
      row = row * size + (at < 0 ? at + size : at);
    }
    rows.named.data()[i] = row;
  }
  return rows;
}

Shape joined(Shape front, const Shape& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

std::vector<Value> gather_nd(const Call& call) {
  const Variable x = call[0];
  const Rows rows =
      rows_named(x.shape(), call.value(1).indices(), std::size_t(call.integer("batch_dims", 0)));
  return {ag::take(ag::reshape_to(x, joined({rows.count}, rows.behind)), rows.named)};
}

// What a scatter makes of the old element and the update; nothing where updates are summed.
using Combine = Variable (*)(const Variable& old, const Variable& update);

Combine combine_of(const std::string& reduction) {
  if (reduction == "none") return [](const Variable&, const Variable& update) { return update; };
  if (reduction == "add") return nullptr;
  if (reduction == "mul") return ag::multiply;
  if (reduction == "max") return ag::maximum;
  if (reduction == "min") return ag::minimum;
  throw Skip("reduction " + reduction);
}

// base with updates[i, j, k] put to [i, indices[i, j, k], k], here along axis 1 of rank 3.
Variable scatter_along(Variable base, const Indices& indices, const Variable& updates,
                       std::size_t along, Combine combine) {
  for (std::size_t axis = 0; axis < base.rank(); ++axis) {
    const std::ptrdiff_t end = std::ptrdiff_t(indices.shape(axis)), at = std::ptrdiff_t(axis);
    if (axis == along || std::size_t(end) == base.shape()[axis]) continue;
    const Variable reached = ag::slice(base, at, {.stop = end});  // updates may leave out the rest
    return ag::concatenate({scatter_along(reached, indices, updates, along, combine),
                            ag::slice(base, at, {.start = end})},
                           at);
  }
  const std::ptrdiff_t axis = std::ptrdiff_t(along);
  if (combine == nullptr) return ag::scatter_add_along(base, indices, updates, axis);
  // one slice after the other: in each, every lane has one update, so none meets another
  for (std::size_t i = 0; i < indices.shape(along); ++i) {
    const ag::Slice one{std::ptrdiff_t(i), std::ptrdiff_t(i) + 1};
    // as Real, for only a Variable can be cut
    const Indices at = Value(ag::slice(Value(indices).variable(), axis, one)).indices();
    const Variable result = combine(ag::take_along(base, at, axis), ag::slice(updates, axis, one));
    const Variable zeros(ag::zeros(base.shape())), ones(ag::ones(result.shape()));
    base = ag::where(ag::greater(ag::scatter_add_along(zeros, at, ones, axis), 0),
                     ag::scatter_add_along(zeros, at, result, axis), base);
  }
  return base;
}

std::vector<Value> scatter_elements(const Call& call) {
  const Variable x = call[0];
  const std::size_t axis = ag::check_axis("ScatterElements", call.integer("axis", 0), x.rank());
  return {scatter_along(x, from_the_front(call.value(1).indices(), x.shape()[axis]), call[2], axis,
                        combine_of(call.text("reduction", "none")))};
}

std::vector<Value> scatter_nd(const Call& call) {
  const Variable x = call[0];
  const Rows rows = rows_named(x.shape(), call.value(1).indices(), 0);
  const std::size_t width = ag::element_count(rows.behind), updates = rows.named.size();
  Indices elements = Indices::from_shape({updates, width});
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements.data()[i] = rows.named.data()[i / width];
  const Variable y = scatter_along(ag::reshape_to(x, {rows.count, width}), elements,
                                   ag::reshape_to(call[2], {updates, width}), 0,
                                   combine_of(call.text("reduction", "none")));
  return {ag::reshape_to(y, x.shape())};
}

}  // namespace

void add_indexing(Mappings& mappings) {
  mappings["Gather"] = gather;
  mappings["GatherElements"] = gather_elements;
  mappings["GatherND"] = gather_nd;
  mappings["Scatter"] = scatter_elements;  // the name of opset 9
  mappings["ScatterElements"] = scatter_elements;
  mappings["ScatterND"] = scatter_nd;
}

}  // namespace conformance
