#include "layers/attention/multi_token_decode.hpp"

#include "core/kernels/gemm.hpp"
#include "core/ops/shape.hpp"
#include "core/parallel.hpp"
#include "layers/attention/multi_token_unit.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// The mask with `rows` queries in front, that see the keys of before.
Mask behind(const Mask& mask, std::size_t rows, const Continuation& continuation) {
  const auto without = [rows](AttentionSizes s) {
    s.queries -= rows;
    return s;
  };
  const auto keys = [=, ranges = mask.ranges()](const AttentionSizes& s, std::size_t row,
                                                std::size_t query) {
    if (query < rows) return KeyRange{0, continuation.past[row]};
    KeyRange seen{0, s.keys};
    for (const Mask::RangeRule& rule : ranges) {
      const KeyRange one = rule.keys(without(s), row, query - rows);
      seen = {std::max(seen.begin, one.begin), std::min(seen.end, one.end)};
    }
    return seen;
  };
  const auto check = [=, ranges = mask.ranges()](const AttentionSizes& s) {
    for (const Mask::RangeRule& rule : ranges) rule.check(without(s));
  };
  return Mask(Mask::RangeRule{keys, check, true});
}

// The heads with `rows` vectors of 0 in front.
Heads with_rows_before(const Heads& heads, std::size_t rows) {
  return split_heads(merge_heads(pad(gather(heads), {{0, 0}, {0, 0}, {rows, 0}, {0, 0}})),
                     heads.heads);
}

}  // namespace

TokenRows::TokenRows(const TokenMixing& mixing, std::size_t batch, std::size_t heads,
                     std::size_t capacity)
    : scores(zeros({batch, heads, reach(mixing.key_query), capacity})),
      weights(zeros({batch, heads, reach(mixing.key_query_after), capacity})) {}

Variable multi_token_decode(const AttentionInputs& inputs, const TokenMixing& mixing,
                            const AttentionOptions& options, const Continuation& rows,
                            TokenRows& known) {
  const Pause nothing_recorded;
  const std::size_t begin = std::max(reach(mixing.key_query), reach(mixing.key_query_after));
  AttentionOptions all = options;
  all.mask = behind(options.mask, begin, rows);
  const AttentionInputs padded{with_rows_before(inputs.q, begin), inputs.k, inputs.v};
  const MultiTokenCall call{padded, prepare_attention(padded, all), mixing};
  const AttentionSizes& s = call.call.sizes();
  Array y = zeros({s.batch, s.queries, s.heads * inputs.v.width});
  const std::size_t heads = heads_of_unit(call), units = s.heads / heads;
  TokenRows next = known;
  const double operations = 2.0 * double(s.batch * s.heads * s.queries * s.keys) *
                            double(inputs.q.width + inputs.v.width);
  const kernels::SingleThreadedBlas guard;
  parallel_for(
      s.batch * units,
      [&](std::size_t task) {
        const std::size_t row = task / units, end = begin + rows.counts[row];
        if (end == begin) return;
        const Unit unit(call, row, task % units * heads, heads);
        const Unit::Strip strip = unit.run(begin, end, rows.length(row), &known);
        unit.add_output(*strip.last, begin, end, y);
        if (reach(mixing.key_query) > 0) unit.keep_last(*strip.raw, next.scores);
        if (reach(mixing.key_query_after) > 0) unit.keep_last(*strip.weights, next.weights);
      },
      operations);
  known = std::move(next);
  return slice(Variable(std::move(y)), 1, {.start = std::ptrdiff_t(begin)});
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
