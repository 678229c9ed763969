// The exceptions, the sentence builder behind them, and the layer path that every message starts
// with.
//
// What is wrong with arguments is thrown before any work is done, and a TapeError of an op before
// it is recorded: a failed call changes nothing. A message reads
//   blocks.2.attention.query: linear: x must end in 8, got (3, 4)
// layer path (if a layer is running), op, rule, what came; lower case, no full stop.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace attngrad {

// An argument breaks a rule: an axis, an index, a probability, an option.
struct ArgumentError : std::invalid_argument {
  explicit ArgumentError(const std::string& message);
};

// A shape breaks a rule.
struct ShapeError : ArgumentError {
  using ArgumentError::ArgumentError;
};

// Recording is misused: a value of a tape that has ended, gradients asked twice, a saved value
// changed.
struct TapeError : std::logic_error {
  explicit TapeError(const std::string& message);
};

// A file is missing, damaged or does not fit.
struct FileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace message {

template <class Part>
concept Range = requires(const Part& part) { part.begin() != part.end(); };

template <class Part>
void write_part(std::ostream& out, const Part& part) {
  if constexpr (Range<Part> && !std::is_convertible_v<Part, std::string_view>) {
    out << '(';
    const char* separator = "";
    for (const auto& entry : part) {
      out << separator << +entry;
      separator = ", ";
    }
    out << ')';
  } else {
    out << part;
  }
}

}  // namespace message

// The parts joined into one sentence; a shape or list of numbers is written as (2, 3).
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (message::write_part(out, parts), ...);
  return out.str();
}

// Throw unless `ok`; the sentence is only built when it is needed.
template <class... Parts>
void check_shape(bool ok, const Parts&... parts) {
  if (!ok) throw ShapeError(text(parts...));
}
template <class... Parts>
void check_argument(bool ok, const Parts&... parts) {
  if (!ok) throw ArgumentError(text(parts...));
}

// While it lives, errors of this thread are prefixed with the name of one child of a running layer.
// The name is looked up by `name_of(parent, child)` only when an error is raised.
class PathScope {
 public:
  using NameOf = std::string (*)(const void* parent, const void* child);
  PathScope(const void* parent, const void* child, NameOf name_of);
  ~PathScope();
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;

 private:
  friend std::string layer_path();
  const void* parent_;
  const void* child_;
  NameOf name_of_;
  PathScope* outer_;
};

// The dotted path of the layers running in this thread, such as "blocks.2.attention"; empty outside
// of layers.
std::string layer_path();

}  // namespace attngrad
