#include "layers/attention/sources.hpp"

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

Sources::Sources(const AttentionInputs& inputs)
    : q(find(inputs.q)), k(find(inputs.k)), v(find(inputs.v)) {}

std::vector<Array> Sources::zero_gradients() const {
  std::vector<Array> gradients;
  for (const Variable& array : arrays) gradients.push_back(zeros(array.shape()));
  return gradients;
}

AttentionInputs Sources::with(AttentionInputs inputs, const std::vector<Variable>& others) const {
  inputs.q.array = others[q];
  inputs.k.array = others[k];
  inputs.v.array = others[v];
  return inputs;
}

std::size_t Sources::find(const Heads& heads) {
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (arrays[i].same_as(heads.array)) return i;
  arrays.push_back(heads.array);
  return arrays.size() - 1;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
