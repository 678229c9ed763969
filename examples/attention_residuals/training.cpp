#include "examples/attention_residuals/training.hpp"

#include <filesystem>

#include "examples/common/training_file.hpp"

namespace {

constexpr std::size_t validation_batches = 24, profile_batches = 4;
constexpr std::uint64_t validation_seed = 2026;  // for all seeds the same windows

// FNV-1a.
std::uint64_t fingerprint_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

nlohmann::json file_settings(const Settings& s, const Task& task, const Job& job) {
  return {{"arm", job.arm},
          {"seed", job.seed},
          {"rate", job.rate},
          {"text", task.fingerprint},
          {"layers", s.layers},
          {"width", s.width},
          {"heads", s.heads},
          {"hidden", s.hidden},
          {"context", s.context},
          {"batch", s.batch},
          {"steps", s.steps},
          {"warmup", s.warmup},
          {"evaluate_every", s.evaluate_every}};
}

// An evaluation at the beginning, every so many steps, and at the end.
Outcome outcome_of(const Settings& s, const Job& job, const TrainingFile::Progress& progress) {
  Outcome outcome{.job = job, .step = progress.step, .steps = {}, .losses = {}, .profile = {}};
  if (progress.step == 0 && progress.measured == nlohmann::json::array()) return outcome;
  const std::size_t count = 1 + (progress.step + s.evaluate_every - 1) / s.evaluate_every;
  const CheckedJson measured =
      TrainingFile::measured(TrainingFile::path_in(s.folder, job.name()), progress);
  for (const CheckedJson& evaluation : measured.list(count, count)) {
    const std::size_t due = std::min(outcome.steps.size() * s.evaluate_every, progress.step);
    outcome.steps.push_back(evaluation.at("step").whole(due, due));
    outcome.losses.push_back(evaluation.at("loss").measured());
    if (due == s.steps) outcome.profile = profile_in(evaluation.at("profile"), s.layers);
  }
  return outcome;
}

ag::Schedule schedule_of(const Settings& s, double rate) {
  return ag::warmup_cosine(
      {.peak = rate, .floor = rate / 10, .warmup = std::min(s.warmup, s.steps), .total = s.steps});
}

}  // namespace

Task::Task(const Settings& s) {
  const std::string all = s.text_path.empty() ? guide_text() : read_text(s.text_path);
  const Alphabet alphabet(all, Unit::character);
  vocabulary = alphabet.size();
  fingerprint = fingerprint_of(all);
  text = split_text(alphabet.encode(all), s.context);
  ag::Rng rng(validation_seed);
  for (std::size_t i = 0; i < validation_batches; ++i)
    validation.push_back(random_windows(text.validation, s.batch, s.context, rng));
}

Trainer::Trainer(const ag::TransformerOptions& options, ag::Rng& weights)
    : model(options, weights),
      parameters(ag::parameters(model)),
      optimizer(parameters, {.beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-8}) {}

double Trainer::step(const Windows& batch, double rate) {
  ag::Tape tape;
  const ag::Variable loss = ag::cross_entropy(model(batch.inputs), batch.targets);
  const ag::Gradients gradients = tape.gradients(loss);
  optimizer.step(gradients, rate, ag::clip_norm(parameters, gradients, 1).factor);
  return double(loss.item());
}

double Trainer::mean_loss(const std::vector<Windows>& batches) const {
  double total = 0;
  for (const Windows& batch : batches)
    total += double(ag::cross_entropy(model(batch.inputs), batch.targets).item());
  return total / double(batches.size());
}

Outcome look_up(const Settings& s, const Task& task, const Job& job) {
  return outcome_of(s, job,
                    TrainingFile::look(TrainingFile::path_in(s.folder, job.name()),
                                       file_settings(s, task, job), s.steps));
}

Outcome train(const Settings& s, const Task& task, const Job& job, const Watch& watch) {
  // the queries of a mix start at 0 and draw nothing, so a seed gives all arms the same numbers
  ag::Rng rng(job.seed), weights = rng.split(), batches = rng.split();
  Trainer trainer(model_options(s, job.arm, task.vocabulary), weights);
  TrainingFile file(TrainingFile::path_in(s.folder, job.name()), file_settings(s, task, job),
                    trainer.parameters, trainer.optimizer, {&batches});
  TrainingFile::Progress progress = file.load(s.steps);
  const auto evaluate = [&] {
    const double loss = trainer.mean_loss(task.validation);
    nlohmann::json evaluation{{"step", progress.step}, {"loss", loss}};
    if (progress.step == s.steps)
      evaluation["profile"] = profile_by_depth(
          trainer.model, {task.validation.begin(), task.validation.begin() + profile_batches});
    progress.measured.push_back(std::move(evaluation));
    file.save(progress);
    watch.evaluated(job, progress.step, loss);
  };
  if (progress.measured.empty()) evaluate();
  const ag::Schedule schedule = schedule_of(s, job.rate);
  while (progress.step < s.steps) {
    const Windows batch = random_windows(task.text.training, s.batch, s.context, batches);
    const double loss = trainer.step(batch, schedule(progress.step++));
    watch.stepped(job, loss);
    if (progress.step % s.evaluate_every == 0 || progress.step == s.steps) evaluate();
  }
  return outcome_of(s, job, progress);
}
