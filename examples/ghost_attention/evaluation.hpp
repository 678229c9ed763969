// Whether a model still follows its instruction after many turns.
#pragma once

#include "examples/ghost_attention/training.hpp"

// hard: earlier turns ask for nothing that the instruction says. natural: they may, and an earlier
// answer may then be copied.
enum class History { hard, natural };

struct Cell {
  Instruct instruct = Instruct::first_turn;
  History history = History::hard;
  Pairs pairs = Pairs::held_out;
  std::size_t turns = 1;  // the name or hobby is asked in the last
};

struct Outcome {
  double right = 0, by_default = 0;  // of the last answers, in [0, 1]
};

// Dialogues that the model writes itself, greedily and through its cache.
Outcome evaluate(const ag::Transformer& model, const PersonaTask& task, const Cell& cell,
                 std::size_t dialogues, std::uint64_t seed);

// The part of right answers of a teacher, in all of 20 turns with the instruction in each.
double teacher_accuracy(const ag::Transformer& model, const PersonaTask& task, std::size_t turns,
                        std::uint64_t seed);

// How much of its attention the place that says the name gives to each token of the first message:
// for dialogues of 1, 2, ... turns the largest weight of any head.
struct InstructionAttention {
  std::vector<std::string> tokens;           // of the first message
  std::vector<std::vector<double>> by_turn;  // the weight of each
};
InstructionAttention instruction_attention(const ag::Transformer& model, const PersonaTask& task,
                                           std::size_t turns, std::uint64_t seed);
