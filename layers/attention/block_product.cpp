#include "layers/attention/block_product.hpp"

#include "core/kernels/tile.hpp"

namespace attngrad::kernels {

template <class T>
void add_product(const SizedMask& mask, const ScoreBlock<const T>& weights, T factor,
                 bool transposed, HeadView<const T> from, HeadView<T> to) {
  if (mask.hides_nothing() ||
      tile_kernels<T>().all_finite(from.data, from.stride, from.length, from.width)) {
    gemm<T>({to.length, to.width, from.length}, factor,
            {weights.scores, weights.query_stride, transposed}, {from.data, from.stride}, T(1),
            to.data, to.stride);
    return;
  }
  for (std::size_t i = 0; i < weights.queries; ++i)
    for (std::size_t j = 0; j < weights.keys; ++j) {
      if (!mask.visible(weights.batch, weights.head, weights.first_query + i,
                        weights.first_key + j))
        continue;
      const T* x = from.data + (transposed ? i : j) * from.stride;
      T* y = to.data + (transposed ? j : i) * to.stride;
      for (std::size_t d = 0; d < to.width; ++d) y[d] += factor * weights.at(i, j) * x[d];
    }
}

template void add_product(const SizedMask&, const ScoreBlock<const float>&, float, bool,
                          HeadView<const float>, HeadView<float>);
template void add_product(const SizedMask&, const ScoreBlock<const double>&, double, bool,
                          HeadView<const double>, HeadView<double>);

}  // namespace attngrad::kernels
