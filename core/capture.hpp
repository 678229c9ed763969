// Named values on the way, on request: what layers compute and do not return.
//
//   const Capture seen = capture("blocks.*.attention.weights");
//   model(tokens);
//   for (const auto& [name, value] : seen.values()) std::cout << name << value.shape() << "\n";
//
// What a layer that is called through within() returns is offered under its path, as
// "blocks.0.norm1" (of a sum and its norm, the norm; not of a linear map that is one op with the
// activation behind it); what else there is, a layer's header says. Nothing is computed for it
// unless asked for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/variable.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// While it lives, collects what this thread's layers offer under names that match; captures nest,
// and end in the thread and in the reverse of the order that they began in.
class Capture {
 public:
  struct Entry {
    std::string name;  // dotted path
    Variable value;
  };

  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // In the order of computation; a layer that ran twice is there twice. The second run of a
  // checkpoint() does not count.
  const std::vector<Entry>& values() const { return values_; }

  // While it lives, this thread's captures collect nothing.
  struct Suspended {
    Suspended();
    ~Suspended();
    Suspended(const Suspended&) = delete;
    Suspended& operator=(const Suspended&) = delete;
    Capture* before;
  };

 private:
  friend Capture capture(std::string pattern);
  friend void offer(const std::string& name, const std::function<Variable()>& value);
  explicit Capture(std::string pattern);

  std::string pattern_;
  std::vector<Entry> values_;
  Capture* outer_;
};

// pattern: a dotted path in which * stands for any part of one name, ? for one letter, and [abc]
// for one of these. Throws ArgumentError if it is empty.
Capture capture(std::string pattern);

// For layers: the value is computed if a capture of this thread asks for "path of the running
// layer.name"; what that takes is not recorded.
void offer(const std::string& name, const std::function<Variable()>& value);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
