// The arithmetic of one batch row and head: forward, and steps 1 to 5 of the backward (fused.hpp),
// on raw pointers.
#pragma once

#include "core/kernels/gemm.hpp"
#include "layers/attention/head_view.hpp"

namespace attngrad::kernels {

// Writes A (queries, keys), Y and the log-sum-exp of each row. Call inside a SingleThreadedBlas.
template <class T>
void attention_forward(const HeadMask& mask, T scale, HeadView<const T> q, HeadView<const T> k,
                       HeadView<const T> v, T* weights, HeadView<T> y, T* log_sum_exp);

// Adds to dq, dk and dv. `scores` is room for dE (queries, keys); dA, where wanted, is written to
// `dweights`.
template <class T>
void attention_backward(const HeadMask& mask, T scale, HeadView<const T> q, HeadView<const T> k,
                        HeadView<const T> v, const T* weights, HeadView<const T> dy, T* scores,
                        T* dweights, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv);

}  // namespace attngrad::kernels
