// Attention over depth: each position mixes what the layers before have put out, by weights that
// depend on what it holds there. It stands where a residual sum would.
//
// Source: Kimi Team, "Attention Residuals", 2026, arXiv:2603.15031, figure 2 and the definitions of
// the Full form.
#pragma once

#include <vector>

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// A value that mixes read, with 1 / sqrt(mean(value^2) + epsilon) of each row: one pass when it is
// made, and then the same for every mix. Copies share both.
// value: (..., width). With epsilon 0 a row of zeros has an infinite one. Throws ShapeError for a
// value of rank 0, ArgumentError unless epsilon >= 0.
class DepthSource {
 public:
  explicit DepthSource(const Variable& value, Real epsilon = Real(1e-5));

  const Variable& value() const { return value_; }
  const Variable& inverse_rms() const { return inverse_rms_; }  // (rows), a constant
  Real epsilon() const { return epsilon_; }
  // Whether the value has been written to since.
  bool stale() const { return value_.version() != version_; }

 private:
  Variable value_, inverse_rms_;
  std::size_t version_;
  Real epsilon_;
};

// The sources weighted by the softmax, over the sources, of how each normalised one agrees with the
// query, row by row:
//   y = sum_i a_i x_i,  a = softmax_i(sum(query * x_i / sqrt(mean(x_i^2) + epsilon)))
// The values are not normalised, and no 1 / sqrt(width) scales the logits. query: (width); sources
// and y: of one shape (..., width). A query of zeros gives the mean. A gain of the norm would only
// multiply the query: for one, pass query * gain. Saves the sources themselves, one logit per row
// and source, and the sources' inverse_rms. NaN in the rows where an inverse_rms is infinite.
// Throws ArgumentError without sources or where their epsilons differ; ShapeError for other shapes;
// TapeError for a stale source.
Variable depth_mix(const std::vector<DepthSource>& sources, const Variable& query);

// The same from reductions and elementwise ops, which keep several arrays like each source.
Variable composed_depth_mix(const std::vector<Variable>& sources, const Variable& query,
                            Real epsilon = Real(1e-5));

// a alone, for who wants to look at it: (sources, ...), not recorded.
Variable depth_weights(const std::vector<DepthSource>& sources, const Variable& query);

// ---- in two phases, without gradients ---------------------------------------------------------
// Queries that differ in their last source only share one pass over all others. Both phases
// together give depth_mix to rounding, and record nothing.

// A mix to which one more source may be added: log sum exp of its logits says how much it weighs.
struct OpenMix {
  Variable mix;                     // shaped like the sources
  std::vector<double> log_sum_exp;  // one per row
};
// The mix of each query, in one pass over the sources. Throws as depth_mix.
std::vector<OpenMix> open_mixes(const std::vector<DepthSource>& sources,
                                const std::vector<Variable>& queries);
// The mix with one source more, by the rule of the online softmax. Throws as depth_mix.
Variable close_mix(const OpenMix& open, const DepthSource& last, const Variable& query);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
