// Decoding with a cache, token by token, of models shaped like Llama with random weights: one line
// of JSON for each size, our side of peers/torch_decode.py.
#include <cstdio>

#include "core/core.hpp"
#include "core/kernels/vector.hpp"
#include "core/parallel.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/timing.hpp"
#include "layers/layers.hpp"

namespace ag = attngrad;

namespace {

struct Config {
  const char* name;
  std::size_t vocabulary, width, layers, heads, key_heads, hidden;
};
// The first is the size of the model stories260K.
constexpr Config configs[] = {{"260k", 512, 64, 5, 8, 4, 172},
                              {"10M", 8192, 320, 6, 5, 5, 864},
                              {"100M", 32000, 768, 12, 12, 12, 2048}};
constexpr std::size_t context = 768, prompt = 512, decoded = 32;

ag::Transformer random_model(const Config& c) {
  ag::Rng rng(1);
  return ag::Transformer({.vocabulary = c.vocabulary,
                          .context = context,
                          .width = c.width,
                          .heads = c.heads,
                          .key_heads = c.key_heads,
                          .layers = c.layers,
                          .bias = false,
                          .norm = ag::NormKind::rms,
                          .positions = ag::Positions::rotary,
                          .activation = ag::silu,
                          .gated = true,
                          .hidden = c.hidden},
                         rng);
}

// Gigabytes a second that all threads together read from memory.
double read_bandwidth() {
  static const ag::Array numbers({std::size_t{64} << 20}, 1.0f);  // 256 MiB, where weights lie too
  constexpr std::size_t piece = 1 << 16;
  std::vector<float> tops(numbers.size() / piece);
  const Timing timing = time_of([&] {
    ag::parallel_for(tops.size(), [&](std::size_t i) {
      tops[i] = ag::kernels::vector_kernels<float>().max(numbers.data() + i * piece, piece);
    });
  });
  return double(numbers.size() * sizeof(float)) / timing.least_ms / 1e6;
}

void measure(const Config& c) {
  const ag::Transformer model = random_model(c);
  ag::Rng rng(2);
  const auto vocabulary = std::int64_t(c.vocabulary);
  const ag::Indices tokens = rng.integers(0, vocabulary, {1, prompt});
  ag::TransformerCache cache = model.make_cache(1);
  const Timing prefill = time_of([&] {
    cache.clear();
    model.decode(tokens, cache);
  });
  const Timing decoding = time_of([&] {
    cache.truncate({prompt});
    for (std::size_t i = 0; i < decoded; ++i)
      model.decode(rng.integers(0, vocabulary, {1, 1}), cache);
  });
  const std::size_t parameters = ag::parameters(model).count();
  const double token_ms = decoding.median_ms / double(decoded);
  const nlohmann::json line{
      {"config", c.name},
      {"threads", ag::threads()},
      {"parameters", parameters},
      {"token_ms", token_ms},
      {"tokens_per_s", 1000 / token_ms},
      {"prefill_ms", prefill.median_ms},
      {"read_ms", double(parameters * sizeof(float)) / read_bandwidth() / 1e6}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Program program("Times decoding with a cache, and a prompt of 512 tokens.");
  std::string only;
  program.app.add_option("--config", only, "one size alone")
      ->check(CLI::IsMember({"260k", "10M", "100M"}));
  return program.run(argc, argv, [&](const CommonOptions&) {
    for (const Config& c : configs)
      if (only.empty() || only == c.name) measure(c);
    return 0;
  });
}
