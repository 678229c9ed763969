// Value: a tensor of a test in the library's form; and how one is read from a .npy file.
#pragma once

#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "core/variable.hpp"

namespace conformance {

namespace ag = attngrad;
using ag::Array;
using ag::Bools;
using ag::Indices;
using ag::Real;
using ag::Shape;
using ag::Variable;

// A test needs what the library does not have; what() names it.
struct Skip : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Holds nothing where an optional input or output is left out.
class Value {
 public:
  Value() = default;
  Value(const Variable& x) : data_(x.value()) {}
  Value(Array x) : data_(std::move(x)) {}
  Value(Indices x) : data_(std::move(x)) {}
  Value(Bools x) : data_(std::move(x)) {}

  bool present() const { return !std::holds_alternative<std::monostate>(data_); }
  bool integers() const { return std::holds_alternative<Indices>(data_); }
  bool flags() const { return std::holds_alternative<Bools>(data_); }
  Shape shape() const;

  // The numbers in the form asked for: flags are 0 and 1. Throws Skip for an integer that Real does
  // not hold exactly, std::invalid_argument for Indices made of fractions.
  Variable variable() const;
  Indices indices() const;
  Bools bools() const;
  // In row-major order.
  std::vector<double> numbers() const;

 private:
  std::variant<std::monostate, Array, Indices, Bools> data_;
};

struct Tensor {
  std::string type;  // as NumPy writes it, such as <f4 or |b1
  Value value;
};

// Throws Skip for a type that is not among bool, integers and floats of 4 or 8 bytes, and
// std::runtime_error for a damaged file.
Tensor read_npy(const std::string& path);

}  // namespace conformance
