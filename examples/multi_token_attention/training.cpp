#include "examples/multi_token_attention/training.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "examples/common/small_model.hpp"
#include "layers/attention/multi_token.hpp"

namespace {

constexpr std::size_t most_steps = std::size_t{1} << 40;  // a file may be of a longer training

// By the kernel of the other arms, so that frozen kernels can be compared bit for bit.
ag::AttentionOutput plain_attention(const ag::AttentionInputs& inputs,
                                    const ag::AttentionOptions& options) {
  return {ag::multi_token_attention(inputs, {}, options), {}};
}

ag::TransformerOptions model_options(const Settings& s, const std::string& arm) {
  ag::TransformerOptions options = small_model(LettersTask::vocabulary, LettersTask(s.task).time(),
                                               s.width, s.heads, s.layers, s.hidden);
  options.rotary = {.base = 1e5, .pairs = ag::RotaryPairs::neighbours};
  options.scores.dropout = s.dropout;
  options.kernel = plain_attention;
  if (arm != "transformer")
    options.attention = ag::MultiToken{
        .layer = {.before = ag::KernelSize{.queries = 2, .keys = 2 * s.task.letters - 1},
                  .learned = arm == "mta"}};
  return options;
}

ag::Schedule schedule_of(const Settings& s) {
  return ag::warmup_cosine({.peak = s.rate,
                            .floor = s.final_rate,
                            .warmup = std::min(s.warmup, s.steps),
                            .total = std::max<std::size_t>(1, s.steps)});
}

// What decides the bits of a training.
nlohmann::json settings_of(const Settings& s, const std::string& arm, std::uint64_t seed) {
  nlohmann::json all{{"arm", arm},
                     {"seed", seed},
                     {"blocks", s.task.blocks},
                     {"letters", s.task.letters},
                     {"answer", s.task.answer},
                     {"layers", s.layers},
                     {"heads", s.heads},
                     {"width", s.width},
                     {"hidden", s.hidden},
                     {"dropout", s.dropout},
                     {"batch", s.batch},
                     {"warmup", std::min(s.warmup, s.steps)},
                     {"rate", s.rate},
                     {"final_rate", s.final_rate},
                     {"eval_every", s.eval_every},
                     {"held_out", s.held_out}};
  // where the rate stays, a training may be made longer later
  if (s.rate != s.final_rate) all["steps"] = s.steps;
  return all;
}

std::vector<TaskBatch> held_out_batches(const Settings& s, const LettersTask& task) {
  ag::Rng rng(0x6d7461);  // apart from all seeds, whose generators are split
  std::vector<TaskBatch> batches;
  for (std::size_t begin = 0; begin < s.held_out; begin += s.batch)
    batches.push_back(task.random_batch(std::min(s.batch, s.held_out - begin), rng));
  return batches;
}

}  // namespace

const std::vector<std::string>& arm_names() {
  static const std::vector<std::string> all{"transformer", "mta", "frozen"};
  return all;
}

Training::Training(const Settings& s, std::string arm, std::uint64_t seed)
    : settings_(s),
      arm_(std::move(arm)),
      seed_(seed),
      task_(s.task),
      rng_(seed),
      weights_(rng_.split()),
      batches_(rng_.split()),
      dropouts_(rng_.split()),
      model_(model_options(s, arm_), weights_),
      parameters_(ag::parameters(model_)),
      optimizer_(parameters_, {.beta2 = 0.98}),
      schedule_(schedule_of(s)),
      file_(TrainingFile::path_in(s.folder, ag::text(arm_, "-", seed)), settings_of(s, arm_, seed),
            parameters_, optimizer_, {&batches_, &dropouts_}),
      held_out_(held_out_batches(s, task_)) {
  const TrainingFile::Progress before = file_.load(most_steps);
  if (before.step == 0) return;
  const CheckedJson measured = file_.measured(before);
  losses_ = measured.at("losses").all_measured(before.step);
  for (const CheckedJson& evaluation : measured.at("errors").list(1, before.step)) {
    const std::vector<CheckedJson> pair = evaluation.list(2, 2);
    evaluations_.push_back({pair[0].whole(1, before.step), pair[1].number(0, 1)});
  }
}

void Training::save() const {
  nlohmann::json errors = nlohmann::json::array();
  for (const auto& [step, error] : evaluations_) errors.push_back({step, error});
  file_.save({step(), {{"losses", losses_}, {"errors", errors}}});
}

double Training::held_out_error() const {
  double wrong = 0;
  for (const TaskBatch& batch : held_out_) {
    const double right = sequence_accuracy(model_(batch.inputs).value(), batch.targets);
    wrong += std::round((1 - right) * double(batch.inputs.shape()[0]));
  }
  return wrong / double(settings_.held_out);
}

void Training::take_step() {
  const TaskBatch batch = task_.random_batch(settings_.batch, batches_);
  {
    ag::Tape tape;
    const ag::Variable loss = ag::cross_entropy(model_(batch.inputs, &dropouts_), batch.targets,
                                                {.ignore_index = not_asked});
    const ag::Gradients gradients = tape.gradients(loss);
    optimizer_.step(gradients, schedule_(step()), ag::clip_norm(parameters_, gradients, 1).factor);
    losses_.push_back(double(loss.item()));
  }
  if (step() % settings_.eval_every != 0 && !finished()) return;
  evaluations_.push_back({step(), held_out_error()});
  save();
}

double Training::last_error() const {
  const std::size_t count = std::min<std::size_t>(3, evaluations_.size());
  double sum = 0;
  for (std::size_t i = evaluations_.size() - count; i < evaluations_.size(); ++i)
    sum += evaluations_[i].error;
  return sum / double(count);
}

Trainings make_trainings(const Settings& s) {
  Trainings all;
  for (const std::uint64_t seed : s.seeds)  // the arms of a seed side by side
    for (const std::string& arm : s.arms) all.push_back(std::make_unique<Training>(s, arm, seed));
  return all;
}
