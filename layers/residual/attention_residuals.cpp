#include "layers/residual/attention_residuals.hpp"

#include <algorithm>

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// Two phases write a mix for each sublayer of a block and read it again, which only many sources
// read once make up for. Measured: as long as one phase with 16 sources of 64 rows of 256, 0.7 of
// it with 32 of 4,096 rows; with 4 they take longer.
constexpr std::size_t worth_two_phases = 16;

const AttentionResidualsOptions& checked(const AttentionResidualsOptions& o) {
  check_argument(o.blocks > 0, "AttentionResiduals: blocks must be positive, got ", o.blocks);
  check_argument(o.epsilon >= 0, "AttentionResiduals: epsilon must not be negative, got ",
                 o.epsilon);
  return o;
}

}  // namespace

AttentionResiduals::AttentionResiduals(const AttentionResidualsOptions& o)
    : options(checked(o)), output({.width = o.width, .gain = o.gain}) {
  for (std::size_t i = 0; i < o.sublayers; ++i)
    inputs.emplace_back(DepthMixOptions{.width = o.width, .gain = o.gain});
}

std::size_t AttentionResiduals::block_size() const {
  return (options.sublayers + options.blocks - 1) / options.blocks;
}

ResidualSources::ResidualSources(const AttentionResiduals& residuals, const Variable& x)
    : residuals_(residuals) {
  const std::size_t width = residuals.options.width;
  check_shape(x.rank() > 0 && x.shape().back() == width, "AttentionResiduals: x must end in ",
              width, ", got ", x.shape());
  blocks_.emplace_back(x, residuals.options.epsilon);
}

void ResidualSources::check_not_done(const char* what) const {
  check_argument(added_ < residuals_.options.sublayers, "AttentionResiduals: ", what,
                 ": all sublayers are done, there are ", residuals_.options.sublayers);
}

std::vector<DepthSource> ResidualSources::sources() const {
  std::vector<DepthSource> all = blocks_;
  if (partial_) all.push_back(*partial_);
  return all;
}

Variable ResidualSources::mix_of(const DepthMix& mix) const {
  return within(residuals_, mix, [&](const DepthMix& m) {
    offer("weights", [&] { return depth_weights(sources(), m.scaled_query()); });
    return m(sources());
  });
}

Variable ResidualSources::next() {
  check_not_done("next");
  if (!recording() && blocks_.size() >= worth_two_phases) return next_in_two_phases();
  return mix_of(residuals_.inputs[added_]);
}

Variable ResidualSources::next_in_two_phases() {
  const std::size_t in_block = added_ % residuals_.block_size();
  if (open_.empty()) {
    const std::size_t first = added_ - in_block,
                      end = std::min(first + residuals_.block_size(), residuals_.inputs.size());
    std::vector<Variable> queries;
    for (std::size_t i = first; i < end; ++i)
      queries.push_back(residuals_.inputs[i].scaled_query());
    open_ = open_mixes(blocks_, queries);
  }
  const OpenMix& open = open_[in_block];
  return within(residuals_, residuals_.inputs[added_], [&](const DepthMix& mix) {
    offer("weights", [&] { return depth_weights(sources(), mix.scaled_query()); });
    return partial_ ? close_mix(open, *partial_, mix.scaled_query()) : open.mix;
  });
}

void ResidualSources::add(const Variable& output) {
  check_not_done("add");
  const Shape& shape = blocks_.front().value().shape();
  check_shape(output.shape() == shape, "AttentionResiduals: sublayer ", added_, " must put out ",
              shape, ", got ", output.shape());
  const DepthSource sum(partial_ ? partial_->value() + output : output, residuals_.options.epsilon);
  if (++added_ % residuals_.block_size() == 0) {
    blocks_.push_back(sum);
    partial_.reset();
    open_.clear();
  } else {
    partial_ = sum;
  }
}

Variable ResidualSources::result() const {
  check_argument(added_ == residuals_.options.sublayers, "AttentionResiduals: result: only ",
                 added_, " of ", residuals_.options.sublayers, " sublayers are done");
  return mix_of(residuals_.output);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
