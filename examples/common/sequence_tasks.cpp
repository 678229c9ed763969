#include "examples/common/sequence_tasks.hpp"

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"

namespace {

template <class T>
void shuffle(std::vector<T>& items, ag::Rng& rng) {
  for (std::size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[std::size_t(rng.integer(0, std::int64_t(i)))]);
}

TaskBatch empty_batch(std::size_t count) {
  return {ag::Indices::from_shape({count, task_length}),
          ag::Indices::from_shape({count, task_length})};
}

}  // namespace

const std::vector<std::string>& SequenceTask::names() {
  static const std::vector<std::string> all{"copy", "reverse", "sort", "recall"};
  return all;
}

SequenceTask::SequenceTask(const std::string& name) : name_(name) {
  ag::check_argument(std::find(names().begin(), names().end(), name) != names().end(),
                     "SequenceTask: must be copy, reverse, sort or recall, got ", name);
}

SequenceTask::Symbols SequenceTask::random_prompt(ag::Rng& rng) const {
  Symbols prompt(prompt_length);
  for (std::int64_t& symbol : prompt) symbol = rng.integer(0, symbol_count);
  if (name_ ==
      "recall") {  // different keys from the lower half of the symbols, values from the upper
    Symbols keys(key_count);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = std::int64_t(i);
    shuffle(keys, rng);
    for (std::size_t i = 0; i < prompt_length; i += 2) {
      prompt[i] = keys[i / 2];
      prompt[i + 1] = rng.integer(key_count, symbol_count);
    }
  }
  return prompt;
}

SequenceTask::Symbols SequenceTask::answer(const Symbols& prompt, ag::Rng& rng) const {
  Symbols result = prompt;
  if (name_ == "reverse") std::reverse(result.begin(), result.end());
  if (name_ == "sort") std::sort(result.begin(), result.end());
  if (name_ == "recall") {
    std::vector<std::size_t> order{0, 1, 2, 3, 4, 5};
    shuffle(order, rng);
    for (std::size_t i = 0; i < order.size(); ++i) {
      result[2 * i] = prompt[2 * order[i]];
      result[2 * i + 1] = prompt[2 * order[i] + 1];
    }
  }
  return result;
}

void SequenceTask::write(const Symbols& prompt, std::size_t row, TaskBatch& batch,
                         ag::Rng& rng) const {
  Symbols tokens = prompt;
  tokens.push_back(separator);
  const Symbols reply = answer(prompt, rng);
  tokens.insert(tokens.end(), reply.begin(), reply.end());
  for (std::size_t t = 0; t < task_length; ++t) {
    const std::size_t place = t - prompt_length;  // in the reply
    const bool asked = t >= prompt_length && (name_ != "recall" || place % 2 == 1);
    batch.inputs.data()[row * task_length + t] = tokens[t];
    batch.targets.data()[row * task_length + t] = asked ? tokens[t + 1] : not_asked;
  }
}

TaskBatch SequenceTask::hold_out(std::size_t count, ag::Rng& rng) {
  TaskBatch batch = empty_batch(count);
  for (std::size_t row = 0; row < count; ++row) {
    Symbols prompt = random_prompt(rng);
    while (!held_out_.insert(prompt).second) prompt = random_prompt(rng);
    write(prompt, row, batch, rng);
  }
  return batch;
}

TaskBatch SequenceTask::random_batch(std::size_t count, ag::Rng& rng) const {
  TaskBatch batch = empty_batch(count);
  for (std::size_t row = 0; row < count; ++row) {
    Symbols prompt = random_prompt(rng);
    while (held_out_.contains(prompt)) prompt = random_prompt(rng);
    write(prompt, row, batch, rng);
  }
  return batch;
}

double SequenceTask::chance() const {
  if (name_ == "recall")
    return std::pow(double(symbol_count - key_count), -double(prompt_length / 2));
  return std::pow(double(symbol_count), -double(prompt_length));
}

double sequence_accuracy(const ag::Array& logits, const ag::Indices& targets) {
  const std::size_t rows = targets.shape()[0], time = targets.shape()[1],
                    classes = logits.shape()[2];
  std::size_t right = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    bool all = true;
    for (std::size_t t = 0; t < time; ++t) {
      const std::int64_t target = targets.data()[row * time + t];
      const ag::Real* from = logits.data() + (row * time + t) * classes;
      all = all && (target == not_asked || std::max_element(from, from + classes) - from == target);
    }
    right += all;
  }
  return double(right) / double(rows);
}
