// What came out of the trainings: tables, the paper's figures beside ours, a plot.
#pragma once

#include "examples/multi_token_attention/training.hpp"

// How a frozen training differs from the baseline's with its seed.
struct Difference {
  std::uint64_t seed;
  std::size_t steps;                      // that were compared
  std::optional<std::size_t> first_step;  // whose losses differ in a bit
  std::size_t weights;                    // that differ in a bit at the end
  bool none() const { return !first_step && weights == 0; }
};
// One for each seed that has both, after as many steps.
std::vector<Difference> frozen_differences(const Trainings& trainings);

// The mean and, of two or more, the standard deviation (with n - 1).
struct Spread {
  double mean;
  std::optional<double> deviation;
};
// Of the last errors of an arm over its seeds.
Spread spread_of(const Trainings& trainings, const std::string& arm);

// As text: error by step, last errors beside the paper's, and what that says.
void print_report(const Settings& settings, const Trainings& trainings);
// An evaluation, at once, as a JSON object on a line.
void print_json(const Training& training, const Evaluation& evaluation);
// The rest of the report in the same form: each arm, then each seed's comparisons.
void print_json(const Settings& settings, const Trainings& trainings);
// Error against steps, a curve for each training. Throws attngrad::FileError if it cannot.
void draw_errors(const Settings& settings, const Trainings& trainings);
