// Ghost Attention: a model learns to follow, for twenty turns, an instruction that it was given in
// the first; and the recipe that makes its data, for files of one's own.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "examples/common/command_line.hpp"
#include "examples/common/jobs.hpp"
#include "examples/common/progress.hpp"
#include "examples/ghost_attention/prepare.hpp"
#include "examples/ghost_attention/report.hpp"

namespace {

constexpr std::uint64_t teacher_seed = 777;  // of the dialogues that teachers are checked with

struct Options {
  Settings settings;
  std::size_t seeds = 3;
  bool no_ablations = false;
  PrepareSettings prepare;
};

void add_options(Program& program, Options& o) {
  Settings& s = o.settings;
  program.size_option("--seeds", o.seeds,
                      "how many models of each kind, of the first good teachers from --seed on");
  program.size_option("--base-steps", s.base_steps, "of the base model, the teacher");
  program.size_option("--student-steps", s.student_steps, "of each student");
  program.size_option("--batch", s.batch, "dialogues a step");
  program.size_option("--width", s.width, "of the model");
  program.size_option("--dialogues", s.dialogues, "in each cell of the evaluation");
  program.app.add_flag("--no-ablations", o.no_ablations, "train no students by other recipes");
  program.app.add_option("--folder", s.folder, "where each training is kept, and goes on from");
  program.app.add_option("--plot", s.plot_path, "where to draw the attention (SVG)");
  program.app.get_option("--threads")->description("how many trainings run side by side");
}

CLI::App* add_prepare(Program& program, PrepareSettings& s) {
  CLI::App* prepare = program.app.add_subcommand(
      "prepare", "makes samples of dialogues: one {\"messages\": [...]} on each line");
  prepare->add_option("input", s.input, "the dialogues")->required();
  prepare->add_option("output", s.output, "where to write the samples")->required();
  prepare->add_option("--attach", s.attach, "the instruction to which of the user's messages")
      ->check(CLI::IsMember({"everywhere", "first", "none"}))
      ->capture_default_str();
  prepare->add_flag("--last-answer-only,!--all-answers", s.last_answer_only,
                    "whose loss counts (the default: the last answer's)");
  prepare->add_flag("--synthesise", s.synthesise, "an instruction for dialogues without one");
  prepare->add_flag("--rewrite", s.rewrite, "instructions that are there, in few words");
  prepare->add_option("--instructions", s.instructions, "a file of what they are made of (JSON)");
  prepare
      ->add_option("--terse", s.terse_share,
                   "the share of instructions that are made, or rewritten, in few words")
      ->check(share())
      ->capture_default_str();
  CLI::Option* model = add_llama_options(*prepare, s.files).model;
  model->description("who gives all answers anew; " + model->get_description());
  prepare->add_option("--candidates", s.candidates, "answers, of which the likeliest is kept")
      ->check(size_from(1))
      ->capture_default_str()
      ->needs(model);
  prepare->add_option("--temperature", s.temperature, "of the answers")
      ->check(not_negative())
      ->capture_default_str()
      ->needs(model);
  prepare->add_option("--most-tokens", s.most_tokens, "of an answer")
      ->check(size_from(1))
      ->capture_default_str()
      ->needs(model);
  return prepare;
}

template <class T>
using List = std::vector<std::unique_ptr<T>>;

template <class T>
void train(const List<T>& trainings, bool quiet) {
  std::size_t total = 0, done = 0;
  for (const auto& t : trainings) {
    total += t->steps();
    done += std::min(t->step(), t->steps());
  }
  Progress progress(total, done, quiet);
  train_side_by_side(trainings, [&](const Training& t) {
    progress.show(++done, ag::text(t.name(), ": step ", t.step(), ", loss ", t.loss()), 1, "steps");
  });
  progress.close();
}

// Models of the first seeds that are good enough to teach: right in 99.9 % of all answers in
// dialogues of 20 turns with the instruction in each. One that is wrong now and then cannot label
// dialogues that long; how far beyond its two turns a model goes differs from seed to seed.
List<BaseTraining> good_teachers(const Options& o, const CommonOptions& common) {
  constexpr double least = 0.999;
  List<BaseTraining> good;
  std::uint64_t next = common.seed;
  while (good.size() < o.seeds) {
    if (next >= common.seed + 6 * o.seeds)
      throw std::runtime_error(
          ag::text("of ", 6 * o.seeds, " teachers only ", good.size(),
                   " are right in 99.9 % of their answers; more --base-steps"));
    List<BaseTraining> tried;
    while (good.size() + tried.size() < o.seeds)
      tried.push_back(std::make_unique<BaseTraining>(o.settings, next++));
    train(tried, common.json);
    for (auto& base : tried) {
      const double right =
          teacher_accuracy(base->model(), PersonaTask(), o.settings.most_turns, teacher_seed);
      if (!common.json)
        std::printf(
            "teacher of seed %zu: %.2f %% of all answers in dialogues of %zu turns right%s\n",
            std::size_t(base->seed()), 100 * right, o.settings.most_turns,
            right < least ? ", passed over" : "");
      if (right >= least) good.push_back(std::move(base));
    }
  }
  return good;
}

struct Student {
  std::size_t base;  // whose weights it began with
  Recipe recipe;
};

struct Arm {
  std::string name;
  std::uint64_t seed;
  const ag::Transformer* model;
  Instruct instruct;
};

std::vector<Row> evaluated(const std::vector<Arm>& arms, const Settings& s) {
  std::vector<Row> rows;
  for (const Arm& arm : arms)
    for (const History history : {History::hard, History::natural})
      for (const Pairs pairs : {Pairs::seen, Pairs::held_out})
        for (const std::size_t turns : asked_turns)
          rows.push_back({arm.name, arm.seed, {arm.instruct, history, pairs, turns}, {}});
  run_jobs(rows.size(), ag::threads(), [&](std::size_t i) {
    const std::size_t per_arm = rows.size() / arms.size();
    rows[i].outcome = evaluate(*arms[i / per_arm].model, PersonaTask(), rows[i].cell, s.dialogues,
                               1000 + rows[i].seed);
  });
  return rows;
}

// A student of every base model by the paper's recipe, and of the first by the others.
std::vector<Student> students_of(const Options& o) {
  std::vector<Student> all;
  for (std::size_t i = 0; i < o.seeds; ++i) all.push_back({i, Recipe::ghost_attention});
  if (!o.no_ablations)
    for (const Recipe recipe : {Recipe::loss_on_all_turns, Recipe::no_instruction})
      all.push_back({0, recipe});
  return all;
}

// The base models, asked in two ways, then the students, with the instruction and without.
std::vector<Arm> arms_of(const List<BaseTraining>& bases, const List<StudentTraining>& students) {
  std::vector<Arm> arms;
  for (const auto& base : bases) {
    arms.push_back({"base", base->seed(), &base->model(), Instruct::first_turn});
    arms.push_back(
        {"base, asked in every turn", base->seed(), &base->model(), Instruct::every_turn});
  }
  for (const auto& student : students) {
    const std::string& name = student->name();
    arms.push_back({name, student->seed(), &student->model(), Instruct::first_turn});
    arms.push_back(
        {name + ", no instruction", student->seed(), &student->model(), Instruct::never});
  }
  return arms;
}

void draw_first(const Settings& s, const BaseTraining& base, const StudentTraining& student,
                std::uint64_t seed) {
  const auto attention = [&](const Training& t) {
    return instruction_attention(t.model(), PersonaTask(), s.most_turns, seed);
  };
  draw_attention(s.plot_path, {{"base", attention(base)}, {"Ghost Attention", attention(student)}});
}

void compare(const Options& o, const CommonOptions& common) {
  const List<BaseTraining> bases = good_teachers(o, common);
  List<StudentTraining> students;
  for (const Student& student : students_of(o))
    students.push_back(std::make_unique<StudentTraining>(
        o.settings, bases[student.base]->seed(), bases[student.base]->model(), student.recipe));
  train(students, common.json);
  const std::vector<Row> rows = evaluated(arms_of(bases, students), o.settings);
  if (common.json) {
    for (const Row& row : rows) print_json(row);
  } else {
    print_tables(rows, o.settings.dialogues);
    print_verdict(rows);
  }
  if (!o.settings.plot_path.empty()) draw_first(o.settings, *bases[0], *students[0], common.seed);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  Program program(
      "Trains models to keep an instruction in mind for twenty turns (Ghost Attention).");
  add_options(program, o);
  const CLI::App* preparing = add_prepare(program, o.prepare);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    if (preparing->parsed()) {
      ag::check_argument(
          preparing->count("--terse") == 0 || o.prepare.synthesise || o.prepare.rewrite,
          "--terse is for --synthesise and --rewrite, got neither");
      check_writable(o.prepare.output);
      ag::Rng rng(common.seed);
      const std::size_t count = prepare(o.prepare, rng);
      if (!common.json) std::printf("%zu dialogues\n", count);
      return 0;
    }
    check_writable(o.settings.plot_path);
    if (!o.settings.folder.empty()) std::filesystem::create_directories(o.settings.folder);
    compare(o, common);
    return 0;
  });
}
