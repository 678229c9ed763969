// Ops that read or add at positions given by Indices.
//
// An index must be in [0, size) of its axis: a negative one does not count from the end. Any other
// throws ArgumentError, naming op, index and size, before any work, in every build. Where an index
// repeats, all its contributions are added, in double and in the order of the indices, so sums are
// accurate and have the same bits at any thread count.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// The parts of x at some positions of an axis: y[..., i..., ...] = x[..., indices[i...], ...].
// y: shaped like x with the shape of indices in place of the axis; an index of rank 0 drops the
// axis. The gradient adds up the parts that came from one position.
Variable take(const Variable& x, const Indices& indices, std::ptrdiff_t axis = 0);

// base with updates[..., i..., ...] added at position indices[i...] of an axis: the derivative of
// take, and closed with it. updates: shaped like base with the shape of indices in place of the
// axis, else ShapeError.
Variable scatter_add(const Variable& base, const Indices& indices, const Variable& updates,
                     std::ptrdiff_t axis = 0);

// One element from each lane of an axis: y[i, j, k] = x[i, indices[i, j, k], k], here for axis 1 of
// rank 3. indices: of the rank of x, and its sizes except along the axis, else ShapeError; y:
// shaped like indices.
Variable take_along(const Variable& x, const Indices& indices, std::ptrdiff_t axis);

// base with updates[i, j, k] added at [i, indices[i, j, k], k]: the derivative of take_along, and
// closed with it. updates: shaped like indices, which fit base as in take_along, else ShapeError.
Variable scatter_add_along(const Variable& base, const Indices& indices, const Variable& updates,
                           std::ptrdiff_t axis);

// The row of the table for each index. weight: (rows, width); y: the shape of indices, then width.
// Throws ShapeError unless weight has rank 2.
Variable embedding(const Variable& weight, const Indices& indices);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
