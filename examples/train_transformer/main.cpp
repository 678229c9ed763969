// A character model: a small transformer that learns to continue a text, then writes some.
#include "examples/train_transformer/run.hpp"

namespace {

void add_model_options(Program& program, Settings& s, std::vector<CLI::Option*>& of_model) {
  of_model = {
      program.size_option("--layers", s.layers, "blocks"),
      program.size_option("--heads", s.heads, "attention heads"),
      program.size_option("--width", s.width, "of the model"),
      program.size_option("--context", s.context, "symbols the model sees"),
      program.app.add_option("--unit", s.unit, "what a token is")
          ->check(CLI::IsMember(unit_names()))
          ->capture_default_str(),
      program.app.add_flag("--bias,!--no-bias", s.bias,
                           "biases in linear maps and norms (the default)"),
      program.app.add_flag("--tied,!--untied", s.tied, "the head is the token table (the default)"),
      program.app
          .add_option("--activation", s.activation,
                      "of the feed-forward part: the exact form, or the one with tanh")
          ->check(CLI::IsMember(activation_names()))
          ->capture_default_str(),
      program.app.add_option("--optimizer", s.optimizer, "for momentum, --beta1 is the momentum")
          ->check(CLI::IsMember(optimizer_names()))
          ->capture_default_str(),
  };
}

void add_training_options(Program& program, Settings& s) {
  const auto number = [&](const char* flag, double& value, const char* description,
                          const CLI::Validator& range) {
    program.app.add_option(flag, value, description)->check(range)->capture_default_str();
  };
  program.size_option("--batch", s.batch, "windows a step");
  program.size_option("--steps", s.steps, "the step to train to; 0 with --load only samples", 0);
  program.size_option("--warmup", s.warmup, "steps of rising rate", 0);
  number("--rate", s.rate, "the highest learning rate", positive());
  number("--final-rate", s.final_rate, "the rate at the last step; a cosine leads there",
         not_negative());
  number("--decay", s.decay, "weight decay of matrices", not_negative());
  number("--beta1", s.beta1, "of the optimiser", share_below_one());
  number("--beta2", s.beta2, "of the optimiser", share_below_one());
  number("--clip", s.clip, "limit of the gradients' norm; 0: none", not_negative());
  number("--dropout", s.dropout, "probability", share_below_one());
  program.app.add_option("--kernel", s.kernel, "how attention is computed")
      ->check(CLI::IsMember(ag::attention_kernel_names()))
      ->capture_default_str();
}

void add_file_options(Program& program, Settings& s, const std::vector<CLI::Option*>& of_model) {
  program.app.add_option("--text", s.text_path, "a file to learn; the built-in guide unless given");
  program.size_option("--eval-every", s.eval_every, "steps between looks at the validation part");
  program.app.add_option("--save", s.save_path,
                         "where to leave the model and optimiser (safetensors)");
  CLI::Option* load =
      program.app.add_option("--load", s.load_path, "go on from a saved file, with its model");
  for (CLI::Option* option : of_model) option->excludes(load);
  program.app.add_option("--plot", s.plot_path, "where to draw the losses (SVG)");
  program.app.add_option(
      "--attention-plot", s.attention_plot_path,
      "where to draw the attention within the validation part's first symbols (SVG)");
  program.size_option("--sample", s.sample, "symbols to write at the end", 0);
  program.app.add_option("--prompt", s.prompt,
                         "what the sample continues; the text's first symbol unless given");
  add_sampling_options(program, s.sampling);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Program program("Trains a small transformer on a text, symbol by symbol, and writes some.");
  std::vector<CLI::Option*> of_model;
  add_model_options(program, settings, of_model);
  add_training_options(program, settings);
  add_file_options(program, settings, of_model);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    TrainingRun run(settings, common);
    run.train();
    run.write_sample();
    run.draw_attention();
    return 0;
  });
}
