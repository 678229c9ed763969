#include "examples/common/tokenizer.hpp"

#include <cmath>
#include <cstring>
#include <queue>

#include "core/errors.hpp"
#include "examples/common/text.hpp"

namespace {

constexpr std::size_t special = 3;  // unknown, begin, end; the 256 bytes follow

// The name that the vocabulary gives a byte: <0x0A>
std::string name_of_byte(std::size_t byte) {
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>", unsigned(byte));
  return name;
}

template <class T>
T take(const std::string& bytes, std::size_t& at, const std::string& path) {
  if (bytes.size() - at < sizeof(T))
    throw ag::FileError(
        ag::text("tokenizer: ", path, " ends at byte ", bytes.size(), ", within a token"));
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  at += sizeof value;
  return value;
}

// Neighbouring pieces that could be joined, the best of them first.
struct Pair {
  float score;
  std::size_t left, right;           // places
  std::int64_t left_was, right_was;  // the tokens there when it was found
  std::int64_t joined;
  bool operator<(const Pair& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

}  // namespace

Tokenizer::Tokenizer(const std::string& path) {
  const std::string bytes = read_text(path);
  std::size_t at = 0;
  take<std::int32_t>(bytes, at, path);  // the longest piece: to size a buffer, which we need not
  while (at < bytes.size()) {
    scores_.push_back(take<float>(bytes, at, path));
    if (std::isnan(scores_.back()))
      throw ag::FileError(
          ag::text("tokenizer: ", path, ": the score of token ", pieces_.size(), " is no number"));
    const auto length = take<std::int32_t>(bytes, at, path);
    if (length < 0 || std::size_t(length) > bytes.size() - at)
      throw ag::FileError(ag::text("tokenizer: ", path, ": token ", pieces_.size(), " has ", length,
                                   " bytes, the file ", bytes.size() - at, " more"));
    pieces_.push_back(bytes.substr(at, std::size_t(length)));
    at += std::size_t(length);
    tokens_.emplace(pieces_.back(), std::int64_t(pieces_.size() - 1));  // the first of equals
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::size_t token = special + byte;
    if (token >= pieces_.size() || pieces_[token] != name_of_byte(byte))
      throw ag::FileError(ag::text("tokenizer: ", path, ": token ", token, " must be ",
                                   name_of_byte(byte), ", is ",
                                   token < pieces_.size() ? pieces_[token] : "missing"));
  }
}

// Each UTF-8 sequence that is a piece, and the bytes of all others.
std::vector<std::int64_t> Tokenizer::characters_of(const std::string& text) const {
  const auto continues = [&](std::size_t i) {
    return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  std::vector<std::int64_t> tokens;
  for (std::size_t i = 0, next; i < text.size(); i = next) {
    for (next = i + 1; next < i + 4 && continues(next);) ++next;
    const auto found = tokens_.find(text.substr(i, next - i));
    if (found != tokens_.end() && std::size_t(found->second) >= special) {
      tokens.push_back(found->second);
      continue;
    }
    for (std::size_t j = i; j < next; ++j)
      tokens.push_back(std::int64_t(special + static_cast<unsigned char>(text[j])));
  }
  return tokens;
}

std::vector<std::int64_t> Tokenizer::encode(const std::string& text) const {
  std::vector<std::int64_t> tokens{begin};
  if (text.empty()) return tokens;
  std::vector<std::int64_t> at = characters_of(" " + text);  // -1: joined to the one before
  const std::size_t count = at.size();
  std::vector<std::size_t> before(count), after(count);
  std::priority_queue<Pair> pairs;
  const auto look = [&](std::size_t left, std::size_t right) {
    const auto found =
        tokens_.find(pieces_[std::size_t(at[left])] + pieces_[std::size_t(at[right])]);
    if (found != tokens_.end() && std::size_t(found->second) >= special + 256)
      pairs.push(
          {scores_[std::size_t(found->second)], left, right, at[left], at[right], found->second});
  };
  for (std::size_t i = 0; i < count; ++i) before[i] = i - 1, after[i] = i + 1;
  for (std::size_t i = 0; i + 1 < count; ++i) look(i, i + 1);
  while (!pairs.empty()) {
    const Pair best = pairs.top();
    pairs.pop();
    if (at[best.left] != best.left_was || at[best.right] != best.right_was ||
        after[best.left] != best.right)
      continue;  // one of both has been joined to another
    at[best.left] = best.joined;
    at[best.right] = -1;
    after[best.left] = after[best.right];
    if (after[best.left] < count) before[after[best.left]] = best.left;
    if (best.left > 0) look(before[best.left], best.left);
    if (after[best.left] < count) look(best.left, after[best.left]);
  }
  for (const std::int64_t token : at)
    if (token >= 0) tokens.push_back(token);
  return tokens;
}

std::string Tokenizer::text(std::int64_t token, std::int64_t before) const {
  ag::check_argument(token >= 0 && std::size_t(token) < pieces_.size(), "tokenizer: token ", token,
                     " is outside of [0, ", pieces_.size(), ")");
  const auto place = std::size_t(token);
  const bool byte = place >= special && place < special + 256;
  const std::string piece = byte ? std::string(1, char(place - special)) : pieces_[place];
  return before == begin && piece.starts_with(' ') ? piece.substr(1) : piece;
}

std::string Tokenizer::text(const std::vector<std::int64_t>& tokens) const {
  std::string all;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] != begin && tokens[i] != end) all += text(tokens[i], i > 0 ? tokens[i - 1] : end);
  return all;
}
