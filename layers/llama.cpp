#include "layers/llama.hpp"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/files/atomic_file.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// The numbers of a configuration, whoever wrote it.
struct LlamaSizes {
  double vocabulary, context, width, hidden, layers, heads, key_heads, theta, epsilon;
  bool tied;
};

// Throws FileError unless the number is whole and from 1 to `most`.
std::size_t whole(const char* key, double number, std::size_t most = std::size_t{1} << 31) {
  if (!(number >= 1 && number <= double(most) && number == std::floor(number)))
    throw FileError(text(key, " must be a whole number from 1 to ", most, ", got ", number));
  return std::size_t(number);
}

TransformerOptions options_of(const LlamaSizes& s, RotaryPairs pairs) {
  if (!(s.theta > 0 && std::isfinite(s.theta)))
    throw FileError(text("rope_theta must be positive, got ", s.theta));
  if (!(s.epsilon >= 0 && s.epsilon < 1))
    throw FileError(text("the norm's epsilon must be in [0, 1), got ", s.epsilon));
  return {.vocabulary = whole("the vocabulary", s.vocabulary),
          .context = whole("the context", s.context, 1 << 20),  // each layer has a table of so many
          .width = whole("the width", s.width),
          .heads = whole("the heads", s.heads),
          .key_heads = whole("the key heads", s.key_heads),
          .layers = whole("the layers", s.layers),
          .bias = false,
          .tied = s.tied,
          .norm = NormKind::rms,
          .norm_epsilon = Real(s.epsilon),
          .positions = Positions::rotary,
          .rotary = {.base = s.theta, .pairs = pairs},
          .activation = silu,
          .gated = true,
          .hidden = whole("the hidden width", s.hidden)};
}

// `given` with the file's name before what it throws.
template <class Given>
auto naming(const std::filesystem::path& path, const Given& given) {
  try {
    return given();
  } catch (const FileError& error) {
    throw FileError(text("llama: ", path.string(), ": ", error.what()));
  }
}

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw FileError("cannot be opened");
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object()) throw FileError("is not a JSON object");
  return json;
}

// For a message: of a list or an object only what it is, for it may be deep.
std::string shown(const nlohmann::json& value) {
  return value.is_structured() ? text("an ", value.type_name()) : value.dump();
}

double number_in(const nlohmann::json& config, const char* key, std::optional<double> otherwise) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    if (!otherwise) throw FileError(text("has no ", key));
    return *otherwise;
  }
  if (!found->is_number()) throw FileError(text(key, " must be a number, is ", shown(*found)));
  return found->get<double>();
}

// Throws FileError unless the key is absent, null, or has this value.
void check_is(const nlohmann::json& config, const char* key, const nlohmann::json& only) {
  const auto found = config.find(key);
  if (found != config.end() && !found->is_null() && *found != only)
    throw FileError(text(key, " must be ", only.dump(), ", is ", shown(*found)));
}

LlamaSizes sizes_of(const nlohmann::json& config) {
  const auto number = [&](const char* key, std::optional<double> otherwise = std::nullopt) {
    return number_in(config, key, otherwise);
  };
  const double width = number("hidden_size"), heads = number("num_attention_heads");
  for (const char* bias : {"attention_bias", "mlp_bias"}) check_is(config, bias, false);
  check_is(config, "model_type", "llama");
  check_is(config, "hidden_act", "silu");
  for (const char* other : {"rope_scaling", "rope_parameters"}) check_is(config, other, nullptr);
  check_is(config, "head_dim", width / heads);
  const auto tied = config.find("tie_word_embeddings");
  if (tied != config.end() && !tied->is_boolean())
    throw FileError(text("tie_word_embeddings must be true or false, is ", shown(*tied)));
  return {.vocabulary = number("vocab_size"),
          .context = number("max_position_embeddings", 2048),
          .width = width,
          .hidden = number("intermediate_size"),
          .layers = number("num_hidden_layers"),
          .heads = heads,
          .key_heads = number("num_key_value_heads", heads),
          .theta = number("rope_theta", 10000),
          .epsilon = number("rms_norm_eps", 1e-6),
          .tied = tied != config.end() && tied->get<bool>()};
}

double number_in(const safetensors::Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) throw FileError(text("the metadata has no ", key));
  const nlohmann::json number = nlohmann::json::parse(found->second, nullptr, false);
  if (!number.is_number())
    throw FileError(text("the metadata's ", key, " must be a number, is ", found->second));
  return number.get<double>();
}

// A map of ours and the tensors, by either's name, that it is made of, with the rows of each.
struct Part {
  std::string variable;
  std::size_t first_row;
  const char *hugging_face, *meta;
};

std::vector<Part> parts_of_block(const TransformerOptions& o) {
  const std::size_t head = o.width / o.heads, keys = o.key_heads.value_or(o.heads) * head;
  return {
      {"norm1.weight", 0, "input_layernorm", "attention_norm"},
      {"attention.qkv.weight", 0, "self_attn.q_proj", "attention.wq"},
      {"attention.qkv.weight", o.width, "self_attn.k_proj", "attention.wk"},
      {"attention.qkv.weight", o.width + keys, "self_attn.v_proj", "attention.wv"},
      {"attention.projection.weight", 0, "self_attn.o_proj", "attention.wo"},
      {"norm2.weight", 0, "post_attention_layernorm", "ffn_norm"},
      {"feed_forward.up.weight", 0, "mlp.gate_proj", "feed_forward.w1"},
      {"feed_forward.up.weight", o.hidden.value_or(4 * o.width), "mlp.up_proj", "feed_forward.w3"},
      {"feed_forward.down.weight", 0, "mlp.down_proj", "feed_forward.w2"}};
}

// Throws FileError unless the file is large enough for a model of these options, which is made
// before its weights are looked at one by one.
void check_size(const safetensors::File& file, const safetensors::Tensor& tokens,
                const TransformerOptions& o) {
  if (tokens.shape != safetensors::Sizes{o.vocabulary, o.width})
    throw FileError(
        text(tokens.name, " must be (", o.vocabulary, ", ", o.width, "), is ", tokens.shape));
  std::size_t held = 0;
  for (const safetensors::Tensor& x : file.tensors) held += x.bytes.size();
  // of each layer the three maps of its feed-forward part and its two norms, in two bytes a number
  const double least = 2.0 * double(o.layers) * double(o.width) * double(3 * *o.hidden + 2);
  if (double(held) < least)
    throw FileError(text("holds ", held, " bytes, ", o.layers, " layers of ", *o.hidden,
                         " hidden numbers take ", least, " and more"));
}

// Weights that will be replaced.
Array not_yet(Rng&, const Shape& shape) { return zeros(shape); }

// Tables that some files hold and every model works out by itself.
bool is_rotary_table(const std::string& tensor) { return tensor.ends_with("rotary_emb.inv_freq"); }

nlohmann::json config_of(const TransformerOptions& o) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"vocab_size", o.vocabulary},
          {"max_position_embeddings", o.context},
          {"hidden_size", o.width},
          {"intermediate_size", *o.hidden},
          {"num_hidden_layers", o.layers},
          {"num_attention_heads", o.heads},
          {"num_key_value_heads", o.key_heads.value_or(o.heads)},
          {"rope_theta", o.rotary.base},
          {"rms_norm_eps", double(o.norm_epsilon)},
          {"tie_word_embeddings", o.tied}};
}

safetensors::Metadata metadata_of(const TransformerOptions& o) {
  const auto number = [](double x) { return nlohmann::json(x).dump(); };
  return {{"vocab_size", std::to_string(o.vocabulary)},
          {"max_seq_len", std::to_string(o.context)},
          {"dim", std::to_string(o.width)},
          {"hidden_dim", std::to_string(*o.hidden)},
          {"n_layers", std::to_string(o.layers)},
          {"n_heads", std::to_string(o.heads)},
          {"n_kv_heads", std::to_string(o.key_heads.value_or(o.heads))},
          {"rope_theta", number(o.rotary.base)},
          {"norm_eps", number(double(o.norm_epsilon))}};
}

void check_shaped_like_llama(const TransformerOptions& o) {
  const AttentionScoresOptions& scores = o.scores;
  const bool plain = !scores.soft_cap && !scores.alibi && !scores.relative_reach && !scores.scale &&
                     scores.steps.empty() && scores.sink == Sink::none && !o.attention &&
                     std::holds_alternative<ResidualSum>(o.residual) && !o.window;
  check_argument(plain && !o.bias && o.layers > 0 && o.norm == NormKind::rms &&
                     o.positions == Positions::rotary && !o.rotary.width &&
                     o.rotary.position_scale == 1 && o.gated && o.activation == silu && o.hidden,
                 "save_llama: the model is not shaped like Llama: it needs RMS norms, rotary "
                 "positions of whole heads, a gated feed-forward part of a given width, and "
                 "neither biases nor other scores, residuals or windows");
  check_argument(o.tied || o.rotary.pairs == RotaryPairs::halves,
                 "save_llama: with Meta's names the head must be tied");
}

}  // namespace

TransformerOptions llama_options(const std::filesystem::path& config) {
  return naming(config,
                [&] { return options_of(sizes_of(read_json(config)), RotaryPairs::halves); });
}

TransformerOptions llama_options(const safetensors::Metadata& metadata) {
  const auto number = [&](const char* key) { return number_in(metadata, key); };
  return options_of({.vocabulary = number("vocab_size"),
                     .context = number("max_seq_len"),
                     .width = number("dim"),
                     .hidden = number("hidden_dim"),
                     .layers = number("n_layers"),
                     .heads = number("n_heads"),
                     .key_heads = number("n_kv_heads"),
                     .theta = number("rope_theta"),
                     .epsilon = number("norm_eps"),
                     .tied = true},
                    RotaryPairs::neighbours);
}

std::vector<Placement> llama_placements(const TransformerOptions& options, LlamaNames names) {
  const bool theirs = names == LlamaNames::hugging_face;
  const std::string model = theirs ? "model." : "";
  std::vector<Placement> all{{model + (theirs ? "embed_tokens.weight" : "tok_embeddings.weight"),
                              "token_embedding.weight"},
                             {model + "norm.weight", "norm.weight"},
                             {theirs ? "lm_head.weight" : "output.weight",
                              options.tied ? "token_embedding.weight" : "head.weight"}};
  for (std::size_t i = 0; i < options.layers; ++i)
    for (const Part& part : parts_of_block(options))
      all.push_back(
          {text(model, "layers.", i, ".", theirs ? part.hugging_face : part.meta, ".weight"),
           text("blocks.", i, ".", part.variable), part.first_row});
  return all;
}

Transformer load_llama(const std::filesystem::path& weights, const AttentionKernel& kernel) {
  const safetensors::File file = safetensors::read(weights);
  const bool theirs = file.find("model.embed_tokens.weight") != nullptr;
  if (!theirs && file.find("tok_embeddings.weight") == nullptr)
    throw FileError(text("llama: ", weights.string(),
                         ": needs a tensor model.embed_tokens.weight or tok_embeddings.weight, has "
                         "neither"));
  TransformerOptions options = theirs
                                   ? llama_options(weights.parent_path() / "config.json")
                                   : naming(weights, [&] { return llama_options(file.metadata); });
  naming(weights, [&] {
    check_size(file, *file.find(theirs ? "model.embed_tokens.weight" : "tok_embeddings.weight"),
               options);
  });
  options.initialization = not_yet;
  options.kernel = kernel;
  Rng none(0);
  Transformer model(options, none);
  const LoadReport report = load(
      parameters(model), weights,
      {.fit = Fit::file_may_hold_more,
       .names = llama_placements(options, theirs ? LlamaNames::hugging_face : LlamaNames::meta)});
  for (const std::string& name : report.unexpected)
    if (!is_rotary_table(name))
      throw FileError(text("llama: ", weights.string(), ": the tensor ", name, " is unexpected"));
  return model;
}

void save_llama(const Transformer& model, const std::filesystem::path& weights) {
  const TransformerOptions& o = model.options;
  check_shaped_like_llama(o);
  const bool theirs = o.rotary.pairs == RotaryPairs::halves;
  save(parameters(model), weights,
       theirs ? safetensors::Metadata{{"format", "pt"}} : metadata_of(o),
       llama_placements(o, theirs ? LlamaNames::hugging_face : LlamaNames::meta));
  if (theirs)
    write_atomically(weights.parent_path() / "config.json", {config_of(o).dump(2) + "\n"});
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
