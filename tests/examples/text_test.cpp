// Text as tokens and windows: the first and the last of everything.
#include "examples/common/text.hpp"

#include <set>

#include "common/test.hpp"

namespace {

std::vector<std::int64_t> first_numbers(std::size_t count) {
  std::vector<std::int64_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = std::int64_t(i);
  return all;
}

std::vector<std::int64_t> row_of(const ag::Indices& x, std::size_t row) {
  const std::size_t time = x.shape()[1];
  return {x.data() + row * time, x.data() + (row + 1) * time};
}

std::string round_trip(const std::string& text, Unit unit) {
  const Alphabet alphabet(text, unit);
  std::string back;
  for (const std::int64_t token : alphabet.encode(text)) back += alphabet.symbol(token);
  return back;
}

}  // namespace

TEST_CASE("C109: eight tokens hold four windows of four, and the last ends with the last token",
          "[text][C109]") {
  ag::Rng rng(1);
  std::set<std::vector<std::int64_t>> inputs, targets;
  const Windows windows = random_windows(first_numbers(8), 200, 4, rng);
  for (std::size_t row = 0; row < 200; ++row) {
    inputs.insert(row_of(windows.inputs, row));
    targets.insert(row_of(windows.targets, row));
  }
  REQUIRE(inputs.size() == 4);
  REQUIRE(*inputs.rbegin() == std::vector<std::int64_t>{3, 4, 5, 6});
  REQUIRE(*targets.rbegin() == std::vector<std::int64_t>{4, 5, 6, 7});
  const Windows only = random_windows(first_numbers(5), 20, 4, rng);
  for (std::size_t row = 0; row < 20; ++row)
    REQUIRE(row_of(only.inputs, row) == std::vector<std::int64_t>{0, 1, 2, 3});
}

TEST_CASE("consecutive windows ask for every token but the first once", "[text]") {
  for (const std::size_t count : {5, 8, 9, 17, 23})
    for (const std::size_t batch : {1, 2, 3}) {
      std::vector<std::int64_t> asked;
      for (std::size_t first = 0; first + 1 < count;) {
        const Windows windows = consecutive_windows(first_numbers(count), first, batch, 4);
        asked.insert(asked.end(), windows.targets.begin(), windows.targets.end());
        first += windows.targets.size();
      }
      CAPTURE(count, batch);
      const std::vector<std::int64_t> all = first_numbers(count);
      REQUIRE(asked == std::vector<std::int64_t>(all.begin() + 1, all.end()));
    }
}

TEST_CASE("C110: a text shorter than its windows is refused with both lengths", "[text][C110]") {
  for (const std::size_t count : {0, 1, 4, 5, 40}) {
    CAPTURE(count);
    REQUIRE_THROWS_WITH(split_text(first_numbers(count), 4),
                        ContainsSubstring("a context of 4 needs more symbols than that") &&
                            ContainsSubstring(" and " + std::to_string(count - count * 9 / 10)));
  }
  const TextSplit split = split_text(first_numbers(41), 4);
  REQUIRE(split.training.size() == 36);
  REQUIRE(split.validation.size() == 5);
}

TEST_CASE("C111: a symbol outside of the alphabet is refused by name, and any bytes come back",
          "[text][C111]") {
  const Alphabet alphabet("abc", Unit::character);
  REQUIRE_THROWS_WITH(alphabet.encode("az"), ContainsSubstring("z"));
  const std::string bytes("a\x92\xFF\0b", 5);
  for (const Unit unit : {Unit::character, Unit::byte}) REQUIRE(round_trip(bytes, unit) == bytes);
}

TEST_CASE("C112: carriage returns, marks and characters cut in half are symbols like others",
          "[text][C112]") {
  for (const std::string text :
       {"ab\r\nab\n", "\xC3\xA9t\xC3\xA9", "\xC3", "\xEF\xBB\xBFtext", "no last newline"})
    for (const Unit unit : {Unit::character, Unit::byte}) REQUIRE(round_trip(text, unit) == text);
  REQUIRE(Alphabet("\xC3\xA9\r\n", Unit::character).symbols() ==
          std::vector<std::string>{"\n", "\r", "\xC3\xA9"});
  REQUIRE(Alphabet("\xC3\xA9", Unit::byte).size() == 2);
}
