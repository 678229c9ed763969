// Attention and RotaryEmbedding.
#include <limits>
#include <memory>

#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/flash.hpp"
#include "layers/attention/rotary.hpp"
#include "layers/attention/score_steps.hpp"
#include "onnx_conformance/call.hpp"
#include "onnx_conformance/compare.hpp"

namespace conformance {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// x as (batch, heads, length, width): of rank 4 as it comes, of rank 3 with its heads side by side.
Variable with_heads(const Variable& x, std::ptrdiff_t heads, const char* attribute) {
  if (x.rank() == 4) return x;
  if (heads <= 0) throw std::invalid_argument(ag::text(attribute, " is left out"));
  return gather(ag::split_heads(x, std::size_t(heads)));
}

ag::Heads heads_of(const Variable& x) {
  const Shape& s = x.shape();
  return {x, s[0], s[1], s[2], s[3], 0, s[1] * s[2] * s[3], s[2] * s[3], s[3]};
}

// The operator's arguments in the library's form.
struct Arguments {
  Variable q, k, v;  // with the past; (batch, heads, length, width)
  ag::Mask mask = {};
  std::optional<Variable> bias = {};  // what a mask of numbers adds to the scores
  ag::ScoreSteps cap = {};            // none or one
  std::optional<double> scale = {};

  ag::AttentionInputs inputs() const { return {heads_of(q), heads_of(k), heads_of(v)}; }
  ag::AttentionSizes sizes() const {
    return {q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]};
  }
  ag::AttentionOptions options() const {
    ag::AttentionOptions all{.mask = mask, .scale = scale, .scores = cap};
    if (bias) all.scores.push_back(ag::bias(*bias));
    return all;
  }
};

// attn_mask with four axes, and as long as there are keys: a shorter one hides those that follow.
Variable whole_mask(const Call& call, const Value& given, std::size_t keys) {
  Variable x = given.variable();
  while (x.rank() < 4) x = ag::expand_dims(x, 0);
  const std::size_t length = x.shape()[3];
  if (call.opset() < 24 || length >= keys) return x;
  return ag::pad(x, {{0, 0}, {0, 0}, {0, 0}, {0, keys - length}},
                 given.flags() ? 0 : Real(-infinity));
}

ag::Mask causal_mask(const Call& call, const ag::AttentionSizes& sizes) {
  if (call.has(4)) return ag::causal(std::ptrdiff_t(call.value(4).shape()[2]));
  std::vector<std::ptrdiff_t> offsets = call.list(6).value_or(std::vector<std::ptrdiff_t>{});
  if (offsets.empty()) return ag::causal(0);
  for (std::ptrdiff_t& offset : offsets) offset -= std::ptrdiff_t(sizes.queries);
  return ag::causal(offsets);
}

Arguments arguments_of(const Call& call) {
  const std::ptrdiff_t q_heads = call.integer("q_num_heads", 0),
                       kv_heads = call.integer("kv_num_heads", 0);
  Arguments all{.q = with_heads(call[0], q_heads, "q_num_heads"),
                .k = with_heads(call[1], kv_heads, "kv_num_heads"),
                .v = with_heads(call[2], kv_heads, "kv_num_heads")};
  if (call.has(4)) all.k = ag::concatenate({call[4], all.k}, 2);
  if (call.has(5)) all.v = ag::concatenate({call[5], all.v}, 2);
  all.scale = call.number("scale");
  if (const double cap = call.number("softcap", 0); cap > 0) all.cap = {ag::soft_cap(cap)};
  if (call.flag("is_causal")) all.mask = all.mask & causal_mask(call, all.sizes());
  if (const auto lengths = call.list(6))
    all.mask = all.mask & ag::key_lengths({lengths->begin(), lengths->end()});
  if (!call.has(3)) return all;
  const Variable mask = whole_mask(call, call.value(3), all.k.shape()[2]);
  if (call.value(3).flags())
    all.mask = all.mask & ag::visible_where(Value(mask).bools());
  else
    all.bias = mask;
  return all;
}

// The optional fourth output: 0 the scaled products, 1 capped, 2 with the masks added, 3 weights.
Variable scores_on_the_way(const Arguments& arguments, std::ptrdiff_t mode) {
  const ag::AttentionInputs inputs = arguments.inputs();
  if (mode == 3) return ag::composed_attention_parts(inputs, arguments.options()).weights;
  // ours leaves masks out of the scores; ONNX adds them as -infinity
  ag::AttentionOptions options = arguments.options();
  options.mask = {};
  if (mode == 1) options.scores = arguments.cap;
  if (mode == 2) {
    const Bools shown = ag::SizedMask(arguments.mask, arguments.sizes()).dense();
    const Variable hidden = ag::where(shown, Variable(Real(0)), Variable(Real(-infinity)));
    options.scores.push_back(ag::bias(hidden));
  }
  const ag::AttentionParts parts = ag::composed_attention_parts(inputs, options);
  return mode == 0 ? parts.raw : parts.scores;
}

std::vector<Value> attention(const Call& call) {
  const std::ptrdiff_t precision = call.integer("softmax_precision", 1);
  if (precision != 1 && precision != 11)  // float and double
    throw Skip(ag::text("softmax_precision ", precision));
  const Arguments arguments = arguments_of(call);
  const ag::AttentionInputs inputs = arguments.inputs();
  const ag::AttentionOptions options = arguments.options();
  Variable y = ag::flash_attention(inputs, options).output;
  for (const char* kernel : {"composed", "fused"}) {
    if (kernel == std::string("fused") && !options.scores.empty()) continue;  // it has no steps
    const Variable other = ag::attention_kernel(kernel)(inputs, options).output;
    const Comparison both = compare(ag::text("flash against ", kernel), y, {"", other});
    if (!both.failure.empty()) throw std::runtime_error(both.failure);
  }
  if (call[0].rank() == 4) y = gather(ag::split_heads(y, arguments.q.shape()[1]));
  const std::ptrdiff_t mode = call.integer("qk_matmul_output_mode", 0);
  std::vector<Value> outputs{y, arguments.k, arguments.v};
  if (call.wants(3)) outputs.push_back(scores_on_the_way(arguments, mode));
  return outputs;
}

// (positions, pairs), where the caches of a call without position_ids follow one another.
Array cache_rows(const Variable& cache) {
  return ag::reshape(cache, {-1, std::ptrdiff_t(cache.shape().back())}).value();
}

std::vector<Value> rotary_embedding(const Call& call) {
  const Variable x = call[0];
  const bool rank4 = x.rank() == 4;
  const std::ptrdiff_t given_heads = call.integer("num_heads", 0);
  const Variable rows = rank4 ? ag::merge_heads(x) : x;
  const std::size_t batch = rows.shape()[0], time = rows.shape()[1];
  const std::size_t heads = rank4 ? x.shape()[1] : std::size_t(given_heads);
  if (heads == 0) throw std::invalid_argument("num_heads is left out");
  const ag::RotaryPairs pairs =
      call.flag("interleaved") ? ag::RotaryPairs::neighbours : ag::RotaryPairs::halves;
  const std::size_t width = rows.shape()[2] / heads;
  const std::size_t turned = std::size_t(call.integer("rotary_embedding_dim", 0));
  const auto table = std::make_shared<const ag::RotaryTable>(
      ag::RotaryTable{cache_rows(call[1]), cache_rows(call[2])});
  if (const std::size_t pairs_given = table->cosine.shape()[1];
      pairs_given * 2 != (turned == 0 ? width : turned))
    throw std::invalid_argument(ag::text("the caches have ", pairs_given, " columns"));
  Indices positions = ag::positions_from(0, batch * time);
  positions.reshape({batch, time});
  if (call.has(3)) positions = call.value(3).indices();
  const Variable y = ag::rotary(rows, heads, width, table, pairs, positions);
  return {rank4 ? gather(ag::split_heads(y, heads)) : y};
}

}  // namespace

void add_attention(Mappings& mappings) {
  mappings["Attention"] = attention;
  mappings["RotaryEmbedding"] = rotary_embedding;
}

}  // namespace conformance
