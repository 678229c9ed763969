// What work takes from the system, besides the time.
#pragma once

#include <cstddef>

#include "examples/common/timing.hpp"

// Page faults of this process that needed no disk: memory fresh from the system.
std::size_t minor_page_faults();
// The most memory this process ever had, in MiB.
double peak_resident_mib();

// The rate of OpenBLAS at n = 1024 with that many threads, in GFLOP/s: the median, as of
// everything that is compared with it.
double sgemm_gflops(int threads);
