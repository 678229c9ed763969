// Ops that move elements and change no number: reshaping, reordering, cutting, joining.
//
// Every result is a fresh row-major array, never a view, so nothing aliases and x = transpose(x) is
// safe. Axes may be negative: -1 is the last. An axis outside the rank throws ArgumentError.
#pragma once

#include <concepts>
#include <optional>
#include <utility>
#include <vector>

#include "core/tape.hpp"

namespace attngrad {

// Positions start, start + step, ... before stop, by Python's rules: negative positions count from
// the end, what lies outside is cut off, and an end left open is the end that the step's sign
// suggests.
struct Slice {
  std::optional<std::ptrdiff_t> start = std::nullopt;
  std::optional<std::ptrdiff_t> stop = std::nullopt;
  std::ptrdiff_t step = 1;
};

inline namespace ATTNGRAD_PRECISION {

// ---- the same elements in the same order ------------------------------------------------------

// One size may be -1: it is what the others leave. Throws ShapeError if the number of elements
// would change, if -1 is named twice, or beside sizes whose product is 0.
Variable reshape(const Variable& x, const std::vector<std::ptrdiff_t>& shape);
Variable reshape_to(const Variable& x, const Shape& shape);
template <std::same_as<Shape> S>
Variable reshape(const Variable& x, const S& shape) {
  return reshape_to(x, shape);
}

// The axes from `first` to the last become one; rank 0 becomes (1).
Variable flatten(const Variable& x, std::ptrdiff_t first = 0);
// A new axis of size 1 at place `axis` of the result.
Variable expand_dims(const Variable& x, std::ptrdiff_t axis);
// Drops an axis. Throws ShapeError unless its size is 1.
Variable squeeze(const Variable& x, std::ptrdiff_t axis);
// Drops every axis of size 1.
Variable squeeze(const Variable& x);

// ---- the same elements in another order -------------------------------------------------------

// Axis i of y is axis order[i] of x. Throws ArgumentError unless order names each axis once.
Variable transpose(const Variable& x, const std::vector<std::size_t>& order);
// Reverses the axes.
Variable transpose(const Variable& x);
// Swaps two axes: of matrices the rows and columns, if not said otherwise.
Variable swap_axes(const Variable& x, std::ptrdiff_t a = -2, std::ptrdiff_t b = -1);

// ---- parts and wholes -------------------------------------------------------------------------

// The part of x at some positions of one axis; the gradient of every other element is 0. Throws
// ArgumentError for step 0.
Variable slice(const Variable& x, std::ptrdiff_t axis, Slice positions);
// The part of x at one position of an axis, which goes. Throws ArgumentError if there is no such
// position.
Variable select(const Variable& x, std::ptrdiff_t axis, std::ptrdiff_t position);

// The parts behind each other along an axis; parts of size 0 count as parts.
// Throws ArgumentError without parts; ShapeError unless they agree in rank (1 or more) and in every
// other axis.
Variable concatenate(const std::vector<Variable>& parts, std::ptrdiff_t axis = 0);
// Parts of one shape, side by side along a new axis at place `axis` of the result.
Variable stack(const std::vector<Variable>& parts, std::ptrdiff_t axis = 0);

// Cuts an axis into parts of these sizes, which keep the axis (also where its size is 1; select()
// drops it). Throws ShapeError unless the sizes add up to that of the axis.
std::vector<Variable> split(const Variable& x, const std::vector<std::size_t>& sizes,
                            std::ptrdiff_t axis = 0);
// Cuts an axis into `count` equal parts. Throws ShapeError unless they come out equal.
std::vector<Variable> split_evenly(const Variable& x, std::ptrdiff_t count, std::ptrdiff_t axis);
template <std::integral Count>
std::vector<Variable> split(const Variable& x, Count count, std::ptrdiff_t axis = 0) {
  return split_evenly(x, static_cast<std::ptrdiff_t>(count), axis);
}

// x with `value` around it: widths[axis] = {before, after}. Throws ShapeError unless there is one
// pair an axis.
Variable pad(const Variable& x, const std::vector<std::pair<std::size_t, std::size_t>>& widths,
             Real value = 0);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
