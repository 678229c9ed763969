#include "layers/attention/kernel.hpp"

#include <cmath>

#include "layers/attention/composed.hpp"
#include "layers/attention/flash.hpp"
#include "layers/attention/fused.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

struct NamedKernel {
  const char* name;
  AttentionOutput (*kernel)(const AttentionInputs&, const AttentionOptions&);
};
constexpr NamedKernel kernel_table[] = {
    {"composed", composed_attention}, {"fused", fused_attention}, {"flash", flash_attention}};

Shape heads_shape(const Heads& h) { return {h.batch, h.heads, h.length, h.width}; }

}  // namespace

std::vector<Variable> AttentionCall::parameters() const {
  std::vector<Variable> all;
  if (sink) all.push_back(*sink);
  for (const auto& step : steps)
    all.insert(all.end(), step->parameters().begin(), step->parameters().end());
  return all;
}

namespace {

// Blocks of four words for the weights of one query.
std::uint64_t row_blocks(const AttentionSizes& s) { return (s.keys + 3) / 4; }

void check_inputs(const AttentionInputs& inputs) {
  const auto& [q, k, v] = inputs;
  check_shape(q.batch == k.batch && q.width == k.width,
              "attention: queries and keys must agree in batch and width, got (batch, heads, "
              "length, width) = ",
              heads_shape(q), " and ", heads_shape(k));
  check_shape(q.heads == 0 ? k.heads == 0 : k.heads > 0 && q.heads % k.heads == 0,
              "attention: heads of queries must be a multiple of those of keys, got ", q.heads,
              " and ", k.heads);
  check_shape(k.batch == v.batch && k.heads == v.heads && k.length == v.length,
              "attention: keys and values must agree in batch, heads and length, got (batch, "
              "heads, length, width) = ",
              heads_shape(k), " and ", heads_shape(v));
  check_heads("queries", q);
  check_heads("keys", k);
  check_heads("values", v);
}

}  // namespace

kernels::DropBlocks AttentionCall::drop_blocks(std::size_t batch, std::size_t head,
                                               std::size_t query, std::size_t key) const {
  const AttentionSizes& s = sizes();
  const std::uint64_t row = (std::uint64_t(batch) * s.heads + head) * s.queries + query;
  return {seed, first_block + row * row_blocks(s) + key / 4, row_blocks(s),
          std::uint32_t(std::min(dropout * 0x1p32, 4294967295.0)),
          dropout == 1 ? 0 : 1 / (1 - dropout)};
}

void AttentionCall::drop_row(std::size_t batch, std::size_t head, std::size_t query, Real* weights,
                             std::size_t keys) const {
  for (std::size_t j = 0; j < keys; j += 4) {
    const kernels::DropBlocks d = drop_blocks(batch, head, query, j);
    const auto words = philox(d.seed, d.first);
    for (std::size_t k = 0; k < 4 && j + k < keys; ++k)
      weights[j + k] = words[k] < d.threshold ? Real(0) : weights[j + k] * Real(d.scale);
  }
}

AttentionCall prepare_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  check_inputs(inputs);
  const AttentionSizes s{inputs.q.batch, inputs.q.heads, inputs.q.length, inputs.k.length};
  AttentionCall call{.mask = SizedMask(options.mask, s),
                     .scale = 1,
                     .steps = options.scores,
                     .sink = options.sink};
  const double width = double(std::max<std::size_t>(1, inputs.q.width));
  call.scale = Real(options.scale.value_or(1 / std::sqrt(width)));
  check_argument(std::isfinite(call.scale), "attention: scale must be finite, got ",
                 options.scale.value_or(0));
  for (const auto& step : options.scores) {
    check_argument(step != nullptr, "attention: a score step is null");
    step->check(s);
  }
  check_shape(!options.sink || options.sink->shape() == Shape{s.heads},
              "attention: the sink must be of shape (heads) = ", Shape{s.heads}, ", got ",
              options.sink ? options.sink->shape() : Shape{});
  check_argument(options.dropout >= 0 && options.dropout <= 1,
                 "attention: dropout must be in [0, 1], got ", options.dropout);
  if (options.rng != nullptr && options.dropout > 0) {
    call.dropout = options.dropout;
    call.seed = options.rng->seed();
    call.first_block = options.rng->skip(s.batch * s.heads * s.queries * row_blocks(s));
  }
  return call;
}

AttentionKernel attention_kernel(const std::string& name) {
  for (const NamedKernel& entry : kernel_table)
    if (name == entry.name) return entry.kernel;
  std::string names;
  for (const std::string& known : attention_kernel_names()) names += " " + known;
  throw ArgumentError("attention_kernel: must be one of" + names + ", got " + name);
}

std::vector<std::string> attention_kernel_names() {
  std::vector<std::string> names;
  for (const NamedKernel& entry : kernel_table) names.emplace_back(entry.name);
  return names;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
