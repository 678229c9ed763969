#include "core/parameters.hpp"

#include <algorithm>
#include <numeric>

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// How many letters must be inserted, removed or changed to get from a to b (Levenshtein).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The three names nearest to one that is missing, as the end of a message.
std::string nearest(const std::string& missing, std::vector<std::string> names) {
  if (names.empty()) return "the list is empty";
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (std::string& name : names)
    ranked.emplace_back(edit_distance(missing, name), std::move(name));
  std::sort(ranked.begin(), ranked.end());
  std::string list = "nearest: ";
  for (std::size_t i = 0; i < std::min<std::size_t>(3, ranked.size()); ++i)
    list += (i > 0 ? ", " : "") + ranked[i].second;
  return list;
}

}  // namespace

Parameters::Parameters(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) add(entry.name, entry.value);
}

void Parameters::add(const std::string& name, const Variable& variable) {
  check_argument(!name.empty(), "parameters: a name is empty");
  check_argument(variable.holds_value(), "parameters: ", name, " holds no value");
  if (const auto taken = places_.find(name); taken != places_.end()) {
    check_argument(entries_[taken->second].value.same_as(variable),
                   "parameters: two variables are named ", name);
    return;
  }
  const auto [known, is_new] = places_of_value_.try_emplace(variable.id(), entries_.size());
  if (is_new) entries_.push_back({name, variable});
  places_.emplace(name, known->second);
}

Parameters& Parameters::join(const Parameters& other, const std::string& prefix) {
  Parameters joined = *this;
  for (const Entry& entry : other.entries_) joined.add(dotted(prefix, entry.name), entry.value);
  for (const auto& [name, place] : other.places_)
    joined.add(dotted(prefix, name), other.entries_[place].value);
  return *this = std::move(joined);
}

std::size_t Parameters::count() const {
  std::size_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.value.size();
  return sum;
}

std::vector<std::string> Parameters::names() const {
  std::vector<std::string> all;
  for (const Entry& entry : entries_) all.push_back(entry.name);
  return all;
}

std::size_t Parameters::place(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end())
    throw ArgumentError(text("parameters: there is no ", name, "; ", nearest(name, names())));
  return found->second;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
