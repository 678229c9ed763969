#include "core/variable.hpp"

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

Variable::Variable(Array value)
    : state_(std::allocate_shared<State>(PoolAllocator<State>(), std::move(value))) {}

Variable::State& Variable::state() const {
  if (state_ == nullptr) throw TapeError("variable: used before it was given a value");
  return *state_;
}

std::size_t Variable::size(std::ptrdiff_t axis) const {
  return shape()[check_axis("size", axis, rank())];
}

Real Variable::item() const {
  check_shape(size() == 1, "item: needs exactly one element, got shape ", shape());
  return value().data()[0];
}

Array& Variable::edit() {
  ++state().version;
  return state().value;
}

void Variable::assign(Array value) {
  check_shape(value.shape() == shape(), "assign: shape must stay ", shape(), ", got ",
              value.shape());
  edit() = std::move(value);
}

Variable constant(Array value) { return Variable(std::move(value)); }

Variable detach(const Variable& x) { return Variable(x.value()); }

Variable parameter(Array value) {
  Variable x(std::move(value));
  Recorder::mark_parameter(x);
  return x;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
