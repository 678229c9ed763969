// What attention takes as the length N grows: each kernel's time and memory, measured; their
// growth; and a plot. The scores of a head are N x N; which kernel keeps them, the figures tell.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>

#include "core/core.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/svg.hpp"
#include "examples/common/timing.hpp"
#include "layers/layers.hpp"

namespace ag = attngrad;

namespace {

struct Settings {
  std::vector<std::size_t> lengths{64, 128, 256, 300, 512, 1024, 2048, 4096, 8192};
  std::size_t longest = 2048;  // for kernels other than flash
  std::size_t heads = 4, width = 64, batch = 1;
  bool causal = true;
  std::string plot_path;

  bool covers(const std::string& kernel, std::size_t length) const {
    return kernel == "flash" || length <= longest;
  }
};

struct Cost {
  double length, forward_ms, both_ms, mib;  // both: forward and backward
};

struct Series {
  std::string kernel;
  std::vector<Cost> costs;  // one a length
};

// Measures once what is asked for, perhaps often.
class Measurements {
 public:
  Measurements(const Settings& s, std::uint64_t seed) : s_(s), seed_(seed) {}

  const Cost& of(const std::string& kernel, std::size_t length) {
    const auto [place, is_new] = known_.try_emplace({kernel, length});
    if (is_new) place->second = measure(kernel, length);
    return place->second;
  }

 private:
  Cost measure(const std::string& kernel, std::size_t length) const {
    ag::pool_release();  // the blocks of another length are of no use to this one
    ag::Rng rng(seed_);
    const auto random = [&] { return ag::normal(rng, {s_.batch, length, s_.heads * s_.width}); };
    const ag::Variable q = ag::parameter(random()), k = ag::parameter(random()),
                       v = ag::parameter(random()), dy = ag::constant(random());
    const ag::AttentionKernel attend = ag::attention_kernel(kernel);
    const ag::AttentionOptions options{.mask = s_.causal ? ag::causal() : ag::Mask(), .scale = {}};
    const auto heads = [&](const ag::Variable& x) { return ag::split_heads(x, s_.heads); };
    const auto forward = [&] { return attend({heads(q), heads(k), heads(v)}, options).output; };
    const auto both = [&] {
      ag::Tape tape;
      return tape.gradients(forward(), dy);
    };

    ag::pool_reset_peak();
    const double mib = [&] {
      const ag::Gradients gradients = both();
      // what is alive by now are the inputs and these gradients
      const ag::PoolStatistics pool = ag::pool_statistics();
      return double(pool.most_bytes_alive - pool.bytes_alive) / (1 << 20);
    }();
    constexpr double least_seconds = 0.15;
    constexpr std::size_t least_runs = 3;
    return {double(length), time_of(forward, least_seconds, least_runs).median_ms,
            time_of(both, least_seconds, least_runs).median_ms, mib};
  }

  Settings s_;
  std::uint64_t seed_;
  std::map<std::pair<std::string, std::size_t>, Cost> known_;
};

// The p of cost ~ N^p: the slope of the logarithms, by least squares over the longest half of the
// lengths, where what does not grow matters least. Nothing if there is but one length.
std::optional<double> growth(const std::vector<Cost>& costs, double Cost::* what) {
  if (costs.size() < 2) return std::nullopt;
  const std::size_t count = std::max<std::size_t>(2, (costs.size() + 1) / 2);
  const std::vector<Cost> half(costs.end() - std::ptrdiff_t(count), costs.end());
  double mean_x = 0, mean_y = 0, xy = 0, xx = 0;
  for (const Cost& c : half) {
    mean_x += std::log(c.length) / double(count);
    mean_y += std::log(c.*what) / double(count);
  }
  for (const Cost& c : half) {
    const double x = std::log(c.length) - mean_x;
    xy += x * (std::log(c.*what) - mean_y);
    xx += x * x;
  }
  return xy / xx;
}

std::string power_of_length(std::optional<double> exponent) {
  if (!exponent) return "unknown from one length";
  char words[32];
  std::snprintf(words, sizeof words, "N^%.2f", *exponent);
  return words;
}

// ---- two lengths, in words --------------------------------------------------------------------

void explain_two_lengths(const Settings& s, Measurements& measured) {
  constexpr std::size_t short_length = 300, long_length = 512;
  constexpr double squares = double(long_length * long_length) / (short_length * short_length);
  const auto matrices_mib = [&](std::size_t n) {
    return double(s.batch * s.heads * n * n * sizeof(ag::Real)) / (1 << 20);
  };
  std::printf(
      "N = 300 against N = 512. A head has a score for every query and key, N x N of them:\n"
      "90,000 against 262,144, which is %.2f times as many for %.2f times the length.\n"
      "To keep them once, for all heads, takes %.2f MiB against %.2f MiB.\n"
      "Forward and backward together, as measured:\n\n",
      squares, double(long_length) / short_length, matrices_mib(short_length),
      matrices_mib(long_length));
  for (const std::string& kernel : ag::attention_kernel_names()) {
    if (!s.covers(kernel, long_length)) continue;
    const Cost& a = measured.of(kernel, short_length);
    const Cost& b = measured.of(kernel, long_length);
    const std::optional<double> memory = growth({a, b}, &Cost::mib);
    std::printf("%-9s time   %8.2f -> %8.2f ms,  %.2f times, as %s\n", kernel.c_str(), a.both_ms,
                b.both_ms, b.both_ms / a.both_ms,
                power_of_length(growth({a, b}, &Cost::both_ms)).c_str());
    std::printf("%-9s memory %8.2f -> %8.2f MiB, %.2f times, as %s\n", "", a.mib, b.mib,
                b.mib / a.mib, power_of_length(memory).c_str());
    std::printf("%-9s so it keeps %s, at N = 512 as much as %.1f matrices of scores\n", "",
                memory > 1.5 ? "N x N numbers" : "numbers in proportion to N",
                b.mib / matrices_mib(long_length));
  }
  std::printf("\nMemory is in blocks of the pool, of which up to a fifth is rounding.\n");
}

// ---- the table --------------------------------------------------------------------------------

void print_row(const std::string& kernel, const Cost& now, const Cost* before, bool json) {
  if (json) {
    nlohmann::json row{{"kernel", kernel},
                       {"length", std::size_t(now.length)},
                       {"forward_ms", now.forward_ms},
                       {"forward_backward_ms", now.both_ms},
                       {"memory_mib", now.mib}};
    if (before != nullptr)
      row["ratio"] = {{"length", now.length / before->length},
                      {"forward_ms", now.forward_ms / before->forward_ms},
                      {"forward_backward_ms", now.both_ms / before->both_ms},
                      {"memory_mib", now.mib / before->mib}};
    std::cout << row << std::endl;
    return;
  }
  std::printf("%-9s %6.0f %12.3f %12.3f %12.3f", kernel.c_str(), now.length, now.forward_ms,
              now.both_ms, now.mib);
  if (before != nullptr)
    std::printf("  | %6.2f %8.2f %8.2f", now.length / before->length, now.both_ms / before->both_ms,
                now.mib / before->mib);
  std::printf("\n");
  std::fflush(stdout);
}

std::vector<Series> run_table(const Settings& s, Measurements& measured, bool json) {
  if (!json)
    std::printf("\n%29s %12s %12s  | %s\n%-9s %6s %12s %12s %12s  | %6s %8s %8s\n", "",
                "forward and", "memory", "times the row before", "kernel", "N", "forward ms",
                "backward ms", "beyond, MiB", "N", "ms", "MiB");
  std::vector<Series> all;
  for (const std::string& kernel : ag::attention_kernel_names()) {
    Series series{kernel, {}};
    for (const std::size_t length : s.lengths) {
      if (!s.covers(kernel, length)) continue;
      const Cost now = measured.of(kernel, length);
      print_row(kernel, now, series.costs.empty() ? nullptr : &series.costs.back(), json);
      series.costs.push_back(now);
    }
    if (!series.costs.empty()) all.push_back(std::move(series));
  }
  return all;
}

void print_growth(const std::vector<Series>& all, bool json) {
  if (!json) std::printf("\nmeasured growth over the longest half of each kernel's lengths\n");
  for (const Series& series : all) {
    const auto time = growth(series.costs, &Cost::both_ms),
               memory = growth(series.costs, &Cost::mib);
    if (!json) {
      std::printf("%-9s time as %s, memory as %s\n", series.kernel.c_str(),
                  power_of_length(time).c_str(), power_of_length(memory).c_str());
      continue;
    }
    nlohmann::json line{{"kernel", series.kernel}, {"time_growth", {}}, {"memory_growth", {}}};
    if (time) line["time_growth"] = *time, line["memory_growth"] = *memory;
    std::cout << line << "\n";
  }
}

// ---- the plot ---------------------------------------------------------------------------------

struct Panel {
  const char* title;
  double Cost::* what;
  double left;
  static constexpr double top = 70, width = 360, height = 360;
};

// Of what is drawn, where nothing at all counts as a byte (in MiB).
double logarithm(double value, double base) {
  return std::log(std::max(value, 1e-6)) / std::log(base);
}

// Of the logarithms, to whole powers of the base.
Scale logarithmic_scale(const std::vector<Series>& all, double Cost::* what, double base,
                        double from, double to) {
  double low = INFINITY, high = -INFINITY;
  for (const Series& series : all)
    for (const Cost& c : series.costs) low = std::min(low, c.*what), high = std::max(high, c.*what);
  low = std::floor(logarithm(low, base));
  return {low, std::max(low + 1, std::ceil(logarithm(high, base))), from, to};
}

std::string draw_panel(const Panel& panel, const std::vector<Series>& all) {
  const double right = panel.left + Panel::width, bottom = Panel::top + Panel::height;
  const Scale x = logarithmic_scale(all, &Cost::length, 2, panel.left, right);
  const Scale y = logarithmic_scale(all, panel.what, 10, bottom, Panel::top);
  std::string out = svg_text(panel.left, Panel::top - 14, "start", panel.title);
  out += svg_text((panel.left + right) / 2, bottom + 38, "middle", "N, the length");
  const double every = std::ceil((x.high - x.low) / 8);  // more labels would touch
  for (double t = x.low; t <= x.high; t += every)
    out += svg_line({x(t), Panel::top}, {x(t), bottom}, "#eee") +
           svg_text(x(t), bottom + 18, "middle", svg_number(std::exp2(t)));
  for (double t = y.low; t <= y.high; ++t)
    out += svg_line({panel.left, y(t)}, {right, y(t)}, "#ccc") +
           svg_text(panel.left - 8, y(t) + 4, "end", svg_number(std::pow(10, t)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<std::pair<double, double>> points;
    for (const Cost& c : all[i].costs)
      points.emplace_back(x(logarithm(c.length, 2)), y(logarithm(c.*panel.what, 10)));
    out += svg_curve(points, svg_colour(i));
    for (const auto& point : points) out += svg_dot(point, svg_colour(i));
    // the corner that rising curves leave free
    const double line = Panel::top + 20 + 18 * double(i);
    out += svg_curve({{panel.left + 12, line - 4}, {panel.left + 34, line - 4}}, svg_colour(i)) +
           svg_text(panel.left + 42, line, "start",
                    all[i].kernel + ", " + power_of_length(growth(all[i].costs, panel.what)));
  }
  return out;
}

void write_plot(const Settings& s, const std::vector<Series>& all, const std::string& what) {
  const Panel time{"forward and backward, ms", &Cost::both_ms, 70};
  const Panel memory{"memory beyond inputs and gradients, MiB", &Cost::mib, 510};
  write_svg(s.plot_path, 900, 490,
            svg_text(450, 26, "middle", what) + draw_panel(time, all) + draw_panel(memory, all));
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program("Measures the time and the memory of attention against the length N.");
  program.app.add_option("--lengths", s.lengths, "the values of N, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20))
      ->capture_default_str();
  program.size_option("--longest", s.longest, "N up to which composed and fused are measured");
  program.size_option("--heads", s.heads, "attention heads");
  program.size_option("--width", s.width, "of each head");
  program.size_option("--batch", s.batch, "sequences at once");
  program.app.add_flag("--causal,!--full", s.causal,
                       "a query sees itself and what came before (the default), or everything");
  program.app.add_option("--plot", s.plot_path, "where to draw time and memory (SVG)");

  return program.run(argc, argv, [&](const CommonOptions& common) {
    check_writable(s.plot_path);
    std::sort(s.lengths.begin(), s.lengths.end());
    s.lengths.erase(std::unique(s.lengths.begin(), s.lengths.end()), s.lengths.end());
    const std::string what =
        ag::text("attention, ", s.causal ? "causal" : "full", ": ", s.heads, " heads of width ",
                 s.width, ", batch ", s.batch, ", ", ag::threads(), " threads");
    Measurements measured(s, common.seed);
    if (!common.json) {
      std::printf("%s\n\n", what.c_str());
      explain_two_lengths(s, measured);
    }
    const std::vector<Series> all = run_table(s, measured, common.json);
    print_growth(all, common.json);
    if (!s.plot_path.empty()) write_plot(s, all, what);
    return 0;
  });
}
