// How long a token takes beside a long context, from all of the cache and from a part of it.
#pragma once

#include "examples/common/timing.hpp"
#include "layers/transformer.hpp"

namespace ag = attngrad;

struct DecodeTimeSettings {
  std::size_t layers = 8, heads = 8, key_heads = 2, width = 512;
  std::vector<std::size_t> contexts{4096, 16384};
  std::vector<std::size_t> budgets{512, 2048};
};

struct DecodeTime {
  std::size_t context, budget;  // of dense attention, the context
  std::string selector;
  Timing token;
  std::size_t bytes;  // of keys and values that a token reads
};

// A model with random weights, whose speed is that of a trained one: the first layer is dense, the
// second selects, the others are sparse.
std::vector<DecodeTime> time_decoding(const DecodeTimeSettings& settings);

void print_decode_times(const std::vector<DecodeTime>& times, bool json);
