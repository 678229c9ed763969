// Attention residuals: a stack of sublayers in which each reads a mix, by weights of its own, of
// what those before it have put out, instead of one running sum.
//
//   AttentionResiduals residuals({.width = 64, .sublayers = 2 * blocks.size()});
//   y = residuals(x, [&](std::size_t i, const Variable& h) {
//     const Block& block = blocks[i / 2];
//     return i % 2 == 0 ? block.attention(block.norm1(h)) : block.feed_forward(block.norm2(h));
//   });
//
// Source: Kimi Team, "Attention Residuals", 2026, arXiv:2603.15031, the Full and the Block form.
#pragma once

#include <optional>
#include <vector>

#include "core/ops/elementwise.hpp"
#include "layers/layer.hpp"
#include "layers/residual/depth_mix.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct DepthMixOptions {
  std::size_t width;
  // Whether the norm of the sources has a gain. It changes the way that training takes and not what
  // can be learned, because only query * gain counts; and it gets no gradient while the query is 0.
  bool gain = false;
};

// depth_mix with a learned query. The query starts at 0, so that every source counts the same, and
// the gain at 1. Within a stack it offers capture() its mix, and "weights": (sources, ...).
struct DepthMix : Layer {
  DepthMixOptions options;
  Variable query;  // (width)
  Variable gain;   // (width), or no value

  explicit DepthMix(const DepthMixOptions& options)
      : options(options),
        query(parameter(zeros({options.width}))),
        gain(options.gain ? parameter(ones({options.width})) : Variable()) {}
  DepthMix(const DepthMixOptions& options, Rng&) : DepthMix(options) {}

  Variable operator()(const std::vector<DepthSource>& sources) const {
    return depth_mix(sources, scaled_query());
  }
  // query * gain: what the op takes.
  Variable scaled_query() const { return gain.holds_value() ? query * gain : query; }

  void visit(auto&& f) {
    f("query", query);
    f("gain", gain);
  }
};

struct AttentionResidualsOptions {
  std::size_t width;
  std::size_t sublayers;  // attention and feed-forward of a transformer block count as two
  // The sublayers are cut into blocks of ceil(sublayers / blocks), of which the last may be
  // shorter; where that leaves none for the last blocks, there are fewer. 1 is a residual sum that
  // keeps the input apart; as many as sublayers, or more, is the Full form.
  std::size_t blocks = 8;
  bool gain = false;          // of every DepthMix
  Real epsilon = Real(1e-5);  // added to the mean squares of the sources; not negative
};

// The mixes of a stack, in front of each sublayer and behind the last. There is no other sum: a
// sublayer is a function f of what it reads, its own norm included, to what it adds.
//
// With b_0 = x and b_n = the sum of what the sublayers of block n put out, the first sublayer of
// block n reads mix(b_0, ..., b_(n-1)), and the others read the sum so far of their own block as
// one source more. The result is the mix of all of b. While all queries are 0 each mix is the mean
// where a residual stack has the sum: where every sublayer, and what reads the result, begins with
// an RMSNorm of a small epsilon, both compute the same.
//
// Throws ArgumentError at construction for no blocks or a negative epsilon.
struct AttentionResiduals : Layer {
  AttentionResidualsOptions options;
  std::vector<DepthMix> inputs;  // one for each sublayer
  DepthMix output;

  explicit AttentionResiduals(const AttentionResidualsOptions& options);
  AttentionResiduals(const AttentionResidualsOptions& options, Rng&)
      : AttentionResiduals(options) {}

  // The result for x: (..., width), where sublayer i puts out f(i, what it reads), shaped like x.
  template <class F>
  Variable operator()(const Variable& x, F&& f) const;

  std::size_t block_size() const;  // sublayers in each block but the last

  void visit(auto&& f) {
    f("inputs", inputs);
    f("output", output);
  }
};

// A run through such a stack, step by step: next() and add() in turns, then result(). While nothing
// records, the mixes of a block share one pass over the blocks before it once there are many of
// these, which changes rounding only. Refers to the layer, which must outlive it.
class ResidualSources {
 public:
  // Throws ShapeError unless x is (..., width).
  ResidualSources(const AttentionResiduals& residuals, const Variable& x);

  // What the next sublayer reads. Throws ArgumentError after the last.
  Variable next();
  // Takes what it puts out, shaped like x (else ShapeError). Throws ArgumentError after the last.
  void add(const Variable& output);
  // The mix behind the last sublayer. Throws ArgumentError before all have been added.
  Variable result() const;

 private:
  void check_not_done(const char* what) const;
  std::vector<DepthSource> sources() const;  // that the next mix reads
  Variable next_in_two_phases();
  Variable mix_of(const DepthMix& mix) const;

  const AttentionResiduals& residuals_;
  std::vector<DepthSource> blocks_;     // x and the sums of the finished blocks
  std::optional<DepthSource> partial_;  // the sum so far of the unfinished one
  std::size_t added_ = 0;
  std::vector<OpenMix> open_;  // over blocks_, for each sublayer of the unfinished one
};

template <class F>
Variable AttentionResiduals::operator()(const Variable& x, F&& f) const {
  ResidualSources sources(*this, x);
  for (std::size_t i = 0; i < options.sublayers; ++i) sources.add(f(i, sources.next()));
  return sources.result();
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
