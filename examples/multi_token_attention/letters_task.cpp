#include "examples/multi_token_attention/letters_task.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/errors.hpp"

namespace {

constexpr std::int64_t letter_count = 26, dot = 26, question = 27, end = 28, beginning = 29;

}  // namespace

LettersTask::LettersTask(const Options& options) : options_(options) {
  ag::check_argument(
      std::find(answers().begin(), answers().end(), options.answer) != answers().end(),
      "LettersTask: the answer must be all, first or last, got ", options.answer);
  ag::check_argument(options.blocks > 0, "LettersTask: needs a block, got 0");
  ag::check_argument(options.letters >= 2 && options.letters < letter_count,
                     "LettersTask: a block must hold 2 to 25 letters, got ", options.letters);
}

const std::vector<std::string>& LettersTask::answers() {
  static const std::vector<std::string> all{"all", "first", "last"};
  return all;
}

std::size_t LettersTask::time() const {
  const std::size_t text = options_.blocks * (options_.letters + 1) - 1;
  return 1 + text + 3 + answer_length();  // '#' and two letters are the question
}

LettersTask::Tokens LettersTask::random_block(ag::Rng& rng) const {
  std::array<std::int64_t, letter_count> alphabet;
  std::iota(alphabet.begin(), alphabet.end(), 0);
  for (std::size_t i = 0; i < options_.letters; ++i)
    std::swap(alphabet[i], alphabet[std::size_t(rng.integer(std::int64_t(i), letter_count))]);
  return Tokens(alphabet.begin(), alphabet.begin() + std::ptrdiff_t(options_.letters));
}

LettersTask::Tokens LettersTask::random_sequence(ag::Rng& rng) const {
  const auto letters = std::int64_t(options_.letters);
  const auto asked = std::size_t(rng.integer(0, std::int64_t(options_.blocks)));
  const Tokens block = random_block(rng);
  const std::int64_t i = rng.integer(0, letters), other = rng.integer(0, letters - 1);
  const std::int64_t one = block[std::size_t(i)],
                     two = block[std::size_t(other < i ? other : other + 1)];
  const auto holds = [](const Tokens& tokens, std::int64_t letter) {
    return std::find(tokens.begin(), tokens.end(), letter) != tokens.end();
  };

  Tokens all{beginning};
  for (std::size_t b = 0; b < options_.blocks; ++b) {
    Tokens next = b == asked ? block : random_block(rng);
    while (b != asked && holds(next, one) && holds(next, two)) next = random_block(rng);
    if (b > 0) all.push_back(dot);
    all.insert(all.end(), next.begin(), next.end());
  }
  all.insert(all.end(), {question, one, two});
  if (options_.answer == "all")
    all.insert(all.end(), block.begin(), block.end());
  else
    all.push_back(options_.answer == "first" ? block.front() : block.back());
  all.push_back(end);
  return all;
}

TaskBatch LettersTask::random_batch(std::size_t count, ag::Rng& rng) const {
  TaskBatch batch{ag::Indices::from_shape({count, time()}),
                  ag::Indices::from_shape({count, time()})};
  const std::size_t first_asked = time() - answer_length() - 1;
  for (std::size_t row = 0; row < count; ++row) {
    const Tokens tokens = random_sequence(rng);
    for (std::size_t t = 0; t < time(); ++t) {
      batch.inputs(row, t) = tokens[t];
      batch.targets(row, t) = t >= first_asked ? tokens[t + 1] : not_asked;
    }
  }
  return batch;
}
