// A small transformer learns a toy task on sequences: copy, reverse, sort or recall. With both
// kernels, their loss curves stand side by side: the same weights, the same batches, two ways to
// the gradient.
#include <cmath>
#include <iostream>
#include <memory>

#include "core/core.hpp"
#include "examples/common/attention_plot.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/progress.hpp"
#include "examples/common/sequence_tasks.hpp"
#include "layers/layers.hpp"
#include "optim/optim.hpp"

namespace {

struct Settings {
  std::string task = "reverse", optimizer = "sgd", kernel = "both";
  std::size_t steps = 0;  // 0: the usual number of the task
  std::size_t batch = 64, width = 64, heads = 2, layers = 2, held_out = 2000, report_every = 100;
  double rate = 0;  // 0: the usual one of the optimiser
  double clip = 1;
  // of the initial weights: more than a language model's 0.02, which plain SGD leaves slowly
  double deviation = 0.12;
  std::string attention_plot_path;
};

struct Run {
  std::string kernel;
  std::vector<double> losses;                            // one a step
  std::vector<std::pair<std::size_t, double>> accuracy;  // on the held-out set
};

std::unique_ptr<ag::Optimizer> make_optimizer(const std::string& name,
                                              const ag::Parameters& parameters) {
  if (name == "sgd") return std::make_unique<ag::Sgd>(parameters);
  if (name == "momentum")
    return std::make_unique<ag::Sgd>(parameters, ag::SgdOptions{.momentum = 0.9});
  if (name == "adam") return std::make_unique<ag::Adam>(parameters);
  return std::make_unique<ag::AdamW>(parameters);
}

double usual_rate(const std::string& optimizer) {
  return optimizer == "sgd" ? 0.7 : optimizer == "momentum" ? 0.05 : 1e-3;
}

// Recall and sort are learned in several stages, and their plateaus take time.
std::size_t usual_steps(const std::string& task) {
  return task == "recall" || task == "sort" ? 2500 : 800;
}

double held_out_accuracy(const ag::Transformer& model, const TaskBatch& held_out) {
  return sequence_accuracy(model(held_out.inputs).value(), held_out.targets);
}

// How the symbols of the first held-out sequence attend to each other.
void draw_attention(const Settings& s, const ag::Transformer& model, const TaskBatch& held_out) {
  ag::Indices tokens = ag::Indices::from_shape({1, task_length});
  std::copy_n(held_out.inputs.begin(), task_length, tokens.begin());
  const ag::Capture seen = ag::capture("blocks.*.attention.weights");
  model(tokens);
  std::vector<std::string> symbols;
  for (const std::int64_t token : tokens)
    symbols.push_back(token == separator ? "|" : std::to_string(token));
  write_attention_plot(s.attention_plot_path,
                       {.title = "Attention within a held-out sequence of the task " + s.task,
                        .queries = symbols,
                        .keys = symbols},
                       seen.values());
}

Run train(const Settings& s, const std::string& kernel, const CommonOptions& common) {
  SequenceTask task(s.task);
  ag::Rng rng(common.seed), weights = rng.split(), held_out_rng = rng.split(),
                            batches = rng.split();
  const TaskBatch held_out = task.hold_out(s.held_out, held_out_rng);
  const ag::Transformer model({.vocabulary = std::size_t(symbol_count) + 1,
                               .context = task_length,
                               .width = s.width,
                               .heads = s.heads,
                               .layers = s.layers,
                               .deviation = s.deviation,
                               .kernel = ag::attention_kernel(kernel)},
                              weights);
  const ag::Parameters parameters = ag::parameters(model);
  const auto optimizer = make_optimizer(s.optimizer, parameters);
  const ag::Schedule schedule =
      ag::warmup_cosine({.peak = s.rate > 0 ? s.rate : usual_rate(s.optimizer),
                         .floor = 0,
                         .warmup = s.steps / 20,
                         .total = s.steps});

  Run run{kernel, {}, {}};
  Progress progress(s.steps, 0, common.json);
  for (std::size_t step = 0; step < s.steps; ++step) {
    const TaskBatch batch = task.random_batch(s.batch, batches);
    ag::Tape tape;
    const ag::Variable loss =
        ag::cross_entropy(model(batch.inputs), batch.targets, {.ignore_index = not_asked});
    const ag::Gradients gradients = tape.gradients(loss);
    const double factor = s.clip > 0 ? ag::clip_norm(parameters, gradients, s.clip).factor : 1;
    optimizer->step(gradients, schedule(step), factor);
    run.losses.push_back(double(loss.item()));
    if ((step + 1) % s.report_every == 0 || step + 1 == s.steps)
      run.accuracy.emplace_back(step + 1, held_out_accuracy(model, held_out));
    progress.show(step + 1, ag::text(kernel, "  loss ", loss.item()), double(s.batch), "sequences");
  }
  progress.close();
  if (!s.attention_plot_path.empty()) draw_attention(s, model, held_out);
  return run;
}

// The mean loss of the steps that end at `end`, as many as between two reports.
double mean_loss(const Run& run, std::size_t end, std::size_t count) {
  const std::size_t begin = end > count ? end - count : 0;
  double total = 0;
  for (std::size_t i = begin; i < end; ++i) total += run.losses[i];
  return total / double(end - begin);
}

void print_runs(const std::vector<Run>& runs, const Settings& s, bool json) {
  if (!json) {
    std::printf("%8s", "step");
    for (const Run& run : runs)
      std::printf("  %10s loss  %10s right", run.kernel.c_str(), run.kernel.c_str());
    std::printf("\n");
  }
  for (std::size_t i = 0; i < runs[0].accuracy.size(); ++i) {
    const std::size_t step = runs[0].accuracy[i].first;
    nlohmann::json line{{"step", step}};
    if (!json) std::printf("%8zu", step);
    for (const Run& run : runs) {
      const double loss = mean_loss(run, step, s.report_every), accuracy = run.accuracy[i].second;
      line[run.kernel] = {{"loss", loss}, {"accuracy", accuracy}};
      if (!json) std::printf("  %15.6f  %14.2f %%", loss, 100 * accuracy);
    }
    if (json)
      std::cout << line << "\n";
    else
      std::printf("\n");
  }
  if (runs.size() < 2) return;
  double largest = 0;
  for (std::size_t i = 0; i < runs[0].losses.size(); ++i)
    largest = std::max(largest, std::abs(runs[0].losses[i] - runs[1].losses[i]));
  if (json)
    std::cout << nlohmann::json{{"largest_loss_difference", largest}} << "\n";
  else
    std::printf("largest difference of the two loss curves at any step: %.3g\n", largest);
}

void add_model_options(Program& program, Settings& s) {
  program.app.add_option("--task", s.task, "what to learn")
      ->check(CLI::IsMember(SequenceTask::names()))
      ->capture_default_str();
  program.app
      .add_option("--kernel", s.kernel,
                  "how attention is computed; both runs composed and fused and compares")
      ->check(CLI::IsMember({"composed", "fused", "flash", "both"}))
      ->capture_default_str();
  program.size_option("--width", s.width, "of the model");
  program.size_option("--heads", s.heads, "attention heads");
  program.size_option("--layers", s.layers, "blocks");
  program.app.add_option("--deviation", s.deviation, "of the initial weights")
      ->check(positive())
      ->capture_default_str();
}

void add_training_options(Program& program, Settings& s) {
  program.app.add_option("--optimizer", s.optimizer, "sgd is plain: no momentum")
      ->check(CLI::IsMember({"sgd", "momentum", "adam", "adamw"}))
      ->capture_default_str();
  program.size_option("--steps", s.steps, "optimiser steps; 0: the usual number of the task", 0);
  program.size_option("--batch", s.batch, "sequences a step");
  program.app
      .add_option("--rate", s.rate,
                  "the highest rate of the schedule; each optimiser has its own default")
      ->check(positive());
  program.app.add_option("--clip", s.clip, "limit of the gradients' norm; 0: none")
      ->check(not_negative())
      ->capture_default_str();
  program.size_option("--held-out", s.held_out, "sequences to test on, never trained on");
  program.size_option("--report-every", s.report_every, "steps between rows of the table");
  program.app.add_option("--attention-plot", s.attention_plot_path,
                         "where to draw the attention within a held-out sequence (SVG)");
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program("Trains a small transformer on a toy task: 16 symbols, sequences of 12.");
  add_model_options(program, s);
  add_training_options(program, s);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    check_writable(s.attention_plot_path);
    const SequenceTask task(s.task);
    if (s.steps == 0) s.steps = usual_steps(s.task);
    if (!common.json)
      std::printf("%s: a whole sequence right by chance %.1e; %zu held-out sequences\n",
                  s.task.c_str(), task.chance(), s.held_out);
    std::vector<Run> runs;
    for (const std::string& kernel : ag::attention_kernel_names())
      if (s.kernel == kernel || (s.kernel == "both" && kernel != "flash"))
        runs.push_back(train(s, kernel, common));
    print_runs(runs, s, common.json);
    return 0;
  });
}
