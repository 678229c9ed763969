// Every gradient of a self-attention layer: the fused analytic backward against automatic
// differentiation, and each of them against central differences taken in double.
#include <cmath>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>

#include "examples/common/command_line.hpp"
#include "examples/compare_gradients/comparison.hpp"

namespace {

// The largest differences allowed, as max|a - b| / max|b|. In float both ways round differently,
// about 1e-7 an operation.
struct Bounds {
  double between, differences;
};
constexpr Bounds bounds_in_double{1e-13, 1e-8}, bounds_in_float{1e-5, 1e-5};

double relative_difference(const NamedArray& a, const NamedArray& b) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < b.numbers.size(); ++i) {
    difference = std::max(difference, std::abs(a.numbers[i] - b.numbers[i]));
    largest = std::max(largest, std::abs(b.numbers[i]));
    if (std::isnan(a.numbers[i]) || std::isnan(b.numbers[i])) return INFINITY;
  }
  return difference == 0 ? 0 : difference / largest;
}

struct Row {
  std::string name;
  double between;                                      // fused against automatic
  std::optional<double> fused_error, automatic_error;  // against differences; none for Y
};

std::vector<Row> compare(const Solution& solution, const std::vector<NamedArray>& reference) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < solution.fused.size(); ++i) {
    Row row{solution.fused[i].name,
            relative_difference(solution.fused[i], solution.automatic[i]),
            {},
            {}};
    if (i > 0) {  // the first is Y
      row.fused_error = relative_difference(solution.fused[i], reference[i - 1]);
      row.automatic_error = relative_difference(solution.automatic[i], reference[i - 1]);
    }
    rows.push_back(row);
  }
  return rows;
}

void print_table(const std::vector<Row>& rows) {
  const auto cell = [](std::optional<double> number) {
    std::cout << std::setw(22);
    if (number)
      std::cout << std::scientific << std::setprecision(2) << *number;
    else
      std::cout << "-";
  };
  std::cout << "      " << std::setw(22) << "fused - automatic" << std::setw(22)
            << "fused - differences" << std::setw(22) << "automatic - diff." << "\n";
  for (const Row& row : rows) {
    std::cout << std::left << std::setw(6) << row.name << std::right;
    cell(row.between);
    cell(row.fused_error);
    cell(row.automatic_error);
    std::cout << "\n";
  }
}

bool within(const std::vector<Row>& rows, const Bounds& bounds) {
  bool all = true;
  for (const Row& row : rows)
    all = all && row.between <= bounds.between &&
          row.fused_error.value_or(0) <= bounds.differences &&
          row.automatic_error.value_or(0) <= bounds.differences;
  return all;
}

// The layer to compare on, and in which precision.
struct Settings {
  Problem problem;
  std::string precision = "f64";

  bool in_float() const { return precision == "f32"; }
};

void add_options(Program& program, Settings& s) {
  program.app
      .add_option("--precision", s.precision,
                  "of fused and automatic; differences are always taken in double")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  Problem& problem = s.problem;
  program.size_option("--batch", problem.batch, "sequences");
  program.size_option("--heads", problem.heads, "attention heads");
  program.size_option("--length", problem.length, "positions of a sequence");
  program.size_option("--width", problem.width,
                      "width of X; a head's queries are one narrower, its values one wider");
  program.app.add_option("--mask", problem.mask, "which keys a query sees")
      ->check(CLI::IsMember({"none", "causal", "random", "both"}))
      ->capture_default_str();
}

void print_json(const std::vector<Row>& rows, const Solution& solution, bool passed) {
  for (const Row& row : rows) {
    nlohmann::json line{{"name", row.name}, {"fused_automatic", row.between}};
    if (row.fused_error)
      line.update({{"fused_differences", *row.fused_error},
                   {"automatic_differences", *row.automatic_error}});
    std::cout << line << "\n";
  }
  std::cout << nlohmann::json{{"passed", passed},
                              {"fused_seconds", solution.fused_seconds},
                              {"automatic_seconds", solution.automatic_seconds}}
            << "\n";
}

void print_text(const Settings& s, const std::vector<Row>& rows, const Solution& solution) {
  const Problem& problem = s.problem;
  std::cout << "batch " << problem.batch << ", heads " << problem.heads << ", length "
            << problem.length << ", D_x " << problem.width << ", mask " << problem.mask << ", "
            << s.precision << ": max|a - b| / max|b|\n";
  print_table(rows);
  std::cout << std::fixed << std::setprecision(1) << "forward and backward: fused "
            << 1e6 * solution.fused_seconds << " us, automatic " << 1e6 * solution.automatic_seconds
            << " us\n";
}

void print_verdict(const Bounds& bounds, bool passed) {
  std::cout << (passed ? "all within " : "NOT all within ") << std::scientific
            << std::setprecision(0) << bounds.between << " of each other and " << bounds.differences
            << " of the differences\n";
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program(
      "Compares every gradient of a self-attention layer: fused, automatic, and by differences.");
  add_options(program, s);
  return program.run(argc, argv, [&](const CommonOptions& common) {
    s.problem.seed = common.seed;
    s.problem.rounded_to_float = s.in_float();
    const Solution solution = s.in_float() ? solve_in_float(s.problem) : solve_in_double(s.problem);
    const Bounds bounds = s.in_float() ? bounds_in_float : bounds_in_double;
    const std::vector<Row> rows = compare(solution, central_differences(s.problem));
    const bool passed = within(rows, bounds);
    if (common.json) {
      print_json(rows, solution, passed);
    } else {
      print_text(s, rows, solution);
      print_verdict(bounds, passed);
    }
    return passed ? 0 : 1;
  });
}
