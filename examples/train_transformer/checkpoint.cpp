#include "examples/train_transformer/checkpoint.hpp"

#include <set>

#include "examples/common/training_file.hpp"

namespace {

const char* const key = "train_transformer";
constexpr std::size_t most_steps = std::size_t{1} << 40;

nlohmann::json json_of(const ModelSettings& m) {
  return {{"layers", m.layers},         {"heads", m.heads}, {"width", m.width},
          {"context", m.context},       {"bias", m.bias},   {"tied", m.tied},
          {"activation", m.activation}, {"unit", m.unit},   {"optimizer", m.optimizer}};
}

ModelSettings model_in(const CheckedJson& shape) {
  const auto size = [&](const char* of) { return shape.at(of).whole(1, std::size_t{1} << 31); };
  const ModelSettings m{.unit = shape.at("unit").word_of(unit_names()),
                        .activation = shape.at("activation").word_of(activation_names()),
                        .optimizer = shape.at("optimizer").word_of(optimizer_names()),
                        .layers = size("layers"),
                        .heads = size("heads"),
                        .width = size("width"),
                        .context = size("context"),
                        .bias = shape.at("bias").truth(),
                        .tied = shape.at("tied").truth()};
  if (m.width % m.heads != 0)
    shape.at("heads").refuse(ag::text("a divisor of the width ", m.width));
  return m;
}

// JSON holds UTF-8 only, so a symbol travels as the numbers of its bytes.
nlohmann::json bytes_of(const std::vector<std::string>& symbols) {
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& symbol : symbols)
    all.push_back(std::vector<std::uint8_t>(symbol.begin(), symbol.end()));
  return all;
}

std::vector<std::string> symbols_in(const CheckedJson& alphabet, Unit unit) {
  std::vector<std::string> symbols;
  std::set<std::string> distinct;
  for (const CheckedJson& bytes : alphabet.list(1, 1 << 21)) {
    std::string symbol;
    for (const CheckedJson& byte : bytes.list(1, unit == Unit::byte ? 1 : 4))
      symbol += char(byte.whole(0, 255));
    if (!distinct.insert(symbol).second) bytes.refuse("a symbol that did not come before");
    symbols.push_back(symbol);
  }
  return symbols;
}

// A model is made before its weights are looked at one by one, so it must not be larger than what
// the file can fill.
void check_size(const std::string& name, const ag::safetensors::File& file,
                const Checkpoint& checkpoint) {
  std::size_t held = 0;  // at least one byte a number
  for (const ag::safetensors::Tensor& x : file.tensors) held += x.bytes.size();
  const ModelSettings& m = checkpoint.model;
  const double width = double(m.width);
  const double needed =
      12 * double(m.layers) * width * width + double(m.context + checkpoint.symbols.size()) * width;
  if (double(held) < needed)
    throw ag::FileError(ag::text(name, ": the arrays must hold ", needed, " bytes and more for ",
                                 m.layers, " layers of width ", m.width, ", a context of ",
                                 m.context, " and ", checkpoint.symbols.size(), " symbols, hold ",
                                 held));
}

}  // namespace

const std::vector<std::string>& unit_names() {
  static const std::vector<std::string> all{"character", "byte"};
  return all;
}

const std::vector<std::string>& activation_names() {
  static const std::vector<std::string> all{"gelu", "gelu_tanh"};
  return all;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> all{"sgd", "momentum", "adam", "adamw"};
  return all;
}

Unit unit_of(const ModelSettings& model) {
  return model.unit == "byte" ? Unit::byte : Unit::character;
}

Checkpoint read_checkpoint(const std::string& path) {
  const std::string name = "load: " + path;
  const ag::safetensors::File file = ag::safetensors::read(path);
  const CheckedJson state = metadata_in(file, key, name);
  const ModelSettings model = model_in(state.at("shape"));
  const Checkpoint checkpoint{.model = model,
                              .symbols = symbols_in(state.at("alphabet"), unit_of(model)),
                              .step = state.at("step").whole(0, most_steps),
                              .batches = generator_in(state.at("batches")),
                              .dropouts = generator_in(state.at("dropouts"))};
  check_size(name, file, checkpoint);
  return checkpoint;
}

ag::safetensors::Metadata metadata_of(const Checkpoint& c) {
  const nlohmann::json state{{"shape", json_of(c.model)},
                             {"alphabet", bytes_of(c.symbols)},
                             {"step", c.step},
                             {"batches", json_of(c.batches)},
                             {"dropouts", json_of(c.dropouts)}};
  return {{key, state.dump()}};
}
