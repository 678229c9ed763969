// One training run of the character model: settings, checkpoint, loop, evaluation, sample.
#pragma once

#include <memory>
#include <optional>

#include "core/core.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/loss_plot.hpp"
#include "examples/common/sampling.hpp"
#include "examples/common/text.hpp"
#include "examples/train_transformer/checkpoint.hpp"
#include "layers/layers.hpp"
#include "optim/optim.hpp"

struct Settings : ModelSettings {
  std::string text_path;  // empty: the built-in text
  std::string kernel = "flash";
  std::size_t batch = 12, steps = 1500, warmup = 100, eval_every = 250, sample = 400;
  double rate = 1e-3, final_rate = 1e-4, decay = 0.1, beta1 = 0.9, beta2 = 0.99, clip = 1,
         dropout = 0;
  std::string save_path, load_path, plot_path, attention_plot_path;
  std::string prompt;  // empty: the first symbol of the text
  SamplingOptions sampling;
};

class TrainingRun {
 public:
  // Reads the text, and the checkpoint if one is given; a checkpoint brings the sizes of its model.
  TrainingRun(const Settings& settings, const CommonOptions& common);

  // Trains to the last step, or until Ctrl-C, evaluates, saves and plots.
  void train();
  // Writes a sample to stdout.
  void write_sample();
  // Draws the attention of every head within the validation part's first symbols, if asked to.
  void draw_attention() const;

 private:
  // symbols: of an alphabet that is given; null: those of the text.
  void read_text_as(const std::vector<std::string>* symbols);
  void make_model();
  void save_checkpoint() const;
  ag::Parameters saved_values() const;
  ag::Variable train_step(const ag::Schedule& schedule);
  void evaluate(bool whole);
  // The mean loss over consecutive windows of the validation part: all of them, or about 200,
  // spread evenly.
  double validation_loss(bool whole) const;

  Settings settings_;
  CommonOptions common_;
  std::optional<Alphabet> alphabet_;
  TextSplit split_;
  ag::Rng rng_, batches_, dropouts_;
  std::optional<ag::Transformer> model_;
  ag::Parameters parameters_;
  std::unique_ptr<ag::Optimizer> optimizer_;
  std::size_t step_ = 0;
  Curve training_{"training", {}, {}}, validation_{"validation", {}, {}};
};
