#include "layers/attention/attention_steps.hpp"

#include <algorithm>

#include "core/kernels/rows.hpp"
#include "layers/attention/block_product.hpp"

namespace attngrad::kernels {
namespace {

template <class T>
void fill_zero(HeadView<T> x) {
  for (std::size_t i = 0; i < x.length; ++i) std::fill_n(x.data + i * x.stride, x.width, T(0));
}

template <class T>
ScoreBlock<T> whole_block(const HeadMask& m, T* scores) {
  return {{m.batch, m.head, 0, m.mask.sizes().queries, 0, m.mask.sizes().keys},
          scores,
          m.mask.sizes().keys,
          1};
}

}  // namespace

template <class T>
void attention_forward(const HeadMask& m, T scale, HeadView<const T> q, HeadView<const T> k,
                       HeadView<const T> v, T* weights, HeadView<T> y, T* log_sum_exp) {
  const std::size_t keys = m.mask.sizes().keys;
  inner_products(scale, q, k, weights);  // E = scale Q K^T
  m.mask.overwrite_hidden(whole_block(m, weights), -std::numeric_limits<T>::infinity());
  for (std::size_t i = 0; i < m.mask.sizes().queries; ++i) {  // A = softmax(E)
    T* row = weights + i * keys;
    const KeyRange seen = m.mask.keys(m.batch, i);
    const std::size_t end = std::max(seen.begin, seen.end);
    std::fill(row, row + seen.begin, T(0));
    log_sum_exp[i] =
        T(row_kernels<T>().softmax(row + seen.begin, row + seen.begin, end - seen.begin));
    std::fill(row + end, row + keys, T(0));
  }
  fill_zero(y);
  add_product(m.mask, whole_block<const T>(m, weights), T(1), false, v, y);  // Y = A V
}

template <class T>
void attention_backward(const HeadMask& m, T scale, HeadView<const T> q, HeadView<const T> k,
                        HeadView<const T> v, const T* weights, HeadView<const T> dy, T* scores,
                        T* dweights, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv) {
  const std::size_t queries = m.mask.sizes().queries, keys = m.mask.sizes().keys;
  add_product(m.mask, whole_block(m, weights), T(1), true, dy, dv);  // step 1: dV = A^T dY

  inner_products(T(1), dy, v, scores);  // step 2: dA = dY V^T
  if (dweights != nullptr) {
    std::copy_n(scores, queries * keys, dweights);
    m.mask.overwrite_hidden(whole_block(m, dweights), T(0));
  }

  for (std::size_t i = 0; i < queries; ++i) {  // step 3: dE = A * (dA - rowsum(A * dA))
    T* row = scores + i * keys;
    row_kernels<T>().softmax_backward(weights + i * keys, row, row, keys);
  }

  add_product(m.mask, whole_block<const T>(m, scores), scale, false, k,
              dq);  // step 4: dQ = scale dE K
  add_product(m.mask, whole_block<const T>(m, scores), scale, true, q,
              dk);  // step 5: dK = scale dE^T Q
}

template void attention_forward(const HeadMask&, float, HeadView<const float>,
                                HeadView<const float>, HeadView<const float>, float*,
                                HeadView<float>, float*);
template void attention_forward(const HeadMask&, double, HeadView<const double>,
                                HeadView<const double>, HeadView<const double>, double*,
                                HeadView<double>, double*);
template void attention_backward(const HeadMask&, float, HeadView<const float>,
                                 HeadView<const float>, HeadView<const float>, const float*,
                                 HeadView<const float>, float*, float*, HeadView<float>,
                                 HeadView<float>, HeadView<float>);
template void attention_backward(const HeadMask&, double, HeadView<const double>,
                                 HeadView<const double>, HeadView<const double>, const double*,
                                 HeadView<const double>, double*, double*, HeadView<double>,
                                 HeadView<double>, HeadView<double>);

}  // namespace attngrad::kernels
