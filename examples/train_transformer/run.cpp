#include "examples/train_transformer/run.hpp"

#include <csignal>
#include <iostream>

#include "examples/common/attention_plot.hpp"
#include "examples/common/progress.hpp"

namespace {

volatile std::sig_atomic_t interrupted = 0;

// While it lives, Ctrl-C asks for a clean stop; a second one ends the program at once.
class StopOnInterrupt {
 public:
  StopOnInterrupt() {
    std::signal(SIGINT, [](int) {
      interrupted = 1;
      std::signal(SIGINT, SIG_DFL);
    });
  }
  ~StopOnInterrupt() { std::signal(SIGINT, SIG_DFL); }
};

ag::TransformerOptions model_options(const Settings& s, std::size_t vocabulary) {
  return {.vocabulary = vocabulary,
          .context = s.context,
          .width = s.width,
          .heads = s.heads,
          .layers = s.layers,
          .bias = s.bias,
          .tied = s.tied,
          .dropout = s.dropout,
          .activation = s.activation == "gelu" ? ag::gelu : ag::gelu_tanh,
          .kernel = ag::attention_kernel(s.kernel)};
}

std::unique_ptr<ag::Optimizer> make_optimizer(const Settings& s, const ag::Parameters& parameters) {
  if (s.optimizer == "sgd")
    return std::make_unique<ag::Sgd>(parameters, ag::SgdOptions{.weight_decay = s.decay});
  if (s.optimizer == "momentum")
    return std::make_unique<ag::Sgd>(parameters,
                                     ag::SgdOptions{.momentum = s.beta1, .weight_decay = s.decay});
  if (s.optimizer == "adam")
    return std::make_unique<ag::Adam>(
        parameters, ag::AdamOptions{.beta1 = s.beta1, .beta2 = s.beta2, .weight_decay = s.decay});
  return std::make_unique<ag::AdamW>(
      parameters, ag::AdamWOptions{.beta1 = s.beta1, .beta2 = s.beta2, .weight_decay = s.decay});
}

}  // namespace

TrainingRun::TrainingRun(const Settings& settings, const CommonOptions& common)
    : settings_(settings), common_(common), rng_(common.seed), batches_(0), dropouts_(0) {
  check_writable(settings.save_path);
  check_writable(settings.plot_path);
  check_writable(settings.attention_plot_path);
  std::optional<Checkpoint> saved;
  if (!settings_.load_path.empty()) saved = read_checkpoint(settings_.load_path);
  if (saved) static_cast<ModelSettings&>(settings_) = saved->model;
  read_text_as(saved ? &saved->symbols : nullptr);
  make_model();
  if (saved) {
    ag::load(saved_values(), settings_.load_path);
    step_ = saved->step;
    batches_ = saved->batches;
    dropouts_ = saved->dropouts;
  }
  if (!common_.json)
    std::printf("%zu symbols of text, %zu different; %zu parameters\n",
                split_.training.size() + split_.validation.size(), alphabet_->size(),
                parameters_.count());
}

void TrainingRun::read_text_as(const std::vector<std::string>* symbols) {
  const std::string text =
      settings_.text_path.empty() ? guide_text() : read_text(settings_.text_path);
  if (symbols)
    alphabet_.emplace(*symbols, unit_of(settings_));
  else
    alphabet_.emplace(text, unit_of(settings_));
  split_ = split_text(alphabet_->encode(text), settings_.context);
  if (settings_.prompt.empty()) settings_.prompt = alphabet_->symbol(split_.training[0]);
  // a prompt that cannot be continued is better known before the training
  alphabet_->encode(settings_.prompt);
}

void TrainingRun::make_model() {
  ag::Rng weights = rng_.split();
  batches_ = rng_.split();
  dropouts_ = rng_.split();
  model_.emplace(model_options(settings_, alphabet_->size()), weights);
  parameters_ = ag::parameters(*model_);
  optimizer_ = make_optimizer(settings_, parameters_);
}

ag::Parameters TrainingRun::saved_values() const {
  ag::Parameters all;
  all.join(parameters_, "model").join(optimizer_->state(), "optimizer");
  return all;
}

void TrainingRun::save_checkpoint() const {
  const Checkpoint checkpoint{.model = settings_,
                              .symbols = alphabet_->symbols(),
                              .step = step_,
                              .batches = batches_,
                              .dropouts = dropouts_};
  ag::save(saved_values(), settings_.save_path, metadata_of(checkpoint));
}

double TrainingRun::validation_loss(bool whole) const {
  const std::size_t context = settings_.context, targets = split_.validation.size() - 1;
  const std::size_t windows = (targets + context - 1) / context;
  const std::size_t stride = whole ? 1 : std::max<std::size_t>(1, windows / 200);
  constexpr std::size_t rows = 32;
  double total = 0;
  std::size_t counted = 0;
  const auto add = [&](const Windows& w) {
    const ag::Variable loss = ag::cross_entropy((*model_)(w.inputs), w.targets);
    total += double(loss.item()) * double(w.targets.size());
    counted += w.targets.size();
  };
  if (stride == 1) {
    for (std::size_t at = 0; at < targets;) {
      const Windows w = consecutive_windows(split_.validation, at, rows, context);
      add(w);
      at += w.targets.size();
    }
  } else {
    for (std::size_t i = 0; i < windows; i += stride)
      add(consecutive_windows(split_.validation, i * context, 1, context));
  }
  return total / double(counted);
}

void TrainingRun::evaluate(bool whole) {
  const double loss = validation_loss(whole);
  validation_.steps.push_back(double(step_));
  validation_.losses.push_back(loss);
  if (common_.json)
    std::cout << nlohmann::json{{"step", step_}, {"validation_loss", loss}, {"whole_split", whole}}
              << std::endl;
  else
    std::printf("step %zu: validation loss %.5f%s\n", step_, loss,
                whole ? " on the whole split" : "");
}

ag::Variable TrainingRun::train_step(const ag::Schedule& schedule) {
  const Windows batch =
      random_windows(split_.training, settings_.batch, settings_.context, batches_);
  ag::Tape tape;
  const ag::Variable loss = ag::cross_entropy((*model_)(batch.inputs, &dropouts_), batch.targets);
  const ag::Gradients gradients = tape.gradients(loss);
  const double factor =
      settings_.clip > 0 ? ag::clip_norm(parameters_, gradients, settings_.clip).factor : 1;
  optimizer_->step(gradients, schedule(step_), factor);
  ++step_;
  return loss;
}

void TrainingRun::train() {
  const Settings& s = settings_;
  const ag::Schedule schedule = ag::warmup_cosine({.peak = s.rate,
                                                   .floor = s.final_rate,
                                                   .warmup = std::min(s.warmup, s.steps),
                                                   .total = std::max<std::size_t>(1, s.steps)});
  const std::size_t tokens = s.batch * s.context;
  const StopOnInterrupt stop;
  Progress progress(s.steps, step_, common_.json);
  double seconds = 0;
  while (step_ < s.steps && !interrupted) {
    const double begin = progress.seconds();
    const double loss = double(train_step(schedule).item());
    const double took = progress.seconds() - begin;
    seconds += took;
    training_.steps.push_back(double(step_));
    training_.losses.push_back(loss);
    if (common_.json)
      std::cout << nlohmann::json{{"step", step_}, {"loss", loss}, {"step_ms", 1e3 * took}} << "\n";
    char note[64];
    std::snprintf(note, sizeof note, "loss %.4f", loss);
    progress.show(step_, note, double(tokens), "tokens");
    if (step_ % s.eval_every == 0 && step_ < s.steps) {
      progress.close();
      evaluate(false);
    }
  }
  progress.close();
  if (interrupted && !common_.json) std::printf("stopped at step %zu\n", step_);
  if (!s.save_path.empty()) {
    save_checkpoint();
    if (!common_.json) std::printf("saved to %s\n", s.save_path.c_str());
  }
  if (!interrupted) evaluate(true);
  if (!s.plot_path.empty())
    write_loss_plot(s.plot_path, "Cross-entropy of the next symbol", {training_, validation_});
  if (!common_.json && seconds > 0) std::printf("%.1f s of training\n", seconds);
}

void TrainingRun::write_sample() {
  if (settings_.sample == 0 || interrupted) return;
  std::string written = settings_.prompt;
  if (!common_.json) std::cout << "\n" << settings_.prompt;
  const auto take = [&](std::int64_t token) {
    written += alphabet_->symbol(token);
    if (!common_.json) std::cout << alphabet_->symbol(token) << std::flush;
    return true;
  };
  continue_text(*model_, alphabet_->encode(settings_.prompt), settings_.sample, settings_.sampling,
                rng_, take);
  if (common_.json)
    std::cout << nlohmann::json{{"sample", written}}.dump(-1, ' ', false,
                                                          nlohmann::json::error_handler_t::replace)
              << "\n";
  else
    std::cout << "\n";
}

void TrainingRun::draw_attention() const {
  if (settings_.attention_plot_path.empty()) return;
  constexpr std::size_t most = 32;  // more would not be read
  const std::size_t time = std::min({most, settings_.context, split_.validation.size()});
  ag::Indices tokens = ag::Indices::from_shape({1, time});
  std::copy_n(split_.validation.begin(), time, tokens.begin());
  const ag::Capture seen = ag::capture("blocks.*.attention.weights");
  (*model_)(tokens);
  std::vector<std::string> symbols;
  for (const std::int64_t token : tokens)
    symbols.push_back(visible_token(alphabet_->symbol(token)));
  write_attention_plot(settings_.attention_plot_path,
                       {.title = ag::text("Attention within the first symbols of the validation "
                                          "part, after ",
                                          step_, " steps"),
                        .queries = symbols,
                        .keys = symbols},
                       seen.values());
}
