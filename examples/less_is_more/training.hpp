// One recall model, trained with ever more records.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples/common/training_file.hpp"
#include "examples/less_is_more/recall_task.hpp"
#include "layers/transformer.hpp"

struct TrainingSettings {
  bool chain = false;
  std::size_t layers = 4, heads = 4, key_heads = 2, width = 64, hidden = 192;
  std::size_t records = 128, most_steps = 1500, queries = 16;
  double rate = 3e-3, final_rate = 1.5e-4;
  double enough = 0.8;  // right answers, for twice as many records
  std::string folder;   // where trainings are kept; empty: nowhere
};

// The number of records begins at 4 and doubles whenever enough answers, over the last tens of
// steps, are right. The training ends when 97 of 100 are with all records, or after most_steps.
// Without this curriculum a model stays at chance for long.
class Training {
 public:
  Training(const TrainingSettings& settings, std::uint64_t seed);

  void take_step();
  bool finished() const;

  std::uint64_t seed() const { return seed_; }
  std::size_t step() const { return step_; }
  std::size_t records() const { return records_; }
  double accuracy() const { return accuracy_; }  // of the last steps, running
  double loss() const { return loss_; }
  const ag::Transformer& model() const { return model_; }
  std::size_t parameter_count() const { return parameters_.count(); }
  void save() const;

 private:
  TrainingSettings settings_;
  std::uint64_t seed_;
  RecallTask task_;
  ag::Rng rng_, weights_, batches_;
  ag::Transformer model_;
  ag::Parameters parameters_;
  ag::Adam optimizer_;
  ag::Schedule schedule_;
  TrainingFile file_;
  std::size_t step_ = 0, records_ = 4;
  double accuracy_ = 0, loss_ = 0;
};

using Trainings = std::vector<std::unique_ptr<Training>>;
