#include "examples/multi_token_attention/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <set>

#include "examples/common/loss_plot.hpp"

namespace {

// Error in per cent over three seeds, of 52 blocks (N = 5) or 35 (N = 8), a model of width 256.
// Source: Golovneva et al., arXiv:2504.00927, table 1.
struct PaperRow {
  std::size_t letters;
  const char *answer, *transformer, *mta;
};
constexpr PaperRow paper_rows[] = {
    {5, "all", "51.6 +- 43.1", "0.1 +- 0.1"},   {5, "first", "78.2 +- 1.5", "0.0 +- 0.0"},
    {5, "last", "1.3 +- 0.4", "0.0 +- 0.0"},    {8, "all", "31.2 +- 50.3", "0.1 +- 0.0"},
    {8, "first", "28.9 +- 24.9", "0.0 +- 0.0"}, {8, "last", "58.4 +- 46.8", "0.0 +- 0.0"}};

std::string paper_figure(const LettersTask::Options& task, const std::string& arm) {
  for (const PaperRow& row : paper_rows)
    if (row.letters == task.letters && row.answer == task.answer && arm != "frozen")
      return arm == "mta" ? row.mta : row.transformer;
  return "-";
}

const Training* find(const Trainings& trainings, const std::string& arm, std::uint64_t seed) {
  for (const auto& t : trainings)
    if (t->arm() == arm && t->seed() == seed) return t.get();
  return nullptr;
}

std::string per_cent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", 100 * part);
  return text;
}

std::string per_cent(const Spread& s) {
  return per_cent(s.mean) + (s.deviation ? " +- " + per_cent(*s.deviation) : "");
}

std::size_t different(const ag::Parameters& a, const ag::Parameters& b) {
  std::size_t count = 0;
  for (const auto& [name, x] : a) {
    const ag::Array &left = x.value(), &right = b.find(name).value();
    for (std::size_t i = 0; i < left.size(); ++i)
      count += std::memcmp(left.data() + i, right.data() + i, sizeof(ag::Real)) != 0;
  }
  return count;
}

Difference difference(const Training& frozen, const Training& baseline) {
  Difference d{frozen.seed(), frozen.step(), {}, 0};
  for (std::size_t i = 0; i < frozen.step() && !d.first_step; ++i)
    if (frozen.losses()[i] != baseline.losses()[i]) d.first_step = i + 1;
  d.weights = different(frozen.parameters(), baseline.parameters());
  return d;
}

void print_errors_by_step(const Settings& s, const Trainings& trainings) {
  std::printf("\nsequences with an error, in per cent of %zu held-out ones\n%8s", s.held_out,
              "step");
  std::set<std::size_t> steps;
  for (const auto& t : trainings) {
    std::printf("  %14s", t->name().c_str());
    for (const Evaluation& e : t->evaluations()) steps.insert(e.step);
  }
  for (const std::size_t step : steps) {
    std::printf("\n%8zu", step);
    for (const auto& t : trainings) {
      std::string cell;
      for (const Evaluation& e : t->evaluations())
        if (e.step == step) cell = per_cent(e.error);
      std::printf("  %14s", cell.c_str());
    }
  }
  std::printf("\n");
}

void print_last_errors(const Settings& s, const Trainings& trainings) {
  std::printf("\nmean of the last three evaluations, mean and standard deviation over seeds\n%12s",
              "");
  for (const std::uint64_t seed : s.seeds) std::printf("  %9s", ag::text("seed ", seed).c_str());
  std::printf("  %14s  %14s\n", "all seeds", "the paper's");
  for (const std::string& arm : s.arms) {
    std::printf("%12s", arm.c_str());
    for (const std::uint64_t seed : s.seeds)
      std::printf("  %9s", per_cent(find(trainings, arm, seed)->last_error()).c_str());
    std::printf("  %14s  %14s\n", per_cent(spread_of(trainings, arm)).c_str(),
                paper_figure(s.task, arm).c_str());
  }
}

// What the paper found, at the size of these trainings.
constexpr double most_of_mta = 0.01, least_of_transformer = 0.2;

std::optional<bool> shown(const Trainings& trainings, std::uint64_t seed) {
  const Training *mta = find(trainings, "mta", seed), *plain = find(trainings, "transformer", seed);
  if (mta == nullptr || plain == nullptr) return std::nullopt;
  return mta->last_error() <= most_of_mta && plain->last_error() >= least_of_transformer;
}

void print_verdict(const Settings& s, const Trainings& trainings) {
  std::printf("\n");
  bool every = true;
  std::size_t count = 0;
  for (const std::uint64_t seed : s.seeds) {
    const std::optional<bool> verdict = shown(trainings, seed);
    if (!verdict) continue;
    ++count;
    every = every && *verdict;
    std::printf(
        "seed %llu, step %zu: MTA %s %%, to be at most 1 %%; Transformer %s %%, to be at "
        "least 20 %%: %s\n",
        static_cast<unsigned long long>(seed), find(trainings, "mta", seed)->step(),
        per_cent(find(trainings, "mta", seed)->last_error()).c_str(),
        per_cent(find(trainings, "transformer", seed)->last_error()).c_str(),
        *verdict ? "shown" : "not shown");
  }
  if (count > 0)
    std::printf("that multi-token attention solves what the Transformer does not is %s%s\n",
                every ? "shown by every seed" : "not shown by every seed",
                s.task.answer == "first" ? "" : " (the limits are meant for --answer first)");
}

void print_difference(const Difference& d) {
  std::printf("seed %llu: frozen and transformer are ", static_cast<unsigned long long>(d.seed));
  if (d.none())
    std::printf("the same in every bit: %zu losses and all weights at the end\n", d.steps);
  else if (d.first_step)
    std::printf("different: in the losses from step %zu on, and in %zu weights at the end\n",
                *d.first_step, d.weights);
  else
    std::printf("different: in %zu weights at the end\n", d.weights);
}

}  // namespace

std::vector<Difference> frozen_differences(const Trainings& trainings) {
  std::vector<Difference> all;
  for (const auto& t : trainings)
    if (t->arm() == "frozen")
      if (const Training* baseline = find(trainings, "transformer", t->seed());
          baseline != nullptr && baseline->step() == t->step())
        all.push_back(difference(*t, *baseline));
  return all;
}

Spread spread_of(const Trainings& trainings, const std::string& arm) {
  std::vector<double> errors;
  for (const auto& t : trainings)
    if (t->arm() == arm) errors.push_back(t->last_error());
  Spread s{0, {}};
  for (const double e : errors) s.mean += e / double(errors.size());
  if (errors.size() < 2) return s;
  double squares = 0;
  for (const double e : errors) squares += (e - s.mean) * (e - s.mean);
  s.deviation = std::sqrt(squares / double(errors.size() - 1));
  return s;
}

void print_report(const Settings& s, const Trainings& trainings) {
  print_errors_by_step(s, trainings);
  print_last_errors(s, trainings);
  print_verdict(s, trainings);
  for (const Difference& d : frozen_differences(trainings)) print_difference(d);
}

void print_json(const Training& t, const Evaluation& e) {
  std::cout << nlohmann::json{{"arm", t.arm()},
                              {"seed", t.seed()},
                              {"step", e.step},
                              {"loss", t.losses()[e.step - 1]},
                              {"error", e.error}}
            << std::endl;
}

void print_json(const Settings& s, const Trainings& trainings) {
  for (const std::string& arm : s.arms) {
    const Spread spread = spread_of(trainings, arm);
    nlohmann::json line{{"arm", arm}, {"mean_error", spread.mean}};
    if (spread.deviation) line["deviation"] = *spread.deviation;
    line["paper_per_cent"] = paper_figure(s.task, arm);
    std::cout << line << "\n";
  }
  for (const std::uint64_t seed : s.seeds)
    if (const auto verdict = shown(trainings, seed))
      std::cout << nlohmann::json{{"seed", seed}, {"shown", *verdict}} << "\n";
  for (const Difference& d : frozen_differences(trainings))
    std::cout << nlohmann::json{{"seed", d.seed},
                                {"steps_compared", d.steps},
                                {"frozen_is_baseline", d.none()},
                                {"different_weights", d.weights}}
              << "\n";
}

void draw_errors(const Settings& s, const Trainings& trainings) {
  std::vector<Curve> curves;
  for (const auto& t : trainings) {
    Curve curve{t->name(), {}, {}};
    curve.colour = std::size_t(std::find(s.arms.begin(), s.arms.end(), t->arm()) - s.arms.begin());
    for (const Evaluation& e : t->evaluations()) {
      curve.steps.push_back(double(e.step));
      curve.losses.push_back(100 * e.error);
    }
    curves.push_back(curve);
  }
  write_loss_plot(s.plot_path,
                  ag::text("Letters in ", s.task.blocks, " blocks of ", s.task.letters,
                           ", answer: ", s.task.answer),
                  curves, {.y = "error, %"});
}
