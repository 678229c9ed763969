#include "examples/ghost_attention/dialogue.hpp"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/files/atomic_file.hpp"

namespace {

Role role_named(const std::string& name) {
  for (const Role role : {Role::system, Role::user, Role::assistant})
    if (name == role_name(role)) return role;
  throw ag::ArgumentError("a role is system, user or assistant, got " + name);
}

const std::string& text_in(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end() || !found->is_string())
    throw ag::ArgumentError(ag::text("a message needs a text \"", key, "\""));
  return found->get_ref<const std::string&>();
}

Message message_of(const nlohmann::json& json) {
  if (!json.is_object()) throw ag::ArgumentError("a message must be an object");
  Message message{role_named(text_in(json, "role")), text_in(json, "content")};
  if (const auto weight = json.find("weight"); weight != json.end()) {
    if (!weight->is_number()) throw ag::ArgumentError("a weight must be a number");
    message.weight = weight->get<double>();
    ag::check_argument(std::isfinite(message.weight) && message.weight >= 0,
                       "a weight must be finite and not negative, got ", message.weight);
  }
  return message;
}

Dialogue dialogue_of(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) throw ag::ArgumentError("is not a JSON object");
  const auto messages = json.find("messages");
  if (messages == json.end() || !messages->is_array())
    throw ag::ArgumentError("needs a list \"messages\"");
  Dialogue dialogue;
  for (const nlohmann::json& message : *messages) dialogue.messages.push_back(message_of(message));
  dialogue.check();
  return dialogue;
}

std::string line_of(const Dialogue& dialogue) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (const Message& m : dialogue.messages) {
    messages.push_back({{"role", role_name(m.role)}, {"content", m.content}});
    if (m.weight != 1) messages.back()["weight"] = m.weight;
  }
  return nlohmann::ordered_json{{"messages", messages}}.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

const char* role_name(Role role) {
  return role == Role::system ? "system" : role == Role::user ? "user" : "assistant";
}

void Dialogue::check() const {
  const std::size_t first = has_instruction() ? 1 : 0;
  ag::check_argument(messages.size() > first, "a dialogue needs a user's message, got ",
                     messages.size(), " messages");
  for (std::size_t i = first; i < messages.size(); ++i) {
    const Role expected = (i - first) % 2 == 0 ? Role::user : Role::assistant;
    ag::check_argument(messages[i].role == expected, "message ", i + 1, " must be the ",
                       role_name(expected), "'s, is the ", role_name(messages[i].role), "'s");
  }
}

std::vector<Dialogue> read_dialogues(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw ag::FileError("dialogues: " + path + " is missing or unreadable");
  return read_dialogues(in, path);
}

std::vector<Dialogue> read_dialogues(std::istream& in, const std::string& name) {
  std::vector<Dialogue> all;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      all.push_back(dialogue_of(line));
    } catch (const ag::ArgumentError& error) {
      throw ag::FileError(ag::text("dialogues: ", name, " line ", number, ": ", error.what()));
    }
  }
  return all;
}

void write_dialogues(const std::string& path, const std::vector<Dialogue>& dialogues) {
  std::string text;
  for (const Dialogue& dialogue : dialogues) text += line_of(dialogue) + "\n";
  ag::write_atomically(path, {text});
}
