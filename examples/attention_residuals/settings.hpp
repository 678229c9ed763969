// What the program trains: the arms of the comparison, and the sizes that they share.
#pragma once

#include <string>
#include <vector>

#include "layers/transformer.hpp"

namespace ag = attngrad;

// The arm that others are compared with: a residual sum.
inline constexpr const char* plain_arm = "residual";

struct Settings {
  std::string text_path;  // empty: the built-in text
  std::vector<std::string> arms{plain_arm, "full", "block8", "block4"};
  std::vector<double> rates{4e-3};
  std::size_t seeds = 3;  // one after the other from the program's --seed on
  std::size_t layers = 16, width = 48, heads = 4, hidden = 128, context = 64, batch = 16;
  std::size_t steps = 400, warmup = 100, evaluate_every = 100;
  std::string folder, plot_prefix;  // empty: nothing is kept, nothing drawn
  bool cost = false;
};

// One training.
struct Job {
  std::string arm;
  std::uint64_t seed;
  double rate;
  std::string name() const;  // that of its file, too
};

// Every arm with every seed at every rate; the arms of a seed stand side by side. Throws
// attngrad::ArgumentError for an arm that is unknown, and for one or a rate that is there twice.
std::vector<Job> jobs_of(const Settings& settings, std::uint64_t first_seed);

// "residual", "full", or "blockN" with a number. Throws attngrad::ArgumentError for another.
ag::Residual residual_of(const std::string& arm);

ag::TransformerOptions model_options(const Settings& settings, const std::string& arm,
                                     std::size_t vocabulary);
