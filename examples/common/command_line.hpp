// The command line that all programs share: --help, --seed, --threads, --json; unknown flags are
// refused.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/errors.hpp"

struct CommonOptions {
  std::uint64_t seed = 1;
  int threads = 0;    // 0: as many as there are cores
  bool json = false;  // one JSON object a line in place of text
};

// Starts the program again with the OpenBLAS kernels that fit the processor, where it chose
// outdated ones: it only asks when it is loaded. If that fails, the program goes on as it is,
// slower. Program::run does this; others call it first of all.
void restart_with_better_blas(char** argv);

// Checks of an option that is a number. All refuse NaN and infinity, of which CLI's own let NaN
// through, for it compares as out of no range.
CLI::Validator positive();
CLI::Validator not_negative();
CLI::Validator share();            // from 0 to 1
CLI::Validator share_below_one();  // for what divides by the rest
CLI::Validator share_above_zero();
// A whole number from `least` on; an upper bound refuses what a negative one wraps to.
CLI::Validator size_from(std::size_t least);

class Program {
 public:
  explicit Program(const std::string& description);

  // An option for a whole number that must be at least `least`.
  CLI::Option* size_option(const std::string& flag, std::size_t& value,
                           const std::string& description, std::size_t least = 1);

  // Parses, sets the threads, and runs the body. An exception becomes one line on stderr and exit
  // code 1; a wrong command line is explained with exit code 2.
  int run(int argc, char** argv, const std::function<int(const CommonOptions&)>& body);

  CLI::App app;

 private:
  CommonOptions common_;
};

// --temperature, --top-k and --top-p (sampling.hpp).
struct SamplingOptions;
void add_sampling_options(Program& program, SamplingOptions& options);

// Throws attngrad::FileError where a file cannot be written, which is better known before the work
// than after it. An empty path means no file.
void check_writable(const std::string& path);

// Throws attngrad::ArgumentError, naming `what`, where a list names something twice.
template <class T>
void check_distinct(const char* what, std::vector<T> list) {
  std::sort(list.begin(), list.end());
  const auto twice = std::adjacent_find(list.begin(), list.end());
  if (twice != list.end())
    throw attngrad::ArgumentError(attngrad::text(what, ": ", *twice, " stands twice"));
}
