#include "layers/attention/attention_scores.hpp"

#include "layers/attention/fused.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

const AttentionScoresOptions& checked(const AttentionScoresOptions& o) {
  check_argument(!(o.alibi && o.relative_reach),
                 "attention: ALiBi and learned relative positions both say how distance counts; "
                 "choose one");
  check_argument(o.dropout >= 0 && o.dropout <= 1, "attention: dropout must be in [0, 1], got ",
                 o.dropout);
  return o;
}

}  // namespace

AttentionScores::AttentionScores(const AttentionScoresOptions& o, std::size_t heads)
    : options(checked(o)),
      heads(heads),
      relative_table(o.relative_reach ? parameter(zeros({heads, 2 * *o.relative_reach + 1}))
                                      : Variable()),
      sink(o.sink == Sink::learned ? parameter(zeros({heads})) : Variable()) {
  if (o.soft_cap) fixed_.push_back(attngrad::soft_cap(*o.soft_cap));
  if (o.alibi) fixed_.push_back(attngrad::alibi(alibi_slopes(heads)));
}

AttentionOptions AttentionScores::operator()(const Mask& mask, Rng* rng) const {
  AttentionOptions call{.mask = mask, .scale = options.scale, .scores = fixed_};
  if (options.relative_reach) call.scores.push_back(relative_positions(relative_table));
  call.scores.insert(call.scores.end(), options.steps.begin(), options.steps.end());
  if (options.sink == Sink::zero) call.sink = Variable(zeros({heads}));
  if (options.sink == Sink::learned) call.sink = sink;
  call.dropout = options.dropout;
  call.rng = rng;
  return call;
}

void check_kernel(const char* layer, const AttentionKernel& kernel,
                  const AttentionScoresOptions& o) {
  check_argument(kernel != nullptr, layer, ": needs a kernel");
  using Function = AttentionOutput (*)(const AttentionInputs&, const AttentionOptions&);
  const Function* known = kernel.target<Function>();
  const bool plain = !o.soft_cap && !o.alibi && !o.relative_reach && o.steps.empty() &&
                     o.sink == Sink::none && o.dropout == 0;
  check_argument(plain || known == nullptr || *known != fused_attention, layer,
                 ": fused_attention takes masks and scales only, no soft-cap, biases, score steps, "
                 "sink or dropout; flash_attention and composed_attention take all of them");
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
