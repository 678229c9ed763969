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

// Where the gradients of queries, keys and values go; the three may be one array.
struct GradientArrays {
  Array *dq, *dk, *dv;
};

// The arrays that queries, keys and values lie in, each once: the inputs of an attention op, in the
// order of its gradients. With them a kernel calls record_joint.
class Sources {
 public:
  explicit Sources(const AttentionInputs& inputs);

  const std::vector<Variable>& arrays() const { return arrays_; }
  // A joint backward made of one that adds what dY gives to the gradients.
  JointBackward backward(std::function<void(const Array& dy, const GradientArrays& to)> add) const;
  // composed_attention of other arrays in the same places.
  Composed composed(const AttentionOptions& options) const;

 private:
  std::size_t find(const Variable& array);

  AttentionInputs inputs_;
  std::vector<Variable> arrays_;
  std::size_t q_, k_, v_;  // which of the arrays holds which
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
