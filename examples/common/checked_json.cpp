#include "examples/common/checked_json.hpp"

#include <algorithm>
#include <limits>

#include "core/errors.hpp"

CheckedJson::CheckedJson(std::string file, const std::string& text)
    : CheckedJson(std::move(file), "", nlohmann::json::parse(text, nullptr, false)) {
  if (!value_->is_object())
    throw attngrad::FileError(file_ + ": must hold a JSON object, holds " +
                              (value_->is_discarded() ? "no JSON" : shown()));
}

CheckedJson::CheckedJson(std::string file, std::string place, nlohmann::json value)
    : file_(std::move(file)),
      place_(std::move(place)),
      value_(std::make_shared<const nlohmann::json>(std::move(value))) {}

CheckedJson::CheckedJson(const CheckedJson& whole, std::string place, const nlohmann::json& part)
    : file_(whole.file_), place_(std::move(place)), value_(whole.value_, &part) {}

std::string CheckedJson::shown() const {
  if (!value_->is_structured()) return value_->dump();
  return attngrad::text("an ", value_->type_name(), " of ", value_->size());
}

void CheckedJson::refuse(const std::string& rule) const {
  throw attngrad::FileError(
      attngrad::text(file_, ": ", place_, " must be ", rule, ", is ", shown()));
}

CheckedJson CheckedJson::at(const std::string& key) const {
  if (!value_->is_object()) refuse("an object");
  const std::string place = place_.empty() ? key : place_ + "." + key;
  const auto found = value_->find(key);
  if (found == value_->end()) throw attngrad::FileError(file_ + ": has no " + place);
  return {*this, place, *found};
}

bool CheckedJson::has(const std::string& key) const { return value_->contains(key); }

std::vector<CheckedJson> CheckedJson::list(std::size_t least, std::size_t most) const {
  if (!value_->is_array() || value_->size() < least || value_->size() > most)
    refuse(least == most ? attngrad::text("a list of ", least)
                         : attngrad::text("a list of ", least, " to ", most));
  std::vector<CheckedJson> all;
  for (const nlohmann::json& part : *value_)
    all.push_back({*this, attngrad::text(place_, "[", all.size(), "]"), part});
  return all;
}

std::uint64_t CheckedJson::whole(std::uint64_t least, std::uint64_t most) const {
  // a negative number or one with a fraction is of another kind
  if (value_->is_number_unsigned())
    if (const auto x = value_->get<std::uint64_t>(); x >= least && x <= most) return x;
  refuse(least == most ? attngrad::text(least)
                       : attngrad::text("a whole number from ", least, " to ", most));
}

double CheckedJson::number(double least, double most) const {
  if (value_->is_number())
    if (const auto x = value_->get<double>(); x >= least && x <= most) return x;
  refuse(attngrad::text("a number from ", least, " to ", most));
}

double CheckedJson::measured() const {
  if (value_->is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value_->is_number()) refuse("a number or null");
  return value_->get<double>();
}

std::vector<double> CheckedJson::all_measured(std::size_t count) const {
  std::vector<double> all;
  for (const CheckedJson& x : list(count, count)) all.push_back(x.measured());
  return all;
}

bool CheckedJson::truth() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::string CheckedJson::word() const {
  if (!value_->is_string()) refuse("a text");
  return value_->get<std::string>();
}

std::string CheckedJson::word_of(const std::vector<std::string>& known) const {
  if (value_->is_string() && std::find(known.begin(), known.end(), *value_) != known.end())
    return value_->get<std::string>();
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  refuse("one of " + names);
}
