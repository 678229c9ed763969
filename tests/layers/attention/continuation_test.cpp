// Masks and score steps of rows that go on from different lengths.
#include "layers/attention/continuation.hpp"

#include "common/test.hpp"

namespace {

// What is visible, a row of x for each query, rows of the batch apart by a line.
std::string picture(const ag::Mask& mask, const ag::Continuation& rows, std::size_t queries,
                    std::size_t keys) {
  const std::size_t batch = rows.past.size();
  const ag::Bools dense =
      ag::SizedMask(ag::continued(mask, rows), {batch, 1, queries, keys}).dense();
  std::string text;
  for (std::size_t row = 0; row < batch * queries; ++row) {
    if (row > 0) text += row % queries == 0 ? " | " : " ";
    for (std::size_t key = 0; key < keys; ++key) text += dense.data()[row * keys + key] ? 'x' : '.';
  }
  return text;
}

// Keeps where its blocks lay, and leaves the scores alone.
class Places final : public ag::ScoreStep {
 public:
  struct Seen {
    ag::AttentionSizes sizes;
    ag::ScorePlace place;
  };
  void check(const ag::AttentionSizes& s) const override { checked.push_back(s.keys); }
  void forward(const ag::AttentionSizes& s, const ag::ScoreBlock<Real>& scores) const override {
    seen.push_back({s, scores});
  }
  void backward(const ag::AttentionSizes&, const ag::ScoreBlock<const Real>&,
                const ag::ScoreBlock<Real>&, Real* const*) const override {}
  Variable composed(const ag::AttentionSizes&, const Variable& scores,
                    const std::vector<Variable>&) const override {
    return scores;
  }

  mutable std::vector<std::size_t> checked;
  mutable std::vector<Seen> seen;
};

}  // namespace

TEST_CASE("a continued mask shows what it shows in each row's whole sequence", "[cache]") {
  REQUIRE(picture(ag::causal(), {{3, 3}, {2, 2}}, 2, 5) == "xxxx. xxxxx | xxxx. xxxxx");
  REQUIRE(picture(ag::causal(), {{3, 1}, {2, 2}}, 2, 5) == "xxxx. xxxxx | xx... xxx..");
  REQUIRE(picture(ag::sliding_window(1, 0), {{3, 0}, {1, 1}}, 1, 4) == "..xx | x...");
  REQUIRE(picture(ag::prefix_lm({2}), {{0, 2}, {3, 1}}, 3, 3) == "xx. xx. xxx | xxx ... ...");
}

TEST_CASE("a query beyond its row's own sees nothing, and no query a key beyond its row's own",
          "[cache]") {
  REQUIRE(picture({}, {{1, 1}, {2, 1}}, 2, 3) == "xxx xxx | xx. ...");
  REQUIRE(picture(ag::causal(), {{2, 0}, {0, 3}}, 3, 3) == "... ... ... | x.. xx. xxx");
  // of documents there is a place for each key only
  ag::Indices ids = ag::Indices::from_shape({3});
  ids.data()[0] = ids.data()[1] = 0;
  ids.data()[2] = 1;
  REQUIRE(picture(ag::documents(ids), {{2, 1}, {1, 2}}, 2, 3) == "..x ... | xx. ..x");
}

TEST_CASE("a mask that does not fit a row's whole sequence is refused, an idle row aside",
          "[cache]") {
  REQUIRE_THROWS_AS(picture(ag::key_lengths({3, 3}), {{2, 1}, {1, 1}}, 1, 3), ag::ShapeError);
  REQUIRE(picture(ag::key_lengths({3, 3}), {{2, 1}, {1, 0}}, 1, 3) == "xxx | ...");
  REQUIRE_THROWS_WITH(ag::continued(ag::visible_where(ag::Bools::from_shape({1, 1})), {{0}, {1}}),
                      ContainsSubstring("pair by pair"));
}

TEST_CASE("a continued step is asked for its places in each row's whole sequence, and for no other",
          "[cache]") {
  const auto places = std::make_shared<Places>();
  const ag::ScoreSteps steps = ag::continued({places}, {{4, 1, 7}, {3, 2, 0}});
  const ag::AttentionSizes sizes{3, 2, 3, 7};
  steps[0]->check(sizes);
  REQUIRE(places->checked == std::vector<std::size_t>{7, 3});
  Real scores[7 * 16] = {};
  for (const std::size_t row : {0, 1})
    steps[0]->forward(sizes, ag::ScoreBlock<Real>{{row, 1, 1, 2, 2, 5}, scores, 1, 16});
  for (const std::size_t row : {0, 1}) {
    const auto& [whole, place] = places->seen[row];
    REQUIRE((whole.batch == 3 && whole.heads == 2 && place.batch == row && place.head == 1));
    REQUIRE((whole.queries == whole.keys && whole.keys == (row == 0 ? 7 : 3)));
    REQUIRE((place.first_query == (row == 0 ? 5 : 2) && place.queries == (row == 0 ? 2 : 1)));
    REQUIRE((place.first_key == 2 && place.keys == (row == 0 ? 5 : 1)));
  }
}

TEST_CASE("positions go on from each row's length, up to the last there is", "[cache]") {
  const ag::Indices positions = ag::continued_positions({{3, 0}, {2, 1}}, 3, 4);
  REQUIRE(positions.shape() == ag::Shape{2, 3});
  const std::vector<std::int64_t> expected{3, 4, 4, 0, 1, 2};
  REQUIRE(std::equal(positions.begin(), positions.end(), expected.begin()));
}
