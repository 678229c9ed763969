// How long work takes, and what it takes from the system meanwhile.
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

// Page faults of this process that needed no disk: memory fresh from the system.
std::size_t minor_page_faults();
// The most memory this process ever had, in MiB.
double peak_resident_mib();

// The rate of OpenBLAS at n = 1024 with that many threads, in GFLOP/s: the best of some runs.
double sgemm_gflops(int threads);
