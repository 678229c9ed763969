// What a saved training of the character model says beside its arrays.
#pragma once

#include <string>
#include <vector>

#include "core/core.hpp"
#include "examples/common/text.hpp"

// What travels with a checkpoint, for it shapes what is saved.
struct ModelSettings {
  std::string unit = "character", activation = "gelu", optimizer = "adamw";
  std::size_t layers = 4, heads = 4, width = 128, context = 64;
  bool bias = true, tied = true;
};

const std::vector<std::string>& unit_names();
const std::vector<std::string>& activation_names();
const std::vector<std::string>& optimizer_names();
Unit unit_of(const ModelSettings& model);

struct Checkpoint {
  ModelSettings model;
  std::vector<std::string> symbols;  // of the alphabet
  std::size_t step;
  ag::Rng batches, dropouts;
};

// Throws attngrad::FileError, naming the file, for one of another program, for whatever is missing,
// of another kind or out of range, and for arrays that are too few for the model.
Checkpoint read_checkpoint(const std::string& path);

ag::safetensors::Metadata metadata_of(const Checkpoint& checkpoint);
