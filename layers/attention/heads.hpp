// Heads: where the vectors of all heads lie inside an array, so that a packed projection is read in
// place.
//
// A projection (batch, time, 3 * width) holds queries, keys and values side by side, and each of
// them its heads side by side. A kernel reads a head with a stride between times, and writes one
// gradient array for the whole projection: nothing is split, transposed or copied.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct Heads {
  Variable array;
  std::size_t batch, heads, length, width;
  // where element (b, h, t, d) lies: offset + b * batch_stride + h * head_stride + t * time_stride
  // + d
  std::size_t offset, batch_stride, head_stride, time_stride;

  std::size_t at(std::size_t b, std::size_t h) const {
    return offset + b * batch_stride + h * head_stride;
  }
};

// The heads of x (batch, time, heads * width). Throws ShapeError for another rank or a width that
// heads do not divide.
Heads split_heads(const Variable& x, std::size_t heads);
// The heads of one of several parts that lie side by side in the last axis of x (batch, time, parts
// * heads * width).
Heads split_heads(const Variable& x, std::size_t heads, std::size_t part, std::size_t parts);

// Heads of this width, side by side from `first` on in the last axis of x (batch, time, any).
// Throws ShapeError for another rank or too short an axis.
Heads heads_at(const Variable& x, std::size_t heads, std::size_t width, std::size_t first);

// Throws ShapeError, naming `what`, unless every element lies inside the array and no two at one
// place.
void check_heads(const char* what, const Heads& heads);

// Whether no element belongs to both: they lie in different arrays, or side by side in one.
bool disjoint(const Heads& a, const Heads& b);

// Whether the gradients of several heads can be added to at once: no two of q, k and v share a
// place.
bool all_disjoint(const Heads& q, const Heads& k, const Heads& v);

// The heads as an array (batch, heads, length, width): a copy, differentiable.
Variable gather(const Heads& heads);
// Each head of x (batch, heads, length, width) `group` times in a row.
Variable repeat_heads(const Variable& x, std::size_t group);
// x (batch, heads, length, width) with the heads side by side: (batch, length, heads * width).
Variable merge_heads(const Variable& x);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
