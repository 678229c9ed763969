#include "examples/common/command_line.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "core/errors.hpp"
#include "core/kernels/gemm.hpp"
#include "core/parallel.hpp"
#include "examples/common/sampling.hpp"

namespace {

// rule: what the message says the number must be. name: how --help calls it.
CLI::Validator finite(const char* name, const char* rule, bool (*holds)(double)) {
  return CLI::Validator(
      [=](std::string& given) {
        double number = 0;
        const bool good =
            CLI::detail::lexical_cast(given, number) && std::isfinite(number) && holds(number);
        return good ? std::string() : attngrad::text("must be ", rule, ", got ", given);
      },
      name);
}

}  // namespace

CLI::Validator positive() {
  return finite("POSITIVE", "a finite number above 0", [](double x) { return x > 0; });
}
CLI::Validator not_negative() {
  return finite("NONNEGATIVE", "a finite number, 0 or more", [](double x) { return x >= 0; });
}
CLI::Validator share() {
  return finite("in [0, 1]", "a number from 0 to 1", [](double x) { return x >= 0 && x <= 1; });
}
CLI::Validator share_below_one() {
  return finite("in [0, 1)", "a number from 0 up to but not 1",
                [](double x) { return x >= 0 && x < 1; });
}
CLI::Validator share_above_zero() {
  return finite("in (0, 1]", "a number above 0 and up to 1",
                [](double x) { return x > 0 && x <= 1; });
}
CLI::Validator size_from(std::size_t least) { return CLI::Range(least, std::size_t{1} << 40); }

void restart_with_better_blas(char** argv) {
  const std::string better = attngrad::kernels::better_blas_core();
  if (better.empty() || std::getenv("OPENBLAS_CORETYPE") != nullptr) return;
  setenv("OPENBLAS_CORETYPE", better.c_str(), 0);
  execv("/proc/self/exe", argv);
}

Program::Program(const std::string& description) : app(description) {
  app.add_option("--seed", common_.seed, "of everything random")->capture_default_str();
  app.add_option("--threads", common_.threads, "for the kernels; all cores unless given")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--json", common_.json, "print one JSON object a line");
}

CLI::Option* Program::size_option(const std::string& flag, std::size_t& value,
                                  const std::string& description, std::size_t least) {
  return app.add_option(flag, value, description)->check(size_from(least))->capture_default_str();
}

int Program::run(int argc, char** argv, const std::function<int(const CommonOptions&)>& body) {
  restart_with_better_blas(argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (common_.threads > 0) attngrad::set_threads(common_.threads);
    return body(common_);
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}

void add_sampling_options(Program& program, SamplingOptions& options) {
  program.app
      .add_option("--temperature", options.temperature,
                  "of what is written; 0 takes the likeliest token")
      ->check(not_negative())
      ->capture_default_str();
  program.size_option("--top-k", options.top_k, "draw from this many of the likeliest; 0: from all",
                      0);
  program.app
      .add_option("--top-p", options.top_p,
                  "draw from the fewest that have this share of the probability")
      ->check(share_above_zero())
      ->capture_default_str();
}

void check_writable(const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0 ||
      std::filesystem::is_directory(path))
    throw attngrad::FileError(attngrad::text("cannot write ", path));
}
