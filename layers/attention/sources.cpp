#include "layers/attention/sources.hpp"

#include "layers/attention/composed.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

template <class T>
kernels::HeadView<T> output_head(T* data, const AttentionSizes& s, std::size_t width,
                                 std::size_t batch, std::size_t head) {
  const std::size_t stride = s.heads * width;
  return {data + batch * s.queries * stride + head * width, s.queries, width, stride};
}

}  // namespace

kernels::HeadView<const Real> head_view(const Heads& heads, std::size_t batch, std::size_t head) {
  return {heads.array.value().data() + heads.at(batch, head), heads.length, heads.width,
          heads.time_stride};
}

kernels::HeadView<Real> head_view(Array& array, const Heads& places, std::size_t batch,
                                  std::size_t head) {
  return {array.data() + places.at(batch, head), places.length, places.width, places.time_stride};
}

kernels::HeadView<const Real> output_view(const Array& array, const AttentionSizes& sizes,
                                          std::size_t width, std::size_t batch, std::size_t head) {
  return output_head(array.data(), sizes, width, batch, head);
}

kernels::HeadView<Real> output_view(Array& array, const AttentionSizes& sizes, std::size_t width,
                                    std::size_t batch, std::size_t head) {
  return output_head(array.data(), sizes, width, batch, head);
}

Sources::Sources(const AttentionInputs& inputs, const AttentionCall& call)
    : Sources(inputs, call.parameters(),
              [call](const AttentionInputs& in, const std::vector<Variable>& parameters) {
                return composed_call(in, call, parameters).output;
              }) {}

Sources::Sources(const AttentionInputs& inputs, const std::vector<Variable>& parameters,
                 ComposedForm composed)
    : inputs_(inputs),
      composed_(std::move(composed)),
      q_(find(inputs.q.array)),
      k_(find(inputs.k.array)),
      v_(find(inputs.v.array)),
      parameters_(variables_.size()) {
  variables_.insert(variables_.end(), parameters.begin(), parameters.end());
}

std::size_t Sources::find(const Variable& array) {
  for (std::size_t i = 0; i < variables_.size(); ++i)
    if (variables_[i].same_as(array)) return i;
  variables_.push_back(array);
  return variables_.size() - 1;
}

JointBackward Sources::backward(
    std::function<void(const Array& dy, const GradientArrays& to)> add) const {
  return [sources = *this, add = std::move(add)](const Array& dy) {
    std::vector<Array> gradients;
    for (const Variable& x : sources.variables_) gradients.push_back(zeros(x.shape()));
    GradientArrays to{&gradients[sources.q_], &gradients[sources.k_], &gradients[sources.v_], {}};
    for (std::size_t i = sources.parameters_; i < gradients.size(); ++i)
      to.parameters.push_back(&gradients[i]);
    add(dy, to);
    return gradients;
  };
}

Composed Sources::composed() const {
  return [sources = *this](const std::vector<Variable>& variables) {
    AttentionInputs inputs = sources.inputs_;
    inputs.q.array = variables[sources.q_];
    inputs.k.array = variables[sources.k_];
    inputs.v.array = variables[sources.v_];
    const auto parameters = variables.begin() + std::ptrdiff_t(sources.parameters_);
    return sources.composed_(inputs, {parameters, variables.end()});
  };
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
