// What a training step of each arm costs beside the plain one.
#pragma once

#include "examples/attention_residuals/settings.hpp"

// Times steps of all arms in alternation, and prints the median of each, of its ratio to the plain
// arm's within a round, and the memory that a step takes at its peak beside weights and moments.
void print_cost(const Settings& settings, std::uint64_t seed, bool json);
