// Writing on: the next token drawn from a model's logits.
#pragma once

#include <functional>
#include <optional>

#include "core/random.hpp"
#include "layers/transformer.hpp"

namespace ag = attngrad;

struct SamplingOptions {
  double temperature = 0.8;  // 0 takes the most likely token
  std::size_t top_k = 20;    // drawn from that many of the likeliest; 0: from all
  double top_p = 1;          // of those, from the fewest that have this share of the probability
};

// Throws attngrad::ArgumentError for a temperature that is negative or not finite, and for a top_p
// outside of (0, 1].
void check_sampling(const SamplingOptions& options);

// A token from `count` logits. Throws as check_sampling(), and for logits that are NaN, infinity or
// all -infinity. Source of top_p: Holtzman et al., "The curious case of neural text
// degeneration", arXiv:1904.09751.
std::int64_t sample_token(const ag::Real* logits, std::size_t count, const SamplingOptions& options,
                          ag::Rng& rng);

// How a text that grows is read.
struct ReadingOptions {
  // A streaming cache of so many tokens, of which the first `sinks` stay; else one for the model's
  // context.
  std::optional<std::size_t> window = {};
  std::size_t sinks = 4;
  std::optional<ag::LessIsMoreOptions> less_is_more = {};
};

// Continues the prompt by `count` tokens, or until `take`, which gets each as it comes, returns
// false. The model reads each token once, into a cache, and sees the last `context` tokens of the
// prompt; when the cache is full it is cleared, and the model goes on from the last half of what it
// held, unless it is a streaming one.
void continue_text(const ag::Transformer& model, std::vector<std::int64_t> prompt,
                   std::size_t count, const SamplingOptions& options, ag::Rng& rng,
                   const std::function<bool(std::int64_t)>& take,
                   const ReadingOptions& reading = {});
