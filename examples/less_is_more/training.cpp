#include "examples/less_is_more/training.hpp"

#include <algorithm>

#include "examples/common/small_model.hpp"

namespace {

constexpr double enough_to_end = 0.97, decay = 0.9;
constexpr std::size_t saved_every = 50;

ag::TransformerOptions model_options(const TrainingSettings& s) {
  ag::TransformerOptions options = small_model(RecallTask::vocabulary, 1 + s.records + s.queries,
                                               s.width, s.heads, s.layers, s.hidden);
  options.key_heads = s.key_heads;
  options.positions = ag::Positions::none;
  return options;
}

nlohmann::json settings_of(const TrainingSettings& s, std::uint64_t seed) {
  return {{"chain", s.chain},     {"layers", s.layers},         {"heads", s.heads},
          {"width", s.width},     {"hidden", s.hidden},         {"key_heads", s.key_heads},
          {"records", s.records}, {"queries", s.queries},       {"most_steps", s.most_steps},
          {"rate", s.rate},       {"final_rate", s.final_rate}, {"enough", s.enough},
          {"seed", seed}};
}

double right_part(const ag::Array& logits, const ag::Indices& targets) {
  const std::size_t vocabulary = logits.shape()[2];
  std::size_t asked = 0, right = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets.data()[i] == RecallTask::not_asked) continue;
    const ag::Real* row = logits.data() + i * vocabulary;
    right += std::max_element(row, row + vocabulary) - row == targets.data()[i];
    ++asked;
  }
  return double(right) / double(asked);
}

}  // namespace

Training::Training(const TrainingSettings& s, std::uint64_t seed)
    : settings_(s),
      seed_(seed),
      task_(s.chain),
      rng_(seed),
      weights_(rng_.split()),
      batches_(rng_.split()),
      model_(model_options(s), weights_),
      parameters_(ag::parameters(model_)),
      optimizer_(parameters_, {.beta2 = 0.98}),
      schedule_(ag::warmup_cosine({.peak = s.rate,
                                   .floor = s.final_rate,
                                   .warmup = std::min<std::size_t>(100, s.most_steps),
                                   .total = s.most_steps})),
      file_(TrainingFile::path_in(s.folder, ag::text(s.chain ? "chain-" : "recall-", seed)),
            settings_of(s, seed), parameters_, optimizer_, {&batches_}) {
  records_ = std::min(records_, s.records);
  const TrainingFile::Progress before = file_.load(s.most_steps);
  step_ = before.step;
  if (step_ == 0) return;
  const CheckedJson measured = file_.measured(before);
  records_ = measured.at("records").whole(1, s.records);
  accuracy_ = measured.at("accuracy").number(0, 1);
}

bool Training::finished() const {
  return step_ >= settings_.most_steps ||
         (records_ == settings_.records && accuracy_ >= enough_to_end);
}

void Training::save() const {
  file_.save({step_, {{"records", records_}, {"accuracy", accuracy_}}});
}

void Training::take_step() {
  const std::size_t rows = std::clamp<std::size_t>(2560 / (records_ + settings_.queries), 16, 64);
  const RecallBatch batch = task_.random_batch(rows, records_, settings_.queries, batches_);
  {
    ag::Tape tape;
    const ag::Variable logits = model_(batch.tokens);
    const ag::Variable loss =
        ag::cross_entropy(logits, batch.targets, {.ignore_index = RecallTask::not_asked});
    const ag::Gradients gradients = tape.gradients(loss);
    optimizer_.step(gradients, schedule_(step_), ag::clip_norm(parameters_, gradients, 1).factor);
    loss_ = double(loss.item());
    accuracy_ = decay * accuracy_ + (1 - decay) * right_part(logits.value(), batch.targets);
  }
  ++step_;
  if (records_ < settings_.records && accuracy_ >= settings_.enough) {
    records_ = std::min(2 * records_, settings_.records);
    accuracy_ = 0;
  }
  if (finished() || step_ % saved_every == 0) save();
}
