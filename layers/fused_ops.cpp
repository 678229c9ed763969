#include "layers/fused_ops.hpp"

#include <algorithm>

#include "layers/attention/fused.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using Inputs = std::vector<Variable>;

std::size_t draw(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::size_t(rng.integer(low, high));
}

Mask random_mask(Rng& rng, const AttentionSizes& s) {
  Mask mask;
  if (rng.uniform() < 0.4) {
    const bool bottom_right = rng.uniform() < 0.5;
    mask = mask & (bottom_right ? causal() : causal(rng.integer(-2, std::int64_t(s.keys) + 1)));
  }
  if (rng.uniform() < 0.5) {
    const auto one_or = [&](std::size_t size) {
      return rng.uniform() < 0.5 ? std::size_t{1} : size;
    };
    Bools visible =
        Bools::from_shape({one_or(s.batch), one_or(s.heads), one_or(s.queries), s.keys});
    const double share = rng.uniform();  // near 0, whole rows are hidden
    for (std::size_t i = 0; i < visible.size(); ++i) visible.data()[i] = rng.uniform() < share;
    mask = mask & visible_where(std::move(visible));
  }
  return mask;
}

// NaN in some keys and values that no query of their head sees.
void spoil_hidden(Rng& rng, const Mask& mask, const AttentionSizes& s, Array& k, Array& v) {
  const std::size_t k_width = k.shape()[2] / s.heads, v_width = v.shape()[2] / s.heads;
  for (std::size_t b = 0; b < s.batch; ++b)
    for (std::size_t h = 0; h < s.heads; ++h)
      for (std::size_t j = 0; j < s.keys; ++j) {
        bool seen = false;
        for (std::size_t i = 0; i < s.queries; ++i) seen = seen || mask.visible(s, b, h, i, j);
        if (seen || rng.uniform() < 0.5) continue;
        const std::size_t row = b * s.keys + j;
        k.data()[(row * s.heads + h) * k_width] = std::numeric_limits<Real>::quiet_NaN();
        v.data()[(row * s.heads + h) * v_width] = std::numeric_limits<Real>::quiet_NaN();
      }
}

AttentionOptions random_options(Rng& rng, const AttentionSizes& s) {
  AttentionOptions options{.mask = random_mask(rng, s), .scale = {}};
  if (rng.uniform() < 0.3) options.scale = 0.1 + rng.uniform();
  return options;
}

FusedCase sample_attention(Rng& rng) {
  const AttentionSizes s{draw(rng, 1, 4), draw(rng, 1, 4), draw(rng, 1, 12), draw(rng, 1, 12)};
  const std::size_t width = draw(rng, 1, 10), value_width = draw(rng, 1, 10);
  const AttentionOptions options = random_options(rng, s);
  Array q = uniform(rng, {s.batch, s.queries, s.heads * width}, -2, 2);
  Array k = uniform(rng, {s.batch, s.keys, s.heads * width}, -2, 2);
  Array v = uniform(rng, {s.batch, s.keys, s.heads * value_width}, -2, 2);
  spoil_hidden(rng, options.mask, s, k, v);
  const auto with =
      [=](AttentionOutput (*kernel)(const AttentionInputs&, const AttentionOptions&)) {
        return [=](const Inputs& in) {
          return kernel({split_heads(in[0], s.heads), split_heads(in[1], s.heads),
                         split_heads(in[2], s.heads)},
                        options)
              .output;
        };
      };
  return {text("batch ", s.batch, ", heads ", s.heads, ", queries ", s.queries, ", keys ", s.keys,
               ", widths ", width, " and ", value_width,
               options.mask.hides_nothing() ? ", no mask" : ", masked"),
          {std::move(q), std::move(k), std::move(v)},
          with(fused_attention),
          with(composed_attention)};
}

FusedCase sample_self_attention(Rng& rng) {
  const std::size_t time = draw(rng, 1, 10);
  const AttentionSizes s{draw(rng, 1, 4), draw(rng, 1, 4), time, time};
  const std::size_t dx = draw(rng, 1, 9), dq = draw(rng, 1, 9), dv = draw(rng, 1, 9);
  const AttentionOptions options = random_options(rng, s);
  const auto with = [=](Variable (*layer)(const SelfAttentionInputs&, const AttentionOptions&)) {
    return [=](const Inputs& in) { return layer({in[0], in[1], in[2], in[3], s.heads}, options); };
  };
  return {text("batch ", s.batch, ", heads ", s.heads, ", time ", time, ", D_x ", dx, ", D_q ", dq,
               ", D_v ", dv),
          {uniform(rng, {s.batch, time, dx}, -2, 2), uniform(rng, {dx, s.heads * dq}, -1, 1),
           uniform(rng, {dx, s.heads * dq}, -1, 1), uniform(rng, {dx, s.heads * dv}, -1, 1)},
          with(fused_self_attention),
          with(composed_self_attention)};
}

}  // namespace

const std::vector<FusedOp>& attention_fused_ops() {
  static const std::vector<FusedOp> table{
      {"attention", sample_attention},
      {"self_attention", sample_self_attention},
  };
  return table;
}

std::vector<FusedOp> fused_ops() {
  std::vector<FusedOp> all = core_fused_ops();
  all.insert(all.end(), attention_fused_ops().begin(), attention_fused_ops().end());
  return all;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
