// Products of the vectors of a head with those of another, and of a block of weights with them,
// which skip hidden pairs. Call inside a SingleThreadedBlas.
#pragma once

#include <type_traits>

#include "core/kernels/gemm.hpp"
#include "layers/attention/head_view.hpp"

namespace attngrad::kernels {

// Of all pairs: out_ij = factor * a_i . b_j, in rows of b.length.
template <class T>
void inner_products(std::type_identity_t<T> factor, HeadView<const T> a, HeadView<const T> b,
                    T* out) {
  gemm<T>({a.length, b.length, a.width}, factor, {a.data, a.stride}, {b.data, b.stride, true}, T(0),
          out, b.length);
}

// to_i += factor * sum over j of weights_ij from_j, or with `transposed` to_j += factor * sum over
// i of weights_ij from_i, for the queries i and keys j of a block whose keys lie side by side; from
// and to hold as many vectors. A hidden pair adds nothing, so numbers that are not finite take a
// loop that skips it: a product would multiply them by 0, and 0 * NaN is NaN.
template <class T>
void add_product(const SizedMask& mask, const ScoreBlock<const T>& weights, T factor,
                 bool transposed, HeadView<const T> from, HeadView<T> to);

}  // namespace attngrad::kernels
