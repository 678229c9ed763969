#include "layers/fused_ops.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "layers/attention/flash.hpp"
#include "layers/attention/flash_tiles.hpp"
#include "layers/attention/fused.hpp"
#include "layers/attention/multi_token.hpp"
#include "layers/attention/score_function.hpp"
#include "layers/attention/score_steps.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using Inputs = std::vector<Variable>;

std::size_t draw(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::size_t(rng.integer(low, high));
}

// In most cases 1, else the whole size: what a mask has for each of them.
std::size_t one_or(Rng& rng, std::size_t size) { return rng.uniform() < 0.5 ? 1 : size; }

std::vector<std::size_t> random_lengths(Rng& rng, const AttentionSizes& s) {
  std::vector<std::size_t> lengths(one_or(rng, s.batch));
  for (std::size_t& length : lengths) length = draw(rng, 0, std::int64_t(s.keys) + 1);
  return lengths;
}

Indices random_documents(Rng& rng, const AttentionSizes& s) {
  Indices ids = Indices::from_shape({s.batch, s.keys});
  for (std::size_t b = 0; b < s.batch; ++b)
    for (std::size_t j = 0, id = 0; j < s.keys; ++j) {
      if (rng.uniform() < 0.1) ++id;
      const bool padding = j * 8 > s.keys * 7 && b % 2 == 1;
      ids.data()[b * s.keys + j] = padding ? -1 : std::int64_t(id);
    }
  return ids;
}

Bools random_flags(Rng& rng, const Shape& shape) {
  Bools flags = Bools::from_shape(shape);
  const double share = rng.uniform();  // near 0, whole rows are hidden
  for (std::size_t i = 0; i < flags.size(); ++i) flags.data()[i] = rng.uniform() < share;
  return flags;
}

// Any masks together, seldom many.
Mask random_mask(Rng& rng, const AttentionSizes& s) {
  Mask mask;
  const auto keys = std::int64_t(s.keys);
  const auto offset = [&]() -> std::optional<std::ptrdiff_t> {
    if (rng.uniform() < 0.5) return std::nullopt;
    return rng.integer(-2, keys + 1);
  };
  const auto side = [&]() -> std::optional<std::size_t> {
    if (rng.uniform() < 0.2) return std::nullopt;
    return draw(rng, 0, keys / 2 + 2);
  };
  if (rng.uniform() < 0.3) mask = mask & causal(offset());
  if (rng.uniform() < 0.15) mask = mask & sliding_window(side(), side(), offset());
  if (rng.uniform() < 0.15) mask = mask & key_lengths(random_lengths(rng, s));
  if (rng.uniform() < 0.1) mask = mask & prefix_lm(random_lengths(rng, s));
  if (rng.uniform() < 0.15) mask = mask & documents(random_documents(rng, s));
  if (rng.uniform() < 0.1) {
    std::vector<std::ptrdiff_t> offsets(s.batch);
    for (auto& each : offsets) each = rng.integer(-2, keys + 1);
    mask = mask & causal(std::move(offsets));
  }
  if (rng.uniform() < 0.3)
    mask = mask & visible_where(random_flags(rng, {one_or(rng, s.batch), one_or(rng, s.heads),
                                                   one_or(rng, s.queries), s.keys}));
  if (rng.uniform() < 0.15) {
    const std::size_t width = draw(rng, 1, 40);
    const auto blocks = [&](std::size_t n) { return (n + width - 1) / width; };
    mask = mask & block_sparse(random_flags(rng, {one_or(rng, s.batch), one_or(rng, s.heads),
                                                  blocks(s.queries), blocks(s.keys)}),
                               width);
  }
  return mask;
}

// NaN in some keys and values that no query of their head sees.
void spoil_hidden(Rng& rng, const SizedMask& mask, std::size_t group, Array& k, Array& v) {
  const AttentionSizes& s = mask.sizes();
  const std::size_t heads = s.heads / group;  // of keys
  const std::size_t k_width = k.shape()[2] / heads, v_width = v.shape()[2] / heads;
  for (std::size_t b = 0; b < s.batch; ++b)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t j = 0; j < s.keys; ++j) {
        bool seen = false;
        for (std::size_t g = h * group; g < (h + 1) * group; ++g)
          for (std::size_t i = 0; i < s.queries; ++i) seen = seen || mask.visible(b, g, i, j);
        if (seen || rng.uniform() < 0.5) continue;
        const std::size_t row = b * s.keys + j;
        k.data()[(row * heads + h) * k_width] = std::numeric_limits<Real>::quiet_NaN();
        v.data()[(row * heads + h) * v_width] = std::numeric_limits<Real>::quiet_NaN();
      }
}

AttentionOptions random_options(Rng& rng, const AttentionSizes& s) {
  AttentionOptions options{.mask = random_mask(rng, s)};
  if (rng.uniform() < 0.3) options.scale = 0.1 + rng.uniform();
  return options;
}

// Score steps, a sink and dropout: what flash takes and fused does not. Each change reads its own
// of the parameters.
struct Extras {
  using Change = std::function<void(AttentionOptions&, const Variable* parameters)>;
  std::vector<Array> parameters = {};
  std::vector<Change> changes = {};
  std::string about = {};

  void add(const std::string& what, Change change) {
    about += ", " + what;
    changes.push_back(std::move(change));
  }
  // One that reads a parameter of its own.
  void add(const std::string& what, Array parameter,
           const std::function<void(AttentionOptions&, const Variable&)>& change) {
    add(what, [at = parameters.size(), change](AttentionOptions& options, const Variable* all) {
      change(options, all[at]);
    });
    parameters.push_back(std::move(parameter));
  }

  AttentionOptions to(AttentionOptions options, const Variable* all) const {
    for (const Change& change : changes) change(options, all);
    return options;
  }
};

// With a number for each key: one for all of a row changes nothing, and its gradient is but
// rounding.
Array random_bias(Rng& rng, const AttentionSizes& s) {
  if (rng.uniform() < 0.3) return uniform(rng, {s.queries, s.keys}, -1, 1);
  Array b = uniform(
      rng, {one_or(rng, s.batch), one_or(rng, s.heads), one_or(rng, s.queries), s.keys}, -1, 1);
  if (rng.uniform() < 0.2)  // some hide their pair
    for (Real& each : b) each = each > Real(0.5) ? -std::numeric_limits<Real>::infinity() : each;
  return b;
}

void draw_step(Rng& rng, const AttentionSizes& s, Extras& extras) {
  switch (rng.integer(0, 5)) {
    case 0:
      return extras.add("soft-cap",
                        [cap = 0.5 + rng.uniform()](AttentionOptions& o, const Variable*) {
                          o.scores.push_back(soft_cap(cap));
                        });
    case 1:
      return extras.add("ALiBi", [heads = s.heads](AttentionOptions& o, const Variable*) {
        o.scores.push_back(alibi(alibi_slopes(heads)));
      });
    case 2:
      return extras.add(
          "score function", uniform(rng, {s.heads, 8}, -1, 1),
          [](AttentionOptions& o, const Variable& table) {
            const auto f = [](auto e, auto, auto head, auto query, auto key, const auto& p) {
              return e * (1 + 0.5 * tanh(p[0](head, clamp(query - key, 0, 7)))) + p[0](head, 0) / 2;
            };
            o.scores.push_back(score(f, {table}));
          });
    case 3:
      return extras.add("bias", random_bias(rng, s), [](AttentionOptions& o, const Variable& b) {
        o.scores.push_back(bias(b));
      });
    default:
      return extras.add("relative positions",
                        uniform(rng, {one_or(rng, s.heads), 2 * draw(rng, 1, 9) + 1}, -1, 1),
                        [](AttentionOptions& o, const Variable& t) {
                          o.scores.push_back(relative_positions(t));
                        });
  }
}

void draw_dropout(Rng& rng, Extras& extras) {
  extras.add("dropout", [p = 0.7 * rng.uniform(), seed = rng.split().seed()](AttentionOptions& o,
                                                                             const Variable*) {
    thread_local Rng drawn(0);
    drawn = Rng(seed);
    o.dropout = p;
    o.rng = &drawn;
  });
}

Extras random_extras(Rng& rng, const AttentionSizes& s) {
  Extras extras;
  while (rng.uniform() < 0.4) draw_step(rng, s, extras);
  if (rng.uniform() < 0.2)
    extras.add("sink", uniform(rng, {s.heads}, -2, 2),
               [](AttentionOptions& o, const Variable& sink) { o.sink = sink; });
  if (rng.uniform() < 0.2) draw_dropout(rng, extras);
  return extras;
}

// A case of one kernel against `composed`; k may be changed once it is drawn.
struct AttentionCase {
  AttentionSizes sizes;
  std::size_t group;  // heads of queries for each of keys
  std::size_t width, value_width;
  AttentionOptions options;
  AttentionOutput (*kernel)(const AttentionInputs&, const AttentionOptions&);
  std::string about = {};
  Extras extras = {};
};

FusedCase against_composed(const AttentionCase& c, Array q, Array k, Array v) {
  const AttentionSizes s = c.sizes;
  const auto with = [s, c](auto* kernel) {
    return [=](const Inputs& in) {
      return kernel({split_heads(in[0], s.heads), split_heads(in[1], s.heads / c.group),
                     split_heads(in[2], s.heads / c.group)},
                    c.extras.to(c.options, in.data() + 3))
          .output;
    };
  };
  std::vector<Array> inputs{std::move(q), std::move(k), std::move(v)};
  inputs.insert(inputs.end(), c.extras.parameters.begin(), c.extras.parameters.end());
  return {text("batch ", s.batch, ", heads ", s.heads, " in groups of ", c.group, ", queries ",
               s.queries, ", keys ", s.keys, ", widths ", c.width, " and ", c.value_width,
               c.options.mask.hides_nothing() ? ", no mask" : ", masked", c.about, c.extras.about),
          std::move(inputs), with(c.kernel), with(composed_attention)};
}

// 1 in most cases
std::size_t random_group(Rng& rng) { return rng.uniform() < 0.6 ? 1 : draw(rng, 2, 5); }

FusedCase sample_attention(Rng& rng) {
  const std::size_t group = random_group(rng);
  const AttentionSizes s{draw(rng, 1, 4), group * draw(rng, 1, 4), draw(rng, 1, 12),
                         draw(rng, 1, 12)};
  const AttentionCase c{
      s, group, draw(rng, 1, 10), draw(rng, 1, 10), random_options(rng, s), fused_attention};
  Array q = uniform(rng, {s.batch, s.queries, s.heads * c.width}, -2, 2);
  Array k = uniform(rng, {s.batch, s.keys, s.heads / group * c.width}, -2, 2);
  Array v = uniform(rng, {s.batch, s.keys, s.heads / group * c.value_width}, -2, 2);
  spoil_hidden(rng, {c.options.mask, s}, group, k, v);
  return against_composed(c, std::move(q), std::move(k), std::move(v));
}

// Hides whole rectangles, so that some tiles are empty and some queries see nothing.
Mask rectangles_hidden(Rng& rng, const AttentionSizes& s) {
  Bools visible = Bools::from_shape({s.queries, s.keys});
  std::fill_n(visible.data(), visible.size(), true);
  for (int count = 0; count < 3; ++count) {
    const std::size_t first_query = draw(rng, 0, std::int64_t(s.queries)),
                      first_key = draw(rng, 0, std::int64_t(s.keys));
    const std::size_t query_end = std::min(s.queries, first_query + draw(rng, 1, 150)),
                      key_end = std::min(s.keys, first_key + draw(rng, 1, 250));
    for (std::size_t i = first_query; i < query_end; ++i)
      std::fill_n(visible.data() + i * s.keys + first_key, key_end - first_key, false);
  }
  return visible_where(std::move(visible));
}

// Lengths of up to three tiles with every remainder, the head widths of practice and any other,
// empty tiles, and keys whose scores grow, so that each tile raises the running maximum.
FusedCase sample_flash_attention(Rng& rng) {
  constexpr std::array widths{16, 32, 64, 80, 128};
  const auto width = [&] {
    return rng.uniform() < 0.3 ? std::size_t(widths[draw(rng, 0, widths.size())])
                               : draw(rng, 1, 24);
  };
  const auto length = [&](std::size_t tile) {
    return rng.uniform() < 0.5 ? draw(rng, 1, 20) : draw(rng, 1, std::int64_t(3 * tile + 1));
  };
  const std::size_t group = random_group(rng);
  const AttentionSizes s{draw(rng, 1, 3), group * draw(rng, 1, 3), length(flash_queries),
                         length(flash_keys)};
  AttentionCase c{s, group, width(), width(), random_options(rng, s), flash_attention};
  c.extras = random_extras(rng, s);
  if (rng.uniform() < 0.3) c.options.mask = c.options.mask & rectangles_hidden(rng, s);
  const bool grows = rng.uniform() < 0.2;
  c.about = grows ? ", keys that grow" : "";
  Array q = uniform(rng, {s.batch, s.queries, s.heads * c.width}, grows ? 0 : -2, 2);
  Array k = uniform(rng, {s.batch, s.keys, s.heads / group * c.width}, -2, 2);
  Array v = uniform(rng, {s.batch, s.keys, s.heads / group * c.value_width}, -2, 2);
  if (grows) c.options.scale = {};  // each key's scores exceed those of the last by 0.1
  for (std::size_t i = 0; grows && i < k.size(); ++i)
    k.data()[i] +=
        Real(0.1 / std::sqrt(double(c.width))) * Real(i / (s.heads / group * c.width) % s.keys);
  spoil_hidden(rng, {c.options.mask, s}, group, k, v);
  return against_composed(c, std::move(q), std::move(k), std::move(v));
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

// Any of the four weights, kernels of any size, on strips with every remainder.
FusedCase sample_multi_token_attention(Rng& rng) {
  const std::size_t group = random_group(rng), before = draw(rng, 1, 4),
                    after = rng.uniform() < 0.5 ? before : draw(rng, 1, 3);
  const std::size_t heads = std::lcm(std::lcm(before, after), group) * draw(rng, 1, 3);
  const auto length = [&] { return draw(rng, 1, rng.uniform() < 0.8 ? 20 : 150); };
  const std::size_t queries = length(), keys = rng.uniform() < 0.5 ? queries : length();
  const AttentionSizes s{draw(rng, 1, 3), heads, queries, keys};
  const std::size_t width = draw(rng, 1, 9), value_width = draw(rng, 1, 9);
  AttentionOptions options = random_options(rng, s);
  if (rng.uniform() < 0.4) options.mask = options.mask & causal();
  Array k = uniform(rng, {s.batch, s.keys, heads / group * width}, -2, 2);
  Array v = uniform(rng, {s.batch, s.keys, heads / group * value_width}, -2, 2);
  spoil_hidden(rng, {options.mask, s}, group, k, v);
  Extras extras;
  std::vector<Array> inputs{uniform(rng, {s.batch, s.queries, heads * width}, -2, 2), std::move(k),
                            std::move(v)};
  const auto kernel = [&] { return Shape{heads, draw(rng, 1, 7), 2 * draw(rng, 0, 5) + 1}; };
  const Shape shapes[]{
      kernel(), {heads / before, before, before}, kernel(), {heads / after, after, after}};
  std::array<bool, 4> has{};
  for (std::size_t w = 0; w < 4; ++w)
    if ((has[w] = rng.uniform() < 0.6)) inputs.push_back(uniform(rng, shapes[w], -1, 1));
  if (rng.uniform() < 0.2) draw_dropout(rng, extras);
  const auto with = [=](auto* op) {
    return [=](const Inputs& in) {
      TokenMixing mixing;
      Variable* weights[]{&mixing.key_query, &mixing.heads, &mixing.key_query_after,
                          &mixing.heads_after};
      for (std::size_t w = 0, at = 3; w < 4; ++w)
        if (has[w]) *weights[w] = in[at++];
      return op({split_heads(in[0], heads), split_heads(in[1], heads / group),
                 split_heads(in[2], heads / group)},
                mixing, extras.to(options, nullptr));
    };
  };
  return {text("batch ", s.batch, ", heads ", heads, " in groups of ", group, ", queries ",
               s.queries, ", keys ", s.keys, ", weights ", has, extras.about),
          std::move(inputs), with(multi_token_attention), with(composed_multi_token_attention)};
}

}  // namespace

const std::vector<FusedOp>& attention_fused_ops() {
  static const std::vector<FusedOp> table{
      {"attention", sample_attention},
      {"flash_attention", sample_flash_attention},
      {"self_attention", sample_self_attention},
      {"multi_token_attention", sample_multi_token_attention},
  };
  return table;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
