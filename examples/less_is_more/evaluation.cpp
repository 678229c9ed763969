#include "examples/less_is_more/evaluation.hpp"

#include <algorithm>
#include <cmath>

namespace {

double mean_of_read(const std::vector<double>& by_layer) {
  double sum = 0, count = 0;
  for (const double x : by_layer)
    if (x >= 0) sum += x, ++count;
  return count == 0 ? 1 : sum / count;
}

// Places [start, stop) of every row.
ag::Indices places(const ag::Indices& tokens, std::size_t start, std::size_t stop) {
  const std::size_t rows = tokens.shape()[0], time = tokens.shape()[1];
  ag::Indices part = ag::Indices::from_shape({rows, stop - start, 2});
  for (std::size_t row = 0; row < rows; ++row)
    std::copy(tokens.data() + (row * time + start) * 2, tokens.data() + (row * time + stop) * 2,
              part.data() + row * (stop - start) * 2);
  return part;
}

// Without a setting of that name: dense.
ag::LessIsMoreOptions options_of(const Method& method, const EvaluationPlan& plan,
                                 std::size_t layers) {
  ag::LessIsMoreOptions options{.roles = std::vector(layers, ag::DecodeRole::dense),
                                .selection = method.selection,
                                .seed = plan.seed};
  for (const RoleSetting& setting : plan.settings)
    if (setting.name == method.setting) {
      options.roles = setting.roles;
      options.sparse_selection = setting.sparse_selection;
    }
  return options;
}

bool reads_set(const ag::LessIsMoreOptions& options, std::size_t layer) {
  return options.roles[layer] == ag::DecodeRole::sparse ||
         (options.roles[layer] == ag::DecodeRole::select && options.sparse_selection);
}

// weights: (batch, heads, 1, keys) of full attention.
void add_set_figures(const ag::TokenSets& sets, const ag::Array& weights,
                     const ag::Indices& needles, double share, double& hit, double& recall) {
  const std::size_t rows = weights.shape()[0], heads = weights.shape()[1],
                    keys = weights.shape()[3], hops = needles.shape()[2];
  for (std::size_t row = 0; row < rows; ++row) {
    const auto needle = static_cast<std::size_t>(needles.data()[row * hops + hops - 1]);
    for (std::size_t head = 0; head < heads; ++head) {
      const ag::TokenSet& set = sets.of(row, head);
      hit += share / double(heads) * std::binary_search(set.begin(), set.end(), needle);
      for (const std::size_t token : set)
        recall +=
            share / double(heads) * double(weights.data()[(row * heads + head) * keys + token]);
    }
  }
}

void add_answers(const ag::Array& logits, const ag::Indices& targets, Measurement& m) {
  const std::size_t rows = logits.shape()[0], vocabulary = logits.shape()[2];
  for (std::size_t row = 0; row < rows; ++row) {
    const ag::Real* first = logits.data() + row * vocabulary;
    const auto answer = std::max_element(first, first + vocabulary) - first;
    m.right.push_back(answer == targets.data()[(row + 1) * targets.shape()[1] - 1]);
  }
}

// One step of one method from a cache that is left as it was.
void decode_once(const ag::Transformer& model, const RecallBatch& batch, double share,
                 const ag::LessIsMoreOptions& options, ag::TransformerCache& cache,
                 Measurement& m) {
  const std::size_t time = batch.tokens.shape()[1];
  const std::vector<std::size_t> before = cache.lengths();
  ag::LessIsMore less(options);
  const ag::Capture seen = ag::capture("blocks.*.attention.weights");
  const ag::Variable logits = model.decode(places(batch.tokens, time - 1, time), cache, &less);
  cache.truncate(before);
  add_answers(logits.value(), batch.targets, m);
  m.bytes_read += less.bytes_read();
  m.dense_bytes += less.dense_bytes();
  for (std::size_t layer = 0; layer < options.roles.size(); ++layer)
    if (reads_set(options, layer))
      add_set_figures(*less.sets(layer), seen.values().at(layer).value.value(), batch.needles,
                      share, m.hit[layer], m.recall[layer]);
}

}  // namespace

double Measurement::accuracy() const {
  return double(std::count(right.begin(), right.end(), true)) / double(right.size());
}
double Measurement::mean_hit() const { return mean_of_read(hit); }
double Measurement::mean_recall() const { return mean_of_read(recall); }

PairedDifference accuracy_difference(const Measurement& a, const Measurement& b) {
  const auto n = double(a.right.size());
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < a.right.size(); ++i) {
    const double d = double(a.right[i]) - double(b.right[i]);
    sum += d;
    squares += d * d;
  }
  const double mean = sum / n;
  return {mean, std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1))};
}

std::vector<Measurement> evaluate(const ag::Transformer& model, const EvaluationPlan& plan) {
  const std::size_t layers = model.blocks.size();
  std::vector<Measurement> all;
  for (const Method& method : plan.methods) {
    Measurement m{.method = method, .records = plan.records};
    const ag::LessIsMoreOptions options = options_of(method, plan, layers);
    for (std::size_t layer = 0; layer < layers; ++layer)
      m.hit.push_back(reads_set(options, layer) ? 0 : -1);
    m.recall = m.hit;
    all.push_back(std::move(m));
  }
  ag::Rng rng(plan.seed);
  for (std::size_t done = 0; done < plan.cases; done += plan.rows) {
    const std::size_t rows = std::min(plan.rows, plan.cases - done);
    const RecallBatch batch = plan.task.random_batch(rows, plan.records, 1, rng);
    ag::TransformerCache cache = model.make_cache(rows, plan.records + 2);
    model.decode(places(batch.tokens, 0, plan.records + 1), cache);
    for (Measurement& m : all)
      decode_once(model, batch, 1 / double(plan.cases), options_of(m.method, plan, layers), cache,
                  m);
  }
  return all;
}
