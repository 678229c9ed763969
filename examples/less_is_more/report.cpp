#include "examples/less_is_more/report.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/common/loss_plot.hpp"

namespace {

// Accuracy in per cent at budgets, of needle tests. Source: Yang et al., arXiv:2508.07101.
constexpr const char* paper_table =
    "the paper's needle tests, accuracy in %:\n"
    "  Llama-3-8B, 10k tokens, K = 32 / 64 / 128:  LessIsMore 100 / 100 / 100, per head "
    "(TidalDecode)"
    " 88 / 98 / 100\n"
    "  LongChat-7B, 10k tokens, K = 32 to 512:     LessIsMore 92 / 98 / 98 / 100 / 100, window"
    " 1 / 1 / 1 / 3 / 5\n";

struct Cell {
  std::string setting;
  std::size_t records, budget;
  ag::Selector selector;
};

const Measurement* find(const SeedResult& result, const Cell& cell) {
  for (const Measurement& m : result.measurements)
    if (m.method.setting == cell.setting && m.records == cell.records &&
        m.method.selection.budget == cell.budget && m.method.selection.selector == cell.selector)
      return &m;
  return nullptr;
}

template <class F>
double mean_over_seeds(const std::vector<SeedResult>& results, const Cell& cell, F&& figure) {
  double sum = 0;
  for (const SeedResult& result : results)
    if (const Measurement* m = find(result, cell)) sum += figure(*m) / double(results.size());
  return sum;
}

template <class T, class F>
std::vector<T> values_of(const std::vector<SeedResult>& results, F&& value) {
  std::set<T> all;
  for (const Measurement& m : results.at(0).measurements)
    if (m.method.setting != "dense") all.insert(value(m));
  return {all.begin(), all.end()};
}

std::vector<std::size_t> budgets_of(const std::vector<SeedResult>& results) {
  return values_of<std::size_t>(results,
                                [](const Measurement& m) { return m.method.selection.budget; });
}
std::vector<std::size_t> records_of(const std::vector<SeedResult>& results) {
  return values_of<std::size_t>(results, [](const Measurement& m) { return m.records; });
}
std::vector<ag::Selector> selectors_of(const std::vector<SeedResult>& results) {
  return values_of<ag::Selector>(results,
                                 [](const Measurement& m) { return m.method.selection.selector; });
}

void print_dense(const std::vector<SeedResult>& results) {
  for (const SeedResult& result : results)
    for (const Measurement& m : result.measurements)
      if (m.method.setting == "dense")
        std::printf("seed %llu, %zu records, dense: %.1f %%\n",
                    static_cast<unsigned long long>(result.seed), m.records, 100 * m.accuracy());
}

void print_table(const std::vector<SeedResult>& results, const std::string& setting,
                 std::size_t records) {
  const std::vector<std::size_t> budgets = budgets_of(results);
  std::printf("\n%s, %zu records: accuracy in %% / hit rate / recall, means of %zu seeds\n%12s",
              setting.c_str(), records, results.size(), "budget");
  for (const std::size_t budget : budgets) std::printf("  %16zu", budget);
  for (const ag::Selector selector : selectors_of(results)) {
    std::printf("\n%12s", ag::selector_name(selector).c_str());
    for (const std::size_t budget : budgets) {
      const Cell cell{setting, records, budget, selector};
      const auto mean = [&](auto figure) { return mean_over_seeds(results, cell, figure); };
      std::printf("  %5.1f /%4.2f /%4.2f",
                  100 * mean([](const Measurement& m) { return m.accuracy(); }),
                  mean([](const Measurement& m) { return m.mean_hit(); }),
                  mean([](const Measurement& m) { return m.mean_recall(); }));
    }
  }
  std::printf("\n");
}

void print_layers(const std::vector<SeedResult>& results, const std::string& setting,
                  std::size_t records, std::size_t budget) {
  std::printf("by layer at budget %zu: hit rate / recall\n", budget);
  for (const ag::Selector selector : selectors_of(results)) {
    const Cell cell{setting, records, budget, selector};
    const Measurement* some = find(results.at(0), cell);
    if (some == nullptr) continue;
    std::printf("%12s", ag::selector_name(selector).c_str());
    for (std::size_t layer = 0; layer < some->hit.size(); ++layer)
      if (some->hit[layer] < 0)
        std::printf("  %12s", "all");
      else
        std::printf(
            "  %5.2f / %4.2f",
            mean_over_seeds(results, cell, [&](const Measurement& m) { return m.hit[layer]; }),
            mean_over_seeds(results, cell, [&](const Measurement& m) { return m.recall[layer]; }));
    std::printf("\n");
  }
}

void print_differences(const std::vector<SeedResult>& results, const std::string& setting,
                       std::size_t records) {
  std::printf(
      "accuracy of unified less that of per-head, %% of the same cases +- standard error\n");
  for (const SeedResult& result : results) {
    std::printf("%12s", ag::text("seed ", result.seed).c_str());
    for (const std::size_t budget : budgets_of(results)) {
      const Measurement* a = find(result, {setting, records, budget, ag::Selector::unified});
      const Measurement* b = find(result, {setting, records, budget, ag::Selector::per_head});
      if (a == nullptr || b == nullptr) continue;
      const PairedDifference d = accuracy_difference(*a, *b);
      std::printf("  %8.2f +- %4.2f", 100 * d.mean, 100 * d.standard_error);
    }
    std::printf("\n");
  }
}

// Calls f(result, setting, records, budget) for every cell below the whole context.
template <class F>
void for_cells(const std::vector<SeedResult>& results, const std::vector<RoleSetting>& settings,
               F&& f) {
  for (const SeedResult& result : results)
    for (const RoleSetting& setting : settings)
      for (const std::size_t records : records_of(results))
        for (const std::size_t budget : budgets_of(results))
          if (budget < records + 2) f(result, setting, records, budget);
}

void print_claim(const char* claim, std::size_t held, std::size_t cells) {
  std::printf("%s: in %zu of %zu\n", claim, held, cells);
}

}  // namespace

void print_tables(const std::vector<SeedResult>& results,
                  const std::vector<RoleSetting>& settings) {
  print_dense(results);
  for (const RoleSetting& setting : settings)
    for (const std::size_t records : records_of(results)) {
      print_table(results, setting.name, records);
      print_layers(results, setting.name, records, budgets_of(results).front());
      print_differences(results, setting.name, records);
    }
  std::printf("\n%s", paper_table);
}

void print_verdict(const std::vector<SeedResult>& results,
                   const std::vector<RoleSetting>& settings) {
  std::size_t cells = 0, above_per_head = 0, above_window = 0, asked = 0, accurate = 0;
  for_cells(results, settings,
            [&](const SeedResult& result, const RoleSetting& setting, std::size_t records,
                std::size_t budget) {
              const auto of = [&](ag::Selector selector) {
                return find(result, {setting.name, records, budget, selector});
              };
              const Measurement *unified = of(ag::Selector::unified),
                                *per_head = of(ag::Selector::per_head),
                                *window = of(ag::Selector::window);
              if (unified == nullptr || per_head == nullptr || window == nullptr) return;
              ++cells;
              above_per_head += unified->mean_hit() >= per_head->mean_hit() - 0.01;
              above_window += per_head->mean_hit() >= window->mean_hit();
              if (!setting.sparse_selection || budget > 64 || window->accuracy() > 0.6) return;
              ++asked;
              accurate += unified->accuracy() >= 0.95;
            });
  std::printf("\nseeds, role settings, records and budgets below the context:\n");
  print_claim("  hit rate of unified at least that of per-head less 0.01", above_per_head, cells);
  print_claim("  hit rate of per-head at least the window's", above_window, cells);
  print_claim(
      "  with sparse selecting layers, up to budget 64, where the window has at most 60 %: "
      "unified has 95 % or more",
      accurate, asked);
}

void print_json(const std::vector<SeedResult>& results) {
  for (const SeedResult& result : results)
    for (const Measurement& m : result.measurements)
      std::cout << nlohmann::json{{"seed", result.seed},
                                  {"setting", m.method.setting},
                                  {"selector", ag::selector_name(m.method.selection.selector)},
                                  {"records", m.records},
                                  {"budget", m.method.selection.budget},
                                  {"accuracy", m.accuracy()},
                                  {"hit", m.mean_hit()},
                                  {"recall", m.mean_recall()},
                                  {"hit_by_layer", m.hit},
                                  {"recall_by_layer", m.recall},
                                  {"bytes_read", m.bytes_read},
                                  {"dense_bytes", m.dense_bytes}}
                << "\n";
}

void draw_hits(const std::string& path, const std::vector<SeedResult>& results,
               const RoleSetting& setting) {
  const std::size_t records = records_of(results).back();
  std::vector<Curve> curves;
  for (const ag::Selector selector : selectors_of(results)) {
    Curve curve{ag::selector_name(selector), {}, {}};
    for (const std::size_t budget : budgets_of(results)) {
      curve.steps.push_back(double(budget));
      curve.losses.push_back(mean_over_seeds(results, {setting.name, records, budget, selector},
                                             [](const Measurement& m) { return m.mean_hit(); }));
    }
    curves.push_back(curve);
  }
  write_loss_plot(
      path, ag::text("How often the needle among ", records, " records is read, ", setting.name),
      curves, {.x = "budget of tokens", .y = "hit rate"});
}
