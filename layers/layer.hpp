// What every layer shares. A layer is a struct with public members, a call operator, and one
// visit() that lists its members by name (core/parameters.hpp). From that list come its parameters
// and the path in its errors.
//
//   struct Scale : Layer {
//     Variable factor;
//     Variable operator()(const Variable& x) const { return x * factor; }
//     void visit(auto&& f) { f("factor", factor); }
//   };
#pragma once

#include "core/capture.hpp"
#include "core/parameters.hpp"
#include "core/random.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Layers move but do not copy, so that a vector of blocks never shares weights by accident; clone()
// copies.
struct Layer {
  Layer() = default;
  Layer(Layer&&) = default;
  Layer& operator=(Layer&&) = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
};

namespace calling {

// The name under which `parent` lists `child`.
template <class Parent>
std::string name_of(const void* parent, const void* child) {
  std::string found = "a member that visit does not list";
  visit_children(*const_cast<Parent*>(static_cast<const Parent*>(parent)),
                 [&](const std::string& name, auto& member) {
                   if (static_cast<const void*>(&member) == child) found = name;
                 });
  return found;
}

// What f returns, which capture() is offered.
template <class F>
decltype(auto) offered(F&& f) {
  if constexpr (std::same_as<decltype(f()), Variable>) {
    Variable y = f();
    offer("", [&] { return y; });
    return y;
  } else if constexpr (requires { Variable(f().normed); }) {  // a sum and its norm
    auto y = f();
    offer("", [&] { return y.normed; });
    return y;
  } else {
    return f();
  }
}

template <class Parent, class Child>
struct Call {
  const Parent& parent;
  const Child& child;

  template <class... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) const {
    const PathScope scope(&parent, &child, name_of<Parent>);
    return offered(
        [&]() -> decltype(auto) { return child(std::forward<Arguments>(arguments)...); });
  }
};

}  // namespace calling

// Calls a member of a layer so that errors raised inside name it, and capture() finds what it
// returns: within(*this, query)(x).
template <class Parent, class Child>
calling::Call<Parent, Child> within(const Parent& parent, const Child& child) {
  return {parent, child};
}

// The same for something else than a call: f(child).
template <class Parent, class Child, class F>
decltype(auto) within(const Parent& parent, const Child& child, F&& f) {
  const PathScope scope(&parent, &child, calling::name_of<Parent>);
  return calling::offered([&]() -> decltype(auto) { return f(child); });
}

// A layer of its own with the same options and parameter values. For layers that keep their
// `options` and are made from (options, rng), as all of ours are except
// Sequential.
template <VisitableLayer L>
  requires requires(const L& layer, Rng& rng) { L(layer.options, rng); }
L clone(const L& layer) {
  Rng replaced_below(0);
  L copy(layer.options, replaced_below);
  const Parameters from = parameters(layer);
  visit_variables(copy,
                  [&](const std::string& name, Variable& x) { x.assign(from.find(name).value()); });
  return copy;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
