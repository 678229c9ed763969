// A plot of curves, of losses against steps unless its labels say otherwise, as an SVG file.
#pragma once

#include <optional>
#include <string>
#include <vector>

struct Curve {
  std::string name;
  std::vector<double> steps, losses;
  std::optional<std::size_t> colour = {};  // of svg_colour; the place in the list unless given
};

struct AxisLabels {
  std::string x = "step", y = "loss";
};

// Throws attngrad::FileError if the file cannot be written.
void write_loss_plot(const std::string& path, const std::string& title,
                     const std::vector<Curve>& curves, const AxisLabels& labels = {});
