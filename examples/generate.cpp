// Writes text with a model that others have trained: Llama-shaped, from a safetensors file, with a
// vocabulary in llama2.c's format.
#include <chrono>
#include <cstdio>
#include <iostream>

#include "examples/common/command_line.hpp"
#include "examples/common/sampling.hpp"
#include "examples/common/tokenizer.hpp"
#include "layers/llama.hpp"

namespace {

struct Settings {
  std::string model, tokenizer, prompt;
  std::size_t steps = 200;
  SamplingOptions sampling{.temperature = 0.8, .top_k = 0, .top_p = 0.9};
};

void add_options(Program& program, Settings& s) {
  program.app
      .add_option("--model", s.model,
                  "the weights: Meta's names with the sizes as metadata, or Hugging Face's with "
                  "config.json beside them")
      ->required();
  program.app.add_option("--tokenizer", s.tokenizer, "the vocabulary, as llama2.c's tok512.bin")
      ->required();
  program.app.add_option("--prompt", s.prompt, "how the text begins");
  program.size_option("--steps", s.steps, "tokens, unless the text ends before");
  add_sampling_options(program, s.sampling);
}

void check_vocabulary(const ag::Transformer& model, const Tokenizer& tokenizer) {
  ag::check_argument(model.options.vocabulary == tokenizer.size(), "generate: the model has ",
                     model.options.vocabulary, " tokens, the tokenizer ", tokenizer.size());
}

// Hands out each piece as it comes; returns how many tokens there were.
std::size_t write_text(const ag::Transformer& model, const Tokenizer& tokenizer, const Settings& s,
                       ag::Rng& rng, const std::function<void(const std::string&)>& take) {
  const std::vector<std::int64_t> prompt = tokenizer.encode(s.prompt);
  std::int64_t before = prompt.back();
  std::size_t count = 0;
  continue_text(model, prompt, s.steps, s.sampling, rng, [&](std::int64_t token) {
    ++count;
    if (token == Tokenizer::begin || token == Tokenizer::end) return false;
    take(tokenizer.text(token, before));
    before = token;
    return true;
  });
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program("Writes text with a model that others have trained.");
  add_options(program, s);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    check_sampling(s.sampling);
    const Tokenizer tokenizer(s.tokenizer);
    const ag::Transformer model = ag::load_llama(s.model);
    check_vocabulary(model, tokenizer);
    ag::Rng rng(common.seed);
    std::string text = s.prompt;
    if (!common.json) std::cout << s.prompt << std::flush;
    const auto start = std::chrono::steady_clock::now();
    const std::size_t count = write_text(model, tokenizer, s, rng, [&](const std::string& piece) {
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
