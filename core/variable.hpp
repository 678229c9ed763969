// Variable: a handle to a value that can take part in recording.
//
// Copies share one value. A variable does not know how it was computed; only the tape does, so
// there are no cycles and nothing to clean up. Gradients are not stored here either:
// Tape::gradients returns them.
#pragma once

#include <memory>

#include "core/array.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

class Variable {
 public:
  // Holds nothing; every access throws TapeError. For members that are set later or are optional.
  Variable() = default;
  // A constant: no gradient is ever computed for it.
  explicit Variable(Array value);
  explicit Variable(Real value) : Variable(filled({}, value)) {}

  bool holds_value() const { return state_ != nullptr; }
  const Array& value() const { return state().value; }
  const Shape& shape() const { return state().value.shape(); }
  std::size_t rank() const { return shape().size(); }
  std::size_t size() const { return state().value.size(); }
  // The size along an axis; -1 is the last.
  std::size_t size(std::ptrdiff_t axis) const;
  // The only element. Throws ShapeError if there is not exactly one.
  Real item() const;

  // Whether gradients flow to it: a parameter, or computed from one while a tape recorded.
  bool needs_grad() const { return state().needs_grad; }

  // The value, for writing in place; its shape must stay. Raises the version: a derivative that
  // saved the old value will throw. Write at once: what is written later through a kept reference
  // goes unnoticed.
  Array& edit();
  // Replaces the value. Throws ShapeError if the shape changes.
  void assign(Array value);
  std::size_t version() const { return state().version; }

  // Whether both are handles of the same value.
  bool same_as(const Variable& other) const { return state_ == other.state_; }
  // Identifies the value while any handle of it lives.
  const void* id() const { return state_.get(); }

 private:
  friend class Recorder;
  friend class Target;
  struct State {
    explicit State(Array v) : value(std::move(v)) {}
    Array value;
    std::size_t version = 0;
    std::size_t recording = 0;  // which recording computed it; 0: none
    std::size_t position = 0;   // its place in that recording's list of nodes
    bool needs_grad = false;
  };
  State& state() const;

  std::shared_ptr<State> state_;
};

// A value without a gradient.
Variable constant(Array value);
// A value whose gradient is wanted.
Variable parameter(Array value);
// The same value, cut off from how it was computed.
Variable detach(const Variable& x);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
