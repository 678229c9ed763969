// The table of fused ops: every op that carries an analytic backward of its own, with its composed
// form and a sampler of inputs. A test walks it over random shapes, so nothing fused exists that is
// not checked.
//
// To add a fused op: register it with record_joint() and add an entry here, or to the table of its
// layer.
#pragma once

#include <string>
#include <vector>

#include "core/gradcheck.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// One random call of a fused op: two functions of the same inputs that must agree in value and in
// every gradient.
struct FusedCase {
  std::string description;  // sizes and options, for a message
  std::vector<Array> inputs;
  Function fused, composed;
};

struct FusedOp {
  const char* name;  // as given to record_joint
  FusedCase (*sample)(Rng&);
};

// The fused ops of core/ops.
const std::vector<FusedOp>& core_fused_ops();

// Draws `count` cases of an op and returns the worst differences; `description` is set to the case
// of the worst gradient.
Comparison check_fused(const FusedOp& op, std::size_t count, std::uint64_t seed,
                       std::string* description = nullptr);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
