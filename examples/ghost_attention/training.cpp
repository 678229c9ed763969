#include "examples/ghost_attention/training.hpp"

#include <algorithm>

#include "examples/common/small_model.hpp"

namespace {

constexpr std::size_t row_length = 128, saved_every = 100;

ag::TransformerOptions model_options(const Settings& s) {
  // 20 turns of at most 14 tokens
  ag::TransformerOptions options =
      small_model(PersonaTask::vocabulary, 16 * s.most_turns, s.width, s.heads, s.layers, s.hidden);
  options.positions = ag::Positions::none;
  options.scores.alibi = true;
  return options;
}

nlohmann::json settings_of(const Settings& s, const std::string& name, std::uint64_t seed) {
  return {{"name", name},
          {"seed", seed},
          {"layers", s.layers},
          {"heads", s.heads},
          {"width", s.width},
          {"hidden", s.hidden},
          {"batch", s.batch},
          {"base_steps", s.base_steps},
          {"base_rate", s.base_rate},
          {"student_steps", s.student_steps},
          {"student_rate", s.student_rate},
          {"most_turns", s.most_turns}};
}

Dialogue sample_of(const Dialogue& answered, Recipe recipe) {
  Dialogue sample = attach_first(answered);
  if (recipe == Recipe::no_instruction) {
    sample = answered;
    sample.messages.erase(sample.messages.begin());
  }
  return recipe == Recipe::loss_on_all_turns ? sample : only_last_answer(sample);
}

}  // namespace

const char* recipe_name(Recipe recipe) {
  switch (recipe) {
    case Recipe::ghost_attention:
      return "student";
    case Recipe::loss_on_all_turns:
      return "loss-on-all-turns";
    default:
      return "no-instruction";
  }
}

Training::Training(const Settings& s, std::string name, std::uint64_t seed, std::size_t steps,
                   double rate, std::size_t warmup, const ag::Transformer* from)
    : settings_(s),
      name_(std::move(name)),
      seed_(seed),
      steps_(steps),
      rng_(seed),
      weights_(rng_.split()),
      data_(rng_.split()),
      model_(model_options(s), weights_),
      parameters_(ag::parameters(model_)),
      optimizer_(parameters_, {.beta2 = 0.98}),
      schedule_(ag::warmup_cosine({.peak = rate,
                                   .floor = 0.05 * rate,
                                   .warmup = std::min(warmup, steps),
                                   .total = std::max<std::size_t>(1, steps)})),
      file_(TrainingFile::path_in(s.folder, ag::text(name_, "-", seed)),
            settings_of(s, name_, seed), parameters_, optimizer_, {&data_}) {
  if (from != nullptr) {
    const ag::Parameters given = ag::parameters(*from);
    for (auto [path, x] : parameters_) x.assign(given.find(path).value());
  }
  step_ = file_.load(steps_).step;
}

void Training::take_step() {
  std::vector<WeightedTokens> sequences;
  for (const Dialogue& dialogue : samples(settings_.batch, data_))
    sequences.push_back(encode(dialogue, task_.chat()));
  {
    ag::Tape tape;
    const ag::Variable loss = loss_of(model_, pack(sequences, row_length));
    const ag::Gradients gradients = tape.gradients(loss);
    optimizer_.step(gradients, schedule_(step_), ag::clip_norm(parameters_, gradients, 1).factor);
    loss_ = double(loss.item());
  }
  ++step_;
  if (finished() || step_ % saved_every == 0) file_.save({step_, {}});
}

BaseTraining::BaseTraining(const Settings& s, std::uint64_t seed)
    : Training(s, "base", seed, s.base_steps, s.base_rate, 100, nullptr) {}

std::vector<Dialogue> BaseTraining::samples(std::size_t count, ag::Rng& rng) const {
  const std::int64_t turns = rng.integer(1, 3);
  const bool instructed = rng.uniform() < 0.5, terse = rng.uniform() < 0.5;
  std::vector<Dialogue> all;
  for (std::size_t i = 0; i < count; ++i) {
    const Persona persona = instructed ? task_.random_persona(rng) : Persona{};
    Dialogue dialogue;
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      const std::string question = task_.question(random_question(rng), rng);
      dialogue.messages.push_back({Role::user, question});
      dialogue.messages.push_back({Role::assistant, task_.right_answer(question, persona)});
    }
    if (instructed)
      dialogue = attach_everywhere(with_instruction(dialogue, task_.instruction(persona, terse)));
    all.push_back(std::move(dialogue));
  }
  return all;
}

StudentTraining::StudentTraining(const Settings& s, std::uint64_t seed,
                                 const ag::Transformer& teacher, Recipe recipe)
    : Training(s, recipe_name(recipe), seed, s.student_steps, s.student_rate, 50, &teacher),
      teacher_(teacher),
      recipe_(recipe) {}

std::vector<Dialogue> StudentTraining::samples(std::size_t count, ag::Rng& rng) const {
  const std::int64_t turns = rng.integer(2, std::int64_t(settings_.most_turns) + 1);
  const bool hard = rng.uniform() < 0.5, terse = rng.uniform() < 0.5;
  std::vector<Conversation> conversations;
  for (std::size_t i = 0; i < count; ++i) {
    Conversation c{task_.instruction(task_.random_persona(rng), terse), {}};
    for (std::int64_t turn = 1; turn <= turns; ++turn) {
      Question question = random_question(rng);
      if (hard)
        question = turn < turns          ? Question::other
                   : rng.uniform() < 0.5 ? Question::name
                                         : Question::hobby;
      c.questions.push_back(task_.question(question, rng));
    }
    conversations.push_back(std::move(c));
  }
  std::vector<Dialogue> all;
  for (const Dialogue& answered :
       converse(teacher_, task_.chat(), conversations, Instruct::every_turn))
    all.push_back(sample_of(answered, recipe_));
  return all;
}

std::vector<Dialogue> converse(const ag::Transformer& model, const ChatTemplate& chat,
                               const std::vector<Conversation>& conversations, Instruct instruct) {
  const std::size_t rows = conversations.size(), turns = conversations.at(0).questions.size();
  ChatSession session(model, chat, rows, {.most_tokens = 4});
  std::vector<Dialogue> dialogues(rows);
  for (std::size_t row = 0; row < rows; ++row)
    dialogues[row].messages.push_back({Role::system, conversations[row].instruction});
  for (std::size_t turn = 0; turn < turns; ++turn) {
    std::vector<std::string> said;
    for (const Conversation& c : conversations) {
      const bool with =
          instruct == Instruct::every_turn || (instruct == Instruct::first_turn && turn == 0);
      said.push_back(with ? c.instruction + " " + c.questions.at(turn) : c.questions.at(turn));
    }
    const std::vector<std::string> answers = session.say(said);
    for (std::size_t row = 0; row < rows; ++row) {
      dialogues[row].messages.push_back({Role::user, conversations[row].questions[turn]});
      dialogues[row].messages.push_back({Role::assistant, answers[row]});
    }
  }
  return dialogues;
}
