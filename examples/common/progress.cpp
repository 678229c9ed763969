#include "examples/common/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

Progress::Progress(std::size_t total, std::size_t done, bool quiet)
    : total_(total),
      first_(done),
      quiet_(quiet),
      terminal_(isatty(STDOUT_FILENO) != 0),
      start_(Clock::now()) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Progress::show(std::size_t done, const std::string& note, double units_per_step,
                    const char* unit) {
  const auto now = Clock::now();
  if (quiet_ || done <= first_) return;
  const bool due = terminal_ ? done == total_ || now - last_ > std::chrono::milliseconds(100)
                             : done == total_ || done >= next_plain_;
  if (!due) return;
  last_ = now;
  next_plain_ = done + std::max<std::size_t>(1, total_ / 20);
  const double per_step = seconds() / double(done - first_);
  const auto left = static_cast<long>(per_step * double(total_ - done) + 0.5);
  std::printf("%sstep %zu/%zu  %s  %.0f %s/s  %ld:%02ld left%s", terminal_ ? "\r\033[K" : "", done,
              total_, note.c_str(), units_per_step / per_step, unit, left / 60, left % 60,
              terminal_ ? "" : "\n");
  std::fflush(stdout);
  open_ = terminal_;
}

void Progress::close() {
  if (open_) std::printf("\n");
  open_ = false;
}
