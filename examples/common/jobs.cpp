#include "examples/common/jobs.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/parallel.hpp"

namespace {

struct OneThreadEach {
  OneThreadEach() { attngrad::set_threads(1); }
  ~OneThreadEach() { attngrad::set_threads(before); }
  OneThreadEach(const OneThreadEach&) = delete;
  OneThreadEach& operator=(const OneThreadEach&) = delete;
  int before = attngrad::threads();
};

}  // namespace

void run_jobs(std::size_t count, int threads, const std::function<void(std::size_t)>& job) {
  const OneThreadEach while_they_run;
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failing;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < count;) {
      try {
        job(i);
      } catch (...) {
        const std::lock_guard lock(failing);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < std::min(count, std::size_t(std::max(threads, 1))); ++i)
    others.emplace_back(work);
  work();
  others.clear();  // waits for them
  if (failure) std::rethrow_exception(failure);
}
