// One model of the comparison, trained on the letters-in-blocks task; and many, side by side.
#pragma once

#include <memory>
#include <optional>

#include "examples/common/training_file.hpp"
#include "examples/multi_token_attention/letters_task.hpp"
#include "layers/transformer.hpp"

struct Settings {
  LettersTask::Options task;
  std::size_t layers = 2, heads = 2, width = 64, hidden = 192;
  double dropout = 0;  // of the attention weights
  std::size_t batch = 64, steps = 2000, warmup = 200, eval_every = 100, held_out = 1000;
  double rate = 3e-3, final_rate = 6e-5;
  std::vector<std::string> arms{"transformer", "mta"};
  std::vector<std::uint64_t> seeds;
  std::string folder, plot_path;  // empty: none
};

// transformer: the baseline. mta: multi-token attention, a convolution of the scores over 2 queries
// and 2 N - 1 keys in every head of every layer. frozen: the same with kernels that stay the
// identity, which is the baseline computed in another way.
const std::vector<std::string>& arm_names();

struct Evaluation {
  std::size_t step;
  double error;  // the part of the held-out sequences with a wrong letter or end, in [0, 1]
};

class Training {
 public:
  // Takes up its file in the folder of the settings, if there is one. Equal seeds give equal
  // initial weights and batches in every arm. Throws attngrad::FileError for a file that was saved
  // with other settings.
  Training(const Settings& settings, std::string arm, std::uint64_t seed);

  // One step, and what is due after it: an evaluation, and the file.
  void take_step();
  bool finished() const { return step() >= settings_.steps; }

  const std::string& arm() const { return arm_; }
  std::uint64_t seed() const { return seed_; }
  std::string name() const { return ag::text(arm_, " ", seed_); }
  std::size_t step() const { return losses_.size(); }
  const std::vector<double>& losses() const { return losses_; }  // one a step
  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  const ag::Parameters& parameters() const { return parameters_; }
  // The mean error of the last three evaluations, or of as many as there are.
  double last_error() const;

 private:
  void save() const;
  double held_out_error() const;

  Settings settings_;
  std::string arm_;
  std::uint64_t seed_;
  LettersTask task_;
  ag::Rng rng_, weights_, batches_, dropouts_;
  ag::Transformer model_;
  ag::Parameters parameters_;
  ag::Adam optimizer_;
  ag::Schedule schedule_;
  TrainingFile file_;
  std::vector<TaskBatch> held_out_;  // the same for every arm and seed
  std::vector<double> losses_;
  std::vector<Evaluation> evaluations_;
};

using Trainings = std::vector<std::unique_ptr<Training>>;

// Every arm with every seed, as far as their files go.
Trainings make_trainings(const Settings& settings);
