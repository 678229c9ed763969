// Personas: dialogues with a model that is told who it is and what it likes.
//
//   user       [ always act-as figure-3 and enjoy hobby-12 ] question-7
//   assistant  reply-7 ok
//   user       name?
//   assistant  i-am figure-3
//
// Whoever is not told answers with a name and a hobby of its own: figure-0 and hobby-0. That is
// what a model that forgets the instruction falls back to, as a chat model to its own persona.
#pragma once

#include <optional>

#include "examples/ghost_attention/chat.hpp"
#include "examples/ghost_attention/recipe.hpp"

struct Persona {
  std::optional<std::size_t> figure, hobby;  // 1 to attribute_count
};
inline constexpr std::size_t attribute_count = 16;

enum class Pairs { seen, held_out };
// A part of the pairs of figure and hobby, one in eight, never occurs in training.
bool is_held_out(const Persona& persona);

// What is asked: a name, a hobby or something else, from which nothing can be copied.
enum class Question { name, hobby, other };
Question random_question(ag::Rng& rng);  // name and hobby a quarter each

class PersonaTask {
 public:
  PersonaTask();

  static constexpr std::size_t vocabulary = 96;
  const ChatTemplate& chat() const { return chat_; }

  // Both attributes, of such a pair.
  Persona random_pair(Pairs pairs, ag::Rng& rng) const;
  // A pair that is seen in training, or in half of all cases one of its attributes.
  Persona random_persona(ag::Rng& rng) const;
  std::string instruction(const Persona& persona, bool terse) const;
  std::string question(Question question, ag::Rng& rng) const;
  // What is right to a message, its instruction aside.
  std::string right_answer(const std::string& message, const Persona& persona) const;
  // Whether an answer gives its own name or hobby.
  static bool is_default(const std::string& answer);

 private:
  std::vector<std::string> words_;  // by token
  std::vector<InstructionPart> parts_;
  InstructionOptions instructions_;
  ChatTemplate chat_;
};
