// Single ops, forward and backward, at the shapes of the `small` model (peers/torch_ops.py does the
// same), and what the engine itself costs. `--threads N` beside Google Benchmark's own options.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/core.hpp"
#include "examples/common/command_line.hpp"
#include "optim/optim.hpp"

namespace ag = attngrad;
using ag::Variable;

namespace {

// small: 4 sequences of 256 tokens, 6 heads, width 384, vocabulary 65
constexpr std::size_t batch = 4, heads = 6, context = 256, width = 384, vocabulary = 65,
                      tokens = batch * context, parameter_count = 10770816;

ag::Array random(const ag::Shape& shape, std::uint64_t seed = 1) {
  ag::Rng rng(seed);
  return ag::normal(rng, shape);
}

// Forward and backward of y = f(x) with a given dy.
template <class F>
void differentiate(benchmark::State& state, const F& f, const ag::Shape& shape) {
  const Variable dy(random(shape, 2));
  for (auto _ : state) {
    ag::Tape tape;
    benchmark::DoNotOptimize(tape.gradients(f(), dy));
  }
}

void softmax(benchmark::State& state) {
  const ag::Shape shape{batch, heads, context, context};
  const Variable x = ag::parameter(random(shape));
  differentiate(state, [&] { return ag::softmax(x, -1); }, shape);
}

void layer_norm(benchmark::State& state) {
  const ag::Shape shape{batch, context, width};
  const Variable x = ag::parameter(random(shape)), gain = ag::parameter(ag::ones({width})),
                 shift = ag::parameter(ag::zeros({width}));
  differentiate(state, [&] { return ag::layer_norm(x, gain, shift); }, shape);
}

void gelu(benchmark::State& state) {
  const ag::Shape shape{batch, context, 4 * width};
  const Variable x = ag::parameter(random(shape));
  differentiate(state, [&] { return ag::gelu_tanh(x); }, shape);
}

void cross_entropy(benchmark::State& state) {
  const Variable x = ag::parameter(random({tokens, vocabulary}));
  ag::Rng rng(3);
  const ag::Indices targets = rng.integers(0, vocabulary, {tokens});
  differentiate(state, [&] { return ag::cross_entropy(x, targets); }, {});
}

void embed(benchmark::State& state) {
  const Variable table = ag::parameter(random({vocabulary, width}));
  ag::Rng rng(3);
  const ag::Indices rows = rng.integers(0, vocabulary, {batch, context});
  differentiate(state, [&] { return ag::embedding(table, rows); }, {batch, context, width});
}

void linear(benchmark::State& state) {
  const Variable x = ag::parameter(random({batch, context, width})),
                 w = ag::parameter(random({4 * width, width})),
                 b = ag::parameter(random({4 * width}));
  differentiate(state, [&] { return ag::linear(x, w, b); }, {batch, context, 4 * width});
}

void adamw(benchmark::State& state) {
  const Variable w = ag::parameter(random({parameter_count}));
  ag::Parameters parameters;
  parameters.add("w", w);
  ag::AdamW optimizer(parameters, {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
  ag::Tape tape;
  const ag::Gradients gradients = tape.gradients(w, Variable(random({parameter_count}, 2)));
  for (auto _ : state) optimizer.step(gradients, 1e-3);
}

// One op on a scalar: recorded, differentiated, freed.
void scalar_op(benchmark::State& state) {
  constexpr int chain = 1000;
  const Variable x = ag::parameter(ag::ones({}));
  for (auto _ : state) {
    ag::Tape tape;
    Variable y = x;
    for (int i = 0; i < chain; ++i) y = ag::sin(y);
    benchmark::DoNotOptimize(tape.gradients(y));
  }
  state.SetItemsProcessed(std::int64_t(state.iterations()) * chain);
}

// A chain of elementwise ops, and the loops that it amounts to.
void elementwise(benchmark::State& state) {
  const std::size_t n = std::size_t(state.range(0));
  const Variable a(random({n})), b(random({n}, 2));
  for (auto _ : state) benchmark::DoNotOptimize(a * b + a);
}
void elementwise_loops(benchmark::State& state) {
  const std::size_t n = std::size_t(state.range(0));
  const ag::Array a = random({n}), b = random({n}, 2);
  for (auto _ : state) {
    ag::Array product = ag::uninitialized({n}), sum = ag::uninitialized({n});
    const float *x = a.data(), *y = b.data();
    float *p = product.data(), *s = sum.data();
    for (std::size_t i = 0; i < n; ++i) p[i] = x[i] * y[i];
    for (std::size_t i = 0; i < n; ++i) s[i] = p[i] + x[i];
    benchmark::DoNotOptimize(s);
    benchmark::ClobberMemory();
  }
}

struct Named {
  const char* name;
  void (*run)(benchmark::State&);
};
constexpr Named ops[]{
    {"softmax", softmax}, {"layer_norm", layer_norm},
    {"gelu", gelu},       {"cross_entropy", cross_entropy},
    {"embedding", embed}, {"linear", linear},
    {"adamw", adamw},     {"adamw_fused", adamw}};  // the same, beside the peer's faster kind
constexpr Named chains[]{{"elementwise", elementwise}, {"elementwise_loops", elementwise_loops}};

// Takes --threads N out of the arguments.
void take_threads(int& argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--threads") == 0) {
      char* end = nullptr;
      const long count = std::strtol(argv[i + 1], &end, 10);
      if (end == argv[i + 1] || *end != 0 || count < 1 || count > 1024) {
        std::fprintf(stderr, "--threads: needs a number from 1 to 1024, got %s\n", argv[i + 1]);
        std::exit(2);
      }
      ag::set_threads(int(count));
      for (int j = i; j + 2 <= argc; ++j) argv[j] = argv[j + 2];
      argc -= 2;
      return;
    }
}

}  // namespace

int main(int argc, char** argv) {
  restart_with_better_blas(argv);
  take_threads(argc, argv);
  for (const Named& op : ops)
    benchmark::RegisterBenchmark(op.name, op.run)->UseRealTime()->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("scalar_op", scalar_op)->Unit(benchmark::kMicrosecond);
  for (const Named& op : chains)
    benchmark::RegisterBenchmark(op.name, op.run)
        ->Arg(1000)
        ->Arg(10000)
        ->Arg(1000000)
        ->UseRealTime();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
