#include "examples/attention_residuals/cost.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <iostream>

#include "examples/attention_residuals/training.hpp"
#include "examples/common/timing.hpp"

namespace {

constexpr std::size_t rounds = 21, vocabulary = 65;

struct Measured {
  std::string arm;
  Trainer trainer;
  std::vector<double> times = {};  // ms, one a round
  double mebibytes = 0;
};

double milliseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

Windows random_batch(const Settings& s, ag::Rng& rng) {
  std::vector<std::int64_t> tokens(8 * s.context);
  for (std::int64_t& token : tokens) token = rng.integer(0, std::int64_t(vocabulary));
  return random_windows(tokens, s.batch, s.context, rng);
}

// How much more is alive at the peak of a step than before it.
double peak_of(const std::function<void()>& step) {
  const std::size_t before = ag::memory_report().bytes_alive;
  ag::pool_reset_peak();
  step();
  return double(ag::memory_report().most_bytes_alive - before) / (1 << 20);
}

void print_row(const Measured& arm, const Measured* plain, bool json) {
  const Timing time = summary_of(arm.times);
  double ratio = NAN;
  if (plain != nullptr) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < arm.times.size(); ++i)
      ratios.push_back(arm.times[i] / plain->times[i]);
    ratio = summary_of(ratios).median_ms;
  }
  const std::size_t count = arm.trainer.parameters.count();
  if (json) {
    nlohmann::json line{{"arm", arm.arm},
                        {"parameters", count},
                        {"step_ms", time.median_ms},
                        {"least_step_ms", time.least_ms},
                        {"peak_mebibytes", arm.mebibytes}};
    if (plain != nullptr)
      line["time_ratio"] = ratio, line["memory_ratio"] = arm.mebibytes / plain->mebibytes;
    std::cout << line << "\n";
    return;
  }
  std::printf("%10s  %10zu  %8.1f  %8.1f", arm.arm.c_str(), count, time.median_ms, time.least_ms);
  if (plain != nullptr)
    std::printf("  %8.3f", ratio);
  else
    std::printf("  %8s", "");
  std::printf("  %8.1f", arm.mebibytes);
  if (plain != nullptr) std::printf("  %6.3f", arm.mebibytes / plain->mebibytes);
  std::printf("\n");
}

}  // namespace

void print_cost(const Settings& s, std::uint64_t seed, bool json) {
  std::deque<Measured> all;
  for (const std::string& arm : s.arms) {
    ag::Rng weights(seed);
    all.push_back({arm, Trainer(model_options(s, arm, vocabulary), weights)});
  }
  ag::Rng rng(seed);
  for (std::size_t round = 0; round <= rounds; ++round) {
    const Windows batch = random_batch(s, rng);
    for (Measured& arm : all) {
      const auto step = [&] { arm.trainer.step(batch, 1e-4); };
      if (round == 0) {  // warms up; the step after it takes what every other takes
        step();
        arm.mebibytes = peak_of(step);
      } else {
        arm.times.push_back(milliseconds_of(step));
      }
    }
  }
  const auto plain = std::find_if(all.begin(), all.end(),
                                  [](const Measured& arm) { return arm.arm == plain_arm; });
  if (!json)
    std::printf(
        "a training step: width %zu, %zu blocks, context %zu, batch %zu, %d threads; %zu rounds\n"
        "%10s  %10s  %8s  %8s  %8s  %8s  %6s\n",
        s.width, s.layers, s.context, s.batch, ag::threads(), rounds, "arm", "parameters", "ms",
        "least", "ratio", "MiB", "ratio");
  for (const Measured& arm : all) print_row(arm, plain == all.end() ? nullptr : &*plain, json);
}
