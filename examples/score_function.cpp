// Attention with score functions of one's own: three of them in a few lines each, trained through
// the flash kernel, checked against generic ops and timed beside the ready-made steps.
//
// No derivative is written here: the slopes come from dual numbers, block by block.
#include <cstdio>

#include "core/core.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/timing.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/flash.hpp"
#include "layers/attention/score_function.hpp"
#include "layers/attention/score_steps.hpp"

namespace ag = attngrad;
using ag::Array;
using ag::Variable;

namespace {

using Step = std::shared_ptr<const ag::ScoreStep>;

struct Settings {
  std::size_t length = 1024, heads = 4, width = 64;
};

// One of the three, and the step of the library that does the same.
struct Entry {
  const char* name;
  Step mine, ready;
};

std::vector<Entry> three(std::size_t heads, ag::Rng& rng) {
  const std::vector<double> slopes = ag::alibi_slopes(heads);
  const Variable slope = ag::constant(ag::array_of(slopes, {heads}));
  const Step alibi = ag::score([](auto e, auto, auto head, auto query, auto key,
                                  const auto& p) { return e - p[0](head) * abs(query - key); },
                               {slope});

  const Step capped =
      ag::score([](auto e, auto, auto, auto, auto, const auto&) { return 5 * tanh(e / 5); });

  static constexpr std::ptrdiff_t reach = 64;
  const Variable table = ag::parameter(ag::normal(rng, {heads, 2 * reach + 1}));
  const Step distances = ag::score(
      [](auto e, auto, auto head, auto query, auto key, const auto& p) {
        return e + p[0](head, clamp(key - query, -reach, reach) + reach);
      },
      {table});

  return {{"ALiBi", alibi, ag::alibi(slopes)},
          {"soft-cap", capped, ag::soft_cap(5)},
          {"learned distances", distances, ag::relative_positions(table)}};
}

// The output and every gradient of causal attention with a step.
class Attention {
 public:
  Attention(const Settings& s, ag::Rng& rng) : s_(s) {
    for (Variable* x : {&q_, &k_, &v_})
      *x = ag::parameter(ag::normal(rng, {1, s.length, s.heads * s.width}));
    slope_ = Variable(ag::normal(rng, {1, s.length, s.heads * s.width}));
  }

  std::vector<Array> run(const ag::AttentionKernel& kernel, const Step& step) const {
    ag::Tape tape;
    const auto heads = [&](const Variable& x) { return ag::split_heads(x, s_.heads); };
    const Variable y =
        kernel({heads(q_), heads(k_), heads(v_)}, {.mask = ag::causal(), .scores = {step}}).output;
    const ag::Gradients gradients = tape.gradients(y, slope_);
    std::vector<Array> all{y.value()};
    for (const Variable& x : {q_, k_, v_}) all.push_back(gradients.of(x).value());
    for (const Variable& x : step->parameters())
      if (x.needs_grad()) all.push_back(gradients.of(x).value());
    return all;
  }

 private:
  Settings s_;
  Variable q_, k_, v_, slope_;
};

double largest_difference(const std::vector<Array>& a, const std::vector<Array>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, ag::relative_difference(a[i], b[i]));
  return worst;
}

// The median over rounds of how many times longer the first takes than the second, in turns.
double time_ratio(const std::function<void()>& first, const std::function<void()>& second) {
  std::vector<double> ratios;
  for (int round = 0; round < 7; ++round)
    ratios.push_back(time_of(first, 0.05, 2).median_ms / time_of(second, 0.05, 2).median_ms);
  return summary_of(ratios).median_ms;
}

int compare(const Settings& s, const CommonOptions& common) {
  ag::Rng rng(common.seed);
  const Attention attention(s, rng);
  double worst = 0;
  if (!common.json)
    std::printf("%-18s %24s %26s\n", "", "against generic ops", "time / ready-made step's");
  for (const Entry& entry : three(s.heads, rng)) {
    const double difference = largest_difference(attention.run(ag::flash_attention, entry.mine),
                                                 attention.run(ag::composed_attention, entry.mine));
    const double ratio = time_ratio([&] { attention.run(ag::flash_attention, entry.mine); },
                                    [&] { attention.run(ag::flash_attention, entry.ready); });
    worst = std::max(worst, difference);
    if (common.json)
      std::printf("%s\n",
                  nlohmann::json{
                      {"function", entry.name}, {"difference", difference}, {"time_ratio", ratio}}
                      .dump()
                      .c_str());
    else
      std::printf("%-18s %24.1e %26.2f\n", entry.name, difference, ratio);
  }
  return worst < 1e-3 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program("Attention with score functions of one's own, checked and timed.");
  program.size_option("--length", s.length, "queries and keys");
  program.size_option("--heads", s.heads, "heads");
  program.size_option("--width", s.width, "of each head");
  return program.run(argc, argv, [&](const CommonOptions& common) { return compare(s, common); });
}
