// The letters-in-blocks task: which of many blocks holds both letters of the question? A decoder
// reads
//
//   hjnvt.qfjgt.bjtpq.qoiax#pb        and answers bjtpq, or b (first), or q (last)
//
// Letters are distinct within a block, the question's two come in either order, and exactly one
// block holds both. Who looks for one letter only has a choice of 1 + (blocks - 1) / 6 blocks of 5
// letters, and of 8 such blocks takes a wrong one in 53.8 % of cases.
// Source: Golovneva et al., "Multi-token attention", 2025, arXiv:2504.00927, appendix C.
#pragma once

#include "examples/common/sequence_tasks.hpp"

class LettersTask {
 public:
  struct Options {
    std::size_t blocks = 8, letters = 5;
    std::string answer = "first";  // one of answers()
  };
  // Throws attngrad::ArgumentError for another answer, no blocks, or letters outside of [2, 25]:
  // with all 26 every block would hold the question.
  explicit LettersTask(const Options& options);
  static const std::vector<std::string>& answers();

  // 26 letters, '.', '#', an end and a beginning; the rest is never used
  static constexpr std::size_t vocabulary = 32;
  // The tokens that the model reads: a beginning and all but the end.
  std::size_t time() const;
  // Inputs and targets (count, time()): asked for are the letters of the answer and the end.
  // Only chance keeps one batch from repeating another: a block of 5 letters has 7.9 million forms.
  TaskBatch random_batch(std::size_t count, ag::Rng& rng) const;

 private:
  using Tokens = std::vector<std::int64_t>;
  Tokens random_block(ag::Rng& rng) const;
  // From the beginning to the end.
  Tokens random_sequence(ag::Rng& rng) const;
  std::size_t answer_length() const { return options_.answer == "all" ? options_.letters : 1; }

  Options options_;
};
