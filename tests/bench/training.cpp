// Our side of peers/torch_gpt.py: the same model, optimiser and batches' shapes, timed per step.
#include <chrono>
#include <cstdio>
#include <map>

#include "core/core.hpp"
#include "examples/common/command_line.hpp"
#include "layers/layers.hpp"
#include "optim/optim.hpp"
#include "timer.hpp"

namespace ag = attngrad;

namespace {

struct Config {
  std::size_t layers, heads, width, context, batch, vocabulary;
};
const std::map<std::string, Config> configs{{"micro", {2, 2, 32, 16, 8, 65}},
                                            {"tiny", {4, 4, 128, 64, 12, 65}},
                                            {"small", {6, 6, 384, 256, 4, 65}},
                                            {"long", {2, 4, 128, 2048, 1, 65}}};

struct Settings {
  std::string config = "tiny", optimizer = "adamw", kernel = "flash";
  std::size_t steps = 50, warmup = 5;
  bool forward_only = false;
};

// The multiplications and additions of a step's matrix products. Attention's are counted by the
// usual convention: two products of half a square forward, 2.5 times that backward.
double product_flop(const Config& c, bool forward_only) {
  const double each = 12.0 * double(c.layers * c.width * c.width) + double(c.vocabulary * c.width);
  const double attention = 2.0 * double(c.layers * c.width * c.context);
  const double tokens = double(c.batch * c.context);
  return tokens * (forward_only ? 2 * each + attention : 6 * each + 3.5 * attention);
}

std::unique_ptr<ag::Optimizer> make_optimizer(const Settings& s, const ag::Parameters& parameters) {
  if (s.optimizer == "sgd") return std::make_unique<ag::Sgd>(parameters);
  return std::make_unique<ag::AdamW>(parameters, ag::AdamWOptions{.beta1 = 0.9,
                                                                  .beta2 = 0.95,
                                                                  .epsilon = 1e-8,
                                                                  .weight_decay = 0.1,
                                                                  .decays = ag::decay_all});
}

struct Measured {
  Timing step;
  double first_loss, last_loss;
  std::size_t page_faults, system_allocations;  // of all timed steps
};

Measured measure(const Settings& s, const Config& c, const ag::Transformer& model,
                 ag::Optimizer& optimizer, ag::Rng& rng) {
  const double rate = s.optimizer == "adamw" ? 1e-3 : 0.1;
  const auto system_allocations = [] { return ag::pool_statistics().system_allocations; };
  std::vector<double> times;
  Measured m{};
  for (std::size_t step = 0; step < s.warmup + s.steps; ++step) {
    const auto vocabulary = std::int64_t(c.vocabulary);
    const ag::Indices tokens = rng.integers(0, vocabulary, {c.batch, c.context});
    const ag::Indices targets = rng.integers(0, vocabulary, {c.batch, c.context});
    if (step == s.warmup) {
      m.page_faults = minor_page_faults();
      m.system_allocations = system_allocations();
    }
    const auto begin = std::chrono::steady_clock::now();
    if (s.forward_only) {
      m.last_loss = double(ag::cross_entropy(model(tokens), targets).item());
    } else {
      ag::Tape tape;
      const ag::Variable loss = ag::cross_entropy(model(tokens), targets);
      optimizer.step(tape.gradients(loss), rate);
      m.last_loss = double(loss.item());
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (step == 0) m.first_loss = m.last_loss;
    if (step >= s.warmup) times.push_back(1e3 * took.count());
  }
  m.page_faults = minor_page_faults() - m.page_faults;
  m.system_allocations = system_allocations() - m.system_allocations;
  m.step = summary_of(std::move(times));
  return m;
}

int run(const Settings& s, const CommonOptions& common) {
  const Config c = configs.at(s.config);
  ag::Rng rng(common.seed);
  ag::Transformer model({.vocabulary = c.vocabulary,
                         .context = c.context,
                         .width = c.width,
                         .heads = c.heads,
                         .layers = c.layers,
                         .activation = ag::gelu_tanh,
                         .kernel = ag::attention_kernel(s.kernel)},
                        rng);
  const ag::Parameters parameters = ag::parameters(model);
  const Measured m = measure(s, c, model, *make_optimizer(s, parameters), rng);
  const double steps = double(s.steps);
  const nlohmann::json line{{"config", s.config},
                            {"threads", ag::threads()},
                            {"optimizer", s.optimizer},
                            {"kernel", s.kernel},
                            {"forward_only", s.forward_only},
                            {"parameters", parameters.count()},
                            {"step_ms", m.step.median_ms},
                            {"step_ms_min", m.step.least_ms},
                            {"step_ms_max", m.step.most_ms},
                            {"tokens_per_s", double(c.batch * c.context) / m.step.median_ms * 1e3},
                            {"first_loss", m.first_loss},
                            {"last_loss", m.last_loss},
                            {"page_faults_per_step", double(m.page_faults) / steps},
                            {"system_allocations_per_step", double(m.system_allocations) / steps},
                            {"products_at_sgemm_rate_ms",
                             product_flop(c, s.forward_only) / sgemm_gflops(ag::threads()) / 1e6},
                            {"peak_rss_mib", peak_resident_mib()}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  std::vector<std::string> names;
  for (const auto& [name, config] : configs) names.push_back(name);
  Program program("Times the training steps of a small GPT.");
  program.app.add_option("--config", s.config, "the size of the model")
      ->check(CLI::IsMember(names));
  program.app.add_option("--optimizer", s.optimizer, "how to step")
      ->check(CLI::IsMember({"adamw", "sgd"}));
  program.app.add_option("--kernel", s.kernel, "composed, fused or flash");
  program.size_option("--steps", s.steps, "that are timed");
  program.size_option("--warmup", s.warmup, "steps before them");
  program.app.add_flag("--forward", s.forward_only, "no tape, no gradients");
  return program.run(argc, argv, [&](const CommonOptions& common) { return run(s, common); });
}
