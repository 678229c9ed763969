#include "examples/ghost_attention/persona_task.hpp"

#include <sstream>
#include <unordered_map>

namespace {

constexpr std::int64_t begin = 1, user = 2, assistant = 3, turn_end = 4;

std::vector<std::string> all_words() {
  std::vector<std::string> words{"-",      "<begin>", "<user>", "<assistant>", "<end>", "[",
                                 "]",      "always",  "act-as", "and",         "enjoy", "name?",
                                 "hobby?", "i-am",    "i-like", "ok"};
  const auto add = [&](const char* word, std::size_t first) {
    for (std::size_t i = first; i < first + attribute_count; ++i)
      words.push_back(word + std::to_string(i));
  };
  add("question-", 1);
  add("reply-", 1);
  add("figure-", 1);
  add("hobby-", 1);
  words.push_back("figure-0");
  words.push_back("hobby-0");
  while (words.size() < PersonaTask::vocabulary)  // what a model may say, and never learns to
    words.push_back("unused-" + std::to_string(words.size()));
  return words;
}

std::string last_word(const std::string& text) { return text.substr(text.find_last_of(' ') + 1); }

std::vector<std::string> numbered(const char* word) {
  std::vector<std::string> all;
  for (std::size_t i = 1; i <= attribute_count; ++i) all.push_back(word + std::to_string(i));
  return all;
}

std::size_t attribute(ag::Rng& rng) {
  return static_cast<std::size_t>(rng.integer(1, std::int64_t(attribute_count) + 1));
}

ChatTemplate chat_of(const std::vector<std::string>& words) {
  std::unordered_map<std::string, std::int64_t> tokens;
  for (const std::string& word : words) tokens.emplace(word, std::int64_t(tokens.size()));
  const auto encode = [tokens](const std::string& text) {
    Tokens all;
    std::istringstream in(text);
    for (std::string word; in >> word;) {
      const auto found = tokens.find(word);
      ag::check_argument(found != tokens.end(), "personas: the word ", word, " is unknown");
      all.push_back(found->second);
    }
    return all;
  };
  const auto decode = [words](const Tokens& all) {
    std::string text;
    for (const std::int64_t token : all) {
      if (!text.empty()) text += " ";
      text += words.at(std::size_t(token));
    }
    return text;
  };
  return {encode, decode, {begin}, {user}, {assistant}, turn_end};
}

}  // namespace

bool is_held_out(const Persona& persona) {
  return persona.figure && persona.hobby && (*persona.figure + *persona.hobby) % 8 == 0;
}

Question random_question(ag::Rng& rng) {
  const std::int64_t drawn = rng.integer(0, 4);
  return drawn == 0 ? Question::name : drawn == 1 ? Question::hobby : Question::other;
}

PersonaTask::PersonaTask()
    : words_(all_words()),
      parts_{{"act-as {}", "{}", numbered("figure-")}, {"enjoy {}", "{}", numbered("hobby-")}},
      instructions_{.opening = "[ always ",
                    .joint = " and ",
                    .ending = " ]",
                    .terse_opening = "[ ",
                    .terse_joint = " ",
                    .terse_ending = " ]"},
      chat_(chat_of(words_)) {}

Persona PersonaTask::random_pair(Pairs pairs, ag::Rng& rng) const {
  while (true) {
    const Persona persona{attribute(rng), attribute(rng)};
    if (is_held_out(persona) == (pairs == Pairs::held_out)) return persona;
  }
}

Persona PersonaTask::random_persona(ag::Rng& rng) const {
  Persona persona = random_pair(Pairs::seen, rng);
  const std::int64_t form = rng.integer(0, 4);
  if (form == 0) persona.hobby.reset();
  if (form == 1) persona.figure.reset();
  return persona;
}

std::string PersonaTask::instruction(const Persona& persona, bool terse) const {
  const auto value = [](const InstructionPart& part, const std::optional<std::size_t>& number) {
    return number ? part.values[*number - 1] : std::string();
  };
  return instruction_of(parts_, {value(parts_[0], persona.figure), value(parts_[1], persona.hobby)},
                        terse, instructions_);
}

std::string PersonaTask::question(Question question, ag::Rng& rng) const {
  if (question == Question::name) return "name?";
  if (question == Question::hobby) return "hobby?";
  return "question-" + std::to_string(attribute(rng));
}

std::string PersonaTask::right_answer(const std::string& message, const Persona& persona) const {
  const std::string question = last_word(message);
  if (question == "name?") return "i-am figure-" + std::to_string(persona.figure.value_or(0));
  if (question == "hobby?") return "i-like hobby-" + std::to_string(persona.hobby.value_or(0));
  return "reply-" + question.substr(question.find('-') + 1) + " ok";
}

bool PersonaTask::is_default(const std::string& answer) {
  return answer == "i-am figure-0" || answer == "i-like hobby-0";
}
