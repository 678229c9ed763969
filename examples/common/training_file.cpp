#include "examples/common/training_file.hpp"

#include <filesystem>
#include <limits>
#include <optional>

namespace {

const char* const key = "training";

// Throws unless the settings are these, naming the first that is not.
void check_settings(const std::string& name, const CheckedJson& found,
                    const nlohmann::json& needed) {
  if (found.raw() == needed) return;
  for (const auto& [key, value] : needed.items())
    if (!found.has(key) || found.raw()[key] != value)
      throw ag::FileError(ag::text(name, " was saved with other settings: ", key, " must be ",
                                   value.dump(), ", is ",
                                   found.has(key) ? found.at(key).shown() : "not there"));
  throw ag::FileError(ag::text(name, " was saved with other settings: needs ", needed.size(),
                               ", got ", found.raw().size()));
}

// What the file says beside its arrays; none if there is no file.
std::optional<CheckedJson> state_of(const std::string& path, const nlohmann::json& settings) {
  if (path.empty() || !std::filesystem::exists(path)) return std::nullopt;
  const std::string name = "training: " + path;
  const CheckedJson state = metadata_in(ag::safetensors::read(path), key, name);
  check_settings(name, state.at("settings"), settings);
  return state;
}

TrainingFile::Progress progress_in(const CheckedJson& state, std::size_t most_steps) {
  return {state.at("step").whole(0, most_steps), state.at("measured").raw()};
}

}  // namespace

CheckedJson metadata_in(const ag::safetensors::File& file, const std::string& key,
                        const std::string& name) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end())
    throw ag::FileError(ag::text(name, " was not saved by this program: its metadata must hold \"",
                                 key, "\", holds ", file.metadata.size(), " other texts"));
  return CheckedJson(name, found->second);
}

nlohmann::json json_of(const ag::Rng& rng) { return {rng.seed(), rng.offset()}; }

ag::Rng generator_in(const CheckedJson& json) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  const std::vector<CheckedJson> numbers = json.list(2, 2);
  return ag::Rng(numbers[0].whole(0, most), numbers[1].whole(0, most));
}

TrainingFile::TrainingFile(std::string path, nlohmann::json settings, const ag::Parameters& model,
                           ag::Optimizer& optimizer, std::vector<ag::Rng*> generators)
    : path_(std::move(path)),
      settings_(std::move(settings)),
      model_(model),
      optimizer_(optimizer),
      generators_(std::move(generators)) {}

std::string TrainingFile::path_in(const std::string& folder, const std::string& name) {
  if (folder.empty()) return {};
  return (std::filesystem::path(folder) / (name + ".safetensors")).string();
}

ag::Parameters TrainingFile::values() const {
  ag::Parameters all;
  all.join(model_, "model").join(optimizer_.state(), "optimizer");
  return all;
}

TrainingFile::Progress TrainingFile::look(const std::string& path, const nlohmann::json& settings,
                                          std::size_t most_steps) {
  const auto state = state_of(path, settings);
  return state ? progress_in(*state, most_steps) : Progress();
}

TrainingFile::Progress TrainingFile::load(std::size_t most_steps) {
  const auto state = state_of(path_, settings_);
  if (!state) return {};
  // all of it, before anything changes
  const Progress progress = progress_in(*state, most_steps);
  std::vector<ag::Rng> restored;
  for (const CheckedJson& at : state->at("generators").list(generators_.size(), generators_.size()))
    restored.push_back(generator_in(at));
  ag::load(values(), path_);
  for (std::size_t i = 0; i < restored.size(); ++i) *generators_[i] = restored[i];
  return progress;
}

CheckedJson TrainingFile::measured(const std::string& path, const Progress& progress) {
  return CheckedJson("training: " + path, "measured", progress.measured);
}

void TrainingFile::save(const Progress& progress) const {
  if (path_.empty()) return;
  nlohmann::json generators = nlohmann::json::array();
  for (const ag::Rng* rng : generators_) generators.push_back(json_of(*rng));
  const nlohmann::json state{{"settings", settings_},
                             {"step", progress.step},
                             {"measured", progress.measured},
                             {"generators", generators}};
  ag::save(values(), path_, {{key, state.dump()}});
}
