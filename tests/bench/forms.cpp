// Every form of attention beside the plain causal kernel at the same shape: masks, biases, shared
// heads, dropout, a score function. In turns, because the clock of a machine changes.
#include <cstdio>

#include "core/core.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/timing.hpp"
#include "layers/attention/flash.hpp"
#include "layers/attention/score_function.hpp"
#include "layers/attention/score_steps.hpp"

namespace ag = attngrad;
using ag::Variable;

namespace {

struct Settings {
  std::size_t length = 4096, heads = 8, width = 64, rounds = 5;
};

struct Form {
  const char* name;
  ag::AttentionOptions options;
  std::size_t key_heads;
};

// Documents of a quarter of the length each.
ag::Indices four_documents(std::size_t length) {
  ag::Indices ids = ag::Indices::from_shape({length});
  for (std::size_t i = 0; i < length; ++i) ids.data()[i] = std::int64_t(4 * i / length);
  return ids;
}

// Every other block of keys on and below the diagonal.
ag::Bools checkered(std::size_t blocks) {
  ag::Bools shown = ag::Bools::from_shape({blocks, blocks});
  for (std::size_t i = 0; i < blocks; ++i)
    for (std::size_t j = 0; j < blocks; ++j) shown.data()[i * blocks + j] = (i + j) % 2 == 0;
  return shown;
}

std::vector<Form> all_forms(const Settings& s, ag::Rng& rng) {
  const ag::Mask causal = ag::causal();
  const std::size_t all = s.heads;
  const Variable bias = ag::parameter(ag::normal(rng, {1, s.heads, s.length, s.length})),
                 table = ag::parameter(ag::normal(rng, {s.heads, 129})),
                 sink = ag::parameter(ag::normal(rng, {s.heads}));
  const auto distances =
      ag::score([](auto e, auto, auto head, auto query, auto key,
                   const auto& p) { return e + p[0](head, clamp(key - query, -64, 64) + 64); },
                {table});
  return {
      {"plain causal", {.mask = causal}, all},
      {"not causal", {}, all},
      {"window of 256", {.mask = ag::sliding_window(255, 0)}, all},
      {"four packed documents", {.mask = causal & ag::documents(four_documents(s.length))}, all},
      {"every other block of 192",
       {.mask = causal & ag::block_sparse(checkered((s.length + 191) / 192), 192)},
       all},
      {"2 key heads", {.mask = causal}, std::max<std::size_t>(1, s.heads / 4)},
      {"bias, with its gradient", {.mask = causal, .scores = {ag::bias(bias)}}, all},
      {"soft-cap", {.mask = causal, .scores = {ag::soft_cap(30)}}, all},
      {"ALiBi", {.mask = causal, .scores = {ag::alibi(ag::alibi_slopes(s.heads))}}, all},
      {"relative positions", {.mask = causal, .scores = {ag::relative_positions(table)}}, all},
      {"score function of the same", {.mask = causal, .scores = {distances}}, all},
      {"sink", {.mask = causal, .sink = sink}, all},
      {"dropout 0.1", {.mask = causal, .dropout = 0.1, .rng = &rng}, all}};
}

// Forward and backward of one form.
class Attention {
 public:
  Attention(const Settings& s, ag::Rng& rng) : s_(s) {
    for (Variable* x : {&q_, &k_, &v_})
      *x = ag::parameter(ag::normal(rng, {1, s.length, s.heads * s.width}));
    dy_ = Variable(ag::normal(rng, {1, s.length, s.heads * s.width}));
  }

  double run(const Form& form) const {
    return time_of(
               [&] {
                 ag::Tape tape;
                 const auto keys = [&](const Variable& x) {
                   return ag::heads_at(x, form.key_heads, s_.width, 0);
                 };
                 const ag::AttentionInputs in{ag::split_heads(q_, s_.heads), keys(k_), keys(v_)};
                 tape.gradients(ag::flash_attention(in, form.options).output, dy_);
               },
               0, 1)
        .median_ms;
  }

 private:
  Settings s_;
  Variable q_, k_, v_, dy_;
};

int measure(const Settings& s, const CommonOptions& common) {
  ag::Rng rng(common.seed);
  const Attention attention(s, rng);
  const std::vector<Form> forms = all_forms(s, rng);
  if (!common.json)
    std::printf("1x%zux%zux%zu, forward and backward, %d threads\n%-28s %9s %14s\n", s.heads,
                s.length, s.width, ag::threads(), "form", "ms", "plain = 1");
  for (const Form& form : forms) {
    std::vector<double> times, ratios;
    for (std::size_t round = 0; round < s.rounds; ++round) {
      const double plain = attention.run(forms[0]), mine = attention.run(form);
      times.push_back(mine);
      ratios.push_back(mine / plain);
    }
    const double ms = summary_of(times).median_ms, ratio = summary_of(ratios).median_ms;
    if (common.json)
      std::printf(
          "%s\n",
          nlohmann::json{{"name", form.name}, {"fwd_bwd_ms", ms}, {"ratio", ratio}}.dump().c_str());
    else
      std::printf("%-28s %9.1f %14.2f\n", form.name, ms, ratio);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program("Times every form of attention beside the plain causal kernel.");
  program.size_option("--length", s.length, "queries and keys");
  program.size_option("--heads", s.heads, "heads of queries");
  program.size_option("--width", s.width, "of each head");
  program.size_option("--rounds", s.rounds, "of each form beside the plain one");
  return program.run(argc, argv, [&](const CommonOptions& common) { return measure(s, common); });
}
