// Runs ONNX's node tests through the library: each node by one or more of our ops, each output held
// against the one that comes with the test.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "onnx_conformance/test_case.hpp"

namespace {

using namespace conformance;

struct Tally {
  int passed = 0, failed = 0, skipped = 0;
  double relative = 0;

  void count(const Outcome& outcome) {
    ++(outcome.status == Status::passed   ? passed
       : outcome.status == Status::failed ? failed
                                          : skipped);
    relative = std::max(relative, outcome.relative);
  }
};

Mappings all_mappings() {
  Mappings mappings;
  for (const auto add : {add_elementwise, add_shape, add_indexing, add_reductions,
                         add_normalization, add_losses, add_attention, add_optimizers})
    add(mappings);
  return mappings;
}

void print_table(const std::map<std::string, Tally>& by_op) {
  std::printf("\n%-28s %7s %7s %7s   %s\n", "op", "passed", "failed", "skipped",
              "worst relative difference");
  for (const auto& [op, tally] : by_op) {
    std::printf("%-28s %7d %7d %7d", op.c_str(), tally.passed, tally.failed, tally.skipped);
    if (tally.passed + tally.failed > 0) std::printf("   %.1e", tally.relative);
    std::printf("\n");
  }
}

int run_all(const std::string& folder, const std::string& only) {
  const Mappings mappings = all_mappings();
  std::map<std::string, Tally> by_op;
  Tally all;
  for (const TestCase& test : read_manifest(folder)) {
    if (test.name.find(only) == std::string::npos) continue;
    const Outcome outcome = run(test, mappings);
    if (outcome.status != Status::passed)
      std::printf("%s %s: %s\n", outcome.status == Status::failed ? "FAILED " : "skipped",
                  test.name.c_str(), outcome.reason.c_str());
    by_op[test.ops()].count(outcome);
    all.count(outcome);
  }
  print_table(by_op);
  std::printf("%d passed, %d failed, %d skipped\n", all.passed, all.failed, all.skipped);
  return all.failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Runs the ONNX node tests of a folder: its manifest.json, and a folder for each test");
  std::string folder, only;
  app.add_option("folder", folder, "the folder that holds manifest.json")->required();
  app.add_option("--only", only, "run the tests whose name contains this");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run_all(folder, only);
  } catch (const std::exception& error) {
    std::cerr << "onnx_conformance: " << error.what() << "\n";
    return 2;
  }
}
