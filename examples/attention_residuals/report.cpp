#include "examples/attention_residuals/report.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <optional>

#include "examples/attention_residuals/heat_map.hpp"
#include "examples/common/loss_plot.hpp"

namespace {

// The outcomes of one arm at one rate, one for each seed.
using Seeds = std::vector<const Outcome*>;

Seeds seeds_of(const std::vector<Outcome>& outcomes, const std::string& arm, double rate) {
  Seeds found;
  for (const Outcome& outcome : outcomes)
    if (outcome.job.arm == arm && outcome.job.rate == rate) found.push_back(&outcome);
  return found;
}

// The mean over seeds of a number or a list.
double mean_of(const Seeds& seeds, const std::function<double(const Outcome&)>& number) {
  double sum = 0;
  for (const Outcome* outcome : seeds) sum += number(*outcome);
  return sum / double(seeds.size());
}
std::vector<double> mean_of(const Seeds& seeds, std::vector<double> DepthProfile::* list) {
  std::vector<double> mean((seeds[0]->profile.*list).size());
  for (std::size_t i = 0; i < mean.size(); ++i)
    mean[i] = mean_of(seeds, [&](const Outcome& o) { return (o.profile.*list)[i]; });
  return mean;
}

// arm - plain, seed by seed, with the standard error of the mean: NaN for one seed.
struct Gap {
  double mean, error;
};
Gap gap_of(const Seeds& arm, const Seeds& plain, std::size_t evaluation) {
  std::vector<double> gaps;
  for (std::size_t i = 0; i < arm.size(); ++i)
    gaps.push_back(arm[i]->losses[evaluation] - plain[i]->losses[evaluation]);
  double mean = 0, squares = 0;
  for (const double gap : gaps) mean += gap / double(gaps.size());
  for (const double gap : gaps) squares += (gap - mean) * (gap - mean);
  const double n = double(gaps.size());
  return {mean, gaps.size() > 1 ? std::sqrt(squares / (n - 1) / n) : NAN};
}

struct Row {
  std::string arm;
  std::size_t step;
  double loss;
  std::optional<Gap> gap;
};

Row row_of(const std::vector<Outcome>& outcomes, const std::string& arm, double rate,
           std::size_t evaluation) {
  const Seeds seeds = seeds_of(outcomes, arm, rate), plain = seeds_of(outcomes, plain_arm, rate);
  Row row{arm, seeds[0]->steps[evaluation],
          mean_of(seeds, [&](const Outcome& o) { return o.losses[evaluation]; }), std::nullopt};
  if (arm != plain_arm && !plain.empty()) row.gap = gap_of(seeds, plain, evaluation);
  return row;
}

void print_json_row(const Row& row, double rate, std::size_t seeds) {
  nlohmann::json line{{"rate", rate},
                      {"arm", row.arm},
                      {"step", row.step},
                      {"seeds", seeds},
                      {"mean_validation_loss", row.loss}};
  if (row.gap) {
    line["gap"] = row.gap->mean;
    if (std::isfinite(row.gap->error)) line["gap_error"] = row.gap->error;
  }
  std::cout << line << "\n";
}

void print_cell(const Row& row) {
  std::printf("  %9.4f", row.loss);
  if (!row.gap) return;
  std::printf(" %+8.4f", row.gap->mean);
  if (std::isfinite(row.gap->error))
    std::printf(" +- %.4f", row.gap->error);
  else
    std::printf("%10s", "");
}

void print_losses(const Settings& s, const std::vector<Outcome>& outcomes, double rate, bool json) {
  const std::size_t evaluations = outcomes.front().steps.size();
  if (!json) {
    std::printf(
        "\nrate %g, %zu seed%s: validation loss, and its gap to %s with standard error\n%8s", rate,
        s.seeds, s.seeds == 1 ? "" : "s", plain_arm, "step");
    for (const std::string& arm : s.arms)
      std::printf("  %9s%*s", arm.c_str(), row_of(outcomes, arm, rate, 0).gap ? 19 : 0, "");
    std::printf("\n");
  }
  for (std::size_t e = 0; e < evaluations; ++e) {
    if (!json) std::printf("%8zu", outcomes.front().steps[e]);
    for (const std::string& arm : s.arms) {
      const Row row = row_of(outcomes, arm, rate, e);
      json ? print_json_row(row, rate, s.seeds) : print_cell(row);
    }
    if (!json) std::printf("\n");
  }
}

double spread(const std::vector<double>& x) {
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  return *most / *least;
}

void print_depth(const Settings& s, const std::vector<Outcome>& outcomes, double rate, bool json) {
  if (json) {
    for (const Outcome& o : outcomes)
      if (o.job.rate == rate) {
        nlohmann::json line{{"rate", rate}, {"arm", o.job.arm}, {"seed", o.job.seed}};
        line["profile"] = o.profile;
        std::cout << line << "\n";
      }
    return;
  }
  std::printf(
      "\nby depth: rms of the sum that a sublayer adds to, of what a sublayer reads, first to "
      "last;\n"
      "gradient norm of the blocks' parameters, first to last, and the largest over the least\n");
  for (const std::string& arm : s.arms) {
    const Seeds seeds = seeds_of(outcomes, arm, rate);
    const auto states = mean_of(seeds, &DepthProfile::states),
               reads = mean_of(seeds, &DepthProfile::reads),
               gradients = mean_of(seeds, &DepthProfile::gradients);
    std::printf(
        "%10s  sum %6.2f to %6.2f (x %5.1f)  read %5.2f to %6.2f  gradient %.3f to %.3f (x %.1f)\n",
        arm.c_str(), states.front(), states.back(), states.back() / states.front(), reads.front(),
        reads.back(), gradients.front(), gradients.back(), spread(gradients));
  }
}

// ---- plots ------------------------------------------------------------------------------------

std::string stem_of(const Settings& s, double rate) {
  return s.rates.size() == 1 ? s.plot_prefix : ag::text(s.plot_prefix, "-", rate);
}

void draw_losses(const Settings& s, const std::vector<Outcome>& outcomes, double rate) {
  std::vector<Curve> curves;
  for (const std::string& arm : s.arms) {
    Curve curve{arm, {}, {}};
    for (std::size_t e = 0; e < outcomes.front().steps.size(); ++e) {
      const Row row = row_of(outcomes, arm, rate, e);
      curve.steps.push_back(double(row.step));
      curve.losses.push_back(row.loss);
    }
    curves.push_back(std::move(curve));
  }
  write_loss_plot(stem_of(s, rate) + "-loss.svg",
                  ag::text("Validation loss at rate ", rate, ", mean over ", s.seeds, " seeds"),
                  curves, {.x = "step", .y = "loss"});
}

struct DepthPlot {
  std::vector<double> DepthProfile::* list;
  const char *name, *title;
  AxisLabels labels;
};

void draw_by_depth(const Settings& s, const std::vector<Outcome>& outcomes, double rate,
                   const DepthPlot& plot) {
  std::vector<Curve> curves;
  for (const std::string& arm : s.arms) {
    Curve curve{arm, {}, mean_of(seeds_of(outcomes, arm, rate), plot.list)};
    for (std::size_t i = 1; i <= curve.losses.size(); ++i) curve.steps.push_back(double(i));
    curves.push_back(std::move(curve));
  }
  write_loss_plot(stem_of(s, rate) + plot.name, plot.title, curves, plot.labels);
}

void draw_weights(const Settings& s, const std::vector<Outcome>& outcomes, double rate) {
  for (const std::string& arm : s.arms) {
    const Outcome& first = *seeds_of(outcomes, arm, rate).front();
    if (first.profile.weights.empty()) continue;
    write_depth_weights(ag::text(stem_of(s, rate), "-weights-", arm, ".svg"),
                        ag::text("Depth weights of ", arm, ", seed ", first.job.seed),
                        first.profile.weights);
  }
}

}  // namespace

void print_report(const Settings& s, const std::vector<Outcome>& outcomes, bool json) {
  for (const double rate : s.rates) {
    print_losses(s, outcomes, rate, json);
    print_depth(s, outcomes, rate, json);
  }
}

void draw_plots(const Settings& s, const std::vector<Outcome>& outcomes) {
  for (const double rate : s.rates) {
    draw_losses(s, outcomes, rate);
    draw_by_depth(s, outcomes, rate,
                  {&DepthProfile::states,
                   "-state.svg",
                   "The sum that each sublayer has added to",
                   {.x = "sublayer", .y = "root mean square"}});
    draw_by_depth(s, outcomes, rate,
                  {&DepthProfile::reads,
                   "-read.svg",
                   "What each sublayer reads",
                   {.x = "sublayer", .y = "root mean square"}});
    draw_by_depth(s, outcomes, rate,
                  {&DepthProfile::gradients,
                   "-gradient.svg",
                   "Gradient of the parameters of each block",
                   {.x = "block of the transformer", .y = "norm"}});
    draw_weights(s, outcomes, rate);
  }
}
