// How long work takes.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

struct Timing {
  double median_ms, least_ms, most_ms;
  std::size_t runs;
};

// Of times in ms, at least one.
Timing summary_of(std::vector<double> times);
// Runs the work once to warm up, then for least_seconds and at least least_runs times.
Timing time_of(const std::function<void()>& work, double least_seconds = 1,
               std::size_t least_runs = 5);
