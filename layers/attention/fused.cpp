#include "layers/attention/fused.hpp"

#include "core/kernels/strided.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/matmul.hpp"
#include "layers/attention/attention_steps.hpp"
#include "layers/attention/sources.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// The values that the kernel keeps between forward and backward.
struct Kept {
  AttentionCall call;
  Array weights;  // A: (batch, heads, queries, keys)
};

// Runs the forward pass over all heads; fills kept.weights and returns Y.
Array forward(const AttentionInputs& in, Kept& kept, Array& log_sum_exp) {
  const AttentionSizes& s = kept.call.sizes();
  const std::size_t square = s.queries * s.keys;
  kept.weights = uninitialized({s.batch, s.heads, s.queries, s.keys});
  Array y = uninitialized({s.batch, s.queries, s.heads * in.v.width});
  const kernels::SingleThreadedBlas guard;
  parallel_for(s.batch * s.heads, [&](std::size_t i) {
    const std::size_t b = i / s.heads, h = i % s.heads, key_head = h / in.group();
    kernels::attention_forward<Real>({kept.call.mask, b, h}, kept.call.scale, head_view(in.q, b, h),
                                     head_view(in.k, b, key_head), head_view(in.v, b, key_head),
                                     kept.weights.data() + i * square,
                                     output_view(y, s, in.v.width, b, h),
                                     log_sum_exp.data() + i * s.queries);
  });
  return y;
}

// Steps 1 to 5 over all heads. dweights: null, or an array like the weights that receives dA; then
// dE is left in dscores.
void backward(const AttentionInputs& in, const Kept& kept, const Array& dy,
              const GradientArrays& to, Array* dweights, Array& dscores) {
  const AttentionSizes& s = kept.call.sizes();
  const std::size_t square = s.queries * s.keys;
  dscores = uninitialized({s.batch, s.heads, s.queries, s.keys});
  const kernels::SingleThreadedBlas guard;
  const auto one_head = [&](std::size_t b, std::size_t h) {
    const std::size_t key_head = h / in.group(), at = (b * s.heads + h) * square;
    kernels::attention_backward<Real>(
        {kept.call.mask, b, h}, kept.call.scale, head_view(in.q, b, h),
        head_view(in.k, b, key_head), head_view(in.v, b, key_head), kept.weights.data() + at,
        output_view(dy, s, in.v.width, b, h), dscores.data() + at,
        dweights ? dweights->data() + at : nullptr, head_view(*to.dq, in.q, b, h),
        head_view(*to.dk, in.k, b, key_head), head_view(*to.dv, in.v, b, key_head));
  };
  // the heads of a group add to the same dK and dV, one after the other; and all of them do where
  // queries, keys and values share places
  const std::size_t tasks =
      all_disjoint(in.q, in.k, in.v) ? in.k.heads : std::min<std::size_t>(1, in.k.heads);
  parallel_for(s.batch * tasks, [&](std::size_t i) {
    const std::size_t count = s.heads / tasks, first = i % tasks * count;
    for (std::size_t h = first; h < first + count; ++h) one_head(i / tasks, h);
  });
}

Kept keep_for(const AttentionInputs& inputs, const AttentionOptions& options) {
  check_argument(options.scores.empty() && !options.sink && options.dropout == 0,
                 "fused_attention: takes a mask and a scale, but no score steps, sink or dropout; "
                 "flash_attention and composed_attention take all of them");
  return {prepare_attention(inputs, options), {}};
}

}  // namespace

AttentionOutput fused_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  auto kept = std::make_shared<Kept>(keep_for(inputs, options));
  const AttentionSizes& s = kept->call.sizes();
  Array log_sum_exp = uninitialized({s.batch, s.heads, s.queries});
  Variable y(forward(inputs, *kept, log_sum_exp));
  saves_bytes(kept->weights.size() * sizeof(Real));
  const Sources sources(inputs, kept->call);
  const auto add = [inputs, kept](const Array& dy, const GradientArrays& to) {
    Array dscores;
    backward(inputs, *kept, dy, to, nullptr, dscores);
  };
  y = record_joint("attention", y, sources.variables(), sources.backward(add), sources.composed());
  return {y, std::move(log_sum_exp)};
}

// ---- the whole layer --------------------------------------------------------------------------

namespace {

void check_self_attention(const SelfAttentionInputs& in) {
  check_shape(in.x.rank() == 3, "self_attention: x must be (batch, time, width), got ",
              in.x.shape());
  for (const Variable* w : {&in.wq, &in.wk, &in.wv})
    check_shape(w->rank() == 2 && w->size(0) == in.x.size(2),
                "self_attention: wq, wk and wv must be (", in.x.size(2), ", heads * width), got ",
                w->shape());
  check_shape(in.wq.shape() == in.wk.shape(), "self_attention: wq and wk must have one shape, got ",
              in.wq.shape(), " and ", in.wk.shape());
}

AttentionInputs project(const SelfAttentionInputs& in) {
  const auto heads = [&](const Variable& w) {
    return split_heads(contract(in.x, Transpose::no, w, Transpose::no), in.heads);
  };
  return {heads(in.wq), heads(in.wk), heads(in.wv)};
}

// X^T dZ, summed over batch and time: the gradient of the matrix of Z = X W.
Array weight_gradient(const Variable& x, const Array& dz) {
  return contract(x, Transpose::yes, Variable(dz), Transpose::no, Batch::sum).value();
}

// All gradients from the six steps, with A kept and Q, K, V as they were.
SelfAttentionGradients all_gradients(const SelfAttentionInputs& in, const AttentionInputs& heads,
                                     const Kept& kept, const Array& dy, bool with_weights) {
  const Pause arrays_only;
  SelfAttentionGradients g;
  g.dq = zeros(heads.q.array.shape());
  g.dk = zeros(heads.k.array.shape());
  g.dv = zeros(heads.v.array.shape());
  if (with_weights) g.weights = zeros(kept.weights.shape());
  // steps 1 to 5
  backward(heads, kept, dy, {&g.dq, &g.dk, &g.dv}, with_weights ? &g.weights : nullptr, g.scores);

  g.dwq = weight_gradient(in.x, g.dq);  // step 6: dWq = X^T dQ
  g.dwk = weight_gradient(in.x, g.dk);  //         dWk = X^T dK
  g.dwv = weight_gradient(in.x, g.dv);  //         dWv = X^T dV
  const auto back = [](const Array& dz, const Variable& w) {
    return contract(Variable(dz), Transpose::no, w, Transpose::yes);
  };
  //         dX = dQ Wq^T + dK Wk^T + dV Wv^T
  g.dx = (back(g.dq, in.wq) + back(g.dk, in.wk) + back(g.dv, in.wv)).value();
  return g;
}

}  // namespace

Variable fused_self_attention(const SelfAttentionInputs& in, const AttentionOptions& options) {
  check_self_attention(in);
  const AttentionInputs heads = [&] {
    const Pause arrays_only;
    return project(in);
  }();
  auto kept = std::make_shared<Kept>(keep_for(heads, options));
  const AttentionSizes& s = kept->call.sizes();
  Array log_sum_exp = uninitialized({s.batch, s.heads, s.queries});
  Variable y(forward(heads, *kept, log_sum_exp));

  const auto analytic = [in, heads, kept](const Array& dy) {
    SelfAttentionGradients g = all_gradients(in, heads, *kept, dy, false);
    return list_of(std::move(g.dx), std::move(g.dwq), std::move(g.dwk), std::move(g.dwv));
  };
  const auto composed = [options, count = in.heads](const std::vector<Variable>& inputs) {
    return composed_self_attention({inputs[0], inputs[1], inputs[2], inputs[3], count}, options);
  };
  saves_bytes(
      (kept->weights.size() + heads.q.array.size() + heads.k.array.size() + heads.v.array.size()) *
      sizeof(Real));
  return record_joint("self_attention", y, {in.x, in.wq, in.wk, in.wv}, analytic, composed);
}

SelfAttentionParts composed_self_attention_parts(const SelfAttentionInputs& in,
                                                 const AttentionOptions& options) {
  check_self_attention(in);
  const AttentionInputs heads = project(in);
  return {heads.q.array, heads.k.array, heads.v.array, composed_attention_parts(heads, options)};
}

Variable composed_self_attention(const SelfAttentionInputs& in, const AttentionOptions& options) {
  return composed_self_attention_parts(in, options).attention.output;
}

SelfAttentionGradients fused_self_attention_gradients(const SelfAttentionInputs& in,
                                                      const AttentionOptions& options,
                                                      const Array& dy) {
  check_self_attention(in);
  const Pause arrays_only;
  const AttentionInputs heads = project(in);
  Kept kept = keep_for(heads, options);
  const AttentionSizes& s = kept.call.sizes();
  Array log_sum_exp = uninitialized({s.batch, s.heads, s.queries});
  const Array y = forward(heads, kept, log_sum_exp);
  check_shape(dy.shape() == y.shape(), "self_attention: dy must be ", y.shape(), ", got ",
              dy.shape());
  return all_gradients(in, heads, kept, dy, true);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
