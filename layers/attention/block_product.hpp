// Products of a block of weights with the vectors of a head, which skip hidden pairs.
#pragma once

#include "core/kernels/gemm.hpp"
#include "layers/attention/head_view.hpp"

namespace attngrad::kernels {

// to_i += factor * sum over j of weights_ij from_j, or with `transposed` to_j += factor * sum over
// i of weights_ij from_i, for the queries i and keys j of a block whose keys lie side by side; from
// and to hold as many vectors. A hidden pair adds nothing, so numbers that are not finite take a
// loop that skips it: a product would multiply them by 0, and 0 * NaN is NaN. Call inside a
// SingleThreadedBlas.
template <class T>
void add_product(const SizedMask& mask, const ScoreBlock<const T>& weights, T factor,
                 bool transposed, HeadView<const T> from, HeadView<T> to);

}  // namespace attngrad::kernels
