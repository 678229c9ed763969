// The parts that plots are made of, as text of an SVG file.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

// Takes [low, high] to [from, to], which may run backwards: y grows downwards in a picture.
struct Scale {
  double low, high, from, to;
  double operator()(double x) const { return from + (x - low) / (high - low) * (to - from); }
};

// anchor: which part of the words lies at x: start, middle or end.
std::string svg_text(double x, double y, const char* anchor, const std::string& words);
// The same from (x, y) upwards.
std::string svg_text_upwards(double x, double y, const std::string& words);
// A blue square with its upper left corner at (x, y): from white at strength 0 to dark at 1.
std::string svg_square(double x, double y, double side, double strength);
std::string svg_frame(double x, double y, double width, double height);
std::string svg_line(std::pair<double, double> from, std::pair<double, double> to,
                     const char* colour);
std::string svg_curve(const std::vector<std::pair<double, double>>& points, const char* colour);
std::string svg_dot(std::pair<double, double> at, const char* colour);
// A number as a label of an axis.
std::string svg_number(double x);
// The colour of the i-th curve of a plot.
const char* svg_colour(std::size_t i);

// Throws attngrad::FileError if the file cannot be written.
void write_svg(const std::string& path, double width, double height, const std::string& body);
