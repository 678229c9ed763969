// What each mask shows, written out, and that kernels skip what it hides.
#include "layers/attention/mask.hpp"

#include "common/test.hpp"
#include "layers/attention/sized_mask.hpp"

namespace {

using ag::Mask;

// The mask as text, a row for each query, rows of the batch apart by a line: x where visible.
std::string picture(const Mask& mask, std::size_t batch, std::size_t queries, std::size_t keys) {
  const ag::Bools dense = ag::SizedMask(mask, {batch, 1, queries, keys}).dense();
  std::string text;
  for (std::size_t row = 0; row < batch * queries; ++row) {
    if (row > 0) text += row % queries == 0 ? " | " : " ";
    for (std::size_t key = 0; key < keys; ++key) text += dense.data()[row * keys + key] ? 'x' : '.';
  }
  return text;
}

ag::Indices ids(std::initializer_list<std::int64_t> numbers, const ag::Shape& shape) {
  ag::Indices all = ag::Indices::from_shape(shape);
  std::copy(numbers.begin(), numbers.end(), all.data());
  return all;
}

ag::Bools flags(const std::string& picture, const ag::Shape& shape) {
  ag::Bools all = ag::Bools::from_shape(shape);
  for (std::size_t i = 0; i < picture.size(); ++i) all.data()[i] = picture[i] == 'x';
  return all;
}

}  // namespace

TEST_CASE("causal() lets the last query see every key, causal(0) the first only the first",
          "[mask]") {
  REQUIRE(picture(ag::causal(), 1, 2, 5) == "xxxx. xxxxx");
  REQUIRE(picture(ag::causal(), 1, 4, 2) == ".. .. x. xx");
  REQUIRE(picture(ag::causal(0), 1, 2, 5) == "x.... xx...");
  REQUIRE(picture(ag::causal(-1), 1, 3, 3) == "... x.. xx.");
  REQUIRE(picture(ag::causal(PTRDIFF_MAX), 1, 2, 2) == "xx xx");
  REQUIRE(picture(ag::causal(PTRDIFF_MIN), 1, 2, 2) == ".. ..");
}

TEST_CASE("causal() takes an offset for each row of the batch", "[mask]") {
  REQUIRE(picture(ag::causal(std::vector<std::ptrdiff_t>{0, 2}), 2, 2, 4) ==
          "x... xx.. | xxx. xxxx");
  REQUIRE_THROWS_AS(picture(ag::causal(std::vector<std::ptrdiff_t>{0, 2}), 3, 2, 4),
                    ag::ShapeError);
}

TEST_CASE("a sliding window counts its sides beside the query's own position", "[mask]") {
  REQUIRE(picture(ag::sliding_window(1, 0), 1, 4, 4) == "x... xx.. .xx. ..xx");
  REQUIRE(picture(ag::sliding_window(1, 2), 1, 4, 4) == "xxx. xxxx .xxx ..xx");
  REQUIRE(picture(ag::sliding_window(0, {}), 1, 3, 3) == "xxx .xx ..x");
  REQUIRE(picture(ag::sliding_window({}, {}), 1, 2, 2) == "xx xx");
  REQUIRE(picture(ag::sliding_window(1, 0), 1, 2, 4) == ".xx. ..xx");
  REQUIRE(picture(ag::sliding_window(1, 0, 0), 1, 2, 4) == "x... xx..");
  REQUIRE(picture(ag::sliding_window(1, 0, 9), 1, 2, 4) == ".... ....");
  REQUIRE(picture(ag::sliding_window(SIZE_MAX, SIZE_MAX), 1, 2, 2) == "xx xx");
}

TEST_CASE("key lengths hide the padding of each row of the batch", "[mask]") {
  REQUIRE(picture(ag::key_lengths({1, 3}), 2, 2, 3) == "x.. x.. | xxx xxx");
  REQUIRE(picture(ag::key_lengths({2}), 2, 1, 3) == "xx. | xx.");
  REQUIRE(picture(ag::key_lengths({0}), 1, 1, 3) == "...");
  REQUIRE_THROWS_AS(picture(ag::key_lengths({1, 2}), 3, 1, 3), ag::ShapeError);
  REQUIRE_THROWS_AS(picture(ag::key_lengths({4}), 1, 1, 3), ag::ShapeError);
}

TEST_CASE("a prefix is seen by all, what follows it by later positions", "[mask]") {
  REQUIRE(picture(ag::prefix_lm({2}), 1, 4, 4) == "xx.. xx.. xxx. xxxx");
  REQUIRE(picture(ag::prefix_lm({0, 3}), 2, 3, 3) == "x.. xx. xxx | xxx xxx xxx");
}

TEST_CASE("a query sees its own document, and padding sees nothing", "[mask]") {
  REQUIRE(picture(ag::documents(ids({7, 7, 3, -1}, {4})), 1, 4, 4) == "xx.. xx.. ..x. ....");
  REQUIRE(picture(ag::documents(ids({0, 0, 1, 1}, {4})) & ag::causal(), 1, 4, 4) ==
          "x... xx.. ..x. ..xx");
  REQUIRE(picture(ag::documents(ids({0, 0, 1, 0, 1, 1}, {2, 3})), 2, 2, 3) == "xx. ..x | .xx .xx");
  REQUIRE_THROWS_WITH(ag::documents(ids({1, 2, 1}, {3})),
                      Catch::Matchers::Contains("id 1 of row 0 comes back"));
  REQUIRE_THROWS_AS(picture(ag::documents(ids({0, 1}, {2})), 1, 3, 3), ag::ShapeError);
}

TEST_CASE("block_sparse shows whole blocks, of which the last may be cut", "[mask]") {
  const Mask mask = ag::block_sparse(flags("x.xx", {2, 2}), 2);
  REQUIRE(picture(mask, 1, 3, 3) == "xx. xx. xxx");
  REQUIRE(picture(mask & ag::causal(), 1, 3, 3) == "x.. xx. xxx");
  REQUIRE_THROWS_AS(picture(mask, 1, 5, 3), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::block_sparse(flags("x", {1, 1}), 0), ag::ArgumentError);
}

TEST_CASE("a mask says of a rectangle whether all or nothing of it is visible", "[mask]") {
  ag::Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    const ag::AttentionSizes s{2, 1, std::size_t(rng.integer(1, 9)),
                               std::size_t(rng.integer(1, 9))};
    const auto side = [&] { return std::size_t(rng.integer(0, 5)); };
    Mask mask;
    if (rng.uniform() < 0.5) mask = mask & ag::sliding_window(side(), side());
    if (rng.uniform() < 0.5) mask = mask & ag::key_lengths({side() % (s.keys + 1), s.keys});
    if (rng.uniform() < 0.5) mask = mask & ag::prefix_lm({side(), side()});
    if (rng.uniform() < 0.3) {
      const std::size_t rows = (s.queries + 1) / 2, columns = (s.keys + 1) / 2;
      std::string blocks;
      for (std::size_t n = 0; n < rows * columns; ++n) blocks += rng.uniform() < 0.5 ? 'x' : '.';
      mask = mask & ag::block_sparse(flags(blocks, {rows, columns}), 2);
    }
    const ag::SizedMask sized(mask, s);
    const auto first = [&](std::size_t n) { return std::size_t(rng.integer(0, std::int64_t(n))); };
    const std::size_t b = first(2), i = first(s.queries), j = first(s.keys);
    const ag::ScorePlace place{b, 0, i, 1 + first(s.queries - i), j, 1 + first(s.keys - j)};
    std::size_t shown = 0;
    for (std::size_t q = i; q < i + place.queries; ++q)
      for (std::size_t k = j; k < j + place.keys; ++k) {
        const bool visible = sized.visible(b, 0, q, k);
        shown += visible;
        const ag::KeyRange keys = sized.keys(b, q);
        const ag::QueryRange queries = sized.queries(place, k, 1);
        REQUIRE((!visible || (k >= keys.begin && k < keys.end)));
        REQUIRE((!visible || (q - i >= queries.begin && q - i < queries.end)));
      }
    const ag::Visible look = sized.look(place);
    REQUIRE((look != ag::Visible::none || shown == 0));
    REQUIRE((look == ag::Visible::all) == (shown == place.queries * place.keys));
  }
}
