// What came out, for each rate: losses and their gaps to the plain arm, norms by depth; as tables
// or JSON, and as plots.
#pragma once

#include <vector>

#include "examples/attention_residuals/training.hpp"

// The outcomes in the order of jobs_of().
void print_report(const Settings& settings, const std::vector<Outcome>& outcomes, bool json);

// For each rate PREFIX-loss.svg, -state.svg, -read.svg and -gradient.svg, means over the seeds, and
// -weights-ARM.svg of the first seed; with several rates the rate comes after the prefix. Throws
// attngrad::FileError if a file cannot be written.
void draw_plots(const Settings& settings, const std::vector<Outcome>& outcomes);
