// A model trained by others, stories260K: its logits, loss and gradients against llama2.c and
// PyTorch in float64; and configurations that must be refused.
#include "layers/llama.hpp"

#include <cstring>

#include "common/data.hpp"
#include "common/temporary_folder.hpp"
#include "common/test.hpp"
#include "core/files/npy.hpp"
#include "core/ops/loss.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/fused.hpp"
#include "optim/optim.hpp"

namespace {

const std::filesystem::path folder = data_folder("llama2c");

// The 49 tokens that llama2.c writes greedily, the first being the start of a text.
std::vector<std::int64_t> greedy_tokens() {
  const auto file = ag::read_npy_tensor(folder / "stories260K_tokens_greedy49.npy");
  std::vector<std::int32_t> tokens(file.bytes.size() / 4);
  std::memcpy(tokens.data(), file.bytes.data(), file.bytes.size());
  return {tokens.begin(), tokens.end()};
}

ag::Indices row_of(const std::vector<std::int64_t>& tokens, std::size_t first, std::size_t count) {
  ag::Indices row = ag::Indices::from_shape({1, count});
  std::copy_n(tokens.begin() + std::ptrdiff_t(first), count, row.data());
  return row;
}

// The largest difference relative to the largest number, beyond what rounding the numbers b to
// float, as the file holds them, may have added.
double largest_relative(const Real* a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double rounding = std::abs(b[i]) * 0x1p-24;
    difference = std::max(difference, std::abs(double(a[i]) - b[i]) - rounding);
    size = std::max(size, std::abs(b[i]));
  }
  return difference / size;
}

}  // namespace

TEST_CASE("stories260K: logits, loss and the gradients of all 47 tensors with every kernel",
          "[llama]") {
  if (!have_data(folder / "stories260K.safetensors")) return;
  const ag::AttentionKernel kernel = GENERATE(ag::AttentionKernel(ag::composed_attention),
                                              ag::fused_attention, ag::flash_attention);
  const ag::Transformer model = ag::load_llama(folder / "stories260K.safetensors", kernel);
  REQUIRE(ag::parameters(model).count() == 260'032);
  const std::vector<std::int64_t> tokens = greedy_tokens();
  REQUIRE(tokens.size() == 49);

  Tape tape;
  const Variable logits = model(row_of(tokens, 0, 48));
  const Array expected = ag::read_npy(folder / "stories260K_logits_greedy48.npy");
  REQUIRE(expected.size() == logits.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    REQUIRE(std::abs(double(logits.value().data()[i]) - double(expected.data()[i])) <= 2e-5);

  const Variable loss = ag::cross_entropy(logits, row_of(tokens, 1, 48));
  REQUIRE(std::abs(double(loss.item()) - 0.335845039607) < tolerance(1e-11, 1e-6));
  const ag::Gradients gradients = tape.gradients(loss);
  const auto file = ag::safetensors::read(folder / "stories260K_grads_greedy48.safetensors");
  const ag::Parameters all = ag::parameters(model);
  std::size_t compared = 0;
  for (const ag::Placement& p : ag::llama_placements(model.options, ag::LlamaNames::meta)) {
    const auto* tensor = file.find(p.tensor);
    if (tensor == nullptr) continue;  // output.weight, which is tied
    const Variable g = gradients.of(all.find(p.variable));
    const std::size_t row = g.size() / g.size(0);
    CAPTURE(p.tensor);
    REQUIRE(largest_relative(g.value().data() + p.first_row * row,
                             ag::safetensors::numbers(*tensor)) < tolerance(1e-9, 1e-4));
    ++compared;
  }
  REQUIRE(compared == 47);
}

TEST_CASE("stories260K: greedy decoding from its cache writes llama2.c's tokens", "[llama]") {
  if (!have_data(folder / "stories260K.safetensors")) return;
  const ag::Transformer model = ag::load_llama(folder / "stories260K.safetensors");
  const std::vector<std::int64_t> tokens = greedy_tokens();
  ag::TransformerCache cache = model.make_cache(1);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const Variable logits = model.decode(row_of(tokens, i, 1), cache);
    const Real* begin = logits.value().data();
    REQUIRE(std::max_element(begin, begin + logits.size()) - begin == tokens[i + 1]);
  }
}

TEST_CASE("a model saved under our names loads like the file it came from", "[llama]") {
  if (!have_data(folder / "stories260K.safetensors")) return;
  const TemporaryFolder there;
  const ag::Transformer model = ag::load_llama(folder / "stories260K.safetensors");
  ag::save(ag::parameters(model), there / "ours");
  ag::Rng rng(1);
  const ag::Transformer again(model.options, rng);
  ag::load(ag::parameters(again), there / "ours");
  const ag::Indices tokens = row_of(greedy_tokens(), 0, 20);
  REQUIRE(model(tokens).value() == again(tokens).value());
}

TEST_CASE("Hugging Face's names and config.json give the model that Meta's do", "[llama]") {
  // a model of random weights, written under their names: what lies beside is what they would write
  const TemporaryFolder there;
  ag::TransformerOptions options{.vocabulary = 11,
                                 .context = 16,
                                 .width = 12,
                                 .heads = 3,
                                 .key_heads = 1,
                                 .layers = 2,
                                 .bias = false,
                                 .tied = false,
                                 .norm = ag::NormKind::rms,
                                 .norm_epsilon = Real(1e-6),
                                 .positions = ag::Positions::rotary,
                                 .rotary = {.base = 500},
                                 .activation = ag::silu,
                                 .gated = true,
                                 .hidden = 20,
                                 .deviation = 0.3};
  ag::Rng rng(3);
  const ag::Transformer model(options, rng);
  const ag::Parameters all = ag::parameters(model);
  const std::map<std::string, std::size_t> rows{{"self_attn.q_proj", 12},
                                                {"self_attn.k_proj", 4},
                                                {"self_attn.v_proj", 4},
                                                {"mlp.gate_proj", 20},
                                                {"mlp.up_proj", 20}};
  ag::safetensors::File file;
  for (const ag::Placement& p : ag::llama_placements(options, ag::LlamaNames::hugging_face)) {
    const Variable& x = all.find(p.variable);
    std::vector<std::size_t> shape(x.shape().begin(), x.shape().end());
    for (const auto& [part, count] : rows)
      if (p.tensor.find(part) != std::string::npos) shape[0] = count;
    const std::size_t row = x.size() / x.size(0);
    const auto* bytes = reinterpret_cast<const std::byte*>(x.value().data() + p.first_row * row);
    file.tensors.push_back({p.tensor,
                            in_double ? ag::safetensors::Dtype::f64 : ag::safetensors::Dtype::f32,
                            shape,
                            {bytes, bytes + shape[0] * row * sizeof(Real)}});
  }
  file.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq",
                          ag::safetensors::Dtype::f32,
                          {2},
                          std::vector<std::byte>(8)});
  ag::safetensors::write(file, there / "model.safetensors");
  const std::string config = R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 12,
    "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 3,
    "num_key_value_heads": 1, "max_position_embeddings": 16, "rope_theta": 500,
    "hidden_act": "silu", "rope_scaling": null)";
  there.write("config.json", config + "}");
  const ag::Transformer loaded = ag::load_llama(there / "model.safetensors");
  ag::Indices tokens{{1, 5, 10, 0, 3}};
  REQUIRE(loaded(tokens).value() == model(tokens).value());

  const auto refuses = [&](const std::string& more, const std::string& words) {
    there.write("config.json", config + more + "}");
    REQUIRE_THROWS_WITH(ag::load_llama(there / "model.safetensors"), ContainsSubstring(words));
  };
  refuses(R"(, "hidden_act": "gelu")", "hidden_act must be \"silu\", is \"gelu\"");
  refuses(R"(, "attention_bias": true)", "attention_bias must be false, is true");
  refuses(R"(, "head_dim": 8)", "head_dim must be");
  refuses(R"(, "vocab_size": 1.5)",
          "the vocabulary must be a whole number from 1 to 2147483648, got 1.5");
  refuses(R"(, "vocab_size": 12)", "embed_tokens.weight must be (12, 12), is (11, 12)");
  refuses(R"(, "num_hidden_layers": 2000000000)", "2000000000 layers of 20 hidden numbers take");
  refuses(R"(, "max_position_embeddings": 2000000000)", "the context must be");
  refuses(R"(, "rope_parameters": {"rope_type": "llama3"})",
          "rope_parameters must be null, is an object");
  refuses(R"(, "num_hidden_layers": "two")", "num_hidden_layers must be a number");
  refuses(R"(, "tie_word_embeddings": 1)", "tie_word_embeddings must be true or false");
  refuses(R"(, "rope_scaling": {"factor": 2})", "rope_scaling must be null");
  refuses(R"(, "num_hidden_layers": 1)", "model.layers.1.");
  refuses(R"(, "num_hidden_layers": 3)", "missing: blocks.2.");
  refuses(", oops", "is not a JSON object");
  std::filesystem::remove(there / "config.json");
  REQUIRE_THROWS_WITH(ag::load_llama(there / "model.safetensors"),
                      ContainsSubstring("config.json: cannot be opened"));
}

TEST_CASE("a model trained further is saved as the file it came from was, and loads again",
          "[llama]") {
  if (!have_data(folder / "stories260K.safetensors")) return;
  const TemporaryFolder there;
  const ag::Transformer model = ag::load_llama(folder / "stories260K.safetensors");
  ag::save_llama(model, there / "same.safetensors");
  const auto before = ag::safetensors::read(folder / "stories260K.safetensors"),
             after = ag::safetensors::read(there / "same.safetensors");
  REQUIRE(after.tensors.size() == 47);
  for (const ag::safetensors::Tensor& x : after.tensors) {
    CAPTURE(x.name);
    const auto* other = before.find(x.name);
    REQUIRE(other != nullptr);
    REQUIRE(other->shape == x.shape);
    REQUIRE(ag::safetensors::numbers(*other) == ag::safetensors::numbers(x));
  }

  const std::vector<std::int64_t> tokens = greedy_tokens();
  const auto loss_of = [&](const ag::Transformer& of) {
    return ag::cross_entropy(of(row_of(tokens, 0, 48)), row_of(tokens, 1, 48));
  };
  const double loss_before = double(loss_of(model).item());
  ag::Adam optimizer(ag::parameters(model));
  for (int step = 0; step < 5; ++step) {
    Tape tape;
    optimizer.step(tape.gradients(loss_of(model)), 1e-3);
  }
  ag::save_llama(model, there / "tuned.safetensors");
  const ag::Transformer again = ag::load_llama(there / "tuned.safetensors");
  REQUIRE(double(loss_of(again).item()) < 0.7 * loss_before);
  REQUIRE(again(row_of(tokens, 0, 20)).value() == model(row_of(tokens, 0, 20)).value());
}

TEST_CASE("what is saved under Hugging Face's names comes with its config.json", "[llama]") {
  const TemporaryFolder there;
  for (const bool tied : {false, true}) {
    ag::TransformerOptions options{.vocabulary = 11,
                                   .context = 16,
                                   .width = 12,
                                   .heads = 3,
                                   .key_heads = 1,
                                   .layers = 2,
                                   .bias = false,
                                   .tied = tied,
                                   .norm = ag::NormKind::rms,
                                   .positions = ag::Positions::rotary,
                                   .activation = ag::silu,
                                   .gated = true,
                                   .hidden = 20};
    ag::Rng rng(3);
    const ag::Transformer model(options, rng);
    ag::save_llama(model, there / "model.safetensors");
    const auto file = ag::safetensors::read(there / "model.safetensors");
    REQUIRE((file.find("lm_head.weight") == nullptr) == tied);
    REQUIRE(file.find("model.layers.1.self_attn.k_proj.weight")->shape ==
            ag::safetensors::Sizes{4, 12});
    const ag::Transformer again = ag::load_llama(there / "model.safetensors");
    REQUIRE(again.options.tied == tied);
    ag::Indices tokens{{1, 5, 10, 0, 3}};
    REQUIRE(again(tokens).value() == model(tokens).value());
    options.bias = true;
    REQUIRE_THROWS_WITH(ag::save_llama(ag::Transformer(options, rng), there / "other.safetensors"),
                        ContainsSubstring("not shaped like Llama"));
    REQUIRE(!std::filesystem::exists(there / "other.safetensors"));
  }
}
