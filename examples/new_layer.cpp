// A user's own op with an analytic backward, checked, put into a layer, and trained.
//
// The op is the swish of Ramachandran, Zoph, Le, "Searching for activation functions", 2017, with a
// learned steepness:
//   y = x s(b x)    s(u) = 1 / (1 + exp(-u))    b: one number per channel, the last axis
#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/core.hpp"
#include "layers/layers.hpp"
#include "optim/optim.hpp"

namespace ag = attngrad;
using ag::Array;
using ag::Real;
using ag::Variable;

// What the op computes, from ops that exist: its second derivative, and what the backward is
// checked against.
Variable composed_swish(const Variable& x, const Variable& steepness) {
  return x * ag::sigmoid(x * steepness);
}

Variable swish(const Variable& x, const Variable& steepness) {
  // checks
  ag::check_shape(x.rank() > 0 && steepness.shape() == ag::Shape{x.size(-1)},
                  "swish: steepness must be (", x.rank() > 0 ? x.size(-1) : 0, "), got ",
                  steepness.shape());
  // forward
  const std::size_t width = steepness.size();
  const Real* b = steepness.value().data();
  Array y = ag::uninitialized(x.shape());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const Real v = x.value().data()[i];
    y.data()[i] = v / (1 + std::exp(-b[i % width] * v));
  }
  // backward: y' = s + b x s (1 - s) with respect to x, and x^2 s (1 - s) with respect to b
  const auto backward = [x, steepness, width](const Array& gy) {
    Array gx = ag::uninitialized(x.shape()), gb = ag::zeros(steepness.shape());
    for (std::size_t i = 0; i < gx.size(); ++i) {
      const Real v = x.value().data()[i], slope = steepness.value().data()[i % width];
      const Real s = 1 / (1 + std::exp(-slope * v));
      gx.data()[i] = gy.data()[i] * (s + slope * v * s * (1 - s));
      gb.data()[i % width] += gy.data()[i] * v * v * s * (1 - s);
    }
    return ag::list_of(std::move(gx), std::move(gb));
  };
  const auto composed = [](const std::vector<Variable>& in) {
    return composed_swish(in[0], in[1]);
  };
  return ag::record_joint("swish", Variable(std::move(y)), {x, steepness}, backward, composed);
}

// A layer is a struct with its parameters, a call operator, and a list of its members by name.
struct Swish : ag::Layer {
  Variable steepness;

  explicit Swish(std::size_t width) : steepness(ag::parameter(ag::ones({width}))) {}
  Variable operator()(const Variable& x) const { return swish(x, steepness); }
  void visit(auto&& f) { f("steepness", steepness); }
};

// Compares the analytic backward with the composed form, which the engine differentiates by itself,
// and (in the double library) gradient and second derivative with central differences.
bool check(ag::Rng& rng) {
  const std::vector<Array> inputs{ag::uniform(rng, {5, 3}, -2, 2), ag::uniform(rng, {3}, 0.5, 1.5)};
  const ag::Function fused = [](const auto& in) { return swish(in[0], in[1]); };
  const ag::Function composed = [](const auto& in) { return composed_swish(in[0], in[1]); };
  const ag::Comparison difference = ag::compare_functions(fused, composed, inputs);
  // differences need wide steps in float: this finds mistakes, not rounding
  const bool wide = sizeof(Real) == 4;
  const ag::GradcheckResult result = ag::gradcheck(
      fused, inputs,
      {.step = wide ? 1e-2 : 1e-5, .tolerance = wide ? 1e-2 : 1e-7, .order = wide ? 1 : 2});
  std::cerr << "analytic against automatic: largest relative difference " << difference.gradient
            << "; against central differences: " << result.worst << result.message << "\n";
  return difference.gradient < 1e-5 && result;
}

int main(int argc, char** argv) {
  CLI::App app("A user's own op with an analytic backward: checked, put into a layer, trained.");
  std::uint64_t seed = 1;
  int threads = ag::threads();
  bool json = false;
  app.add_option("--seed", seed, "of everything random")->capture_default_str();
  app.add_option("--threads", threads, "for the kernels")->check(CLI::Range(1, 1024));
  app.add_flag("--json", json, "print the training as one JSON object a line");
  CLI11_PARSE(app, argc, argv);
  ag::set_threads(threads);
  ag::Rng rng(seed);
  if (!check(rng)) return 1;

  // y = sin(3 x) on 64 points
  ag::Sequential model(ag::Linear({.in = 1, .out = 32}, rng), Swish(32),
                       ag::Linear({.in = 32, .out = 1}, rng));
  const ag::Parameters parameters = ag::parameters(model);
  const Array points = ag::uniform(rng, {64, 1}, -1, 1);
  const Variable x(points), target(ag::sin(Variable(points) * Real(3)).value());
  ag::Adam optimizer(parameters);
  for (int step = 0; step <= 500; ++step) {
    ag::Tape tape;
    const Variable loss = ag::mean_square(model(x), target);
    optimizer.step(tape.gradients(loss), 0.01);
    if (step % 100 != 0) continue;
    if (json)
      std::cout << nlohmann::json{{"step", step}, {"loss", loss.item()}} << "\n";
    else
      std::cout << "step " << step << "  loss " << loss.item() << "\n";
    if (step == 500 && loss.item() > 0.01) return 1;
  }
}
