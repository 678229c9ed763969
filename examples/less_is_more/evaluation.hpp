// How well a trained recall model answers when it decodes from a part of its cache.
#pragma once

#include "examples/less_is_more/recall_task.hpp"
#include "layers/transformer.hpp"

// Which layers choose and which read what was chosen.
struct RoleSetting {
  std::string name;
  std::vector<ag::DecodeRole> roles;
  bool sparse_selection = false;
};

struct Method {
  std::string setting;  // a RoleSetting's name; "dense" is the whole cache
  ag::SelectionOptions selection;
};

struct Measurement {
  Method method;
  std::size_t records = 0;
  std::vector<bool> right = {};  // of each case
  // Of each layer that read a set, over heads and cases: how often the needle of the last step was
  // in it, and how much of the weight of full attention; -1 for layers that read everything.
  std::vector<double> hit = {}, recall = {};
  std::size_t bytes_read = 0, dense_bytes = 0;  // of keys and values, in all cases

  double accuracy() const;
  double mean_hit() const;  // over the layers that read a set
  double mean_recall() const;
};

// The difference of two accuracies on the same cases, and its standard error.
struct PairedDifference {
  double mean, standard_error;
};
PairedDifference accuracy_difference(const Measurement& a, const Measurement& b);

struct EvaluationPlan {
  RecallTask task{false};
  std::size_t records = 128, cases = 1500, rows = 100;  // rows: decoded at a time
  std::vector<RoleSetting> settings;
  std::vector<Method> methods;
  std::uint64_t seed = 0;
};

// One measurement for each method, all on the same cases: a prompt of records is read densely, and
// one query decoded by every method from the same cache.
std::vector<Measurement> evaluate(const ag::Transformer& model, const EvaluationPlan& plan);
