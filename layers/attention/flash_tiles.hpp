// The arithmetic of flash attention for one batch row and head, tile by tile, on raw pointers
// (flash.hpp has the formulas).
#pragma once

#include "layers/attention/head_view.hpp"
#include "layers/attention/kernel.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// A tile is so many queries by so many keys. They set how work is cut, so results depend on them in
// the last bits, and on nothing else about the machine.
inline constexpr std::size_t flash_queries = score_block_side, flash_keys = score_block_side;

// One head of a call.
struct FlashHead {
  const AttentionCall& call;
  std::size_t batch, head;
  kernels::HeadView<const Real> q, k, v;
};

// What is kept of each query's softmax: exp(score - top) * inverse_total is its probability. Both
// 0 for a query that sees nothing.
template <class T>
struct RowSoftmax {
  T* top;
  T* inverse_total;
};

// Queries [first, first + count), count at most flash_queries: writes their rows of Y, their
// softmax and their log-sum-exp, each at its place in the whole head.
void flash_forward(const FlashHead& in, std::size_t first, std::size_t count,
                   kernels::HeadView<Real> y, RowSoftmax<Real> softmax, Real* log_sum_exp);

// What the backward pass reads of one head beside its inputs.
struct FlashKept {
  kernels::HeadView<const Real> y, dy;
  RowSoftmax<const Real> softmax;
};
// Where it adds: parameters are the gradients of the call's parameters, in order.
struct FlashGradients {
  kernels::HeadView<Real> dq, dk, dv;
  Real* const* parameters;
};

// Queries [first, last): adds what they give to dk, dv, the parameters and their own rows of dq.
void flash_backward(const FlashHead& in, const FlashKept& kept, std::size_t first, std::size_t last,
                    const FlashGradients& to);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
