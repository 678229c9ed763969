#include "examples/common/text.hpp"

#include <fstream>
#include <set>
#include <sstream>

namespace {

// The length of the UTF-8 sequence that starts at `at`; 1 for a byte that starts none.
std::size_t character_length(const std::string& text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  const std::size_t length = byte < 0xC2   ? 1
                             : byte < 0xE0 ? 2
                             : byte < 0xF0 ? 3
                             : byte < 0xF5 ? 4
                                           : 1;
  if (at + length > text.size()) return 1;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 1;
  return length;
}

template <class Visit>
void for_each_symbol(const std::string& text, Unit unit, Visit&& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = unit == Unit::byte ? 1 : character_length(text, at);
    visit(text.substr(at, length), at);
    at += length;
  }
}

std::vector<std::string> distinct_symbols(const std::string& text, Unit unit) {
  std::set<std::string> symbols;
  for_each_symbol(text, unit,
                  [&](std::string symbol, std::size_t) { symbols.insert(std::move(symbol)); });
  return {symbols.begin(), symbols.end()};
}

}  // namespace

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty())
    throw ag::FileError(ag::text("text: ", path, " is missing, unreadable or empty"));
  return text.str();
}

Alphabet::Alphabet(const std::string& text, Unit unit)
    : Alphabet(distinct_symbols(text, unit), unit) {}

Alphabet::Alphabet(std::vector<std::string> symbols, Unit unit)
    : symbols_(std::move(symbols)), unit_(unit) {
  for (const std::string& symbol : symbols_) tokens_.emplace(symbol, std::int64_t(tokens_.size()));
}

std::vector<std::int64_t> Alphabet::encode(const std::string& text) const {
  std::vector<std::int64_t> tokens;
  for_each_symbol(text, unit_, [&](const std::string& symbol, std::size_t at) {
    const auto found = tokens_.find(symbol);
    ag::check_argument(found != tokens_.end(), "alphabet: the symbol '", symbol, "' at byte ", at,
                       " does not occur in the text that was trained on");
    tokens.push_back(found->second);
  });
  return tokens;
}

TextSplit split_text(std::vector<std::int64_t> tokens, std::size_t context) {
  const std::size_t border = tokens.size() * 9 / 10;
  ag::check_argument(border > context && tokens.size() - border > context, "text: a context of ",
                     context,
                     " needs more symbols than that in the part to learn and in the tenth that is "
                     "held out, got ",
                     border, " and ", tokens.size() - border);
  TextSplit split;
  split.training.assign(tokens.begin(), tokens.begin() + std::ptrdiff_t(border));
  split.validation.assign(tokens.begin() + std::ptrdiff_t(border), tokens.end());
  return split;
}

namespace {

void copy_window(const std::vector<std::int64_t>& tokens, std::size_t start, std::size_t row,
                 Windows& windows) {
  const std::size_t time = windows.inputs.shape()[1];
  for (std::size_t t = 0; t < time; ++t) {
    windows.inputs.data()[row * time + t] = tokens[start + t];
    windows.targets.data()[row * time + t] = tokens[start + t + 1];
  }
}

Windows empty_windows(std::size_t batch, std::size_t time) {
  return {ag::Indices::from_shape({batch, time}), ag::Indices::from_shape({batch, time})};
}

}  // namespace

Windows random_windows(const std::vector<std::int64_t>& tokens, std::size_t batch,
                       std::size_t context, ag::Rng& rng) {
  Windows windows = empty_windows(batch, context);
  for (std::size_t row = 0; row < batch; ++row)
    copy_window(tokens, std::size_t(rng.integer(0, std::int64_t(tokens.size() - context))), row,
                windows);
  return windows;
}

Windows consecutive_windows(const std::vector<std::int64_t>& tokens, std::size_t first,
                            std::size_t batch, std::size_t context) {
  const std::size_t left = tokens.size() - 1 - first;  // targets that are still to come
  const std::size_t time = std::min(context, left), rows = std::min(batch, left / time);
  Windows windows = empty_windows(rows, time);
  for (std::size_t row = 0; row < rows; ++row)
    copy_window(tokens, first + row * time, row, windows);
  return windows;
}
