// One batch row and head as the kernels see it: raw pointers and a mask.
#pragma once

#include "layers/attention/sized_mask.hpp"

namespace attngrad::kernels {

// The vectors of one head: `length` of them, `width` long, `stride` elements apart.
template <class T>
struct HeadView {
  T* data;
  std::size_t length, width, stride;
};

// Which head, and what it may see.
struct HeadMask {
  const SizedMask& mask;
  std::size_t batch, head;
};

}  // namespace attngrad::kernels
