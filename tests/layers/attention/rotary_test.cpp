#include "layers/attention/rotary.hpp"

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace {

using ag::RotaryPairs;

Array turned(const std::vector<double>& x, std::int64_t position, RotaryPairs pairs) {
  return ag::rotary(Variable(ag::array_of(x, {1, 1, x.size()})), 1, x.size(),
                    ag::rotary_table(16, x.size()), pairs,
                    ag::positions_from(std::size_t(position), 1))
      .value();
}

double dot(const Array& a, const Array& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

TEST_CASE("rotary positions turn pairs of halves or of neighbours", "[rotary][C24]") {
  const std::vector<double> x{1, 2, 3, 4};
  const Array neighbours = turned(x, 1, RotaryPairs::neighbours),
              halves = turned(x, 1, RotaryPairs::halves);
  require_close(neighbours, {-1.142640, 1.922076, 2.959851, 4.029800});
  require_close(halves, {-1.984111, 1.959901, 2.462378, 4.019800});
  for (const Array& y : {neighbours, halves}) REQUIRE(std::abs(dot(y, y) - 30) < 1e-5);
  REQUIRE_THROWS_WITH(ag::rotary_table(4, 3), Catch::Matchers::Contains("even"));
}

TEST_CASE("a score of turned vectors depends on their distance alone", "[rotary][C24]") {
  const auto score = [](std::int64_t i, std::int64_t j, RotaryPairs pairs) {
    return dot(turned({1, 2, 3, 4}, i, pairs), turned({4, 3, 2, 1}, j, pairs));
  };
  for (const std::int64_t shift : {0, 3, 7}) {
    REQUIRE(std::abs(score(2 + shift, shift, RotaryPairs::neighbours) - 1.19005) < 1e-4);
    REQUIRE(std::abs(score(2 + shift, shift, RotaryPairs::halves) + 3.45643) < 1e-4);
  }
}

TEST_CASE("only the heads named turn, and of them the width of the table", "[rotary]") {
  const auto table = ag::rotary_table(8, 2);
  const Array x = random_array({2, 3, 10});  // two heads of 4, and two more columns
  const Array y =
      ag::rotary(Variable(x), 2, 4, table, RotaryPairs::halves, ag::positions_from(2, 3)).value();
  for (std::size_t row = 0; row < 6; ++row)
    for (std::size_t column = 0; column < 10; ++column) {
      const bool turns = column < 8 && column % 4 < 2;
      const Real before = x.data()[row * 10 + column], after = y.data()[row * 10 + column];
      REQUIRE((before == after) != turns);
    }
}

TEST_CASE("rows of a batch may stand at positions of their own", "[rotary]") {
  ag::Indices positions = ag::Indices::from_shape({2, 1});
  positions.data()[0] = 5;
  positions.data()[1] = 1;
  const Variable x(ag::array_of({1, 2, 3, 4, 1, 2, 3, 4}, {2, 1, 4}));
  const Array y =
      ag::rotary(x, 1, 4, ag::rotary_table(8, 4), RotaryPairs::halves, positions).value();
  const Array first = turned({1, 2, 3, 4}, 5, RotaryPairs::halves),
              second = turned({1, 2, 3, 4}, 1, RotaryPairs::halves);
  REQUIRE(std::equal(first.begin(), first.end(), y.data()));
  REQUIRE(std::equal(second.begin(), second.end(), y.data() + 4));
}

TEST_CASE("gradients of rotary positions match differences", "[rotary]") {
  const RotaryPairs pairs = GENERATE(RotaryPairs::halves, RotaryPairs::neighbours);
  require_gradients(
      [&](const std::vector<Variable>& in) {
        return ag::square(ag::rotary(in[0], 2, 5, ag::rotary_table(9, 4, 100, 0.5), pairs,
                                     ag::positions_from(4, 3)));
      },
      {random_array({2, 3, 11})});
}

TEST_CASE("far positions keep their angles", "[rotary]") {
  const auto table = ag::rotary_table(200001, 2);
  REQUIRE(std::abs(double(table->cosine.data()[200000]) - std::cos(200000.0)) < 1e-6);
}

TEST_CASE("rotary positions say what does not fit", "[rotary]") {
  const Variable x(ag::ones({1, 2, 8}));
  const auto table = ag::rotary_table(4, 4);
  const auto with = [&](std::size_t heads, std::size_t width, const ag::Indices& positions) {
    return ag::rotary(x, heads, width, table, RotaryPairs::halves, positions);
  };
  REQUIRE_THROWS_AS(with(2, 5, ag::positions_from(0, 2)), ag::ShapeError);
  REQUIRE_THROWS_AS(with(4, 2, ag::positions_from(0, 2)), ag::ShapeError);
  REQUIRE_THROWS_AS(with(2, 4, ag::positions_from(0, 3)), ag::ShapeError);
  REQUIRE_THROWS_AS(with(2, 4, ag::positions_from(3, 2)), ag::ArgumentError);
}
