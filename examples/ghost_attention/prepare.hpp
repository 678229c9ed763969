// ghost_attention prepare: the recipe on a person's own dialogues, from one file to another.
#pragma once

#include "core/random.hpp"
#include "examples/common/llama_files.hpp"
#include "examples/ghost_attention/recipe.hpp"

struct PrepareSettings {
  std::string input, output;
  std::string attach = "first";  // everywhere, first or none
  bool last_answer_only = true;  // else every answer's loss counts
  bool synthesise = false;       // an instruction for dialogues that have none
  bool rewrite = false;          // instructions that are there, in few words
  std::string instructions;      // a file of parts for that; empty: the built-in lists
  double terse_share = 0.5;      // of the synthesised and rewritten ones
  LlamaFiles files;              // who answers again; empty: answers stay
  std::size_t candidates = 1;    // of which the likeliest answer is kept
  double temperature = 0.8;
  std::size_t most_tokens = 64;  // of an answer
};

// Returns how many dialogues were written. Throws attngrad::FileError and ArgumentError, before
// anything is written, for bad files and settings.
std::size_t prepare(const PrepareSettings& settings, ag::Rng& rng);
