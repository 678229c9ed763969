// Text as tokens: an alphabet of the characters (or bytes) that occur, and windows to train on.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "core/array.hpp"
#include "core/random.hpp"

namespace ag = attngrad;

// The built-in text: a plain account of automatic differentiation and attention (guide.txt).
const std::string& guide_text();

// The whole file. Throws attngrad::FileError, naming it, if it cannot be read.
std::string read_text(const std::string& path);

enum class Unit { character, byte };

// The distinct symbols of a text, in byte order; a token is a place in that list. A character is
// one UTF-8 sequence; a byte that belongs to none stands for itself, so any text comes back
// unchanged.
class Alphabet {
 public:
  Alphabet(const std::string& text, Unit unit);
  explicit Alphabet(std::vector<std::string> symbols, Unit unit);

  std::size_t size() const { return symbols_.size(); }
  const std::vector<std::string>& symbols() const { return symbols_; }
  // Throws attngrad::ArgumentError naming a symbol that is not in the alphabet.
  std::vector<std::int64_t> encode(const std::string& text) const;
  const std::string& symbol(std::int64_t token) const {
    return symbols_.at(static_cast<std::size_t>(token));
  }

 private:
  std::vector<std::string> symbols_;
  std::unordered_map<std::string, std::int64_t> tokens_;
  Unit unit_;
};

// A batch of windows: targets are the tokens one place later.
struct Windows {
  ag::Indices inputs, targets;  // (batch, time)
};

struct TextSplit {
  std::vector<std::int64_t> training, validation;  // the first nine tenths, and the rest
};
// Throws attngrad::ArgumentError unless both parts hold a window of context + 1 tokens.
TextSplit split_text(std::vector<std::int64_t> tokens, std::size_t context);

// Windows that start anywhere, each place as likely.
Windows random_windows(const std::vector<std::int64_t>& tokens, std::size_t batch,
                       std::size_t context, ag::Rng& rng);
// Windows one behind the other from token `first` on, `batch` at most; the last token of one is the
// first of the next.
Windows consecutive_windows(const std::vector<std::int64_t>& tokens, std::size_t first,
                            std::size_t batch, std::size_t context);
