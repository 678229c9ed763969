#include "core/parallel.hpp"

#include <omp.h>

#include <atomic>
#include <exception>

#include "core/errors.hpp"

namespace attngrad {
namespace {

std::atomic<int>& thread_count() {
  static std::atomic<int> count{omp_get_max_threads()};
  return count;
}

}  // namespace

void set_threads(int count) {
  check_argument(count >= 1 && count <= 1024, "set_threads: count must be in [1, 1024], got ",
                 count);
  thread_count() = count;
}

int threads() { return thread_count(); }

void parallel::run_parallel(std::size_t count, void (*body)(void*, std::size_t), void* state) {
  const int team = threads();
  if (count == 0) return;
  if (team == 1 || count == 1 || omp_in_parallel()) {
    for (std::size_t i = 0; i < count; ++i) body(state, i);
    return;
  }
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
#pragma omp parallel for schedule(dynamic) num_threads(team)
  for (std::size_t i = 0; i < count; ++i) {
    if (failed) continue;
    try {
      body(state, i);
    } catch (...) {  // an exception may not leave a parallel region
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace attngrad
