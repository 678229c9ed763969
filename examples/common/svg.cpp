#include "examples/common/svg.hpp"

#include <cmath>
#include <fstream>
#include <sstream>

#include "core/errors.hpp"

namespace {

std::string escaped(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

}  // namespace

std::string svg_text(double x, double y, const char* anchor, const std::string& words) {
  std::ostringstream out;
  out << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\">"
      << escaped(words) << "</text>\n";
  return out.str();
}

std::string svg_text_upwards(double x, double y, const std::string& words) {
  std::ostringstream out;
  out << "<text transform=\"translate(" << x << ' ' << y << ") rotate(-90)\">" << escaped(words)
      << "</text>\n";
  return out.str();
}

std::string svg_square(double x, double y, double side, double strength) {
  std::ostringstream out;
  out << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << side << "\" height=\"" << side
      << "\" fill=\"#08306b\" fill-opacity=\"" << std::round(100 * strength) / 100 << "\"/>\n";
  return out.str();
}

std::string svg_frame(double x, double y, double width, double height) {
  std::ostringstream out;
  out << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << width << "\" height=\"" << height
      << "\" fill=\"none\" stroke=\"#999\"/>\n";
  return out.str();
}

std::string svg_line(std::pair<double, double> from, std::pair<double, double> to,
                     const char* colour) {
  std::ostringstream out;
  out << "<line x1=\"" << from.first << "\" x2=\"" << to.first << "\" y1=\"" << from.second
      << "\" y2=\"" << to.second << "\" stroke=\"" << colour << "\"/>\n";
  return out.str();
}

std::string svg_curve(const std::vector<std::pair<double, double>>& points, const char* colour) {
  std::ostringstream out;
  out << "<polyline fill=\"none\" stroke=\"" << colour << "\" stroke-width=\"1.5\" points=\"";
  for (const auto& [x, y] : points) out << x << ',' << y << ' ';
  out << "\"/>\n";
  return out.str();
}

std::string svg_dot(std::pair<double, double> at, const char* colour) {
  std::ostringstream out;
  out << "<circle cx=\"" << at.first << "\" cy=\"" << at.second << "\" r=\"2.5\" fill=\"" << colour
      << "\"/>\n";
  return out.str();
}

std::string svg_number(double x) {
  std::ostringstream out;
  out << (std::abs(x) < 1e-12 ? 0 : x);
  return out.str();
}

const char* svg_colour(std::size_t i) {
  constexpr const char* colours[] = {"#1f6fb4", "#d9541e", "#2e8b57", "#8a4fbf", "#b8860b"};
  return colours[i % std::size(colours)];
}

void write_svg(const std::string& path, double width, double height, const std::string& body) {
  std::ofstream file(path);
  file << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << ' ' << height
       << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
          "fill=\"white\"/>\n"
       << body << "</svg>\n";
  if (!file.flush()) throw attngrad::FileError(attngrad::text("plot: cannot write ", path));
}
