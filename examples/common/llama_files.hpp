// A model that others have trained and its vocabulary, as the files that the command line names.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "examples/common/tokenizer.hpp"
#include "layers/transformer.hpp"

namespace ag = attngrad;

struct LlamaFiles {
  std::string model, tokenizer;  // paths; empty: not given
};

// --model and --tokenizer, neither without the other.
struct LlamaOptions {
  CLI::Option *model, *tokenizer;
};
LlamaOptions add_llama_options(CLI::App& app, LlamaFiles& files);

struct Llama {
  Tokenizer tokenizer;
  ag::Transformer model;
};
// Throws attngrad::FileError for a file that cannot be read, attngrad::ArgumentError unless the
// model has as many tokens as the vocabulary.
Llama load(const LlamaFiles& files);
