#include "onnx_conformance/call.hpp"

namespace conformance {

bool Call::has(std::size_t i) const {
  inputs_read_.insert(i);
  return i < inputs_.size() && inputs_[i].present();
}

const Value& Call::value(std::size_t i) const {
  if (!has(i)) throw std::invalid_argument(ag::text("input ", i, " is left out"));
  return inputs_[i];
}

std::optional<std::vector<std::ptrdiff_t>> Call::list(std::size_t i) const {
  if (!has(i)) return std::nullopt;
  const Indices x = value(i).indices();
  return std::vector<std::ptrdiff_t>(x.begin(), x.end());
}

double Call::scalar(std::size_t i) const {
  const std::vector<double> numbers = value(i).numbers();
  if (numbers.size() != 1)
    throw std::invalid_argument(ag::text("input ", i, " must be one number, got ", numbers.size()));
  return numbers[0];
}

bool Call::wants(std::size_t output) const {
  return output < node_.outputs.size() && !node_.outputs[output].empty();
}

template <class T>
std::optional<T> Call::attribute(const char* name) const {
  attributes_read_.insert(name);
  const auto found = node_.attributes.find(name);
  if (found == node_.attributes.end()) return std::nullopt;
  try {
    return found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument(
        ag::text("attribute ", name, " is of another kind: ", found->dump()));
  }
}

std::ptrdiff_t Call::integer(const char* name, std::ptrdiff_t otherwise) const {
  return attribute<std::ptrdiff_t>(name).value_or(otherwise);
}
double Call::number(const char* name, double otherwise) const {
  return number(name).value_or(otherwise);
}
std::string Call::text(const char* name, const char* otherwise) const {
  return attribute<std::string>(name).value_or(otherwise);
}
std::optional<double> Call::number(const char* name) const { return attribute<double>(name); }
std::optional<std::vector<std::ptrdiff_t>> Call::integers(const char* name) const {
  return attribute<std::vector<std::ptrdiff_t>>(name);
}
std::optional<std::vector<std::ptrdiff_t>> Call::integers(const char* name,
                                                          std::size_t input) const {
  const auto listed = integers(name);
  return listed ? listed : list(input);
}

void Call::check_all_read() const {
  for (const auto& [name, value] : node_.attributes.items())
    if (!attributes_read_.contains(name)) throw Skip("attribute " + name + " of " + op());
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].present() && !inputs_read_.contains(i))
      throw Skip(ag::text("input ", i, " of ", op()));
}

}  // namespace conformance
