// A test of the manifest: read, run through the mappings, compared.
#pragma once

#include <filesystem>

#include "onnx_conformance/call.hpp"

namespace conformance {

struct TestCase {
  std::string name;
  std::vector<Node> nodes;
  struct File {
    std::string name, path;
    std::string
        type;  // without the order of its bytes, such as f4; empty if the manifest is silent
  };
  std::vector<File> inputs, outputs;

  // The ops of the nodes, each once: how the report groups tests.
  std::string ops() const;
};

// The tests of folder/manifest.json, by name. Throws std::runtime_error, saying in one line what is
// wrong with it.
std::vector<TestCase> read_manifest(const std::filesystem::path& folder);

enum class Status { passed, failed, skipped };

struct Outcome {
  Status status = Status::passed;
  std::string reason;   // unless passed
  double relative = 0;  // the worst of the outputs
};

// Never throws: whatever goes wrong in a test is its outcome.
Outcome run(const TestCase& test, const Mappings& mappings);

}  // namespace conformance
