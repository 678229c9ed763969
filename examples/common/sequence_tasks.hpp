// Toy tasks on sequences of symbols, for a decoder-only model: a prompt, a separator, and the
// answer.
//
//   copy      s1 ... s12 | s1 ... s12
//   reverse   s1 ... s12 | s12 ... s1
//   sort      s1 ... s12 | the same in order
//   recall    k1 v1 ... k6 v6 | q1 a1 ... q6 a6
//
// Recall gives the keys again, in another order, and asks for the value of each.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/array.hpp"
#include "core/random.hpp"

namespace ag = attngrad;

inline constexpr std::int64_t symbol_count = 16;
inline constexpr std::int64_t key_count = symbol_count / 2;  // of recall; the others are values
inline constexpr std::int64_t separator = symbol_count;  // one token more than there are symbols
inline constexpr std::size_t prompt_length = 12;
// the tokens the model reads: all but the last
inline constexpr std::size_t task_length = 2 * prompt_length;
inline constexpr std::int64_t not_asked = -1;  // the target where no answer is due

struct TaskBatch {
  ag::Indices inputs, targets;  // (batch, task_length)
};

class SequenceTask {
 public:
  // Throws attngrad::ArgumentError for a name that is none of names().
  explicit SequenceTask(const std::string& name);
  static const std::vector<std::string>& names();

  // Sets aside `count` different prompts, which random_batch will never give.
  TaskBatch hold_out(std::size_t count, ag::Rng& rng);
  TaskBatch random_batch(std::size_t count, ag::Rng& rng) const;
  // How often guessing every answer at random gets a whole sequence right.
  double chance() const;

 private:
  using Symbols = std::vector<std::int64_t>;
  Symbols random_prompt(ag::Rng& rng) const;
  void write(const Symbols& prompt, std::size_t row, TaskBatch& batch, ag::Rng& rng) const;
  Symbols answer(const Symbols& prompt, ag::Rng& rng) const;

  std::string name_;
  std::set<Symbols> held_out_;
};

// The part of rows whose every asked-for target is the arg-max of its logits (batch, task_length,
// symbol_count + 1).
double sequence_accuracy(const ag::Array& logits, const ag::Indices& targets);
