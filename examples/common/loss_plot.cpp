#include "examples/common/loss_plot.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "core/errors.hpp"

namespace {

constexpr double width = 720, height = 420, left = 60, right = 150, top = 40, bottom = 45;
constexpr const char* colours[] = {"#1f6fb4", "#d9541e", "#2e8b57", "#8a4fbf"};

struct Scale {
  double low, high, from, to;
  double operator()(double x) const { return from + (x - low) / (high - low) * (to - from); }
};

// A step of 1, 2 or 5 times a power of ten, about five of which span the range.
double tick_step(double range) {
  const double power = std::pow(10, std::floor(std::log10(range / 5)));
  const double ratio = range / 5 / power;
  return power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
}

Scale make_scale(const std::vector<Curve>& curves, std::vector<double> Curve::* of, double from,
                 double to) {
  double low = INFINITY, high = -INFINITY;
  for (const Curve& curve : curves)
    for (const double x : curve.*of)
      if (std::isfinite(x)) low = std::min(low, x), high = std::max(high, x);
  if (!(low < high)) low = std::isfinite(low) ? low - 1 : 0, high = low + 2;
  const double step = tick_step(high - low);
  return {std::floor(low / step) * step, std::ceil(high / step) * step, from, to};
}

std::string label(double x, double y, const char* anchor, const std::string& words) {
  std::ostringstream out;
  out << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\">";
  for (const char c : words) c == '&' ? out << "&amp;" : c == '<' ? out << "&lt;" : out << c;
  out << "</text>\n";
  return out.str();
}

std::string number(double x) {
  std::ostringstream out;
  out << (std::abs(x) < 1e-12 ? 0 : x);
  return out.str();
}

void draw_axes(std::ostream& out, const Scale& x, const Scale& y) {
  for (double t = x.low; t <= x.high * (1 + 1e-9); t += tick_step(x.high - x.low))
    out << label(x(t), height - bottom + 18, "middle", number(t));
  for (double t = y.low; t <= y.high + 1e-9; t += tick_step(y.high - y.low)) {
    out << "<line x1=\"" << left << "\" x2=\"" << width - right << "\" y1=\"" << y(t) << "\" y2=\""
        << y(t) << "\" stroke=\"#ddd\"/>\n";
    out << label(left - 8, y(t) + 4, "end", number(t));
  }
  out << label((left + width - right) / 2, height - 8, "middle", "step")
      << label(14, top - 12, "start", "loss");
}

}  // namespace

void write_loss_plot(const std::string& path, const std::string& title,
                     const std::vector<Curve>& curves) {
  const Scale x = make_scale(curves, &Curve::steps, left, width - right);
  const Scale y = make_scale(curves, &Curve::losses, height - bottom, top);
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << ' ' << height
      << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
         "fill=\"white\"/>\n";
  out << label((left + width - right) / 2, 20, "middle", title);
  draw_axes(out, x, y);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const char* colour = colours[i % std::size(colours)];
    out << "<polyline fill=\"none\" stroke=\"" << colour << "\" stroke-width=\"1.5\" points=\"";
    for (std::size_t j = 0; j < curves[i].steps.size(); ++j)
      if (std::isfinite(curves[i].losses[j]))
        out << x(curves[i].steps[j]) << ',' << y(curves[i].losses[j]) << ' ';
    out << "\"/>\n<g fill=\"" << colour << "\">"
        << label(width - right + 10, top + 16 + 18 * double(i), "start", curves[i].name)
        << "</g>\n";
  }
  out << "</svg>\n";
  std::ofstream file(path);
  file << out.str();
  if (!file.flush()) throw attngrad::FileError(attngrad::text("plot: cannot write ", path));
}
