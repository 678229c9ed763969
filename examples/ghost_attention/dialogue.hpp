// Dialogues, and files of them in the form that chat models are commonly trained with: on each line
//   {"messages": [{"role": "system", "content": "..."}, {"role": "user", "content": "..."}, ...]}
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "core/errors.hpp"

namespace ag = attngrad;

enum class Role { system, user, assistant };
const char* role_name(Role role);

struct Message {
  Role role;
  std::string content;
  double weight = 1;  // of its loss, for an assistant's; in a file "weight", where it is not 1
};

// Perhaps a system message, which is the instruction that holds for the whole dialogue; then user
// and assistant in turn, the user first.
struct Dialogue {
  std::vector<Message> messages;

  bool has_instruction() const { return !messages.empty() && messages[0].role == Role::system; }
  // Throws attngrad::ArgumentError unless the messages are in that order, and a user's is there.
  void check() const;
};

// Empty lines are skipped. Throws attngrad::FileError, naming the file and the line, for what is no
// such object, another role, another order, and a weight that is negative or not finite.
std::vector<Dialogue> read_dialogues(const std::string& path);
std::vector<Dialogue> read_dialogues(std::istream& in, const std::string& name);
// Throws attngrad::FileError if the file cannot be written; an old one is then as it was.
void write_dialogues(const std::string& path, const std::vector<Dialogue>& dialogues);
