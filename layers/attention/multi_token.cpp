#include "layers/attention/multi_token.hpp"

#include "core/ops/convolution.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/shape.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/masked_product.hpp"
#include "layers/attention/multi_token_strips.hpp"
#include "layers/attention/sources.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

void check_kernel_shape(const char* name, const Variable& kernel, std::size_t heads) {
  if (!kernel.holds_value()) return;
  check_shape(kernel.rank() == 3 && kernel.size(0) == heads && kernel.size(1) > 0 &&
                  kernel.size(2) % 2 == 1,
              "multi_token_attention: ", name, " must be (", heads,
              " heads, queries, an odd number of keys), got ", kernel.shape());
}

void check_mixing_shape(const char* name, const Variable& mix, std::size_t heads) {
  if (!mix.holds_value()) return;
  check_shape(mix.rank() == 3 && mix.size(1) == mix.size(2) && mix.size(0) * mix.size(1) == heads,
              "multi_token_attention: ", name, " must be (groups, c, c) with groups * c = ", heads,
              " heads, got ", mix.shape());
}

AttentionCall prepared(const AttentionInputs& inputs, const TokenMixing& mixing,
                       const AttentionOptions& options) {
  check_argument(options.scores.empty() && !options.sink,
                 "multi_token_attention: takes a mask, a scale and dropout, but no score steps and "
                 "no sink");
  check_kernel_shape("key_query", mixing.key_query, inputs.q.heads);
  check_kernel_shape("key_query_after", mixing.key_query_after, inputs.q.heads);
  check_mixing_shape("heads", mixing.heads, inputs.q.heads);
  check_mixing_shape("heads_after", mixing.heads_after, inputs.q.heads);
  return prepare_attention(inputs, options);
}

// ---- composed ---------------------------------------------------------------------------------

// x (batch, heads, queries, keys) with its rows moved down by `rows`, zeros above.
Variable moved_down(const Variable& x, std::size_t rows) {
  if (rows == 0) return x;
  const Variable kept = slice(x, 2, {.start = 0, .stop = std::ptrdiff_t(x.size(2) - rows)});
  return pad(kept, {{0, 0}, {0, 0}, {rows, 0}, {0, 0}});
}

// Row by row of the kernel: what a query does not see counts for none of its terms.
Variable convolved(const Variable& x, const Variable& kernel, const Bools* visible) {
  const std::size_t side = kernel.size(2) / 2;
  Variable sum;
  for (std::size_t back = 0; back < std::min(kernel.size(1), x.size(2)); ++back) {
    const auto a = std::ptrdiff_t(kernel.size(1) - 1 - back);
    const Variable rows = moved_down(x, back);
    const Variable seen = visible ? where(*visible, rows, Variable(Real(0))) : rows;
    const Variable term = convolve_2d(pad(seen, {{0, 0}, {0, 0}, {0, 0}, {side, side}}),
                                      slice(kernel, 1, {.start = a, .stop = a + 1}));
    sum = back == 0 ? term : sum + term;
  }
  return sum;
}

Variable mixed(const Variable& x, const Variable& mix) {
  const Shape& s = x.shape();
  const Variable groups = reshape(x, Shape{s[0], mix.size(0), mix.size(1), s[2] * s[3]});
  return reshape(matmul(mix, groups), s);
}

// W, before dropout. visible: null where the mask hides nothing.
Variable composed_weights(const AttentionInputs& inputs, const AttentionCall& call,
                          const TokenMixing& mixing, const Bools* visible) {
  const Variable q = gather(inputs.q), k = repeat_heads(gather(inputs.k), inputs.group());
  Variable x = call.scale * (visible ? masked_scores(q, k, *visible)
                                     : contract(q, Transpose::no, k, Transpose::yes));
  if (mixing.key_query.holds_value()) x = convolved(x, mixing.key_query, visible);
  if (mixing.heads.holds_value()) x = mixed(x, mixing.heads);
  x = visible_softmax(x, visible, std::nullopt).weights;
  if (mixing.key_query_after.holds_value()) {
    x = convolved(x, mixing.key_query_after, visible);
    if (visible) x = where(*visible, x, Variable(Real(0)));
  }
  return mixing.heads_after.holds_value() ? mixed(x, mixing.heads_after) : x;
}

Variable composed_of(const AttentionInputs& inputs, const AttentionCall& call,
                     const TokenMixing& mixing) {
  const AttentionSizes& s = call.sizes();
  if (s.keys == 0 || s.queries == 0) return composed_call(inputs, call, {}).output;
  const bool masked = !call.mask.hides_nothing();
  const Bools visible = masked ? call.mask.dense() : Bools();
  const Variable w =
      composed_drop(composed_weights(inputs, call, mixing, masked ? &visible : nullptr), call);
  const Variable v = repeat_heads(gather(inputs.v), inputs.group());
  return merge_heads(masked ? masked_product(w, Transpose::no, v, visible)
                            : contract(w, Transpose::no, v, Transpose::no));
}

// Of other Variables in the places of those of a mixing that hold values.
TokenMixing replaced(TokenMixing mixing, const std::vector<Variable>& parameters) {
  auto next = parameters.begin();
  for (Variable* weight : weights_of(mixing)) *weight = *next++;
  return mixing;
}

}  // namespace

Variable multi_token_attention(const AttentionInputs& inputs, const TokenMixing& mixing,
                               const AttentionOptions& options) {
  const MultiTokenCall call{inputs, prepared(inputs, mixing, options), mixing};
  Variable y(multi_token_forward(call));
  TokenMixing present = mixing;
  std::vector<Variable> parameters;
  for (const Variable* weight : weights_of(present)) parameters.push_back(*weight);
  const Sources sources(inputs, parameters,
                        [call](const AttentionInputs& in, const std::vector<Variable>& now) {
                          return composed_of(in, call.call, replaced(call.mixing, now));
                        });
  const auto add = [call](const Array& dy, const GradientArrays& to) {
    multi_token_backward(call, dy, to);
  };
  return record_joint("multi_token_attention", std::move(y), sources.variables(),
                      sources.backward(add), sources.composed());
}

Variable composed_multi_token_attention(const AttentionInputs& inputs, const TokenMixing& mixing,
                                        const AttentionOptions& options) {
  return composed_of(inputs, prepared(inputs, mixing, options), mixing);
}

Variable multi_token_weights(const AttentionInputs& inputs, const TokenMixing& mixing,
                             AttentionOptions options) {
  options.rng = nullptr;
  const Pause nothing_recorded;
  const AttentionCall call = prepared(inputs, mixing, options);
  const AttentionSizes& s = call.sizes();
  if (s.keys == 0 || s.queries == 0) return Variable(zeros({s.batch, s.heads, s.queries, s.keys}));
  const Bools visible = call.mask.dense();
  return composed_weights(inputs, call, mixing, &visible);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
