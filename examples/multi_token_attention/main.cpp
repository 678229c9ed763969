// Multi-token attention beside a Transformer on the task that the paper made for it: to find the
// one block of letters that holds both letters of a question.
#include <algorithm>
#include <filesystem>
#include <numeric>

#include "examples/common/command_line.hpp"
#include "examples/common/jobs.hpp"
#include "examples/common/progress.hpp"
#include "examples/multi_token_attention/report.hpp"

namespace {

// 8: the default, minutes. 16: hours. paper: the paper's own size, weeks on two cores.
Settings preset(const std::string& name) {
  Settings s;
  if (name == "8") return s;
  s.layers = 4;
  s.rate = s.final_rate = 1e-3;
  if (name == "16") {
    s.task.blocks = 16;
    s.steps = 10000;
    s.eval_every = 250;
    return s;
  }
  s.task.blocks = 52;
  s.width = 256;
  s.hidden = 768;
  s.dropout = 0.1;
  s.rate = s.final_rate = 1e-4;
  s.warmup = 1000;
  s.steps = 100000;
  s.eval_every = 1000;
  return s;
}

// A list as it stands; one number: so many, from `first` on.
std::vector<std::uint64_t> seeds_of(const std::vector<std::uint64_t>& given, std::uint64_t first) {
  if (given.size() > 1) return given;
  ag::check_argument(given.at(0) > 0 && given[0] <= 1000, "seeds: one number is how many, from ",
                     "1 to 1000, got ", given[0]);
  std::vector<std::uint64_t> seeds(given[0]);
  std::iota(seeds.begin(), seeds.end(), first);
  return seeds;
}

void add_model_options(Program& program, Settings& s) {
  program.size_option("--blocks", s.task.blocks, "of letters");
  program.size_option("--letters", s.task.letters, "in a block, 2 to 25", 2);
  program.size_option("--layers", s.layers, "blocks of the model");
  program.size_option("--heads", s.heads, "attention heads");
  program.size_option("--width", s.width, "of the model");
  program.size_option("--hidden", s.hidden, "width of the feed-forward part");
}

void add_training_options(Program& program, Settings& s) {
  const auto number = [&](const char* flag, double& value, const char* description,
                          const CLI::Validator& range) {
    program.app.add_option(flag, value, description)->check(range)->capture_default_str();
  };
  number("--dropout", s.dropout, "probability that an attention weight is left out",
         share_below_one());
  program.size_option("--batch", s.batch, "sequences a step");
  program.size_option("--steps", s.steps, "of each training");
  program.size_option("--warmup", s.warmup, "steps of rising rate", 0);
  number("--rate", s.rate, "the highest learning rate", positive());
  number("--final-rate", s.final_rate, "the rate at the last step; a cosine leads there",
         positive());
  program.size_option("--eval-every", s.eval_every, "steps between evaluations");
  program.size_option("--held-out", s.held_out, "sequences to evaluate on");
}

void add_options(Program& program, Settings& s, std::vector<std::uint64_t>& seeds) {
  // the first of all: the options after it, which run in this order, change what it set
  program.app
      .add_option_function<std::string>(
          "--preset", [&s](const std::string& name) { s = preset(name); },
          "sizes, of which the options below change single ones: 8 (the default) or 16 blocks, or "
          "the paper's own")
      ->check(CLI::IsMember({"8", "16", "paper"}));
  program.app
      .add_option("--answer", s.task.answer, "which letters of the block: all, first or last")
      ->check(CLI::IsMember(LettersTask::answers()))
      ->capture_default_str();
  program.app
      .add_option("--arms", s.arms,
                  "what to compare; frozen: multi-token attention whose kernels stay as they "
                  "begin, which must be the transformer bit for bit")
      ->check(CLI::IsMember(arm_names()))
      ->delimiter(',')
      ->capture_default_str();
  program.app
      .add_option("--seeds", seeds, "a list as 42,44, or one number: how many, from --seed on")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 62))
      ->delimiter(',')
      ->capture_default_str();
  program.app.get_option("--seed")->default_val(42)->description("the first seed");
  program.app.get_option("--threads")->description("how many trainings run side by side");
  add_model_options(program, s);
  add_training_options(program, s);
  program.app.add_option("--folder", s.folder,
                         "where each training is kept at every evaluation, and goes on from");
  program.app.add_option("--plot", s.plot_path, "where to draw the errors (SVG)");
}

void print_start(const Settings& s, const Trainings& trainings, bool json) {
  if (!json)
    std::printf("%zu blocks of %zu letters, answer: %s; %zu held-out sequences\n", s.task.blocks,
                s.task.letters, s.task.answer.c_str(), s.held_out);
  for (const auto& t : trainings)
    if (json)
      for (const Evaluation& e : t->evaluations()) print_json(*t, e);
    else
      std::printf("%s: %zu parameters, %zu of %zu steps done\n", t->name().c_str(),
                  t->parameters().count(), t->step(), s.steps);
}

void run(const Settings& s, bool json) {
  const Trainings trainings = make_trainings(s);
  print_start(s, trainings, json);
  std::size_t done = 0;
  for (const auto& t : trainings) done += std::min(t->step(), s.steps);
  Progress progress(trainings.size() * s.steps, done, json);
  train_side_by_side(trainings, [&](const Training& t) {
    const Evaluation* last = t.evaluations().empty() ? nullptr : &t.evaluations().back();
    if (json && last && last->step == t.step()) print_json(t, *last);
    char note[128], error[32] = "";
    if (last) std::snprintf(error, sizeof error, ", error %.1f %%", 100 * last->error);
    std::snprintf(note, sizeof note, "%s: step %zu, loss %.4f%s", t.name().c_str(), t.step(),
                  t.losses().back(), error);
    progress.show(++done, note, double(s.batch), "sequences");
  });
  progress.close();
  if (json)
    print_json(s, trainings);
  else
    print_report(s, trainings);
  if (!s.plot_path.empty()) draw_errors(s, trainings);
  for (const Difference& d : frozen_differences(trainings))
    if (!d.none()) throw std::runtime_error("the frozen arm is not the transformer bit for bit");
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  std::vector<std::uint64_t> seeds{3};
  Program program(
      "Trains a Transformer and multi-token attention to find the block of letters that holds both "
      "letters of a question.");
  add_options(program, s, seeds);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    check_writable(s.plot_path);
    s.seeds = seeds_of(seeds, common.seed);
    check_distinct("seeds", s.seeds);
    check_distinct("arms", s.arms);
    if (!s.folder.empty()) std::filesystem::create_directories(s.folder);
    run(s, common.json);
    return 0;
  });
}
