#include "examples/ghost_attention/evaluation.hpp"

#include <algorithm>

namespace {

constexpr std::size_t rows_at_a_time = 250;

struct Case {
  Persona persona;
  Conversation conversation;
};

Question attribute_question(ag::Rng& rng) {
  return rng.uniform() < 0.5 ? Question::name : Question::hobby;
}

std::vector<Case> random_cases(const PersonaTask& task, const Cell& cell, std::size_t count,
                               bool terse, ag::Rng& rng) {
  std::vector<Case> cases;
  for (std::size_t i = 0; i < count; ++i) {
    Case c{task.random_pair(cell.pairs, rng), {}};
    c.conversation.instruction = task.instruction(c.persona, terse);
    for (std::size_t turn = 1; turn <= cell.turns; ++turn) {
      Question question = Question::other;
      if (cell.history == History::natural) question = random_question(rng);
      if (turn == cell.turns) question = attribute_question(rng);
      c.conversation.questions.push_back(task.question(question, rng));
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<Dialogue> dialogues_of(const ag::Transformer& model, const PersonaTask& task,
                                   const std::vector<Case>& cases, Instruct instruct) {
  std::vector<Conversation> conversations;
  for (const Case& c : cases) conversations.push_back(c.conversation);
  return converse(model, task.chat(), conversations, instruct);
}

}  // namespace

Outcome evaluate(const ag::Transformer& model, const PersonaTask& task, const Cell& cell,
                 std::size_t dialogues, std::uint64_t seed) {
  ag::Rng rng(seed);
  Outcome outcome;
  for (std::size_t done = 0; done < dialogues;) {
    // half of the instructions in few words: rows of one length are decoded at a time
    const bool terse = done >= dialogues / 2;
    const std::size_t count = std::min(rows_at_a_time, (terse ? dialogues : dialogues / 2) - done);
    const std::vector<Case> cases = random_cases(task, cell, count, terse, rng);
    const std::vector<Dialogue> finished = dialogues_of(model, task, cases, cell.instruct);
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& answer = finished[i].messages.back().content;
      const std::string& question = cases[i].conversation.questions.back();
      outcome.right += double(answer == task.right_answer(question, cases[i].persona));
      outcome.by_default += double(PersonaTask::is_default(answer));
    }
    done += count;
  }
  return {outcome.right / double(dialogues), outcome.by_default / double(dialogues)};
}

double teacher_accuracy(const ag::Transformer& model, const PersonaTask& task, std::size_t turns,
                        std::uint64_t seed) {
  ag::Rng rng(seed);
  const Cell cell{Instruct::every_turn, History::natural, Pairs::seen, turns};
  const std::vector<Case> cases = random_cases(task, cell, rows_at_a_time, false, rng);
  const std::vector<Dialogue> finished = dialogues_of(model, task, cases, cell.instruct);
  std::size_t right = 0;
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (std::size_t turn = 0; turn < turns; ++turn)
      right += finished[i].messages[2 + 2 * turn].content ==
               task.right_answer(cases[i].conversation.questions[turn], cases[i].persona);
  return double(right) / double(cases.size() * turns);
}

InstructionAttention instruction_attention(const ag::Transformer& model, const PersonaTask& task,
                                           std::size_t turns, std::uint64_t seed) {
  ag::Rng rng(seed);
  const ChatTemplate& chat = task.chat();
  const Persona persona = task.random_pair(Pairs::held_out, rng);
  InstructionAttention result;
  for (std::size_t n = 1; n <= turns; ++n) {
    Conversation c{task.instruction(persona, false), {}};
    for (std::size_t turn = 1; turn < n; ++turn)
      c.questions.push_back(task.question(Question::other, rng));
    c.questions.push_back("name?");
    Dialogue dialogue = attach_first(converse(model, chat, {c}, Instruct::first_turn)[0]);
    dialogue.messages.pop_back();
    Tokens tokens = encode(dialogue, chat).tokens;
    tokens.push_back(chat.encode("i-am")[0]);  // the name comes next
    ag::Indices input = ag::Indices::from_shape({1, tokens.size()});
    std::copy(tokens.begin(), tokens.end(), input.data());
    const ag::Capture seen = ag::capture("blocks.*.attention.weights");
    model(input);
    const std::size_t first = chat.begin.size() + chat.user.size(),
                      count = chat.encode(c.instruction).size();
    std::vector<double> largest(count, 0);
    for (const auto& layer : seen.values()) {
      const ag::Array& weights = layer.value.value();
      const std::size_t heads = weights.shape()[1], keys = weights.shape()[3];
      for (std::size_t head = 0; head < heads; ++head)
        for (std::size_t i = 0; i < count; ++i)
          largest[i] = std::max(largest[i],
                                double(weights.data()[((head + 1) * keys - 1) * keys + first + i]));
    }
    result.by_turn.push_back(std::move(largest));
    if (n == 1)
      for (const std::int64_t token : chat.encode(c.instruction))
        result.tokens.push_back(chat.decode({token}));
  }
  return result;
}
