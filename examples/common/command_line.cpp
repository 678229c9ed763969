#include "examples/common/command_line.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "core/errors.hpp"
#include "core/kernels/gemm.hpp"
#include "core/parallel.hpp"
#include "examples/common/sampling.hpp"

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
  // the upper bound refuses what a negative number wraps to
  return app.add_option(flag, value, description)
      ->check(CLI::Range(least, std::size_t{1} << 40))
      ->capture_default_str();
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
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  program.size_option("--top-k", options.top_k, "draw from this many of the likeliest; 0: from all",
                      0);
  program.app
      .add_option("--top-p", options.top_p,
                  "draw from the fewest that have this share of the probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

void check_writable(const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0 ||
      std::filesystem::is_directory(path))
    throw attngrad::FileError(attngrad::text("cannot write ", path));
}
