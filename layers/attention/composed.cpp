#include "layers/attention/composed.hpp"

#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/shape.hpp"
#include "core/parallel.hpp"
#include "layers/attention/masked_product.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// The largest of each row and of the sink, as a constant; 0 for a row with nothing visible and no
// sink, so that subtracting it is harmless.
Variable row_top(const Variable& scores, const std::optional<Variable>& sink) {
  const Pause constant_only;
  const Variable top = max(scores, -1, keep_dims), all = sink ? maximum(top, *sink) : top;
  const Bools nothing = xt::equal(all.value(), -std::numeric_limits<Real>::infinity());
  return where(nothing, Variable(Real(0)), all);
}

Array squeezed_last(const Array& x) {
  Array y = x;
  y.reshape(Shape(x.shape().begin(), x.shape().end() - 1));
  return y;
}

// What dropout multiplies each weight by: (batch, heads, queries, keys).
Array drop_factors(const AttentionCall& call) {
  const AttentionSizes& s = call.sizes();
  Array factors = ones({s.batch, s.heads, s.queries, s.keys});
  parallel_for(s.batch * s.heads, [&](std::size_t task) {
    for (std::size_t i = 0; i < s.queries; ++i)
      call.drop_row(task / s.heads, task % s.heads, i,
                    factors.data() + (task * s.queries + i) * s.keys, s.keys);
  });
  return factors;
}

// Without keys or queries: nothing but the sink.
AttentionParts nothing_to_see(const AttentionInputs& inputs, const AttentionSizes& s,
                              const std::optional<Variable>& sink) {
  const Shape square{s.batch, s.heads, s.queries, s.keys};
  Variable output(zeros({s.batch, s.queries, s.heads * inputs.v.width}));
  Recorder::current().mark_constant(output);
  const Variable none(sink ? sink->value()
                           : filled({1, 1, 1, 1}, -std::numeric_limits<Real>::infinity()));
  const Pause constant_only;
  return {Variable(zeros(square)), Variable(zeros(square)), Variable(zeros(square)), output,
          squeezed_last(broadcast_to(none, {s.batch, s.heads, s.queries, 1}).value())};
}

}  // namespace

VisibleSoftmax visible_softmax(const Variable& scores, const Bools* visible,
                               const std::optional<Variable>& sink) {
  const Variable shown =
      visible ? where(*visible, scores, Variable(-std::numeric_limits<Real>::infinity())) : scores;
  const Variable top = row_top(shown, sink);
  const Variable powers = exp(shown - top);
  Variable total = sum(powers, -1, keep_dims);
  if (sink) total = total + exp(*sink - top);
  // a row with nothing visible has total 0, and its powers are 0 already
  const Bools nothing = xt::equal(total.value(), Real(0));
  const Variable weights = powers / where(nothing, Variable(Real(1)), total);
  const Pause constant_only;
  return {weights, squeezed_last((top + log(total)).value())};
}

Variable composed_drop(const Variable& weights, const AttentionCall& call) {
  return call.dropout > 0 ? weights * Variable(drop_factors(call)) : weights;
}

AttentionParts composed_call(const AttentionInputs& inputs, const AttentionCall& call,
                             const std::vector<Variable>& parameters) {
  const AttentionSizes& s = call.sizes();
  auto parameter = parameters.begin();
  std::optional<Variable> sink;
  if (call.sink) sink = reshape(*parameter++, {1, std::ptrdiff_t(s.heads), 1, 1});
  if (s.keys == 0 || s.queries == 0) return nothing_to_see(inputs, s, sink);
  const Variable q = gather(inputs.q), k = repeat_heads(gather(inputs.k), inputs.group()),
                 v = repeat_heads(gather(inputs.v), inputs.group());
  const bool masked = !call.mask.hides_nothing();
  const Bools visible = masked ? call.mask.dense() : Bools();

  const Variable raw = call.scale * (masked ? masked_scores(q, k, visible)
                                            : contract(q, Transpose::no, k, Transpose::yes));
  Variable scores = raw;
  for (const auto& step : call.steps) {
    const auto count = std::ptrdiff_t(step->parameters().size());
    scores = step->composed(s, scores, {parameter, parameter + count});
    parameter += count;
  }
  const VisibleSoftmax softmax = visible_softmax(scores, masked ? &visible : nullptr, sink);
  const Variable kept = composed_drop(softmax.weights, call);
  const Variable heads = masked ? masked_product(kept, Transpose::no, v, visible)
                                : contract(kept, Transpose::no, v, Transpose::no);
  const Variable output = merge_heads(heads);

  return {raw, scores, softmax.weights, output, softmax.log_sum_exp};
}

AttentionParts composed_attention_parts(const AttentionInputs& inputs,
                                        const AttentionOptions& options) {
  const AttentionCall call = prepare_attention(inputs, options);
  return composed_call(inputs, call, call.parameters());
}

AttentionOutput composed_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  AttentionParts parts = composed_attention_parts(inputs, options);
  return {parts.output, std::move(parts.log_sum_exp)};
}

Variable attention_weights(const AttentionInputs& inputs, AttentionOptions options) {
  options.rng = nullptr;
  const Pause nothing_recorded;
  return composed_attention_parts(inputs, options).weights;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
