// One training of the comparison: the same text, batches and initial weights for all arms of a
// seed.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "core/core.hpp"
#include "examples/attention_residuals/depth_profile.hpp"
#include "examples/attention_residuals/settings.hpp"
#include "examples/common/text.hpp"
#include "layers/layers.hpp"
#include "optim/optim.hpp"

// The text as all trainings see it.
struct Task {
  TextSplit text;
  std::size_t vocabulary;
  std::uint64_t fingerprint;  // of the text
  std::vector<Windows> validation;

  // Throws attngrad::FileError or ArgumentError for a text that cannot be used.
  explicit Task(const Settings& settings);
};

// A model with its optimiser.
struct Trainer {
  ag::Transformer model;
  ag::Parameters parameters;
  ag::Adam optimizer;

  Trainer(const ag::TransformerOptions& options, ag::Rng& weights);
  // One step, with the gradients' norm limited to 1; the loss before it.
  double step(const Windows& batch, double rate);
  double mean_loss(const std::vector<Windows>& batches) const;
};

// What a training has measured so far.
struct Outcome {
  Job job;
  std::size_t step = 0;  // of the last evaluation
  std::vector<std::size_t> steps;
  std::vector<double> losses;  // of the validation part, at each of these steps
  DepthProfile profile;        // at the last step
};

// What the file of a job says, without going on; the profile is empty before the end. Throws
// attngrad::FileError for a file of other settings.
Outcome look_up(const Settings& settings, const Task& task, const Job& job);

// Called while a training runs, in its thread.
struct Watch {
  std::function<void(const Job&, double loss)> stepped;
  std::function<void(const Job&, std::size_t step, double loss)> evaluated;
};

// Trains to the last step from where the file of the job has left off, saving at each evaluation.
Outcome train(const Settings& settings, const Task& task, const Job& job, const Watch& watch);
