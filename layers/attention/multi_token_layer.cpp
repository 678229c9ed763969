#include "layers/attention/multi_token_layer.hpp"

#include <cmath>

#include "core/ops/elementwise.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/normalize.hpp"
#include "core/ops/shape.hpp"
#include "layers/attention/decode.hpp"
#include "layers/attention/flash.hpp"
#include "layers/attention/multi_token_strips.hpp"
#include "layers/initialization.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

const MultiTokenMixer::Options& checked(const MultiTokenMixer::Options& o) {
  for (const auto& size : {o.multi_token.before, o.multi_token.after})
    check_argument(!size || (size->queries > 0 && size->keys % 2 == 1),
                   "MultiToken: a kernel must be of one query or more and an odd number of keys, "
                   "got ",
                   size ? size->queries : 0, " and ", size ? size->keys : 0);
  for (const std::size_t group : {o.multi_token.heads_before, o.multi_token.heads_after})
    check_argument(group > 0 && o.heads % group == 0, "MultiToken: groups of ", group,
                   " do not divide ", o.heads, " heads");
  check_argument(o.multi_token.kernel != nullptr, "MultiToken: needs a kernel, got none");
  return o;
}

// Frozen weights are constants.
Variable weight(const MultiTokenMixer::Options& o, Array value) {
  return o.multi_token.learned ? parameter(std::move(value)) : Variable(std::move(value));
}

// 1 at the query itself and the middle key.
Variable identity_kernels(const MultiTokenMixer::Options& o,
                          const std::optional<KernelSize>& size) {
  if (!size) return {};
  Array kernels = zeros({o.heads, size->queries, size->keys});
  for (std::size_t h = 0; h < o.heads; ++h) kernels(h, size->queries - 1, size->keys / 2) = 1;
  return weight(o, std::move(kernels));
}

Variable identity_matrices(const MultiTokenMixer::Options& o, std::size_t group) {
  if (group == 1) return {};
  Array matrices = zeros({o.heads / group, group, group});
  for (std::size_t g = 0; g < o.heads / group; ++g)
    for (std::size_t i = 0; i < group; ++i) matrices(g, i, i) = 1;
  return weight(o, std::move(matrices));
}

Variable gate_weights(const MultiTokenMixer::Options& o, Rng& rng) {
  if (!o.multi_token.gate) return {};
  const Array u = truncated_normal_fan_in()(rng, {o.width});
  return parameter(Array(u / Real(std::sqrt(double(o.heads)))));
}

}  // namespace

MultiTokenMixer::MultiTokenMixer(const Options& o, Rng& rng)
    : options(checked(o)),
      key_query(identity_kernels(o, o.multi_token.before)),
      head_mixing(identity_matrices(o, o.multi_token.heads_before)),
      key_query_after(identity_kernels(o, o.multi_token.after)),
      head_mixing_after(identity_matrices(o, o.multi_token.heads_after)),
      norm(o.multi_token.norm ? parameter(ones({o.width})) : Variable()),
      gate(gate_weights(o, rng)),
      gate_bias(o.multi_token.gate ? parameter(zeros({1})) : Variable()) {}

Variable MultiTokenMixer::operator()(const AttentionInputs& inputs,
                                     const AttentionOptions& call) const {
  const MultiTokenKernel kernel = options.multi_token.kernel;
  if (!mixes() && kernel == multi_token_attention)  // plain attention has a faster kernel
    return finished(flash_attention(inputs, call).output);
  return finished(kernel(inputs, mixing(), call));
}

bool MultiTokenMixer::mixes() const {
  TokenMixing all = mixing();
  return !weights_of(all).empty();
}

Variable MultiTokenMixer::decode(const AttentionInputs& inputs, const AttentionOptions& call,
                                 const Continuation& rows, TokenRows& known) const {
  const MultiTokenKernel kernel = options.multi_token.kernel;
  check_argument(kernel == multi_token_attention || kernel == composed_multi_token_attention,
                 "MultiToken: a kernel of one's own cannot go on from a cache");
  if (!mixes())
    return finished(
        (inputs.q.length == 1 ? decode_attention : flash_attention)(inputs, call).output);
  return finished(multi_token_decode(inputs, mixing(), call, rows, known));
}

Variable MultiTokenMixer::finished(const Variable& y) const {
  const MultiTokenOptions& o = options.multi_token;
  if (!norm.holds_value() && !o.depth && !gate.holds_value()) return y;
  Variable heads = reshape(y, Shape{y.size(0), y.size(1), options.heads, options.width});
  if (norm.holds_value()) heads = rms_norm(heads, norm, o.norm_epsilon);
  if (o.depth) heads = heads * Real(0.2 + 0.6 * std::exp(-0.3 * double(*o.depth)));
  if (gate.holds_value()) heads = heads * expand_dims(sigmoid(matmul(heads, gate) + gate_bias), -1);
  return reshape(heads, y.shape());
}

Variable MultiTokenMixer::weights(const AttentionInputs& inputs,
                                  const AttentionOptions& call) const {
  return multi_token_weights(inputs, mixing(), call);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
