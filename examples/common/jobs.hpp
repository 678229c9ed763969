// Jobs that run side by side, each on one thread: small trainings use the cores better this way
// than one after another on all of them.
#pragma once

#include <cstddef>
#include <functional>

// Calls job(i) for every i in [0, count), begun in order, at most `threads` at a time. While they
// run the kernels use one thread each. If one throws, those not yet begun are left out, and the
// first exception is passed on when the others have ended.
void run_jobs(std::size_t count, int threads, const std::function<void(std::size_t)>& job);
