// Dialogues, the recipe of Ghost Attention, and how its samples are read and asked for.
#include <map>
#include <set>
#include <sstream>

#include "common/temporary_folder.hpp"
#include "common/test.hpp"
#include "core/ops/loss.hpp"
#include "core/ops/shape.hpp"
#include "examples/ghost_attention/chat.hpp"
#include "examples/ghost_attention/persona_task.hpp"
#include "examples/ghost_attention/recipe.hpp"

namespace {

Dialogue dialogue_of(const std::string& lines) {
  std::istringstream in(lines);
  return read_dialogues(in, "text").at(0);
}

const char* two_turns =
    R"({"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"},)"
    R"( {"role": "assistant", "content": "hello"}, {"role": "user", "content": "who?"},)"
    R"( {"role": "assistant", "content": "me"}]})";

std::vector<std::string> contents(const Dialogue& dialogue) {
  std::vector<std::string> all;
  for (const Message& m : dialogue.messages) all.push_back(m.content);
  return all;
}

std::vector<double> weights(const Dialogue& dialogue) {
  std::vector<double> all;
  for (const Message& m : dialogue.messages) all.push_back(m.weight);
  return all;
}

// Characters are tokens; 1 to 4 are the marks.
ChatTemplate characters() {
  const auto encode = [](const std::string& text) { return Tokens(text.begin(), text.end()); };
  const auto decode = [](const Tokens& tokens) {
    return std::string(tokens.begin(), tokens.end());
  };
  return {encode, decode, {1}, {2}, {3}, 4};
}

ag::Transformer model_of(std::size_t vocabulary = 128, double deviation = 0.5) {
  ag::Rng rng(3);
  return ag::Transformer({.vocabulary = vocabulary,
                          .context = 200,
                          .width = 16,
                          .heads = 2,
                          .layers = 2,
                          .positions = ag::Positions::none,
                          .scores = {.alibi = true},
                          .deviation = deviation},
                         rng);
}

}  // namespace

TEST_CASE("dialogues come back from a file as they were written", "[dialogue]") {
  const TemporaryFolder there;
  std::vector<Dialogue> all{dialogue_of(two_turns), {{{Role::user, "\"\\ \xC3\xA9\n"}}}};
  all[0].messages[2].weight = 0;
  write_dialogues(there / "dialogues.jsonl", all);
  const std::vector<Dialogue> again = read_dialogues(there / "dialogues.jsonl");
  REQUIRE(again.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(contents(again[i]) == contents(all[i]));
    REQUIRE(weights(again[i]) == weights(all[i]));
    REQUIRE(again[i].has_instruction() == (i == 0));
  }
}

TEST_CASE("a bad dialogue is refused with its line and what was wrong", "[dialogue][errors]") {
  const auto refuses = [](const std::string& line, const std::string& words) {
    std::istringstream in(std::string(two_turns) + "\n\n" + line);
    REQUIRE_THROWS_WITH(read_dialogues(in, "file"), ContainsSubstring("file line 3: " + words));
  };
  refuses("{", "is not a JSON object");
  refuses("[]", "is not a JSON object");
  refuses(R"({"turns": []})", "needs a list \"messages\"");
  refuses(R"({"messages": []})", "a dialogue needs a user's message, got 0");
  refuses(R"({"messages": ["hi"]})", "a message must be an object");
  refuses(R"({"messages": [{"role": "user"}]})", "a message needs a text \"content\"");
  refuses(R"({"messages": [{"role": "bot", "content": ""}]})", "a role is system, user or");
  refuses(R"({"messages": [{"role": "assistant", "content": ""}]})",
          "message 1 must be the user's, is the assistant's");
  refuses(R"({"messages": [{"role": "user", "content": ""}, {"role": "user", "content": ""}]})",
          "message 2 must be the assistant's, is the user's");
  refuses(R"({"messages": [{"role": "user", "content": "", "weight": -1}]})", "a weight must be");
  REQUIRE_THROWS_WITH(read_dialogues("no_such_file"), ContainsSubstring("missing or unreadable"));
}

TEST_CASE("the instruction goes in front of every message of the user, or of the first",
          "[recipe]") {
  const Dialogue dialogue = dialogue_of(two_turns);
  REQUIRE(contents(attach_everywhere(dialogue)) ==
          std::vector<std::string>{"be brief hi", "hello", "be brief who?", "me"});
  REQUIRE(contents(attach_first(dialogue)) ==
          std::vector<std::string>{"be brief hi", "hello", "who?", "me"});
  const Dialogue plain = attach_first(dialogue);
  REQUIRE(contents(attach_everywhere(plain)) == contents(plain));
  REQUIRE(contents(with_instruction(plain, "rhyme")).front() == "rhyme");
  REQUIRE(contents(with_instruction(dialogue, "rhyme")).size() == 5);
}

TEST_CASE("the loss of all answers but the last is left out, wherever the dialogue ends",
          "[recipe]") {
  Dialogue dialogue = dialogue_of(two_turns);
  REQUIRE(weights(only_last_answer(dialogue)) == std::vector<double>{1, 1, 0, 1, 1});
  dialogue.messages.push_back({Role::user, "bye"});
  REQUIRE(weights(only_last_answer(dialogue)) == std::vector<double>{1, 1, 0, 1, 1, 1});
  REQUIRE_THROWS_AS(only_last_answer({{{Role::user, "hi"}}}), ag::ArgumentError);
}

TEST_CASE("answers are given anew beside the new ones, with the instruction in every message",
          "[recipe]") {
  std::vector<std::vector<std::string>> asked;
  const Dialogue again = answer_again(dialogue_of(two_turns), [&](const Dialogue& before) {
    asked.push_back(contents(before));
    return "answer " + std::to_string(asked.size());
  });
  REQUIRE(asked == std::vector<std::vector<std::string>>{
                       {"be brief hi"}, {"be brief hi", "answer 1", "be brief who?"}});
  REQUIRE(contents(again) ==
          std::vector<std::string>{"be brief", "hi", "answer 1", "who?", "answer 2"});
}

TEST_CASE("the best of several answers is kept, the first of equals", "[recipe]") {
  const std::vector<std::string> answers{"aa", "bbbb", "c", "dddd"};
  std::size_t next = 0;
  const auto answer = [&](const Dialogue&) { return answers[next++]; };
  const auto length = [](const Dialogue&, const std::string& a) { return double(a.size()); };
  REQUIRE(best_of(4, answer, length)({}) == "bbbb");
  REQUIRE(next == 4);
  next = 0;
  REQUIRE(best_of(1, answer, length)({}) == "aa");
  REQUIRE_THROWS_AS(best_of(0, answer, length), ag::ArgumentError);
}

TEST_CASE("instructions are random combinations, half of them in few words", "[recipe]") {
  const std::vector<InstructionPart> parts{{"act as {}", "Figure: {}", {"A", "B"}},
                                           {"enjoy {}", "Hobby: {}", {"x"}}};
  const InstructionOptions options{.opening = "Always ", .ending = "."};
  REQUIRE(instruction_of(parts, {"B", "x"}, false, options) == "Always act as B and enjoy x.");
  REQUIRE(instruction_of(parts, {"", "x"}, false, options) == "Always enjoy x.");
  REQUIRE(instruction_of(parts, {"B", "x"}, true, options) == "Figure: B, Hobby: x");
  REQUIRE(in_few_words("Always act as B and enjoy x.", parts, options) == "Figure: B, Hobby: x");
  REQUIRE(in_few_words("Always enjoy x.", parts, options) == "Hobby: x");
  const std::string more = "Always enjoy x, and never say so.";
  REQUIRE(in_few_words(more, parts, options) == more);
  REQUIRE(in_few_words("be brief", parts, options) == "be brief");
  ag::Rng rng(1);
  std::map<std::string, int> seen;
  for (int i = 0; i < 600; ++i) ++seen[random_instruction(parts, options, rng)];
  REQUIRE(seen.size() == 2 * 5);  // A, B, x, A and x, B and x; in full and in few words
  int terse = 0;
  for (const auto& [text, count] : seen) terse += text.starts_with("Always") ? 0 : count;
  REQUIRE((terse > 250 && terse < 350));
  REQUIRE_THROWS_AS(random_instruction({}, options, rng), ag::ArgumentError);
  REQUIRE_THROWS_WITH(random_instruction({{"act", "Figure: {}", {"A"}}}, {.terse_share = 0}, rng),
                      ContainsSubstring("has no {}"));
}

TEST_CASE("what is asked for is the last answer and its end, and they count as many as they are",
          "[chat]") {
  const ChatTemplate chat = characters();
  const WeightedTokens all = encode(only_last_answer(attach_first(dialogue_of(two_turns))), chat);
  const std::string text = "\1\2be brief hi\3hello\4\2who?\3me\4";
  REQUIRE(chat.decode(all.tokens) == text);
  double sum = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool asked = i + 3 >= text.size();  // m, e, the end
    REQUIRE(all.weights[i] == (asked ? 1 : 0));
    sum += all.weights[i];
  }
  REQUIRE(sum == 3);
  // a system message stands in front of the first user's content
  REQUIRE(encode(dialogue_of(two_turns), chat).tokens == all.tokens);
}

TEST_CASE("the gradient at every token that is not asked for is exactly 0", "[chat]") {
  const ag::Transformer model = model_of();
  const WeightedTokens one =
      encode(only_last_answer(attach_first(dialogue_of(two_turns))), characters());
  const Packed packed = pack({one}, 60);
  const Variable logits = ag::parameter(model(packed.inputs).value());
  Tape tape;
  const Variable loss = ag::cross_entropy(logits, packed.targets, {.weights = packed.weights});
  const Array g = tape.gradients(loss).of(logits).value();
  for (std::size_t t = 0; t < 60; ++t) {
    bool zero = true;
    for (std::size_t j = 0; j < 128; ++j) zero = zero && g.data()[t * 128 + j] == 0;
    REQUIRE(zero == (packed.weights.data()[t] == 0));
  }
}

TEST_CASE("the loss is that of the last answer alone", "[chat]") {
  const ag::Transformer model = model_of();
  const WeightedTokens one =
      encode(only_last_answer(attach_first(dialogue_of(two_turns))), characters());
  const std::size_t time = one.tokens.size() - 1;
  ag::Indices inputs = ag::Indices::from_shape({1, time}), last{{'m', 'e', 4}};
  std::copy_n(one.tokens.begin(), time, inputs.data());
  const Variable logits = model(inputs);
  const Variable expected = ag::cross_entropy(ag::slice(logits, 1, {.start = -3}), last);
  require_close(loss_of(model, pack({one})).value(), {double(expected.item())},
                tolerance(1e-13, 1e-5));
}

TEST_CASE("dialogues that share a row neither see nor cost each other anything", "[chat]") {
  const ag::Transformer model = model_of();
  std::vector<WeightedTokens> all;
  for (const char* text : {"a longer answer", "short", "", "middling"})
    all.push_back(encode({{{Role::user, "question"}, {Role::assistant, text}}}, characters()));
  const Packed packed = pack(all, 64);
  REQUIRE(packed.inputs.shape()[0] == 2);
  double sum = 0, count = 0;
  for (const WeightedTokens& one : all) {
    const auto asked = double(std::count(one.weights.begin(), one.weights.end(), 1.0));
    sum += asked * double(loss_of(model, pack({one})).item());
    count += asked;
  }
  require_close(loss_of(model, packed).value(), {sum / count}, tolerance(1e-13, 1e-5));

  // another first dialogue moves no logit of the others
  const Array before = model(packed.inputs, ag::documents(packed.documents)).value();
  Packed changed = packed;
  for (std::size_t i = 0; i < changed.inputs.size(); ++i)
    if (changed.documents.data()[i] == 0) changed.inputs.data()[i] = 7;
  const Array after = model(changed.inputs, ag::documents(changed.documents)).value();
  for (std::size_t i = 0; i < packed.inputs.size(); ++i)
    for (std::size_t j = 0; j < 128; ++j)
      if (packed.documents.data()[i] > 0)
        REQUIRE(before.data()[i * 128 + j] == after.data()[i * 128 + j]);
  REQUIRE_THROWS_AS(pack({}), ag::ArgumentError);
  REQUIRE_THROWS_AS(pack({{{1}, {0}}}), ag::ArgumentError);
}

TEST_CASE("many dialogues at a time are answered as each alone, however long answers are",
          "[chat]") {
  const ChatTemplate chat = characters();
  const ag::Transformer model = model_of(128, 2);
  const std::vector<std::string> first{"hello there", "a", "who are you?"},
      second{"b", "and more of it", "c"};
  const ReplyOptions options{.most_tokens = 9};
  ChatSession session(model, chat, 3, options);
  const std::vector<std::string> one = session.say(first), two = session.say(second);
  ag::Rng rng(1);
  for (std::size_t i = 0; i < 3; ++i) {
    Dialogue dialogue{{{Role::user, first[i]}}};
    REQUIRE(reply(model, chat, dialogue, options, rng) == one[i]);
    dialogue.messages.push_back({Role::assistant, one[i]});
    dialogue.messages.push_back({Role::user, second[i]});
    REQUIRE(reply(model, chat, dialogue, options, rng) == two[i]);
  }
  REQUIRE_THROWS_AS(session.say({"one"}), ag::ArgumentError);
}

TEST_CASE("a seed decides what is drawn in an answer", "[chat]") {
  const ChatTemplate chat = characters();
  const ag::Transformer model = model_of(128, 0.2);
  const Dialogue dialogue{{{Role::user, "hello"}}};
  const ReplyOptions options{.sampling = {.temperature = 1, .top_k = 0}, .most_tokens = 20};
  const auto answer = [&](std::uint64_t seed) {
    ag::Rng rng(seed);
    return reply(model, chat, dialogue, options, rng);
  };
  REQUIRE(answer(1) == answer(1));
  REQUIRE(answer(1) != answer(2));
}

TEST_CASE("pairs that are held out are never among those to learn", "[personas]") {
  const PersonaTask task;
  ag::Rng rng(1);
  std::set<std::pair<std::size_t, std::size_t>> seen, held_out;
  for (int i = 0; i < 6000; ++i) {
    const Persona a = task.random_persona(rng), b = task.random_pair(Pairs::held_out, rng);
    REQUIRE(!is_held_out(a));
    if (a.figure && a.hobby) seen.emplace(*a.figure, *a.hobby);
    held_out.emplace(*b.figure, *b.hobby);
  }
  REQUIRE(seen.size() == 256 - 32);
  REQUIRE(held_out.size() == 32);
}

TEST_CASE("personas answer by what they were told, and else by default", "[personas]") {
  const PersonaTask task;
  const Persona both{3, 12}, figure{3, {}};
  REQUIRE(task.instruction(both, false) == "[ always act-as figure-3 and enjoy hobby-12 ]");
  REQUIRE(task.instruction(figure, true) == "[ figure-3 ]");
  REQUIRE(task.right_answer("[ figure-3 ] name?", figure) == "i-am figure-3");
  REQUIRE(task.right_answer("hobby?", figure) == "i-like hobby-0");
  REQUIRE(PersonaTask::is_default("i-like hobby-0"));
  REQUIRE(!PersonaTask::is_default("i-like hobby-12"));
  REQUIRE(task.right_answer("question-7", both) == "reply-7 ok");
  const std::string text = "[ always act-as figure-3 and enjoy hobby-12 ] question-7";
  REQUIRE(task.chat().decode(task.chat().encode(text)) == text);
  REQUIRE_THROWS_WITH(task.chat().encode("figure-17"), ContainsSubstring("figure-17 is unknown"));
}
