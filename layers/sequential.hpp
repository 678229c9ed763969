// Layers and functions one after the other.
#pragma once

#include <tuple>

#include "layers/layer.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Applies its parts in order. A part is a layer or any function of one Variable:
//   Sequential model(Linear({.in = 2, .out = 8}, rng), relu, Linear({.in = 8, .out = 1}, rng));
// Layers are named by their place: "0.weight", "2.bias".
template <class... Parts>
struct Sequential : Layer {
  std::tuple<Parts...> parts;

  explicit Sequential(Parts... parts) : parts(std::move(parts)...) {}

  Variable operator()(const Variable& x) const {
    Variable y = x;
    std::apply([&](const Parts&... part) { ((y = call(part, y)), ...); }, parts);
    return y;
  }

  void visit(auto&& f) {
    std::size_t place = 0;
    std::apply([&](Parts&... part) { (visit_part(f, place++, part), ...); }, parts);
  }

 private:
  template <class Part>
  Variable call(const Part& part, const Variable& x) const {
    if constexpr (VisitableLayer<Part>) {
      return within(*this, part)(x);
    } else {
      return part(x);
    }
  }
  template <class Part>
  static void visit_part(auto& f, std::size_t place, Part& part) {
    if constexpr (VisitableLayer<Part>) f(std::to_string(place), part);
  }
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
