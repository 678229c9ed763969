#include "examples/common/loss_plot.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "examples/common/svg.hpp"

namespace {

constexpr double width = 720, height = 420, left = 60, right = 150, top = 40, bottom = 45;

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

void draw_axes(std::ostream& out, const Scale& x, const Scale& y, const AxisLabels& labels) {
  for (double t = x.low; t <= x.high * (1 + 1e-9); t += tick_step(x.high - x.low))
    out << svg_text(x(t), height - bottom + 18, "middle", svg_number(t));
  for (double t = y.low; t <= y.high + 1e-9; t += tick_step(y.high - y.low))
    out << svg_line({left, y(t)}, {width - right, y(t)}, "#ddd")
        << svg_text(left - 8, y(t) + 4, "end", svg_number(t));
  out << svg_text((left + width - right) / 2, height - 8, "middle", labels.x)
      << svg_text(14, top - 12, "start", labels.y);
}

}  // namespace

void write_loss_plot(const std::string& path, const std::string& title,
                     const std::vector<Curve>& curves, const AxisLabels& labels) {
  const Scale x = make_scale(curves, &Curve::steps, left, width - right);
  const Scale y = make_scale(curves, &Curve::losses, height - bottom, top);
  std::ostringstream out;
  out << svg_text((left + width - right) / 2, 20, "middle", title);
  draw_axes(out, x, y, labels);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    std::vector<std::pair<double, double>> points;
    for (std::size_t j = 0; j < curves[i].steps.size(); ++j)
      if (std::isfinite(curves[i].losses[j]))
        points.emplace_back(x(curves[i].steps[j]), y(curves[i].losses[j]));
    out << svg_curve(points, svg_colour(i)) << "<g fill=\"" << svg_colour(i) << "\">"
        << svg_text(width - right + 10, top + 16 + 18 * double(i), "start", curves[i].name)
        << "</g>\n";
  }
  write_svg(path, width, height, out.str());
}
