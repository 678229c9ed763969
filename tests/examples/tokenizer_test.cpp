#include "examples/common/tokenizer.hpp"

#include "common/data.hpp"
#include "common/temporary_folder.hpp"
#include "common/test.hpp"
#include "examples/common/sampling.hpp"
#include "examples/common/text.hpp"
#include "layers/llama.hpp"

namespace {

const std::filesystem::path folder = data_folder("llama2c");

// The bytes of a vocabulary file: special tokens, the 256 bytes, and what is given.
std::string vocabulary(const std::vector<std::pair<std::string, float>>& pieces) {
  std::string bytes(4, '\0');
  const auto add = [&](const std::string& piece, float score) {
    const auto length = std::int32_t(piece.size());
    bytes.append(reinterpret_cast<const char*>(&score), 4);
    bytes.append(reinterpret_cast<const char*>(&length), 4);
    bytes += piece;
  };
  for (const char* special : {"<unk>", "<s>", "</s>"}) add(special, 0);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", unsigned(byte));
    add(name, 0);
  }
  for (const auto& [piece, score] : pieces) add(piece, score);
  return bytes;
}

}  // namespace

TEST_CASE("the best pair is joined first, the leftmost of equals", "[tokenizer]") {
  const TemporaryFolder there;
  there.write(
      "file",
      vocabulary(
          {{" ", -9}, {"a", -9}, {"b", -9}, {"aa", -1}, {"ab", -2}, {"aab", -3}, {" a", -4}}));
  const Tokenizer tokenizer(there / "file");
  REQUIRE(tokenizer.size() == 266);
  using Tokens = std::vector<std::int64_t>;
  REQUIRE(tokenizer.encode("") == Tokens{1});
  REQUIRE(tokenizer.encode("aaa") == Tokens{1, 259, 262, 260});  // " ", "aa", "a"
  REQUIRE(tokenizer.encode("aab") == Tokens{1, 259, 264});       // "aa" first, then "aab"
  REQUIRE(tokenizer.encode("ab") == Tokens{1, 259, 263});        // "ab" before " a"
  REQUIRE(tokenizer.encode("ac") == Tokens{1, 265, 3 + 'c'});    // what is no piece is bytes
  REQUIRE(tokenizer.text(Tokens{1, 265, 3 + 'c'}) == "ac");
}

TEST_CASE("any bytes come back from their tokens", "[tokenizer]") {
  if (!have_data(folder / "tok512.bin")) return;
  const Tokenizer tokenizer(folder / "tok512.bin");
  REQUIRE(tokenizer.size() == 512);
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += char(byte);
  for (const std::string& text :
       {std::string("Once upon a time, there was a little girl."), std::string("  two  spaces "),
        std::string("\xE8\xAF\xB7\xF0\x9F\x98\x80 \xC3"), std::string("<0x41><s>\n<s>\n"), every,
        every + every, std::string(1, '\0')}) {
    CAPTURE(text);
    REQUIRE(tokenizer.text(tokenizer.encode(text)) == text);
  }
  REQUIRE_THROWS_WITH(tokenizer.text(512, 1), ContainsSubstring("outside of [0, 512)"));
}

TEST_CASE("a damaged vocabulary is refused", "[tokenizer][errors]") {
  const TemporaryFolder there;
  const std::string bytes = vocabulary({{"a", 0}});
  there.write("cut", bytes.substr(0, bytes.size() - 1));
  there.write("short", bytes.substr(0, bytes.size() - 12));
  there.write("few", vocabulary({}).substr(0, 40));
  std::string negative = bytes;
  negative[bytes.size() - 2] = '\xFF';  // the last byte of the length of "a"
  there.write("negative", negative);
  REQUIRE_THROWS_WITH(Tokenizer(there / "cut"), ContainsSubstring("has 1 bytes, the file 0 more"));
  for (const char* name : {"few", "negative", "absent"})
    REQUIRE_THROWS_AS(Tokenizer(there / name), ag::FileError);
}

TEST_CASE("stories260K writes 200 tokens greedily as llama2.c does, byte for byte", "[llama]") {
  if (!have_data(folder / "tok512.bin")) return;
  const Tokenizer tokenizer(folder / "tok512.bin");
  const ag::Transformer model = ag::load_llama(folder / "stories260K.safetensors");
  ag::Rng rng(1);
  std::string written;
  std::int64_t before = Tokenizer::begin;
  continue_text(model, {before}, 200, {.temperature = 0}, rng, [&](std::int64_t token) {
    written += tokenizer.text(token, before);
    before = token;
    return true;
  });
  REQUIRE(written == read_text(folder / "stories260K_expected_t0_n200.txt"));
}
