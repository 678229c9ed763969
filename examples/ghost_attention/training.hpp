// The two trainings: a base model, which is the teacher too, and students that begin from it.
#pragma once

#include <memory>

#include "examples/common/training_file.hpp"
#include "examples/ghost_attention/persona_task.hpp"

struct Settings {
  std::size_t layers = 2, heads = 4, width = 64, hidden = 192;
  std::size_t batch = 32, base_steps = 800, student_steps = 400, most_turns = 20;
  double base_rate = 2e-3, student_rate = 1e-3;
  std::size_t dialogues = 1000;   // of each cell of the evaluation
  std::string folder, plot_path;  // empty: none
};

// How a student's samples differ from the recipe.
enum class Recipe {
  ghost_attention,
  loss_on_all_turns,  // no answer's loss is left out
  no_instruction      // it is left out of the first turn, too
};
const char* recipe_name(Recipe recipe);

class Training {
 public:
  virtual ~Training() = default;

  // One step on new dialogues, and what is due after it.
  void take_step();
  bool finished() const { return step_ >= steps_; }

  const std::string& name() const { return name_; }
  std::uint64_t seed() const { return seed_; }
  std::size_t step() const { return step_; }
  std::size_t steps() const { return steps_; }
  double loss() const { return loss_; }
  const ag::Transformer& model() const { return model_; }

 protected:
  // from: the model whose weights it begins with; null: random ones.
  Training(const Settings& settings, std::string name, std::uint64_t seed, std::size_t steps,
           double rate, std::size_t warmup, const ag::Transformer* from);
  // So many dialogues to learn.
  virtual std::vector<Dialogue> samples(std::size_t count, ag::Rng& rng) const = 0;

  Settings settings_;
  PersonaTask task_;

 private:
  std::string name_;
  std::uint64_t seed_;
  std::size_t steps_, step_ = 0;
  ag::Rng rng_, weights_, data_;
  ag::Transformer model_;
  ag::Parameters parameters_;
  ag::Adam optimizer_;
  ag::Schedule schedule_;
  TrainingFile file_;
  double loss_ = 0;
};

// One or two turns; in half of the batches with an instruction in every message, else with none.
class BaseTraining : public Training {
 public:
  BaseTraining(const Settings& settings, std::uint64_t seed);

 private:
  std::vector<Dialogue> samples(std::size_t count, ag::Rng& rng) const override;
};

// Dialogues of 2 to 20 turns that the teacher answered with the instruction in every message, made
// into samples by a recipe. Half of the batches ask for the persona in the last turn only.
class StudentTraining : public Training {
 public:
  StudentTraining(const Settings& settings, std::uint64_t seed, const ag::Transformer& teacher,
                  Recipe recipe);

 private:
  std::vector<Dialogue> samples(std::size_t count, ag::Rng& rng) const override;

  const ag::Transformer& teacher_;
  Recipe recipe_;
};

// Dialogues that go on by the answers of a model: in row i, questions[i] one after the other.
// instruct: in which turns the instruction stands in front, all or the first.
enum class Instruct { every_turn, first_turn, never };
struct Conversation {
  std::string instruction;
  std::vector<std::string> questions;
};
// The finished dialogues, the instruction as their system message. All have as many questions.
std::vector<Dialogue> converse(const ag::Transformer& model, const ChatTemplate& chat,
                               const std::vector<Conversation>& conversations, Instruct instruct);
