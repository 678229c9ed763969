#include "examples/common/llama_files.hpp"

#include "core/errors.hpp"
#include "layers/llama.hpp"

LlamaOptions add_llama_options(CLI::App& app, LlamaFiles& files) {
  CLI::Option* model = app.add_option("--model", files.model,
                                      "the weights: Meta's names with the sizes as metadata, or "
                                      "Hugging Face's with config.json beside them");
  CLI::Option* tokenizer =
      app.add_option("--tokenizer", files.tokenizer, "the vocabulary, as llama2.c's tok512.bin");
  return {model->needs(tokenizer), tokenizer->needs(model)};
}

Llama load(const LlamaFiles& files) {
  Llama llama{Tokenizer(files.tokenizer), ag::load_llama(files.model)};
  ag::check_argument(llama.model.options.vocabulary == llama.tokenizer.size(), "the model has ",
                     llama.model.options.vocabulary, " tokens, the tokenizer ",
                     llama.tokenizer.size());
  return llama;
}
