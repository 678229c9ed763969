#include "examples/ghost_attention/report.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "examples/common/svg.hpp"

namespace {

const char* name_of(History history) { return history == History::hard ? "hard" : "natural"; }
const char* name_of(Pairs pairs) { return pairs == Pairs::seen ? "seen" : "held out"; }

bool same_table(const Cell& a, const Cell& b) {
  return a.history == b.history && a.pairs == b.pairs;
}

std::vector<std::string> arms_of(const std::vector<Row>& rows) {
  std::vector<std::string> arms;
  for (const Row& row : rows)
    if (std::find(arms.begin(), arms.end(), row.arm) == arms.end()) arms.push_back(row.arm);
  return arms;
}

// The least, mean and most over seeds.
struct Spread {
  double least = 100, mean = 0, most = 0;
  std::size_t count = 0;
};
template <class Figure>
Spread spread_of(const std::vector<Row>& rows, const std::string& arm, const Cell& cell,
                 const Figure& figure) {
  Spread s;
  for (const Row& row : rows) {
    if (row.arm != arm || !same_table(row.cell, cell) || row.cell.turns != cell.turns) continue;
    const double x = figure(row.outcome);
    s.least = std::min(s.least, x);
    s.most = std::max(s.most, x);
    s.mean += x;
    ++s.count;
  }
  if (s.count > 0) s.mean /= double(s.count);
  return s;
}

void print_table(const std::vector<Row>& rows, const Cell& cell) {
  std::printf("\n%s history, %s pairs: %% right, least..most of the seeds (%% by default)\n%36s",
              name_of(cell.history), name_of(cell.pairs), "turn");
  for (const std::size_t turns : asked_turns) std::printf("  %18zu", turns);
  std::printf("\n");
  for (const std::string& arm : arms_of(rows)) {
    std::printf("%36s", arm.c_str());
    for (const std::size_t turns : asked_turns) {
      Cell at = cell;
      at.turns = turns;
      const Spread right = spread_of(rows, arm, at, [](const Outcome& o) { return 100 * o.right; });
      const Spread other =
          spread_of(rows, arm, at, [](const Outcome& o) { return 100 * o.by_default; });
      if (right.count == 0)
        std::printf("  %18s", "");
      else
        std::printf("  %5.1f..%5.1f (%3.0f)", std::min(right.least, right.most), right.most,
                    other.mean);
    }
    std::printf("\n");
  }
}

void print_claim(const std::vector<Row>& rows, const char* claim, const std::string& arm,
                 const std::function<bool(const Row&)>& counts,
                 const std::function<bool(const Row&)>& holds) {
  std::size_t all = 0, held = 0;
  for (const Row& row : rows)
    if (row.arm == arm && counts(row)) {
      ++all;
      held += holds(row);
    }
  std::printf("  %s: in %zu of %zu cells\n", claim, held, all);
}

}  // namespace

void print_tables(const std::vector<Row>& rows, std::size_t dialogues) {
  std::printf(
      "\n%zu dialogues a cell, whose history the model wrote itself; guessing one of the %zu "
      "names or hobbies is right in %.1f %%\n",
      dialogues, attribute_count, 100.0 / double(attribute_count));
  for (const History history : {History::hard, History::natural})
    for (const Pairs pairs : {Pairs::seen, Pairs::held_out})
      print_table(rows, {.history = history, .pairs = pairs});
  std::printf(
      "\nthe paper's, at turns 2, 4, 6, 20 (table 30): baseline 100, 10, 0, 0; with Ghost "
      "Attention 100, 100, 100, 100\n");
}

void print_verdict(const std::vector<Row>& rows) {
  std::printf("\n");
  print_claim(
      rows, "Ghost Attention is right in 99 % or more at turns 2, 4, 6 and 20", "student",
      [](const Row& r) { return r.cell.turns > 1; },
      [](const Row& r) { return r.outcome.right >= 0.99; });
  print_claim(
      rows, "the base model, hard: at most 60 % at turn 4, 40 % at 6, 10 % at 20", "base",
      [](const Row& r) { return r.cell.history == History::hard && r.cell.turns >= 4; },
      [](const Row& r) {
        return r.outcome.right <= (r.cell.turns == 4 ? 0.6 : r.cell.turns == 6 ? 0.4 : 0.1);
      });
  print_claim(
      rows, "without any instruction the student gives its own name or hobby, 9 times of 10",
      "student, no instruction", [](const Row&) { return true; },
      [](const Row& r) { return r.outcome.by_default >= 0.9; });
}

void print_json(const Row& row) {
  std::cout << nlohmann::json{{"arm", row.arm},
                              {"seed", row.seed},
                              {"history", name_of(row.cell.history)},
                              {"pairs", name_of(row.cell.pairs)},
                              {"turns", row.cell.turns},
                              {"right", row.outcome.right},
                              {"by_default", row.outcome.by_default}}
            << "\n";
}

void draw_attention(const std::string& path,
                    const std::vector<std::pair<std::string, InstructionAttention>>& models) {
  constexpr double cell = 20, left = 60, top = 120, margin = 20;
  std::ostringstream out;
  double x = left, height = 0;
  out << svg_text(margin, 20, "start",
                  "Attention from the place that says the name to the instruction, by turn")
      << svg_text(margin, 37, "start", "the largest weight of any head; dark: all of it");
  for (const auto& [name, attention] : models) {
    const std::size_t columns = attention.tokens.size(), turns = attention.by_turn.size();
    out << svg_text(x, 56, "start", name);
    for (std::size_t j = 0; j < columns; ++j)
      out << svg_text_upwards(x + cell * (double(j) + 0.5) + 4, top - 4, attention.tokens[j]);
    for (std::size_t i = 0; i < turns; ++i) {
      const double y = top + cell * double(i);
      out << svg_text(x - 6, y + cell / 2 + 4, "end", std::to_string(i + 1));
      for (std::size_t j = 0; j < columns; ++j)
        out << svg_square(x + cell * double(j), y, cell, attention.by_turn[i][j]);
    }
    out << svg_frame(x, top, cell * double(columns), cell * double(turns));
    x += cell * double(columns) + left;
    height = std::max(height, top + cell * double(turns) + margin);
  }
  write_svg(path, std::max(560.0, x), height, out.str());
}
