#include "layers/attention/composed.hpp"

#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/shape.hpp"
#include "layers/attention/masked_product.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// The largest of each row, as a constant; 0 for a row with nothing visible, so that subtracting it
// is harmless.
Variable row_top(const Variable& scores) {
  const Pause constant_only;
  const Variable top = max(scores, -1, keep_dims);
  const Bools nothing = xt::equal(top.value(), -std::numeric_limits<Real>::infinity());
  return where(nothing, Variable(Real(0)), top);
}

// Each head `group` times in a row.
Variable repeat_heads(const Variable& x, std::size_t group) {
  if (group == 1) return x;
  const Shape& s = x.shape();
  const Variable each = broadcast_to(expand_dims(x, 2), {s[0], s[1], group, s[2], s[3]});
  return reshape(each, {std::ptrdiff_t(s[0]), std::ptrdiff_t(s[1] * group), std::ptrdiff_t(s[2]),
                        std::ptrdiff_t(s[3])});
}

Array squeezed_last(const Array& x) {
  Array y = x;
  y.reshape(Shape(x.shape().begin(), x.shape().end() - 1));
  return y;
}

}  // namespace

AttentionParts composed_attention_parts(const AttentionInputs& inputs,
                                        const AttentionOptions& options) {
  const SizedMask mask = check_attention(inputs, options);
  const AttentionSizes& sizes = mask.sizes();
  const Real scale = Real(attention_scale(inputs, options));
  if (sizes.keys == 0 || sizes.queries == 0) {
    const Shape square{sizes.batch, sizes.heads, sizes.queries, sizes.keys};
    Variable nothing(zeros({sizes.batch, sizes.queries, sizes.heads * inputs.v.width}));
    Recorder::current().mark_constant(nothing);
    const Real none = -std::numeric_limits<Real>::infinity();
    return {Variable(zeros(square)), Variable(zeros(square)), nothing,
            filled({sizes.batch, sizes.heads, sizes.queries}, none)};
  }
  const Variable q = gather(inputs.q), k = repeat_heads(gather(inputs.k), inputs.group()),
                 v = repeat_heads(gather(inputs.v), inputs.group());
  const bool masked = !mask.hides_nothing();
  const Bools visible = masked ? mask.dense() : Bools();

  const Variable scores = scale * (masked ? masked_scores(q, k, visible)
                                          : contract(q, Transpose::no, k, Transpose::yes));
  const Variable shown =
      masked ? where(visible, scores, Variable(-std::numeric_limits<Real>::infinity())) : scores;
  const Variable top = row_top(shown);
  const Variable powers = exp(shown - top);
  const Variable total = sum(powers, -1, keep_dims);
  // a row with nothing visible has total 0, and its powers are 0 already
  const Bools nothing = xt::equal(total.value(), Real(0));
  const Variable divisor = where(nothing, Variable(Real(1)), total);
  const Variable weights = powers / divisor;
  const Variable heads = masked ? masked_product(weights, Transpose::no, v, visible)
                                : contract(weights, Transpose::no, v, Transpose::no);
  const Variable output = merge_heads(heads);

  const Pause constant_only;
  return {scores, weights, output, squeezed_last((top + log(total)).value())};
}

AttentionOutput composed_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  AttentionParts parts = composed_attention_parts(inputs, options);
  return {parts.output, std::move(parts.log_sum_exp)};
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
