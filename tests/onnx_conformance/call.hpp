// Call: one node with its inputs at hand, as a mapping onto the library's ops sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "onnx_conformance/value.hpp"

namespace conformance {

struct Node {
  std::string op, domain;
  std::int64_t opset = 0;  // the version of its domain
  nlohmann::json attributes;
  std::vector<std::string> inputs, outputs;  // "" where an optional one is left out
};

// It remembers what was asked of it: an attribute or input that a mapping did not know of cannot be
// overlooked.
class Call {
 public:
  Call(const Node& node, std::vector<Value> inputs) : node_(node), inputs_(std::move(inputs)) {}

  const std::string& op() const { return node_.op; }
  std::int64_t opset() const { return node_.opset; }

  std::size_t inputs() const { return inputs_.size(); }
  bool has(std::size_t i) const;
  // Throw std::invalid_argument where the input is left out.
  const Value& value(std::size_t i) const;
  Variable operator[](std::size_t i) const { return value(i).variable(); }
  // An input of integers as a list; nothing where it is left out.
  std::optional<std::vector<std::ptrdiff_t>> list(std::size_t i) const;
  // The only element of an input.
  double scalar(std::size_t i) const;

  std::size_t outputs() const { return node_.outputs.size(); }
  bool wants(std::size_t output) const;

  // The attribute, or what it is where it is left out. Throw std::invalid_argument for an attribute
  // of another kind.
  std::ptrdiff_t integer(const char* name, std::ptrdiff_t otherwise) const;
  bool flag(const char* name, bool otherwise = false) const { return integer(name, otherwise); }
  double number(const char* name, double otherwise) const;
  std::string text(const char* name, const char* otherwise) const;
  std::optional<double> number(const char* name) const;
  std::optional<std::vector<std::ptrdiff_t>> integers(const char* name) const;
  // A list that is an attribute in old opsets and an input in newer ones.
  std::optional<std::vector<std::ptrdiff_t>> integers(const char* name, std::size_t input) const;

  // Throws Skip naming the attributes and inputs that nobody asked for.
  void check_all_read() const;

 private:
  template <class T>
  std::optional<T> attribute(const char* name) const;

  const Node& node_;
  std::vector<Value> inputs_;
  mutable std::set<std::string> attributes_read_;
  mutable std::set<std::size_t> inputs_read_;
};

// The outputs of a node, in its order. Fewer than the node wants: it is skipped.
using Mapping = std::function<std::vector<Value>(const Call&)>;
using Mappings = std::map<std::string, Mapping>;

// ---- the families -----------------------------------------------------------------------------

void add_elementwise(Mappings& mappings);
void add_shape(Mappings& mappings);
void add_indexing(Mappings& mappings);
void add_reductions(Mappings& mappings);
void add_normalization(Mappings& mappings);
void add_losses(Mappings& mappings);
void add_attention(Mappings& mappings);
void add_optimizers(Mappings& mappings);

}  // namespace conformance
