// The arithmetic of flash attention for one batch row and head, tile by tile, on raw pointers
// (flash.hpp has the formulas).
#pragma once

#include "layers/attention/head_view.hpp"

namespace attngrad::kernels {

// A tile is so many queries by so many keys. They set how work is cut, so results depend on them in
// the last bits, and on nothing else about the machine.
inline constexpr std::size_t flash_queries = 96, flash_keys = 96;

// What is kept of each query's softmax: exp(score - top) * inverse_total is its probability. Both
// 0 for a query that sees nothing.
template <class T>
struct RowSoftmax {
  T* top;
  T* inverse_total;
};

// Queries [first, first + count), count at most flash_queries: writes their rows of Y, their
// softmax and their log-sum-exp, each at its place in the whole head.
template <class T>
void flash_forward(const HeadMask& mask, T scale, HeadView<const T> q, HeadView<const T> k,
                   HeadView<const T> v, std::size_t first, std::size_t count, HeadView<T> y,
                   RowSoftmax<T> softmax, T* log_sum_exp);

// What the backward pass reads of one head.
template <class T>
struct FlashBackward {
  T scale;
  HeadView<const T> q, k, v, y, dy;
  RowSoftmax<const T> softmax;
};

// Queries [first, last): adds what they give to dk, dv and their own rows of dq.
template <class T>
void flash_backward(const HeadMask& mask, const FlashBackward<T>& in, std::size_t first,
                    std::size_t last, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv);

}  // namespace attngrad::kernels
