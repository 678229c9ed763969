#include "onnx_conformance/test_case.hpp"

#include <algorithm>
#include <fstream>

#include "core/parameters.hpp"
#include "onnx_conformance/compare.hpp"

namespace conformance {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<TestCase::File> read_files(const json& tensors, const fs::path& folder) {
  std::vector<TestCase::File> files;
  for (const json& tensor : tensors)
    files.push_back(
        {tensor.at("name"), folder / std::string(tensor.at("file")), tensor.value("dtype", "")});
  return files;
}

TestCase read_test(const std::string& name, const json& entry, const fs::path& folder) {
  const auto domain_of = [](const std::string& given) { return given == "ai.onnx" ? "" : given; };
  std::map<std::string, std::int64_t> versions;
  for (const json& version : entry.at("opset")) versions[domain_of(version.at(0))] = version.at(1);
  TestCase test{name,
                {},
                read_files(entry.at("inputs"), folder / name),
                read_files(entry.at("outputs"), folder / name)};
  for (const json& node : entry.at("nodes")) {
    const std::string domain = domain_of(node.value("domain", ""));
    test.nodes.push_back({node.at("op"), domain, versions[domain],
                          node.value("attrs", json::object()), node.at("inputs"),
                          node.at("outputs")});
  }
  return test;
}

// What a file holds may be a stand-in for a type that .npy does not have, such as bfloat16.
Tensor read_tensor(const TestCase::File& file) {
  Tensor tensor = read_npy(file.path);
  if (!file.type.empty() && file.type != tensor.type.substr(1))
    throw Skip("storage of type " + file.type);
  return tensor;
}

const Mapping& mapping_of(const Node& node, const Mappings& mappings) {
  const bool known_domain = node.domain.empty() || node.domain == "ai.onnx.preview.training";
  const auto mapping = mappings.find(node.op);
  if (!known_domain || mapping == mappings.end())
    throw Skip("no mapping for the op " + ag::dotted(node.domain, node.op));
  if (node.opset == 0) throw Skip("no opset is given for " + node.op);
  return mapping->second;
}

using Table = std::map<std::string, Value>;

void run_node(const Node& node, const Mappings& mappings, Table& values) {
  std::vector<Value> inputs;
  for (const std::string& name : node.inputs)
    inputs.push_back(name.empty() ? Value() : values.at(name));
  const Call call(node, std::move(inputs));
  const std::vector<Value> outputs = mapping_of(node, mappings)(call);
  call.check_all_read();
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (!call.wants(i)) continue;
    if (i >= outputs.size()) throw Skip(ag::text("output ", i, " of ", node.op));
    values[node.outputs[i]] = outputs[i];
  }
}

}  // namespace

std::string TestCase::ops() const {
  std::vector<std::string> seen;
  std::string all;
  for (const Node& node : nodes) {
    if (std::find(seen.begin(), seen.end(), node.op) != seen.end()) continue;
    all += (seen.empty() ? "" : "+") + node.op;
    seen.push_back(node.op);
  }
  return all;
}

std::vector<TestCase> read_manifest(const fs::path& folder) {
  const fs::path path = folder / "manifest.json";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::vector<TestCase> tests;
  try {
    const json manifest = json::parse(file);
    for (const auto& [name, entry] : manifest.items())
      tests.push_back(read_test(name, entry, folder));
  } catch (const json::exception& error) {
    throw std::runtime_error(path.string() + ": not a manifest of tests: " + error.what());
  }
  return tests;
}

Outcome run(const TestCase& test, const Mappings& mappings) {
  Outcome outcome;
  try {
    Table values;
    // before the files, whose types may be another reason to skip
    for (const Node& node : test.nodes) mapping_of(node, mappings);
    for (const TestCase::File& file : test.inputs) values[file.name] = read_tensor(file).value;
    for (const Node& node : test.nodes) run_node(node, mappings, values);
    for (const TestCase::File& file : test.outputs) {
      const Comparison result = compare(file.name, values[file.name], read_tensor(file));
      outcome.relative = std::max(outcome.relative, result.relative);
      if (result.failure.empty() || outcome.status == Status::failed) continue;
      outcome.status = Status::failed;
      outcome.reason = result.failure;
    }
  } catch (const Skip& skip) {
    if (outcome.status == Status::passed) outcome = {Status::skipped, skip.what(), 0};
  } catch (const std::exception& error) {
    outcome = {Status::failed, error.what(), outcome.relative};
  }
  return outcome;
}

}  // namespace conformance
