// Pieces of text as tokens, by the scores of a vocabulary in llama2.c's file format (tok512.bin).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

// Any bytes come back unchanged: what is no piece of the vocabulary becomes a token for each byte.
// Source: llama2.c, run.c, whose tokens these are; the scheme is SentencePiece's (Kudo, Richardson,
// arXiv:1808.06226).
class Tokenizer {
 public:
  static constexpr std::int64_t begin = 1, end = 2;  // of a text

  // Reads a file: the length of the longest piece, then for each token a score (float), a length
  // (both little endian, four bytes) and that many bytes. Throws attngrad::FileError, naming it,
  // for a file that cannot be read, ends within a piece or lacks the 256 bytes after the first
  // three tokens.
  explicit Tokenizer(const std::string& path);

  std::size_t size() const { return pieces_.size(); }
  // `begin`, then the text with a space before it (none for an empty text), cut into characters of
  // which neighbours are joined, the pair of the highest score first, the first of equals.
  std::vector<std::int64_t> encode(const std::string& text) const;
  // The bytes that a token stands for; behind `begin` without its leading space. Throws
  // attngrad::ArgumentError for a token outside of the vocabulary.
  std::string text(std::int64_t token, std::int64_t before) const;
  std::string text(const std::vector<std::int64_t>& tokens) const;

 private:
  std::vector<std::int64_t> characters_of(const std::string& text) const;

  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  std::unordered_map<std::string, std::int64_t> tokens_;
};
