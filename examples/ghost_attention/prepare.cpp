#include "examples/ghost_attention/prepare.hpp"

#include <fstream>
#include <iterator>

#include "examples/common/checked_json.hpp"
#include "examples/ghost_attention/chat.hpp"

namespace {

struct Instructions {
  std::vector<InstructionPart> parts;
  InstructionOptions options;
};

// The paper's three kinds; its lists were written by the model itself.
Instructions built_in() {
  return {{{"act as {}", "Figure: {}", {"Napoleon", "Marie Curie", "Oscar Wilde", "Cleopatra"}},
           {"remember that you enjoy {}", "Hobby: {}", {"chess", "gardening", "surfing", "opera"}},
           {"speak {}", "Language: {}", {"French", "Spanish", "Latin", "Korean"}}},
          {.opening = "From now on, always ", .ending = "."}};
}

// {"parts": [{"sentence": "act as {}", "terse": "Figure: {}", "values": ["..."]}], "opening": ...,
// "joint": ..., "ending": ..., "terse_opening": ..., "terse_joint": ..., "terse_ending": ...}
Instructions read_instructions(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw ag::FileError("instructions: " + path + " is missing or unreadable");
  const CheckedJson json("instructions: " + path, std::string(std::istreambuf_iterator(in), {}));
  Instructions all;
  for (const CheckedJson& part : json.at("parts").list(1, 1 << 20)) {
    all.parts.push_back({part.at("sentence").word(), part.at("terse").word(), {}});
    for (const CheckedJson& value : part.at("values").list(1, 1 << 20))
      all.parts.back().values.push_back(value.word());
  }
  const auto text = [&](const char* key, std::string& value) {
    if (json.has(key)) value = json.at(key).word();
  };
  text("opening", all.options.opening);
  text("joint", all.options.joint);
  text("ending", all.options.ending);
  text("terse_opening", all.options.terse_opening);
  text("terse_joint", all.options.terse_joint);
  text("terse_ending", all.options.terse_ending);
  return all;
}

// Roles as words, for a vocabulary that has no tokens for them.
ChatTemplate chat_of(const Tokenizer& tokenizer) {
  const auto encode = [&tokenizer](const std::string& text) {
    Tokens tokens = tokenizer.encode(text);
    tokens.erase(tokens.begin());  // the beginning of a text
    return tokens;
  };
  const auto decode = [&tokenizer](const Tokens& tokens) {
    std::string text;
    std::int64_t before = Tokenizer::begin;
    for (const std::int64_t token : tokens) {
      text += tokenizer.text(token, before);
      before = token;
    }
    return text;
  };
  return {encode,
          decode,
          {Tokenizer::begin},
          encode("User:"),
          encode("Answer:"),
          Tokenizer::end,
          {Tokenizer::begin}};
}

// A model with all that its answers need.
class Speaker {
 public:
  Speaker(const PrepareSettings& s, ag::Rng& rng)
      : llama_(load(s.files)), chat_(chat_of(llama_.tokenizer)) {
    const ReplyOptions options{.sampling = {.temperature = s.temperature, .top_k = 0},
                               .most_tokens = s.most_tokens};
    answer_ = best_of(
        s.candidates,
        [this, options, &rng](const Dialogue& d) {
          return reply(llama_.model, chat_, d, options, rng);
        },
        [this](const Dialogue& d, const std::string& answer) { return likelihood(d, answer); });
  }
  Speaker(const Speaker&) = delete;

  const Answerer& answer() const { return answer_; }

 private:
  // The mean log-probability of the answer's tokens.
  double likelihood(Dialogue dialogue, const std::string& answer) const {
    dialogue.messages.push_back({Role::assistant, answer});
    return -double(loss_of(llama_.model, pack({encode(only_last_answer(dialogue), chat_)})).item());
  }

  Llama llama_;
  ChatTemplate chat_;
  Answerer answer_;
};

Dialogue attached(const Dialogue& dialogue, const std::string& how) {
  if (how == "everywhere") return attach_everywhere(dialogue);
  return how == "first" ? attach_first(dialogue) : dialogue;
}

}  // namespace

std::size_t prepare(const PrepareSettings& s, ag::Rng& rng) {
  std::vector<Dialogue> dialogues = read_dialogues(s.input);
  Instructions instructions =
      s.instructions.empty() ? built_in() : read_instructions(s.instructions);
  instructions.options.terse_share = s.terse_share;
  std::optional<Speaker> speaker;
  if (!s.files.model.empty()) speaker.emplace(s, rng);
  for (Dialogue& dialogue : dialogues) {
    if (s.synthesise && !dialogue.has_instruction())
      dialogue = with_instruction(
          dialogue, random_instruction(instructions.parts, instructions.options, rng));
    else if (s.rewrite && dialogue.has_instruction() && rng.uniform() < s.terse_share)
      dialogue = with_instruction(dialogue, in_few_words(dialogue.messages[0].content,
                                                         instructions.parts, instructions.options));
    if (speaker) dialogue = answer_again(dialogue, speaker->answer());
    dialogue = attached(dialogue, s.attach);
    if (s.last_answer_only) dialogue = only_last_answer(dialogue);
  }
  write_dialogues(s.output, dialogues);
  return dialogues.size();
}
