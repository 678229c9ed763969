#include "examples/compare_gradients/comparison.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/core.hpp"
#include "layers/attention/fused.hpp"
#include "layers/attention/masked_product.hpp"

namespace ag = attngrad;
using ag::Array;
using ag::Real;
using ag::Variable;

namespace {

struct Setup {
  ag::SelfAttentionInputs inputs;
  ag::AttentionOptions options;
  ag::AttentionSizes sizes;
  Array dy;
};

Array draw(ag::Rng& rng, const ag::Shape& shape, bool rounded) {
  Array x = ag::uniform(rng, shape, -1, 1);
  if (rounded)
    for (Real& number : x) number = Real(float(number));
  return x;
}

ag::Mask make_mask(const Problem& p, const ag::AttentionSizes& s) {
  ag::Mask mask;
  if (p.mask == "causal" || p.mask == "both") mask = mask & ag::causal();
  if (p.mask == "random" || p.mask == "both") {
    ag::Rng rng(p.seed + 1000);
    ag::Bools visible = ag::Bools::from_shape({s.batch, s.heads, s.queries, s.keys});
    for (bool& flag : visible) flag = rng.uniform() < 0.7;
    mask = mask & ag::visible_where(visible);
  }
  return mask;
}

Setup set_up(const Problem& p) {
  ag::Rng rng(p.seed);
  const std::size_t query_width = p.width > 1 ? p.width - 1 : 1, value_width = p.width + 1;
  const auto parameter = [&](const ag::Shape& shape) {
    return ag::parameter(draw(rng, shape, p.rounded_to_float));
  };
  Setup setup{.inputs = {.x = parameter({p.batch, p.length, p.width}),
                         .wq = parameter({p.width, p.heads * query_width}),
                         .wk = parameter({p.width, p.heads * query_width}),
                         .wv = parameter({p.width, p.heads * value_width}),
                         .heads = p.heads},
              .options = {},
              .sizes = {p.batch, p.heads, p.length, p.length},
              .dy = draw(rng, {p.batch, p.length, p.heads * value_width}, p.rounded_to_float)};
  setup.options.mask = make_mask(p, setup.sizes);
  return setup;
}

NamedArray named(const std::string& name, const Array& x) { return {name, {x.begin(), x.end()}}; }

template <class Run>
double median_seconds(Run&& run) {
  std::vector<double> seconds;
  for (int i = 0; i < 9; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + 4, seconds.end());
  return seconds[4];
}

std::vector<NamedArray> solve_fused(const Setup& s) {
  const ag::SelfAttentionGradients g =
      ag::fused_self_attention_gradients(s.inputs, s.options, s.dy);
  const Variable y = ag::fused_self_attention(s.inputs, s.options);
  return {named("Y", y.value()), named("dV", g.dv), named("dA", g.weights), named("dE", g.scores),
          named("dQ", g.dq),     named("dK", g.dk), named("dWq", g.dwq),    named("dWk", g.dwk),
          named("dWv", g.dwv),   named("dX", g.dx)};
}

std::vector<NamedArray> solve_automatic(const Setup& s) {
  ag::Tape tape;
  const ag::SelfAttentionParts parts = ag::composed_self_attention_parts(s.inputs, s.options);
  const std::vector<std::pair<std::string, Variable>> wanted{{"dV", parts.v},
                                                             {"dA", parts.attention.weights},
                                                             {"dE", parts.attention.scores},
                                                             {"dQ", parts.q},
                                                             {"dK", parts.k},
                                                             {"dWq", s.inputs.wq},
                                                             {"dWk", s.inputs.wk},
                                                             {"dWv", s.inputs.wv},
                                                             {"dX", s.inputs.x}};
  for (const auto& [name, x] : wanted) tape.watch(x);
  const ag::Gradients gradients = tape.gradients(parts.attention.output, Variable(s.dy));
  std::vector<NamedArray> all{named("Y", parts.attention.output.value())};
  for (const auto& [name, x] : wanted) all.push_back(named(name, gradients.of(x).value()));
  return all;
}

Solution solve(const Problem& problem) {
  const Setup s = set_up(problem);
  Solution solution{solve_fused(s), solve_automatic(s), 0, 0};
  const auto step =
      [&](Variable (*layer)(const ag::SelfAttentionInputs&, const ag::AttentionOptions&)) {
        ag::Tape tape;
        tape.gradients(layer(s.inputs, s.options), Variable(s.dy));
      };
  solution.fused_seconds = median_seconds([&] { step(ag::fused_self_attention); });
  solution.automatic_seconds = median_seconds([&] { step(ag::composed_self_attention); });
  return solution;
}

}  // namespace

#ifndef ATTNGRAD_DOUBLE

Solution solve_in_float(const Problem& problem) { return solve(problem); }

#else

Solution solve_in_double(const Problem& problem) { return solve(problem); }

namespace {

// d sum(f() * dy) / d x, element by element.
Array differences(Variable x, const Array& dy, const std::function<Variable()>& f) {
  const auto loss = [&] { return ag::sum(f() * Variable(dy)).item(); };
  constexpr Real step = 1e-4;
  Array gradient = ag::uninitialized(x.shape());
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    Real& number = x.edit().data()[i];
    const Real before = number;
    // five points, so that the error falls with the fourth power of the step
    const auto at = [&](Real distance) {
      number = before + distance * step;
      return loss();
    };
    gradient.data()[i] = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step);
    number = before;
  }
  return gradient;
}

}  // namespace

std::vector<NamedArray> central_differences(const Problem& problem) {
  const Setup s = set_up(problem);
  const ag::SelfAttentionParts parts = ag::composed_self_attention_parts(s.inputs, s.options);
  const ag::Bools visible = ag::SizedMask(s.options.mask, s.sizes).dense();
  const auto heads = [&](const Variable& x) { return ag::split_heads(x, problem.heads); };
  const auto from_weights = [&] {
    return ag::merge_heads(ag::masked_product(parts.attention.weights, ag::Transpose::no,
                                              ag::gather(heads(parts.v)), visible));
  };
  const auto from_scores = [&] {
    const Variable hidden(-std::numeric_limits<Real>::infinity());
    const Variable weights = ag::softmax(ag::where(visible, parts.attention.scores, hidden));
    return ag::merge_heads(
        ag::masked_product(weights, ag::Transpose::no, ag::gather(heads(parts.v)), visible));
  };
  const auto from_projections = [&] {
    return ag::composed_attention({heads(parts.q), heads(parts.k), heads(parts.v)}, s.options)
        .output;
  };
  const auto from_inputs = [&] { return ag::composed_self_attention(s.inputs, s.options); };
  return {named("dV", differences(parts.v, s.dy, from_projections)),
          named("dA", differences(parts.attention.weights, s.dy, from_weights)),
          named("dE", differences(parts.attention.scores, s.dy, from_scores)),
          named("dQ", differences(parts.q, s.dy, from_projections)),
          named("dK", differences(parts.k, s.dy, from_projections)),
          named("dWq", differences(s.inputs.wq, s.dy, from_inputs)),
          named("dWk", differences(s.inputs.wk, s.dy, from_inputs)),
          named("dWv", differences(s.inputs.wv, s.dy, from_inputs)),
          named("dX", differences(s.inputs.x, s.dy, from_inputs))};
}

#endif
