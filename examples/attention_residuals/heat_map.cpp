#include "examples/attention_residuals/heat_map.hpp"

#include <algorithm>
#include <sstream>

#include "examples/common/svg.hpp"

namespace {

constexpr double cell = 16, margin = 20, top = 165, left = 130;

// Whether each sublayer is a source of its own.
bool is_full(const std::vector<std::vector<double>>& weights) {
  return weights.back().size() == weights.size();
}

std::string sublayer_name(std::size_t i) {
  return std::to_string(i / 2 + 1) + (i % 2 == 0 ? " attention" : " feed-forward");
}

std::string source_name(std::size_t i, bool full) {
  if (i == 0) return "embedding";
  return full ? sublayer_name(i - 1) : "sum of block " + std::to_string(i);
}

}  // namespace

void write_depth_weights(const std::string& path, const std::string& title,
                         const std::vector<std::vector<double>>& weights) {
  std::ostringstream out;
  const std::size_t rows = weights.size(), columns = weights.back().size();
  out << svg_text(margin, 20, "start", title)
      << svg_text(margin, 37, "start",
                  "a row for each mix, a column for each source; dark: the row's largest weight");
  for (std::size_t j = 0; j < columns; ++j)
    out << svg_text_upwards(left + cell * (double(j) + 0.5) + 4, top - 4,
                            source_name(j, is_full(weights)));
  for (std::size_t i = 0; i < rows; ++i) {
    const double y = top + cell * double(i);
    out << svg_text(left - 4, y + cell / 2 + 4, "end", i + 1 == rows ? "output" : sublayer_name(i));
    const double most = *std::max_element(weights[i].begin(), weights[i].end());
    for (std::size_t j = 0; j < weights[i].size(); ++j)
      out << svg_square(left + cell * double(j), y, cell, weights[i][j] / most);
    out << svg_frame(left, y, cell * double(weights[i].size()), cell);
  }
  write_svg(path, std::max(560.0, left + cell * double(columns) + margin),
            top + cell * double(rows) + margin, out.str());
}
