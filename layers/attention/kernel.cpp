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

SizedMask check_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
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
  check_argument(std::isfinite(Real(attention_scale(inputs, options))),
                 "attention: scale must be finite, got ", attention_scale(inputs, options));
  return SizedMask(options.mask, {q.batch, q.heads, q.length, k.length});
}

double attention_scale(const AttentionInputs& inputs, const AttentionOptions& options) {
  return options.scale.value_or(1 / std::sqrt(double(std::max<std::size_t>(1, inputs.q.width))));
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
