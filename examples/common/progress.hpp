// A progress line: rewritten in place on a terminal, plain lines now and then when piped.
#pragma once

#include <chrono>
#include <string>

class Progress {
 public:
  // total: how many steps there will be, of which `done` have been taken before.
  Progress(std::size_t total, std::size_t done, bool quiet);

  // Shows step `done` of the total with a note (loss and the like), speed in `units` a second and
  // the time left. On a terminal at most ten times a second, else every `total` / 20 steps.
  void show(std::size_t done, const std::string& note, double units_per_step, const char* unit);
  // Ends the line, if one is open, so that other text can follow.
  void close();
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::size_t total_, first_, next_plain_ = 0;
  bool quiet_, terminal_, open_ = false;
  Clock::time_point start_, last_;
};
