#include "layers/less_is_more.hpp"

#include <algorithm>

#include "layers/attention/decode.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

std::vector<DecodeRole> decode_roles(std::size_t layers,
                                     const std::vector<std::size_t>& selecting) {
  check_argument(!selecting.empty() && selecting.back() < layers,
                 "decode_roles: needs layers below ", layers, " that select, got ", selecting);
  std::vector<DecodeRole> roles(layers, DecodeRole::sparse);
  std::fill_n(roles.begin(), selecting.front(), DecodeRole::dense);
  for (std::size_t i = 0; i < selecting.size(); ++i) {
    check_argument(i == 0 || selecting[i - 1] < selecting[i],
                   "decode_roles: layers that select must rise, got ", selecting);
    roles[selecting[i]] = DecodeRole::select;
  }
  return roles;
}

LessIsMore::LessIsMore(const LessIsMoreOptions& options)
    : options_(options), rng_(options.seed), chosen_(options.roles.size()) {
  checked_selection(options_.selection);
  for (const DecodeRole role : options_.roles) {
    check_argument(role != DecodeRole::sparse,
                   "LessIsMore: a sparse layer needs a selecting one before it, got none");
    if (role == DecodeRole::select) break;
  }
}

const TokenSets* LessIsMore::sets(std::size_t layer) const {
  check_argument(layer < options_.roles.size(), "LessIsMore: layers are below ",
                 options_.roles.size(), ", got ", layer);
  if (!one_token_ || options_.roles[layer] == DecodeRole::dense) return nullptr;
  while (options_.roles[layer] != DecodeRole::select) --layer;
  return &chosen_[layer];
}

void LessIsMore::begin_step(std::size_t layers, std::size_t time, const Continuation& rows) {
  check_argument(layers == options_.roles.size(), "LessIsMore: has roles for ",
                 options_.roles.size(), " layers, the model has ", layers);
  one_token_ = time == 1;
  new_ = rows.counts;
  lengths_.clear();
  for (std::size_t row = 0; row < rows.past.size(); ++row) lengths_.push_back(rows.length(row));
}

AttentionKernel LessIsMore::kernel(std::size_t layer) {
  if (!one_token_) return nullptr;
  switch (options_.roles[layer]) {
    case DecodeRole::dense:
      return [this](const AttentionInputs& in, const AttentionOptions& o) {
        count(in, nullptr);
        return decode_attention(in, o);
      };
    case DecodeRole::select:
      return [this, layer](const AttentionInputs& in, const AttentionOptions& o) {
        return select(layer, in, o);
      };
    default:
      return [this, layer](const AttentionInputs& in, const AttentionOptions& o) {
        count(in, sets(layer));
        return sparse_decode_attention(in, o, *sets(layer));
      };
  }
}

AttentionOutput LessIsMore::select(std::size_t layer, const AttentionInputs& in,
                                   const AttentionOptions& o) {
  ScoredAttention dense = decode_with_scores(in, o);
  chosen_[layer] = select_tokens(dense.scores, lengths_, in.group(), options_.selection, &rng_);
  count(in, nullptr);
  if (!options_.sparse_selection) return std::move(dense.attention);
  return sparse_decode_attention(in, o, chosen_[layer]);
}

// Sets of their own make heads read keys that others of their group have read, too.
void LessIsMore::count(const AttentionInputs& in, const TokenSets* sets) {
  const std::size_t of_token = (in.k.width + in.v.width) * sizeof(Real);
  for (std::size_t row = 0; row < lengths_.size(); ++row) {
    if (new_[row] == 0) continue;
    const std::size_t dense = in.k.heads * lengths_[row] * of_token;
    dense_bytes_ += dense;
    if (sets == nullptr)
      bytes_read_ += dense;
    else if (sets->shared())
      bytes_read_ += in.k.heads * sets->of(row, 0).size() * of_token;
    else
      for (std::size_t head = 0; head < sets->per_row(); ++head)
        bytes_read_ += sets->of(row, head).size() * of_token;
  }
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
