// The outcomes of all seeds as tables, as JSON, and attention as a picture.
#pragma once

#include "examples/ghost_attention/evaluation.hpp"

struct Row {
  std::string arm;  // which model, and how it is asked
  std::uint64_t seed;
  Cell cell;
  Outcome outcome;
};

inline constexpr std::size_t asked_turns[] = {1, 2, 4, 6, 20};

void print_tables(const std::vector<Row>& rows, std::size_t dialogues);
// What the paper found, as this size can show it: the sentences say it.
void print_verdict(const std::vector<Row>& rows);
void print_json(const Row& row);
// A map for each model: a row for each number of turns, a column for each token of the instruction.
void draw_attention(const std::string& path,
                    const std::vector<std::pair<std::string, InstructionAttention>>& models);
