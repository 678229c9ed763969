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

// Where the gradients of queries, keys and values go; the three may be one array. parameters: those
// of the call's parameters, in order.
struct GradientArrays {
  Array *dq, *dk, *dv;
  std::vector<Array*> parameters = {};
};

// The inputs of an attention op, in the order of its gradients: the arrays that queries, keys and
// values lie in, each once, and the parameters of the call. With them a kernel calls record_joint.
class Sources {
 public:
  using ComposedForm =
      std::function<Variable(const AttentionInputs&, const std::vector<Variable>& parameters)>;

  Sources(const AttentionInputs& inputs, const AttentionCall& call);
  // Of another op on the same inputs.
  Sources(const AttentionInputs& inputs, const std::vector<Variable>& parameters,
          ComposedForm composed);

  const std::vector<Variable>& variables() const { return variables_; }
  // A joint backward made of one that adds what dY gives to the gradients.
  JointBackward backward(std::function<void(const Array& dy, const GradientArrays& to)> add) const;
  // The composed form of other Variables in the same places.
  Composed composed() const;

 private:
  std::size_t find(const Variable& array);

  AttentionInputs inputs_;
  ComposedForm composed_;
  std::vector<Variable> variables_;
  std::size_t q_, k_, v_, parameters_;  // which of the variables are what
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
