// Jobs that run side by side, each on one thread: small trainings use the cores better this way
// than one after another on all of them.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>

#include "core/parallel.hpp"

// Calls job(i) for every i in [0, count), begun in order, at most `threads` at a time. While they
// run the kernels use one thread each. If one throws, those not yet begun are left out, and the
// first exception is passed on when the others have ended.
void run_jobs(std::size_t count, int threads, const std::function<void(std::size_t)>& job);

// Takes each of a list of pointers to trainings, which have take_step() and finished(), to its end,
// as many at a time as attngrad::threads() says. taken: called after every step, by one thread at a
// time. The first exception is passed on when those that have begun are done.
template <class Trainings, class Taken>
void train_side_by_side(const Trainings& trainings, const Taken& taken) {
  std::mutex mutex;
  run_jobs(trainings.size(), attngrad::threads(), [&](std::size_t i) {
    while (!trainings[i]->finished()) {
      trainings[i]->take_step();
      const std::lock_guard lock(mutex);
      taken(*trainings[i]);
    }
  });
}
