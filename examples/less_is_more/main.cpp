// LessIsMore on recall: models that find a value beside its key, decoded from a part of the cache
// that all heads choose together, that each head chooses for itself, or that is a window.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "examples/common/command_line.hpp"
#include "examples/common/jobs.hpp"
#include "examples/common/progress.hpp"
#include "examples/less_is_more/decode_time.hpp"
#include "examples/less_is_more/report.hpp"
#include "examples/less_is_more/training.hpp"

namespace {

struct Settings {
  TrainingSettings training;
  std::size_t seeds = 4, cases = 1500;
  std::vector<std::size_t> records{32, 64, 128}, budgets{8, 16, 32, 64, 128, 256};
  ag::SelectionOptions selection;
  DecodeTimeSettings decode_time;
  bool only_time = false, no_time = false;
  std::string plot_path;
};

void add_list(Program& program, const char* flag, std::vector<std::size_t>& list,
              const char* description) {
  program.app.add_option(flag, list, description)
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20))
      ->delimiter(',')
      ->capture_default_str();
}

// A second step is learned late, from few records and at a low rate: 10 minutes for two models.
void choose_chain(Settings& s) {
  s.training.chain = true;
  s.training.most_steps = 10000;
  s.training.rate = s.training.final_rate = 1e-3;
  s.training.enough = 0.9;
  s.records = {16};
  s.budgets = {4, 6, 8, 12, 32};
  s.seeds = 2;
  s.no_time = true;
}

void add_options(Program& program, Settings& s) {
  // the first of all: the options after it, which run in this order, change what it set
  program.app.add_flag_callback(
      "--chain", [&s] { choose_chain(s); },
      "ask for the value of a value, whose place is unknown at first: among 16 records, 2 models");
  program.size_option("--seeds", s.seeds, "how many models, from --seed on");
  program.size_option("--most-steps", s.training.most_steps, "of a training");
  program.size_option("--cases", s.cases, "questions to each method");
  add_list(program, "--records", s.records,
           "that a prompt holds, at most as many as models learn with");
  add_list(program, "--budgets", s.budgets, "of tokens that a sparse layer reads");
  program.size_option("--sinks", s.selection.sinks, "first tokens that are always read", 0);
  program.app
      .add_option("--recent", s.selection.recent_share,
                  "the share of a budget for sinks and the last tokens")
      ->check(share())
      ->capture_default_str();
  add_list(program, "--contexts", s.decode_time.contexts, "for the time of a token");
  add_list(program, "--time-budgets", s.decode_time.budgets, "for the time of a token");
  program.app.add_flag("--only-time", s.only_time, "the time of a token alone");
  program.app.add_flag("--no-time", s.no_time, "all but the time of a token")
      ->excludes("--only-time");
  program.app.add_option("--folder", s.training.folder,
                         "where trained models are kept, and taken from");
  program.app.add_option("--plot", s.plot_path, "where to draw the hit rates (SVG)");
  program.app.get_option("--threads")->description("how many trainings run side by side");
}

// The paper's roles in a model of four layers; those with a second choice before the last layer;
// and a first layer that chooses and reads only what it chose, which the paper has not: there
// the answer depends on what was chosen.
std::vector<RoleSetting> role_settings(const TrainingSettings& s) {
  std::vector<RoleSetting> settings{{"select at layer 1", ag::decode_roles(s.layers, {1})}};
  if (s.chain) settings.push_back({"select at layers 1, 2", ag::decode_roles(s.layers, {1, 2})});
  settings.push_back({"select at layer 0, sparse", ag::decode_roles(s.layers, {0}), true});
  if (s.chain)
    for (const std::size_t again : {std::size_t{1}, std::size_t{2}})
      settings.push_back({ag::text("select at layers 0, ", again, ", sparse"),
                          ag::decode_roles(s.layers, {0, again}), true});
  return settings;
}

std::vector<Method> methods_of(const Settings& s, const std::vector<RoleSetting>& settings) {
  std::vector<Method> methods{{"dense", s.selection}};
  for (const RoleSetting& setting : settings)
    for (const std::string& name : ag::selector_names())
      for (const std::size_t budget : s.budgets) {
        Method method{setting.name, s.selection};
        method.selection.budget = budget;
        method.selection.selector = ag::selector_named(name);
        methods.push_back(method);
      }
  return methods;
}

Trainings trained(const Settings& s, std::uint64_t first_seed, bool quiet) {
  Trainings all;
  for (std::size_t i = 0; i < s.seeds; ++i)
    all.push_back(std::make_unique<Training>(s.training, first_seed + i));
  Progress progress(s.seeds * s.training.most_steps, 0, quiet);
  std::size_t done = 0;
  train_side_by_side(all, [&](const Training& t) {
    char note[96];
    std::snprintf(note, sizeof note, "seed %llu: step %zu, %zu records, loss %.3f, right %.2f",
                  static_cast<unsigned long long>(t.seed()), t.step(), t.records(), t.loss(),
                  t.accuracy());
    progress.show(++done, note, 1, "steps");
  });
  progress.close();
  for (const auto& t : all)
    if (!quiet)
      std::printf("seed %llu: %zu parameters, %zu steps, %zu records, right %.3f\n",
                  static_cast<unsigned long long>(t->seed()), t->parameter_count(), t->step(),
                  t->records(), t->accuracy());
  return all;
}

void compare_methods(const Settings& s, std::uint64_t first_seed, bool json) {
  const std::vector<RoleSetting> settings = role_settings(s.training);
  std::vector<SeedResult> results;
  for (const auto& training : trained(s, first_seed, json)) {
    SeedResult result{training->seed(), {}};
    for (const std::size_t records : s.records)
      for (Measurement& m : evaluate(training->model(), {.task = RecallTask(s.training.chain),
                                                         .records = records,
                                                         .cases = s.cases,
                                                         .settings = settings,
                                                         .methods = methods_of(s, settings),
                                                         .seed = training->seed()}))
        result.measurements.push_back(std::move(m));
    results.push_back(std::move(result));
  }
  if (json) {
    print_json(results);
  } else {
    print_tables(results, settings);
    if (!s.training.chain) print_verdict(results, settings);
  }
  if (!s.plot_path.empty()) draw_hits(s.plot_path, results, settings.front());
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program("Trains recall models and decodes them from a part of the cache (LessIsMore).");
  add_options(program, s);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    check_writable(s.plot_path);
    for (const std::size_t records : s.records)
      ag::check_argument(records <= s.training.records && (!s.training.chain || records % 2 == 0),
                         "records: at most ", s.training.records, ", of a chain even, got ",
                         records);
    check_distinct("records", s.records);
    check_distinct("budgets", s.budgets);
    if (!s.training.folder.empty()) std::filesystem::create_directories(s.training.folder);
    if (!s.only_time) compare_methods(s, common.seed, common.json);
    if (!s.no_time) print_decode_times(time_decoding(s.decode_time), common.json);
    return 0;
  });
}
