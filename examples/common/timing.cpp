#include "examples/common/timing.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace {

double seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

}  // namespace

Timing time_of(const std::function<void()>& work, double least_seconds, std::size_t least_runs) {
  work();
  std::vector<double> times;
  const double begin = seconds();
  while (times.size() < least_runs || seconds() - begin < least_seconds) {
    const double start = seconds();
    work();
    times.push_back(1e3 * (seconds() - start));
  }
  return summary_of(std::move(times));
}

Timing summary_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back(), times.size()};
}
