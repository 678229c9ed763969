// JSON that a file holds, read with suspicion: what is missing, of another kind or out of range is
// an error that names the file, the place in it, what was expected and what came.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// One value. All functions throw attngrad::FileError.
class CheckedJson {
 public:
  // file: how messages begin. The text must be an object.
  CheckedJson(std::string file, const std::string& text);
  // place: what messages call the value.
  CheckedJson(std::string file, std::string place, nlohmann::json value);

  // Of an object.
  CheckedJson at(const std::string& key) const;
  bool has(const std::string& key) const;
  // Of at least and at most so many values.
  std::vector<CheckedJson> list(std::size_t least, std::size_t most) const;

  std::uint64_t whole(std::uint64_t least, std::uint64_t most) const;
  double number(double least, double most) const;
  // Any number; null, as which JSON keeps infinity and NaN, is NaN.
  double measured() const;
  std::vector<double> all_measured(std::size_t count) const;
  bool truth() const;
  std::string word() const;
  std::string word_of(const std::vector<std::string>& known) const;

  const nlohmann::json& raw() const { return *value_; }
  // For a message: of a list or an object only what it is, for it may be deep.
  std::string shown() const;
  // Throws: the value must be what `rule` says.
  [[noreturn]] void refuse(const std::string& rule) const;

 private:
  CheckedJson(const CheckedJson& whole, std::string place, const nlohmann::json& part);

  std::string file_, place_;
  std::shared_ptr<const nlohmann::json> value_;  // of which a part shares the ownership
};
