// A training that can stop and go on: everything that must be kept so that it continues with the
// same bits, in one safetensors file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/core.hpp"
#include "optim/optim.hpp"

namespace ag = attngrad;

class TrainingFile {
 public:
  // Where a folder keeps the training of this name; empty without a folder.
  static std::string path_in(const std::string& folder, const std::string& name);
  // path: empty means that nothing is kept. settings: what a file must have been saved with to be
  // gone on from.
  TrainingFile(std::string path, nlohmann::json settings, const ag::Parameters& model,
               ag::Optimizer& optimizer, std::vector<ag::Rng*> generators);

  struct Progress {
    std::size_t step = 0;
    nlohmann::json measured = nlohmann::json::array();  // whatever the program noted on the way
  };
  // What a file holds, without touching anything; a fresh start if there is none. Throws
  // attngrad::FileError for one that was saved with other settings.
  static Progress look(const std::string& path, const nlohmann::json& settings);
  // What was saved, with model, optimiser and generators put back as they were; a fresh start if
  // there is no file. Throws as look().
  Progress load();
  void save(const Progress& progress) const;

 private:
  ag::Parameters values() const;

  std::string path_;
  nlohmann::json settings_;
  ag::Parameters model_;
  ag::Optimizer& optimizer_;
  std::vector<ag::Rng*> generators_;
};
