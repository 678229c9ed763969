#include "examples/ghost_attention/recipe.hpp"

namespace {

// The dialogue without its system message, which stands in front of the user's messages that
// `chosen` says, by number.
template <class Chosen>
Dialogue attach(const Dialogue& dialogue, const Chosen& chosen) {
  if (!dialogue.has_instruction()) return dialogue;
  Dialogue attached;
  for (std::size_t i = 1; i < dialogue.messages.size(); ++i) {
    attached.messages.push_back(dialogue.messages[i]);
    Message& message = attached.messages.back();
    if (message.role == Role::user && chosen((i - 1) / 2))
      message.content = dialogue.messages[0].content + " " + message.content;
  }
  return attached;
}

std::string filled(const std::string& sentence, const std::string& value) {
  const std::size_t place = sentence.find("{}");
  ag::check_argument(place != std::string::npos, "instruction: \"", sentence,
                     "\" has no {} for a value");
  return sentence.substr(0, place) + value + sentence.substr(place + 2);
}

std::size_t below(std::size_t count, ag::Rng& rng) {
  return static_cast<std::size_t>(rng.integer(0, std::int64_t(count)));
}

}  // namespace

Dialogue attach_everywhere(const Dialogue& dialogue) {
  return attach(dialogue, [](std::size_t) { return true; });
}

Dialogue attach_first(const Dialogue& dialogue) {
  return attach(dialogue, [](std::size_t turn) { return turn == 0; });
}

Dialogue only_last_answer(const Dialogue& dialogue) {
  Dialogue result = dialogue;
  std::size_t last = result.messages.size();
  while (last > 0 && result.messages[last - 1].role != Role::assistant) --last;
  ag::check_argument(last > 0, "only_last_answer: the dialogue has no answer");
  for (std::size_t i = 0; i + 1 < last; ++i)
    if (result.messages[i].role == Role::assistant) result.messages[i].weight = 0;
  return result;
}

Answerer best_of(std::size_t count, Answerer answer, Scorer score) {
  ag::check_argument(count > 0, "best_of: needs one answer or more, got 0");
  return [=](const Dialogue& dialogue) {
    std::string best = answer(dialogue);
    if (count == 1) return best;
    double best_score = score(dialogue, best);
    for (std::size_t i = 1; i < count; ++i) {
      std::string other = answer(dialogue);
      const double other_score = score(dialogue, other);
      if (!(other_score > best_score)) continue;
      best = std::move(other);
      best_score = other_score;
    }
    return best;
  };
}

Dialogue answer_again(const Dialogue& dialogue, const Answerer& answer) {
  dialogue.check();
  Dialogue result = dialogue;
  for (std::size_t i = 0; i < result.messages.size(); ++i) {
    if (result.messages[i].role != Role::assistant) continue;
    Dialogue before;
    before.messages.assign(result.messages.begin(), result.messages.begin() + std::ptrdiff_t(i));
    result.messages[i].content = answer(attach_everywhere(before));
  }
  return result;
}

std::string instruction_of(const std::vector<InstructionPart>& parts,
                           const std::vector<std::string>& values, bool terse,
                           const InstructionOptions& options) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (values.at(i).empty()) continue;
    if (!text.empty()) text += terse ? options.terse_joint : options.joint;
    text += filled(terse ? parts[i].terse : parts[i].sentence, values[i]);
  }
  return terse ? options.terse_opening + text + options.terse_ending
               : options.opening + text + options.ending;
}

std::string random_instruction(const std::vector<InstructionPart>& parts,
                               const InstructionOptions& options, ag::Rng& rng) {
  ag::check_argument(!parts.empty() && parts.size() < 32, "instruction: needs 1 to 31 parts, got ",
                     parts.size());
  const std::size_t subset = 1 + below((std::size_t{1} << parts.size()) - 1, rng);
  std::vector<std::string> values(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ag::check_argument(!parts[i].values.empty(), "instruction: part ", i + 1, " has no values");
    const std::string& value = parts[i].values[below(parts[i].values.size(), rng)];
    if ((subset >> i & 1) != 0) values[i] = value;
  }
  return instruction_of(parts, values, rng.uniform() < options.terse_share, options);
}

std::string in_few_words(const std::string& instruction, const std::vector<InstructionPart>& parts,
                         const InstructionOptions& options) {
  std::vector<std::string> values(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (const std::string& value : parts[i].values) {
      // the longest, where one value begins like another
      const bool found = instruction.find(filled(parts[i].sentence, value)) != std::string::npos;
      if (found && value.size() > values[i].size()) values[i] = value;
    }
  const bool whole = instruction_of(parts, values, false, options) == instruction;
  return whole ? instruction_of(parts, values, true, options) : instruction;
}

Dialogue with_instruction(const Dialogue& dialogue, const std::string& instruction) {
  Dialogue result = dialogue;
  if (result.has_instruction()) result.messages.erase(result.messages.begin());
  result.messages.insert(result.messages.begin(), {Role::system, instruction});
  return result;
}
