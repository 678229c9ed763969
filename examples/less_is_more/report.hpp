// The measurements of all seeds as tables, as JSON and as a picture.
#pragma once

#include "examples/less_is_more/evaluation.hpp"

// One trained model's measurements.
struct SeedResult {
  std::uint64_t seed;
  std::vector<Measurement> measurements;
};

void print_tables(const std::vector<SeedResult>& results, const std::vector<RoleSetting>& settings);
// What the paper claims, as this size can show it: see the sentences that it prints. Not for
// chains.
void print_verdict(const std::vector<SeedResult>& results,
                   const std::vector<RoleSetting>& settings);
void print_json(const std::vector<SeedResult>& results);
// The hit rate against the budget, of each selector, in one role setting at the most records.
void draw_hits(const std::string& path, const std::vector<SeedResult>& results,
               const RoleSetting& setting);
