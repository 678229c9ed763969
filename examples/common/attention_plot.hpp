// Attention weights as a picture: one map for each head, a row of maps for each layer, with the
// tokens along both sides.
#pragma once

#include <string>
#include <vector>

#include "core/capture.hpp"

struct AttentionPlot {
  std::string title;
  std::vector<std::string> queries, keys;  // the tokens as text
};

// The weights (batch, heads, queries, keys) of each entry of a capture, of one row of the batch.
// Throws attngrad::ArgumentError unless they have a query and a key for each token;
// attngrad::FileError if the file cannot be written.
void write_attention_plot(const std::string& path, const AttentionPlot& plot,
                          const std::vector<attngrad::Capture::Entry>& layers, std::size_t row = 0);

// What a token looks like in a plot: spaces and line ends as signs, other bytes that are no
// characters by number.
std::string visible_token(const std::string& token);
