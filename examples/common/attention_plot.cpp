#include "examples/common/attention_plot.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "core/errors.hpp"
#include "examples/common/svg.hpp"

namespace {

constexpr double cell = 14, letter = 8, gap = 24, margin = 20, heading = 46;

std::size_t letters_of(const std::string& text) {
  return std::size_t(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

// The room that the longest label takes.
double label_room(const std::vector<std::string>& labels) {
  std::size_t most = 1;
  for (const std::string& label : labels) most = std::max(most, letters_of(label));
  return letter * double(most) + 8;
}

// One map with its tokens, at the place of its upper left cell.
std::string draw_map(const AttentionPlot& plot, const std::string& name,
                     const attngrad::Real* weights, double left, double top) {
  std::ostringstream out;
  const std::size_t queries = plot.queries.size(), keys = plot.keys.size();
  const double key_room = label_room(plot.keys);
  out << svg_text(left, top - key_room - 4, "start", name);
  for (std::size_t j = 0; j < keys; ++j) {
    const double x = left + cell * (double(j) + 0.5);
    out << (letters_of(plot.keys[j]) > 1 ? svg_text_upwards(x + 4, top - 4, plot.keys[j])
                                         : svg_text(x, top - 4, "middle", plot.keys[j]));
  }
  for (std::size_t i = 0; i < queries; ++i) {
    out << svg_text(left - 4, top + cell * (double(i) + 0.5) + 4, "end", plot.queries[i]);
    for (std::size_t j = 0; j < keys; ++j) {
      const double weight = double(weights[i * keys + j]);
      if (weight >= 0.005)  // fainter is white
        out << svg_square(left + cell * double(j), top + cell * double(i), cell, weight);
    }
  }
  out << svg_frame(left, top, cell * double(keys), cell * double(queries));
  return out.str();
}

}  // namespace

std::string visible_token(const std::string& token) {
  if (token == " ") return "\u2423";
  if (token == "\n") return "\u21b5";
  if (token == "\t") return "\u21e5";
  const auto byte = token.size() == 1 ? static_cast<unsigned char>(token[0]) : 'a';
  if (byte >= 0x20 && byte < 0x7f) return token;
  char code[8];  // a control character, or a byte that is no character: not for a file of text
  std::snprintf(code, sizeof code, "\\x%02X", unsigned(byte));
  return code;
}

void write_attention_plot(const std::string& path, const AttentionPlot& plot,
                          const std::vector<attngrad::Capture::Entry>& layers, std::size_t row) {
  attngrad::check_argument(!layers.empty(), "attention plot: needs weights, got none");
  const std::size_t queries = plot.queries.size(), keys = plot.keys.size();
  const double query_room = label_room(plot.queries), key_room = label_room(plot.keys);
  const double width = query_room + cell * double(keys) + gap;
  const double height = 16 + key_room + cell * double(queries) + gap;
  std::ostringstream out;
  out << svg_text(margin, 20, "start", plot.title)
      << svg_text(margin, 37, "start",
                  "a row for each query, a column for each key; the darker, the more weight");
  std::size_t most_heads = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto& [name, weights] = layers[l];
    attngrad::check_argument(weights.rank() == 4 && weights.size(0) > row &&
                                 weights.size(2) == queries && weights.size(3) == keys,
                             "attention plot: ", name, " must be (batch, heads, ", queries, ", ",
                             keys, ") with more than ", row, " rows, got ", weights.shape());
    most_heads = std::max(most_heads, weights.size(1));
    for (std::size_t h = 0; h < weights.size(1); ++h)
      out << draw_map(plot, name + ", head " + std::to_string(h),
                      weights.value().data() + (row * weights.size(1) + h) * queries * keys,
                      margin + query_room + width * double(h),
                      heading + 16 + key_room + height * double(l));
  }
  write_svg(path, std::max(600.0, margin + width * double(most_heads)),
            heading + height * double(layers.size()), out.str());
}
