#include "examples/common/training_file.hpp"

#include <filesystem>

namespace {

const char* const key = "training";

// What the file says beside its arrays; null if there is no file.
nlohmann::json state_of(const std::string& path, const nlohmann::json& settings) {
  if (path.empty() || !std::filesystem::exists(path)) return nullptr;
  const auto metadata = ag::safetensors::read(path).metadata;
  const auto found = metadata.find(key);
  const auto state = found == metadata.end() ? nlohmann::json()
                                             : nlohmann::json::parse(found->second, nullptr, false);
  if (!state.is_object() || state.value("settings", nlohmann::json()) != settings)
    throw ag::FileError(ag::text(
        "training: ", path, " was saved with other settings: needs ", settings.dump(), ", got ",
        state.is_object() ? state.value("settings", nlohmann::json()).dump() : "none"));
  return state;
}

}  // namespace

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

TrainingFile::Progress TrainingFile::look(const std::string& path, const nlohmann::json& settings) {
  const nlohmann::json state = state_of(path, settings);
  return state.is_null() ? Progress()
                         : Progress{state.at("step").get<std::size_t>(), state.at("measured")};
}

TrainingFile::Progress TrainingFile::load() {
  const nlohmann::json state = state_of(path_, settings_);
  if (state.is_null()) return {};
  try {  // all of it, before anything changes
    const auto& generators = state.at("generators");
    if (generators.size() != generators_.size())
      throw ag::FileError(ag::text("training: ", path_, " must hold ", generators_.size(),
                                   " generators, got ", generators.size()));
    std::vector<ag::Rng> restored;
    for (const auto& at : generators)
      restored.emplace_back(at.at(0).get<std::uint64_t>(), at.at(1).get<std::uint64_t>());
    Progress progress{state.at("step").get<std::size_t>(), state.at("measured")};
    ag::load(values(), path_);
    for (std::size_t i = 0; i < restored.size(); ++i) *generators_[i] = restored[i];
    return progress;
  } catch (const nlohmann::json::exception& error) {
    throw ag::FileError(ag::text("training: ", path_, " is damaged: ", error.what()));
  }
}

void TrainingFile::save(const Progress& progress) const {
  if (path_.empty()) return;
  nlohmann::json generators = nlohmann::json::array();
  for (const ag::Rng* rng : generators_) generators.push_back({rng->seed(), rng->offset()});
  const nlohmann::json state{{"settings", settings_},
                             {"step", progress.step},
                             {"measured", progress.measured},
                             {"generators", generators}};
  ag::save(values(), path_, {{key, state.dump()}});
}
