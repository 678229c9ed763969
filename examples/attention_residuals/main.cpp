// Attention residuals against a residual sum, in a deep and narrow character model: losses over
// paired seeds, norms and gradients by depth, the weights of the depth, and what a step costs.
//
// Source: Kimi Team, "Attention Residuals", 2026, arXiv:2603.15031, at the size of a CPU.
#include <filesystem>
#include <iostream>
#include <mutex>

#include "examples/attention_residuals/cost.hpp"
#include "examples/attention_residuals/report.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/jobs.hpp"
#include "examples/common/progress.hpp"

namespace {

struct SizeOptions {
  CLI::Option *width, *heads, *hidden;
};

SizeOptions add_size_options(Program& program, Settings& s) {
  program.size_option("--layers", s.layers, "blocks of the transformer, of two sublayers each");
  const SizeOptions sizes{
      program.size_option("--width", s.width, "of the model; with --cost 256"),
      program.size_option("--heads", s.heads, "attention heads; with --cost 8"),
      program.size_option("--hidden", s.hidden, "of the feed-forward part; with --cost 688")};
  program.size_option("--context", s.context, "symbols the model sees");
  program.size_option("--batch", s.batch, "windows a step");
  return sizes;
}

// A step's cost is of interest at a size where products count.
void use_sizes_of_cost(Settings& s, const SizeOptions& given) {
  if (given.width->count() == 0) s.width = 256;
  if (given.heads->count() == 0) s.heads = 8;
  if (given.hidden->count() == 0) s.hidden = 688;
}

void add_options(Program& program, Settings& s) {
  program.app.add_option("--text", s.text_path, "a file to learn; the built-in guide unless given");
  program.app
      .add_option("--arms", s.arms,
                  "what to compare: residual, full, blockN for a number of blocks N")
      ->delimiter(',')
      ->check(CLI::Validator(
          [](std::string& arm) {
            try {
              residual_of(arm);
              return std::string();
            } catch (const ag::ArgumentError& error) {
              return std::string(error.what());
            }
          },
          "ARM"))
      ->capture_default_str();
  program.app.add_option("--rates", s.rates, "the highest learning rates to train at")
      ->delimiter(',')
      ->check(positive())
      ->capture_default_str();
  program.size_option("--seeds", s.seeds, "trainings of each arm and rate: seeds --seed, ...");
  program.size_option("--steps", s.steps, "of each training");
  program.size_option("--warmup", s.warmup, "steps of rising rate", 0);
  program.size_option("--evaluate-every", s.evaluate_every,
                      "steps between looks at the validation part");
  program.app.add_option("--folder", s.folder,
                         "where to keep the trainings; a second start goes on with them");
  program.app.add_option("--plot", s.plot_prefix,
                         "where to draw losses, norms by depth and depth weights: PREFIX-loss.svg "
                         "and others");
  program.app.add_flag("--cost", s.cost, "train nothing, but time a step of each arm");
}

// What the trainings say while they run, from several threads.
class Speaker {
 public:
  Speaker(const Settings& s, std::size_t done, bool json)
      : tokens_(double(s.batch * s.context)),
        done_(done),
        json_(json),
        progress_(s.arms.size() * s.seeds * s.rates.size() * s.steps, done, json) {}
  ~Speaker() { progress_.close(); }
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

  void stepped(const Job& job, double loss) {
    const std::lock_guard lock(mutex_);
    char note[96];
    std::snprintf(note, sizeof note, "%s loss %.4f", job.name().c_str(), loss);
    progress_.show(++done_, note, tokens_, "symbols");
  }
  void evaluated(const Job& job, std::size_t step, double loss) {
    const std::lock_guard lock(mutex_);
    progress_.close();
    if (json_) {
      std::cout << nlohmann::json{{"arm", job.arm},
                                  {"seed", job.seed},
                                  {"rate", job.rate},
                                  {"step", step},
                                  {"validation_loss", loss}}
                << std::endl;
    } else {
      std::printf("%s: step %zu, validation loss %.5f\n", job.name().c_str(), step, loss);
      std::fflush(stdout);
    }
  }

 private:
  std::mutex mutex_;
  double tokens_;
  std::size_t done_;
  bool json_;
  Progress progress_;
};

int compare(const Settings& s, const CommonOptions& common) {
  const std::vector<Job> jobs = jobs_of(s, common.seed);
  const Task task(s);
  check_writable(s.plot_prefix);
  if (!s.folder.empty()) std::filesystem::create_directories(s.folder);
  std::size_t done = 0;
  for (const Job& job : jobs) done += look_up(s, task, job).step;
  if (!common.json)
    std::printf("%zu trainings of %zu steps, %zu steps done before; %d at a time\n", jobs.size(),
                s.steps, done, std::min(int(jobs.size()), ag::threads()));

  std::vector<Outcome> outcomes(jobs.size());
  {
    Speaker speaker(s, done, common.json);
    const Watch watch{
        [&](const Job& job, double loss) { speaker.stepped(job, loss); },
        [&](const Job& job, std::size_t step, double loss) { speaker.evaluated(job, step, loss); }};
    run_jobs(jobs.size(), ag::threads(), [&](std::size_t i) {
      const Outcome before = look_up(s, task, jobs[i]);
      outcomes[i] = before.step == s.steps ? before : train(s, task, jobs[i], watch);
    });
  }
  print_report(s, outcomes, common.json);
  if (!s.plot_prefix.empty()) draw_plots(s, outcomes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Program program(
      "Compares attention residuals with a residual sum in a deep, narrow character model. "
      "As many trainings as --threads run side by side.");
  add_options(program, settings);
  const SizeOptions sizes = add_size_options(program, settings);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    if (!settings.cost) return compare(settings, common);
    use_sizes_of_cost(settings, sizes);
    jobs_of(settings, common.seed);  // names what is wrong with the arms
    print_cost(settings, common.seed, common.json);
    return 0;
  });
}
