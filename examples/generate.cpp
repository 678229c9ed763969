// Writes text with a model that others have trained: Llama-shaped, from a safetensors file, with a
// vocabulary in llama2.c's format.
#include <chrono>
#include <cstdio>
#include <iostream>

#include "examples/common/command_line.hpp"
#include "examples/common/llama_files.hpp"
#include "examples/common/sampling.hpp"

namespace {

struct Settings {
  LlamaFiles files;
  std::string prompt;
  std::size_t steps = 200;
  SamplingOptions sampling{.temperature = 0.8, .top_k = 0, .top_p = 0.9};
  std::size_t window = 0;  // 0: no streaming cache
  bool sparse = false;
  ag::SelectionOptions selection;
  std::string selector = "unified";
  std::vector<std::size_t> selecting;
};

void add_reading_options(Program& program, Settings& s) {
  program.size_option(
      "--window", s.window,
      "tokens of a cache in which the oldest make room for new ones (StreamingLLM)");
  program.size_option("--sinks", s.selection.sinks,
                      "first tokens that are always read, of --window and of --budget", 0);
  CLI::Option* budget = program.size_option(
      "--budget", s.selection.budget, "tokens that a sparse layer reads (LessIsMore); else all");
  budget->default_str("");
  budget->each([&s](const std::string&) { s.sparse = true; });
  program.app.add_option("--select", s.selecting, "layers that choose them, as 2,12")
      ->delimiter(',')
      ->needs(budget);
  program.app.add_option("--recent", s.selection.recent_share, "share of the last tokens in them")
      ->check(share())
      ->capture_default_str()
      ->needs(budget);
  program.app.add_option("--selector", s.selector, "who chooses")
      ->check(CLI::IsMember(ag::selector_names()))
      ->capture_default_str()
      ->needs(budget);
}

// Layer 2 selects unless others are named, and in a small model the last but one.
ReadingOptions reading_options(const Settings& s, std::size_t layers, std::uint64_t seed) {
  ReadingOptions reading{.sinks = s.selection.sinks};
  if (s.window > 0) reading.window = s.window;
  if (!s.sparse) return reading;
  const std::size_t usual = std::min<std::size_t>(2, layers < 2 ? 0 : layers - 2);
  ag::SelectionOptions selection = s.selection;
  selection.selector = ag::selector_named(s.selector);
  reading.less_is_more = ag::LessIsMoreOptions{
      .roles = ag::decode_roles(layers, s.selecting.empty() ? std::vector{usual} : s.selecting),
      .selection = selection,
      .seed = seed};
  return reading;
}

void add_options(Program& program, Settings& s) {
  const LlamaOptions llama = add_llama_options(program.app, s.files);
  llama.model->required();
  llama.tokenizer->required();
  program.app.add_option("--prompt", s.prompt, "how the text begins");
  program.size_option("--steps", s.steps, "tokens, unless the text ends before");
  add_sampling_options(program, s.sampling);
  add_reading_options(program, s);
}

// Hands out each piece as it comes; returns how many tokens there were.
std::size_t write_text(const ag::Transformer& model, const Tokenizer& tokenizer, const Settings& s,
                       const ReadingOptions& reading, ag::Rng& rng,
                       const std::function<void(const std::string&)>& take) {
  const std::vector<std::int64_t> prompt = tokenizer.encode(s.prompt);
  std::int64_t before = prompt.back();
  std::size_t count = 0;
  const auto take_token = [&](std::int64_t token) {
    ++count;
    if (token == Tokenizer::begin || token == Tokenizer::end) return false;
    take(tokenizer.text(token, before));
    before = token;
    return true;
  };
  continue_text(model, prompt, s.steps, s.sampling, rng, take_token, reading);
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program("Writes text with a model that others have trained.");
  add_options(program, s);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    check_sampling(s.sampling);
    ag::check_argument(program.app.count("--sinks") == 0 || s.window > 0 || s.sparse,
                       "--sinks is for --window and --budget, got neither");
    const auto [tokenizer, model] = load(s.files);
    const ReadingOptions reading = reading_options(s, model.options.layers, common.seed);
    ag::Rng rng(common.seed);
    std::string text = s.prompt;
    if (!common.json) std::cout << s.prompt << std::flush;
    const auto start = std::chrono::steady_clock::now();
    const std::size_t count =
        write_text(model, tokenizer, s, reading, rng, [&](const std::string& piece) {
          text += piece;
          if (!common.json) std::cout << piece << std::flush;
        });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (common.json)
      std::cout << nlohmann::json{{"text", text}, {"tokens", count}, {"seconds", took.count()}}
                       .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                << "\n";
    else
      std::cout << "\n";
    std::fprintf(stderr, "%zu tokens in %.2f s: %.0f tokens/s\n", count, took.count(),
                 double(count) / took.count());
    return 0;
  });
}
