// How long work takes.
#pragma once

#include <cstddef>
#include <functional>

struct Timing {
  double median_ms, least_ms, most_ms;
  std::size_t runs;
};

// Runs the work once to warm up, then for least_seconds and at least least_runs times.
Timing time_of(const std::function<void()>& work, double least_seconds = 1,
               std::size_t least_runs = 5);
