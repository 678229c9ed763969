// checkpoint(): memory for time. What a part of a model saved for its derivatives is forgotten, and
// computed again when the gradients come by.
#pragma once

#include "core/random.hpp"
#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// y = f(inputs), of which the tape keeps the inputs and the result only. In the backward pass f
// runs again, and its gradients go to the inputs and to every parameter that f reads, which are
// found by themselves; they have the bits they have without checkpoint().
//
// f must compute the same each time. What it draws from `rng`, if given, it draws again: the
// generator is put back for the second run, and afterwards stands where it stood. f may read
// values computed earlier on the tape; a value from inside f must not be used outside of it
// (TapeError when gradients reach it), and cannot be watched. Checkpoints nest, and can be
// differentiated twice. Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
Variable checkpoint_list(std::function<Variable(const std::vector<Variable>&)> f,
                         std::vector<Variable> inputs, Rng* rng = nullptr);

// The same for a function of so many variables: checkpoint(f, x, y) is f(x, y).
template <class F, std::same_as<Variable>... Inputs>
Variable checkpoint(Rng* rng, F f, const Inputs&... inputs) {
  const auto unpacked = [f = std::move(f)]<std::size_t... i>(const std::vector<Variable>& list,
                                                             std::index_sequence<i...>) {
    return f(list[i]...);
  };
  return checkpoint_list(
      [unpacked](const std::vector<Variable>& list) {
        return unpacked(list, std::index_sequence_for<Inputs...>());
      },
      {inputs...}, rng);
}
template <class F, std::same_as<Variable>... Inputs>
Variable checkpoint(F f, const Inputs&... inputs) {
  return checkpoint(static_cast<Rng*>(nullptr), std::move(f), inputs...);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
