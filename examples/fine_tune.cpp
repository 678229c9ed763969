// Trains a model that others have made a little further, on a text of one's own, and saves it under
// the same names: generate reads it like the first.
#include <cstdio>
#include <iostream>
#include <sstream>

#include "core/core.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/llama_files.hpp"
#include "examples/common/progress.hpp"
#include "examples/common/text.hpp"
#include "layers/llama.hpp"
#include "optim/optim.hpp"

namespace {

struct Settings {
  LlamaFiles files;
  std::string text, save;
  std::size_t steps = 200, batch = 8, context = 128, warmup = 20;
  double rate = 3e-4;
};

void add_options(Program& program, Settings& s) {
  const LlamaOptions llama = add_llama_options(program.app, s.files);
  llama.model->required();
  llama.tokenizer->required();
  program.app.add_option("--text", s.text, "a file to learn; the built-in guide unless given");
  program.app.add_option("--save", s.save, "where to leave the trained weights (safetensors)")
      ->required();
  program.size_option("--steps", s.steps, "of training");
  program.size_option("--batch", s.batch, "windows a step");
  program.size_option("--context", s.context, "tokens of a window");
  program.size_option("--warmup", s.warmup, "steps of rising rate", 0);
  program.app.add_option("--rate", s.rate, "the highest learning rate; a cosine leads to a tenth")
      ->check(positive())
      ->capture_default_str();
}

// Each line is a text of its own, with a beginning.
std::vector<std::int64_t> tokens_of(const std::string& text, const Tokenizer& tokenizer) {
  std::vector<std::int64_t> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const std::vector<std::int64_t> tokens = tokenizer.encode(line);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  return all;
}

// The mean loss over the validation part.
double validation_loss(const ag::Transformer& model, const TextSplit& split, const Settings& s) {
  double sum = 0, count = 0;
  for (std::size_t first = 0; first + s.context < split.validation.size();
       first += s.batch * s.context) {
    const Windows windows = consecutive_windows(split.validation, first, s.batch, s.context);
    const auto rows = double(windows.inputs.shape()[0]);
    sum += rows * double(ag::cross_entropy(model(windows.inputs), windows.targets).item());
    count += rows;
  }
  return sum / count;
}

void train(const ag::Transformer& model, const TextSplit& split, const Settings& s,
           std::uint64_t seed, bool quiet) {
  const ag::Parameters parameters = ag::parameters(model);
  ag::AdamW optimizer(parameters, {.beta2 = 0.95, .weight_decay = 0.1});
  const ag::Schedule rate = ag::warmup_cosine({.peak = s.rate,
                                               .floor = s.rate / 10,
                                               .warmup = std::min(s.warmup, s.steps),
                                               .total = s.steps});
  ag::Rng rng(seed);
  Progress progress(s.steps, 0, quiet);
  for (std::size_t step = 0; step < s.steps; ++step) {
    const Windows windows = random_windows(split.training, s.batch, s.context, rng);
    ag::Tape tape;
    const ag::Variable loss = ag::cross_entropy(model(windows.inputs), windows.targets);
    const ag::Gradients gradients = tape.gradients(loss);
    optimizer.step(gradients, rate(step), ag::clip_norm(parameters, gradients, 1).factor);
    progress.show(step + 1, ag::text("loss ", loss.item()), double(s.batch * s.context), "tokens");
  }
  progress.close();
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program("Trains a model that others have made further, on a text of one's own.");
  add_options(program, s);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    check_writable(s.save);
    const auto [tokenizer, model] = load(s.files);
    ag::check_argument(s.context <= model.options.context, "fine_tune: the model's context is ",
                       model.options.context, ", got windows of ", s.context);
    const TextSplit split = split_text(
        tokens_of(s.text.empty() ? guide_text() : read_text(s.text), tokenizer), s.context);
    const double before = validation_loss(model, split, s);
    train(model, split, s, common.seed, common.json);
    const double after = validation_loss(model, split, s);
    ag::save_llama(model, s.save);
    if (common.json)
      std::cout << nlohmann::json{{"loss_before", before},
                                  {"loss_after", after},
                                  {"training_tokens", split.training.size()},
                                  {"validation_tokens", split.validation.size()}}
                << "\n";
    else
      std::printf("validation loss %.4f before, %.4f after, of %zu tokens\n", before, after,
                  split.validation.size());
    return 0;
  });
}
