// What kernels share about the arrays that queries, keys and values lie in.
#pragma once

#include "layers/attention/head_view.hpp"
#include "layers/attention/kernel.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// One head of its array, and the same place in another array of that shape.
kernels::HeadView<const Real> head_view(const Heads& heads, std::size_t batch, std::size_t head);
kernels::HeadView<Real> head_view(Array& array, const Heads& places, std::size_t batch,
                                  std::size_t head);
// A head of an output (batch, queries, heads * width).
kernels::HeadView<const Real> output_view(const Array& array, const AttentionSizes& sizes,
                                          std::size_t width, std::size_t batch, std::size_t head);
kernels::HeadView<Real> output_view(Array& array, const AttentionSizes& sizes, std::size_t width,
                                    std::size_t batch, std::size_t head);

// The arrays that queries, keys and values lie in, each once, and which of them holds which: the
// inputs of an attention op, in the order of its gradients.
struct Sources {
  std::vector<Variable> arrays;
  std::size_t q, k, v;

  explicit Sources(const AttentionInputs& inputs);
  // Zeros like each of the arrays.
  std::vector<Array> zero_gradients() const;
  // The inputs with other arrays in the same places.
  AttentionInputs with(AttentionInputs inputs, const std::vector<Variable>& others) const;

 private:
  std::size_t find(const Heads& heads);
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
