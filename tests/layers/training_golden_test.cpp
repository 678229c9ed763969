// Training against PyTorch in float64: losses of 20 steps, the norm of every first gradient, and
// the final weights.
//
// The small one stands beside its script (tests/reference/training_golden.py) and always runs. A
// larger one is read from the folder that ATTNGRAD_DATA names, or from ../shared/data, where there
// is one.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/test.hpp"
#include "core/files/safetensors.hpp"
#include "core/ops/loss.hpp"
#include "layers/transformer.hpp"
#include "optim/optim.hpp"

namespace {

namespace fs = std::filesystem;

// The name that the model of the script gives a parameter of ours.
std::string torch_name(std::string name) {
  const std::pair<const char*, const char*> renamed[] = {
      {"token_embedding", "tok"}, {"position_embedding", "pos"}, {"norm1", "ln1"},
      {"norm2", "ln2"},           {"attention.qkv", "qkv"},      {"attention.projection", "proj"},
      {"feed_forward.up", "fc1"}, {"feed_forward.down", "fc2"},  {"norm.", "ln."}};
  for (const auto& [ours, theirs] : renamed)
    if (const auto at = name.find(ours); at != std::string::npos)
      name.replace(at, std::string(ours).size(), theirs);
  return name;
}

void load_weights(const ag::Parameters& parameters, const fs::path& path) {
  const ag::safetensors::File file = ag::safetensors::read(path);
  REQUIRE(file.tensors.size() == parameters.size());
  for (const auto& [name, value] : parameters) {
    const ag::safetensors::Tensor* tensor = file.find(torch_name(name));
    CAPTURE(name, torch_name(name));
    REQUIRE(tensor != nullptr);
    Variable(value).assign(ag::array_of(ag::safetensors::numbers(*tensor), value.shape()));
  }
}

std::unique_ptr<ag::Optimizer> make_optimizer(const std::string& name,
                                              const ag::Parameters& parameters) {
  if (name == "sgd") return std::make_unique<ag::Sgd>(parameters);
  if (name == "momentum")
    return std::make_unique<ag::Sgd>(
        parameters,
        ag::SgdOptions{
            .momentum = 0.9, .nesterov = true, .weight_decay = 0.01, .decays = ag::decay_all});
  return std::make_unique<ag::AdamW>(parameters, ag::AdamWOptions{.beta1 = 0.9,
                                                                  .beta2 = 0.95,
                                                                  .epsilon = 1e-8,
                                                                  .weight_decay = 0.1,
                                                                  .decays = ag::decay_all});
}

double rate_of(const std::string& name) {
  return name == "sgd" ? 0.1 : name == "momentum" ? 0.05 : 1e-3;
}

// Token t of sequence b in step s is (7 s + 3 b^2 + 5 t + (b t) mod 11) mod vocabulary.
std::pair<ag::Indices, ag::Indices> batch_of(std::size_t step, std::size_t batch,
                                             std::size_t context, std::size_t vocab) {
  ag::Indices inputs = ag::Indices::from_shape({batch, context}), targets = inputs;
  const auto token = [&](std::size_t b, std::size_t t) {
    return std::int64_t((7 * step + 3 * b * b + 5 * t + (b * t) % 11) % vocab);
  };
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t t = 0; t < context; ++t) {
      inputs.data()[b * context + t] = token(b, t);
      targets.data()[b * context + t] = token(b, t + 1);
    }
  return {inputs, targets};
}

void follow(const fs::path& folder, const std::string& optimizer_name, const std::string& kernel) {
  CAPTURE(folder.string(), optimizer_name, kernel);
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(folder / "golden.json"));
  const auto& config = golden["config"];
  const auto& expected = golden["optimizers"][optimizer_name];
  const auto size = [&](const char* name) { return config[name].get<std::size_t>(); };
  ag::Rng rng(1);
  const ag::Transformer model({.vocabulary = size("vocab"),
                               .context = size("context"),
                               .width = size("width"),
                               .heads = size("heads"),
                               .layers = size("layers"),
                               .activation = ag::gelu_tanh,
                               .kernel = ag::attention_kernel(kernel)},
                              rng);
  const ag::Parameters parameters = ag::parameters(model);
  load_weights(parameters, folder / "initial.safetensors");
  const auto optimizer = make_optimizer(optimizer_name, parameters);
  for (std::size_t step = 0; step < 20; ++step) {
    const auto [inputs, targets] = batch_of(step, size("batch"), size("context"), size("vocab"));
    Tape tape;
    const Variable loss = ag::cross_entropy(model(inputs), targets);
    const ag::Gradients gradients = tape.gradients(loss);
    CAPTURE(step);
    const double wanted = expected["losses"][step].get<double>();
    REQUIRE(std::abs(loss.item() - wanted) <= tolerance(1e-10, 1e-6) * wanted);
    for (const auto& [name, value] : parameters) {
      if (step > 0) break;
      const Array g = gradients.of(value).value();
      double square = 0;
      for (const Real entry : g) square += double(entry) * double(entry);
      const double norm = expected["first_gradient_norms"][torch_name(name)].get<double>();
      CAPTURE(name, std::sqrt(square), norm);
      REQUIRE(std::abs(std::sqrt(square) - norm) <= tolerance(1e-9, 1e-4) * norm);
    }
    optimizer->step(gradients, rate_of(optimizer_name));
  }
  if (!in_double) return;  // the bounds of the weights are for double
  const ag::safetensors::File final_weights =
      ag::safetensors::read(folder / ("final_" + optimizer_name + ".safetensors"));
  for (const auto& [name, value] : parameters) {
    const Array wanted = ag::array_of(
        ag::safetensors::numbers(*final_weights.find(torch_name(name))), value.shape());
    CAPTURE(name);
    REQUIRE(ag::relative_difference(value.value(), wanted) <= 1e-9);
  }
}

}  // namespace

TEST_CASE("training follows PyTorch's float64 run for 20 steps", "[golden]") {
  const std::string optimizer = GENERATE("sgd", "momentum", "adamw");
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  follow(fs::path(ATTNGRAD_SOURCES) / "tests/reference/training_golden", optimizer, kernel);
}

TEST_CASE("training follows the larger PyTorch run, where its data is", "[golden]") {
  const char* named = std::getenv("ATTNGRAD_DATA");
  const fs::path data = named ? fs::path(named) : fs::path(ATTNGRAD_SOURCES) / "../shared/data";
  if (!fs::exists(data / "training_golden/golden.json")) {
    WARN("skipped: no training_golden in " << data
                                           << "; ATTNGRAD_DATA names the folder that holds it");
    return;
  }
  const std::string optimizer = GENERATE("sgd", "momentum", "adamw");
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  follow(data / "training_golden", optimizer, kernel);
}
