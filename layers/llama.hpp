// Models shaped like Llama that others have trained: a Transformer with RMS norms, rotary
// positions, shared key heads and a SwiGLU feed-forward part, and its weights from a safetensors
// file.
//
// Source of the shape: Touvron et al., "LLaMA", arXiv:2302.13971, section 2.2; of the names: the
// "Llama" model of Hugging Face's transformers, and Meta's own code as llama2.c keeps it.
#pragma once

#include <filesystem>

#include "core/checkpoint.hpp"
#include "layers/transformer.hpp"

namespace attngrad {

// Who named the tensors, and so who paired the numbers that turn together: Hugging Face
// ("model.layers.0.self_attn.q_proj.weight", halves) or Meta ("layers.0.attention.wq.weight",
// neighbours).
enum class LlamaNames { hugging_face, meta };

inline namespace ATTNGRAD_PRECISION {

// The options of a model from a config.json with Hugging Face's keys:
//   vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads; and where
//   given num_key_value_heads, max_position_embeddings (2048), rms_norm_eps (1e-6), rope_theta
//   (10000), tie_word_embeddings (false).
// Throws FileError, naming the file and the key, for a file that is no such object, for a number
// that is missing or not in its range, and for what this model has not: another hidden_act than
// "silu", attention_bias, mlp_bias, rope_scaling, a head_dim of its own.
TransformerOptions llama_options(const std::filesystem::path& config);
// The same from the metadata of a file with Meta's names: dim, hidden_dim, n_layers, n_heads,
// n_kv_heads, vocab_size, max_seq_len, rope_theta, norm_eps. The head is tied.
TransformerOptions llama_options(const safetensors::Metadata& metadata);

// Where the tensors of such a file go: our maps to queries, keys and values are one, and so are the
// two that enter the feed-forward part.
std::vector<Placement> llama_placements(const TransformerOptions& options, LlamaNames names);

// The model of a file. With Hugging Face's names its options come from the config.json in the same
// folder, with Meta's from the metadata; `kernel` runs its attention. Throws FileError as
// llama_options() and load() do, and where the tensors have neither's names; ArgumentError for
// options that do not go together.
Transformer load_llama(const std::filesystem::path& weights,
                       const AttentionKernel& kernel = flash_attention);

// Writes a model so that load_llama() and others read it: with rotary pairs of halves under Hugging
// Face's names and with a config.json in the same folder, where it replaces another, with
// neighbours under Meta's names and with the sizes as metadata. Throws ArgumentError, before
// anything is written, for a model that is not shaped like Llama, and with Meta's names for a head
// that is not tied; FileError where a file cannot be written.
void save_llama(const Transformer& model, const std::filesystem::path& weights);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
