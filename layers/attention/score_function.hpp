// score(f, parameters): a score step made of a function of one score, which the kernels run on
// blocks and differentiate by themselves.
//
//   const auto distance_bias = score(
//       [](auto e, auto batch, auto head, auto query, auto key, const auto& p) {
//         return e + p[0](head, clamp(query - key, 0, 31)) / p[1](0);
//       },
//       {table, temperature});
//
// f is generic, because it is called with several types. e is the score, a number: + - * / with
// numbers, reals and indices, and abs, exp, log, tanh, sigmoid, minimum, maximum, clamp. batch,
// head, query and key are indices, counted from 0: + - * with each other and with integers, and
// abs, minimum, maximum, clamp. p[i](indices...) is an element of parameter i, one index for each
// axis, a number too. Everything goes for 16 queries at once, so f must not branch on a score or a
// query.
//
// The derivatives, by e and by the elements of the parameters, come from dual numbers: beside its
// value each number carries its slopes by e and by every element that f has read. `composed` calls
// f with Variables, so the tape checks them.
#pragma once

#include <algorithm>
#include <array>

#include "layers/attention/score_grid.hpp"
#include "layers/attention/score_reads.hpp"
#include "layers/attention/score_step.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

template <class F>
class ScoreFunction final : public ScoreStep {
 public:
  ScoreFunction(F f, std::vector<Variable> parameters)
      : ScoreStep(std::move(parameters)), f_(std::move(f)) {
    for (const Variable& x : this->parameters()) learned_.push_back(x.needs_grad());
  }

  void check(const AttentionSizes&) const override {}

  void forward(const AttentionSizes&, const ScoreBlock<Real>& scores) const override {
    const std::vector<ScoreParameter> in_memory = parameters_in_memory();
    run_wide([&] {
      for_each_lanes(scores, [&](std::size_t i, std::size_t j) {
        ScoreReads reads(in_memory);
        Real* at = scores.row(j) + i;
        call<0>(scores, i, j, at, reads).value.store(at);
      });
    });
  }

  void backward(const AttentionSizes&, const ScoreBlock<const Real>& before,
                const ScoreBlock<Real>& gradient, Real* const* gradients) const override {
    if (gradient.queries == 0 || gradient.keys == 0) return;
    const std::vector<ScoreParameter> in_memory = parameters_in_memory();
    ScoreReads reads(in_memory);  // how many: the same all over the block
    call<0>(gradient, 0, 0, before.row(0), reads);
    switch (reads.count()) {
      case 0:
        return backward_of<1>(in_memory, before, gradient, gradients);
      case 1:
        return backward_of<2>(in_memory, before, gradient, gradients);
      case 2:
        return backward_of<3>(in_memory, before, gradient, gradients);
      case 3:
      case 4:
        return backward_of<5>(in_memory, before, gradient, gradients);
      default:
        return backward_of<1 + ScoreReads::most>(in_memory, before, gradient, gradients);
    }
  }

  Variable composed(const AttentionSizes& s, const Variable& scores,
                    const std::vector<Variable>& parameters) const override {
    const auto grid = [](std::size_t count, std::size_t axis) { return IndexGrid(count, axis); };
    const Variable y = f_(scores, grid(s.batch, 0), grid(s.heads, 1), grid(s.queries, 2),
                          grid(s.keys, 3), GridParameters(parameters));
    return y.shape() == scores.shape() ? y : broadcast_to(y, scores.shape());
  }

 private:
  std::vector<ScoreParameter> parameters_in_memory() const {
    std::vector<ScoreParameter> all;
    for (std::size_t i = 0; i < learned_.size(); ++i) {
      const Variable& x = this->parameters()[i];
      all.push_back({x.value().data(), &x.shape(), learned_[i]});
    }
    return all;
  }

  // Calls body(i, j) for the first of each 16 queries and every key.
  template <class Body>
  static void for_each_lanes(const ScorePlace& p, Body&& body) {
    for (std::size_t j = 0; j < p.keys; ++j)
      for (std::size_t i = 0; i < p.queries; i += score_lanes) body(i, j);
  }

  template <std::size_t slopes>
  ScoreNumber<slopes> call(const ScorePlace& p, std::size_t i, std::size_t j, const Real* scores,
                           ScoreReads& reads) const {
    ScoreNumber<slopes> e{Lanes::load(scores), {}};
    if constexpr (slopes > 0) e.slope[0] = Lanes(1.0);
    // queries beyond the last are the last once more
    const IndexLanes query(std::int32_t(p.first_query + i),
                           std::int32_t(p.first_query + p.queries));
    return f_(e, std::ptrdiff_t(p.batch), std::ptrdiff_t(p.head), query,
              std::ptrdiff_t(p.first_key + j), NumberParameters<slopes>(reads));
  }

  template <std::size_t slopes>
  void backward_of(const std::vector<ScoreParameter>& in_memory,
                   const ScoreBlock<const Real>& before, const ScoreBlock<Real>& gradient,
                   Real* const* gradients) const {
    std::array<ScoreSum, slopes> sums;  // by read
    const auto one = [&](std::size_t i, std::size_t j) {
      ScoreReads reads(in_memory);
      const ScoreNumber<slopes> y = call<slopes>(gradient, i, j, before.row(j) + i, reads);
      const Lanes g = Lanes::load(gradient.row(j) + i);
      chain_lanes(g, y.slope[0]).store(gradient.row(j) + i);
      const std::size_t count = std::min(score_lanes, gradient.queries - i);
      for (std::size_t k = 0; k + 1 < slopes && k < reads.count(); ++k)
        sums[k].add(chain_lanes(g, y.slope[1 + k]), count, reads[k], gradients);
    };
    run_wide([&] { for_each_lanes(gradient, one); });
    for (ScoreSum& sum : sums) sum.flush();
  }

  F f_;
  std::vector<bool> learned_;  // of the parameters
};

// The step. Where f reads outside of a parameter, its use throws ArgumentError; f is also called
// for pairs that a mask hides, so indices are clamped where need be. Throws ArgumentError too if f
// reads more than 8 elements for one score.
template <class F>
std::shared_ptr<const ScoreStep> score(F f, std::vector<Variable> parameters = {}) {
  return std::make_shared<ScoreFunction<F>>(std::move(f), std::move(parameters));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
