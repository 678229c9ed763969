#include "layers/fused_ops.hpp"

#include <array>

#include "core/ops/elementwise.hpp"
#include "layers/residual/depth_mix.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using Inputs = std::vector<Variable>;

std::size_t draw(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::size_t(rng.integer(low, high));
}

// Away from 0, where the norm of a row of one number jumps and that of another is steep.
Array random_sources(Rng& rng, const Shape& shape) {
  Array x = uniform(rng, shape, 0.3, 2);
  for (Real& each : x)
    if (rng.uniform() < 0.5) each = -each;
  return x;
}

// Up to nine sources, one of them perhaps twice; rows for several pieces of work; then the query
// and perhaps a gain.
FusedCase sample_depth_mix(Rng& rng) {
  const std::size_t count = draw(rng, 1, 10), width = draw(rng, 1, 24);
  const Shape shape{draw(rng, 1, 3), draw(rng, 1, rng.uniform() < 0.1 ? 150 : 5), width};
  const Real epsilon = Real(std::array{0.0, 1e-12, 1e-5}[draw(rng, 0, 3)]);
  const bool twice = rng.uniform() < 0.2, gain = rng.uniform() < 0.5;
  std::vector<Array> inputs;
  for (std::size_t i = 0; i < count; ++i) inputs.push_back(random_sources(rng, shape));
  inputs.push_back(rng.uniform() < 0.2 ? zeros({width}) : uniform(rng, {width}, -2, 2));
  if (gain) inputs.push_back(uniform(rng, {width}, 0.5, 1.5));

  const auto sources = [=](const Inputs& in) {
    std::vector<Variable> all(in.begin(), in.begin() + std::ptrdiff_t(count));
    if (twice) all.push_back(in[0]);
    return all;
  };
  const auto query = [=](const Inputs& in) { return gain ? in[count] * in[count + 1] : in[count]; };
  return {text(count, " sources ", shape, twice ? ", one twice" : "", gain ? ", gain" : "",
               ", epsilon ", epsilon),
          std::move(inputs),
          [=](const Inputs& in) {
            std::vector<DepthSource> all;
            for (const Variable& value : sources(in)) all.emplace_back(value, epsilon);
            return depth_mix(all, query(in));
          },
          [=](const Inputs& in) { return composed_depth_mix(sources(in), query(in), epsilon); }};
}

}  // namespace

const std::vector<FusedOp>& layer_fused_ops() {
  static const std::vector<FusedOp> table{{"depth_mix", sample_depth_mix}};
  return table;
}

std::vector<FusedOp> fused_ops() {
  std::vector<FusedOp> all = core_fused_ops();
  for (const auto* table : {&attention_fused_ops(), &layer_fused_ops()})
    all.insert(all.end(), table->begin(), table->end());
  return all;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
