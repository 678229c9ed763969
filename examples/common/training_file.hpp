// A training that can stop and go on: everything that must be kept so that it continues with the
// same bits, in one safetensors file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/core.hpp"
#include "examples/common/checked_json.hpp"
#include "optim/optim.hpp"

namespace ag = attngrad;

// What a file of arrays says under this key of its metadata. name: how messages begin. Throws
// attngrad::FileError for a file without the key, and for what is no JSON object.
CheckedJson metadata_in(const ag::safetensors::File& file, const std::string& key,
                        const std::string& name);

nlohmann::json json_of(const ag::Rng& rng);
ag::Rng generator_in(const CheckedJson& json);

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
  // attngrad::FileError for one that was saved with other settings or after more steps, and for a
  // damaged one.
  static Progress look(const std::string& path, const nlohmann::json& settings,
                       std::size_t most_steps);
  // What was saved, with model, optimiser and generators put back as they were; a fresh start if
  // there is no file. Throws as look().
  Progress load(std::size_t most_steps);
  // What the program noted, for it to read and check.
  static CheckedJson measured(const std::string& path, const Progress& progress);
  CheckedJson measured(const Progress& progress) const { return measured(path_, progress); }
  void save(const Progress& progress) const;

 private:
  ag::Parameters values() const;

  std::string path_;
  nlohmann::json settings_;
  ag::Parameters model_;
  ag::Optimizer& optimizer_;
  std::vector<ag::Rng*> generators_;
};
