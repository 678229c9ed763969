#include "core/ops/index.hpp"

#include "common/bits.hpp"
#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"

namespace {

// Gives the number of threads back when the test ends, however it ends.
using ag::Indices;
using Inputs = std::vector<Variable>;

Indices indices_of(const std::vector<std::int64_t>& values, const ag::Shape& shape) {
  Indices indices = Indices::from_shape(shape);
  std::copy(values.begin(), values.end(), indices.data());
  return indices;
}

void require_array(const Variable& x, const ag::Shape& shape, const std::vector<double>& expected) {
  REQUIRE(x.shape() == shape);
  require_close(x.value(), expected, 0);
}

// The gradient of sum(y * seed) with respect to x, computed by f.
template <class F>
Variable gradient(const Variable& x, const Array& seed, F f) {
  Tape tape;
  return tape.gradients(f(x), ag::constant(seed)).of(x);
}

const Indices none = indices_of({}, {0});

}  // namespace

TEST_CASE("take puts the shape of the indices in place of the axis", "[index]") {
  const Variable x = ag::constant(ag::array_of({0, 1, 2, 3, 4, 5}, {2, 3}));
  require_array(ag::take(x, indices_of({1, 0, 1}, {3})), {3, 3}, {3, 4, 5, 0, 1, 2, 3, 4, 5});
  require_array(ag::take(x, indices_of({2, 0, 0, 1}, {2, 2}), -1), {2, 2, 2},
                {2, 0, 0, 1, 5, 3, 3, 4});
  require_array(ag::take(x, indices_of({1}, {}), 1), {2}, {1, 4});
  REQUIRE(ag::take(x, none, 1).shape() == ag::Shape{2, 0});
  REQUIRE(ag::take(ag::constant(ag::zeros({0, 3})), none).shape() == ag::Shape{0, 3});
  require_array(ag::embedding(x, indices_of({1, 1}, {1, 2})), {1, 2, 3}, {3, 4, 5, 3, 4, 5});
}

TEST_CASE("scatter_add adds at the indices and leaves its base alone", "[index]") {
  const Variable base = ag::constant(ag::array_of({1, 1, 1, 1, 1, 1}, {3, 2}));
  const Variable updates = ag::constant(ag::array_of({1, 2, 3, 4, 5, 6}, {3, 2}));
  require_array(ag::scatter_add(base, indices_of({2, 0, 2}, {3}), updates), {3, 2},
                {4, 5, 1, 1, 7, 9});
  require_array(base, {3, 2}, {1, 1, 1, 1, 1, 1});
  require_array(ag::scatter_add(base, indices_of({1, 1}, {2}),
                                ag::constant(ag::array_of({1, 2, 3, 4, 5, 6}, {3, 2})), 1),
                {3, 2}, {1, 4, 1, 8, 1, 12});
  require_array(ag::scatter_add(base, none, ag::constant(ag::zeros({0, 2}))), {3, 2},
                {1, 1, 1, 1, 1, 1});
}

TEST_CASE("take_along reads one element a lane and scatter_add_along adds one", "[index]") {
  const Variable x = ag::constant(ag::array_of({0, 1, 2, 3, 4, 5}, {2, 3}));
  require_array(ag::take_along(x, indices_of({2, 0}, {2, 1}), 1), {2, 1}, {2, 3});
  require_array(ag::take_along(x, indices_of({1, 0, 1, 0, 0, 0}, {2, 3}), 0), {2, 3},
                {3, 1, 5, 0, 1, 2});
  const Variable updates = ag::constant(ag::array_of({10, 20, 30, 40}, {2, 2}));
  require_array(ag::scatter_add_along(x, indices_of({1, 1, 0, 2}, {2, 2}), updates, 1), {2, 3},
                {0, 31, 2, 33, 4, 45});
  REQUIRE(ag::take_along(x, indices_of({}, {2, 0}), 1).shape() == ag::Shape{2, 0});
  REQUIRE(ag::take_along(ag::constant(ag::zeros({0, 3})), indices_of({}, {0, 3}), 1).shape() ==
          ag::Shape{0, 3});
}

TEST_CASE("index ops name the shapes that do not fit", "[index][C64]") {
  const Variable x = ag::constant(ag::ones({2, 3})), narrow = ag::constant(ag::ones({1, 3}));
  const Indices both = indices_of({0, 1}, {2});
  // nothing broadcasts on the way into an array
  REQUIRE_THROWS_WITH(ag::scatter_add(x, both, narrow),
                      "scatter_add: updates must be (2, 3), got (1, 3)");
  REQUIRE_THROWS_WITH(ag::scatter_add(narrow, indices_of({0}, {1}), x),
                      "scatter_add: updates must be (1, 3), got (2, 3)");
  REQUIRE_THROWS_WITH(ag::take(ag::constant(ag::ones({2, 1})), indices_of({1}, {}), 1),
                      "take: index must be in [0, 1), got 1");
  REQUIRE_THROWS_WITH(ag::take_along(x, both, 1),
                      "take_along: indices may differ from (2, 3) along axis 1 only, got (2)");
  REQUIRE_THROWS_WITH(ag::take_along(x, indices_of({0}, {1, 1}), 1),
                      ContainsSubstring("got (1, 1)"));
  REQUIRE_THROWS_WITH(ag::scatter_add_along(x, indices_of({0, 1}, {2, 1}), narrow, 1),
                      "scatter_add_along: updates must be (2, 1), got (1, 3)");
  REQUIRE_THROWS_WITH(ag::embedding(ag::constant(ag::ones({3})), both),
                      "embedding: weight must be (rows, width), got (3)");
  REQUIRE_THROWS_WITH(ag::take(x, both, 2), ContainsSubstring("take: "));
}

TEST_CASE("a gradient is never broadcast into place", "[index][C64]") {
  const Variable x = ag::parameter(ag::ones({2, 3}));
  Tape tape;
  const Variable y = ag::add(x, 1);
  REQUIRE_THROWS_AS(tape.gradients(y, ag::constant(ag::ones({1, 3}))), ag::ShapeError);
}

TEST_CASE("an index outside the axis throws in every build, before any work", "[index][C62]") {
  const Variable x = ag::constant(ag::ones({3, 4}));
  for (const std::int64_t bad : {std::int64_t{3}, std::int64_t{-1}, std::int64_t{1} << 31,
                                 std::numeric_limits<std::int64_t>::min()}) {
    const Indices indices = indices_of({0, bad}, {2}), column = indices_of({0, 0, 0, bad}, {1, 4});
    const std::string rule = ": index must be in [0, 3), got " + std::to_string(bad);
    REQUIRE_THROWS_AS(ag::take(x, indices), ag::ArgumentError);
    REQUIRE_THROWS_WITH(ag::take(x, indices), "take" + rule);
    REQUIRE_THROWS_WITH(ag::embedding(x, indices), "embedding" + rule);
    REQUIRE_THROWS_WITH(ag::scatter_add(x, indices, ag::constant(ag::ones({2, 4}))),
                        "scatter_add" + rule);
    REQUIRE_THROWS_WITH(ag::take_along(x, column, 0), "take_along" + rule);
    REQUIRE_THROWS_WITH(ag::scatter_add_along(x, column, ag::constant(ag::ones({1, 4})), 0),
                        "scatter_add_along" + rule);
  }
}

TEST_CASE("changing the indices after the op does not change the gradient", "[index][C62]") {
  const Variable x = ag::parameter(ag::ones({3}));
  Indices indices = indices_of({2}, {1});
  Tape tape;
  const Variable y = ag::take(x, indices);
  indices.data()[0] = 1000000;
  require_array(tape.gradients(y, ag::constant(ag::ones({1}))).of(x), {3}, {0, 0, 1});
}

TEST_CASE("gradients of repeated indices add up", "[index][C61]") {
  const Variable x = ag::parameter(ag::array_of({0.1}, {1}));
  const Array g = gradient(x, ag::array_of({0.2, 0.3}, {2}), [](const Variable& v) {
                    return ag::take(v, indices_of({0, 0}, {2}));
                  }).value();
  require_close(g, {0.5}, tolerance(1e-15, 1e-7));

  const Variable table = ag::parameter(random_array({5, 3}));
  const Indices often = indices_of(std::vector<std::int64_t>(1000, 3), {1000});
  const std::vector<double> expected{0, 0, 0, 0, 0, 0, 0, 0, 0, 1000, 1000, 1000, 0, 0, 0};
  const ThreadsScope restore;
  for (const int threads : {1, 4}) {
    ag::set_threads(threads);
    const auto use = [&](const Variable& v) { return ag::embedding(v, often); };
    require_array(gradient(table, ag::ones({1000, 3}), use), {5, 3}, expected);
  }
}

TEST_CASE("a row used 1000 times loses no digits and has the same bits on any number of threads",
          "[index][C61]") {
  const std::size_t count = 3000, width = 600;
  std::vector<std::int64_t> rows(count);
  for (std::size_t i = 0; i < count; ++i) rows[i] = std::int64_t(i * i % 7 == 2 ? 3 : i % 5);
  const Indices indices = indices_of(rows, {count});
  const Variable table = ag::parameter(ag::zeros({6, width}));
  const Array seed = random_array({count, width});
  std::vector<Array> results;
  const ThreadsScope restore;
  for (const int threads : {1, 4}) {
    ag::set_threads(threads);
    results.push_back(gradient(table, seed, [&](const Variable& v) {
                        return ag::embedding(v, indices);
                      }).value());
  }
  std::vector<double> exact(6 * width, 0.0);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < width; ++j)
      exact[std::size_t(rows[i]) * width + j] += double(seed.data()[i * width + j]);
  REQUIRE(std::equal(results[0].data(), results[0].data() + results[0].size(), results[1].data()));
  require_close(results[0], exact, tolerance(1e-13, 1e-7));
}

TEST_CASE("gradients of the index ops agree with differences", "[index]") {
  const Indices rows = indices_of({1, 0, 1, 1}, {2, 2}), one = indices_of({1}, {});
  require_gradients([&](const Inputs& in) { return ag::square(ag::take(in[0], rows)); },
                    {random_array({2, 3})});
  require_gradients([&](const Inputs& in) { return ag::square(ag::take(in[0], rows, 1)); },
                    {random_array({2, 3, 2})});
  require_gradients([&](const Inputs& in) { return ag::square(ag::take(in[0], one, -1)); },
                    {random_array({1, 2})});
  require_gradients([&](const Inputs& in) { return ag::square(ag::take(in[0], none, 1)); },
                    {random_array({2, 3})});
  require_gradients([&](const Inputs& in) { return ag::square(ag::embedding(in[0], rows)); },
                    {random_array({2, 1})});

  const auto scatter = [&](const Inputs& in) {
    return ag::square(ag::scatter_add(in[0], rows, in[1], 1));
  };
  require_gradients(scatter, {random_array({2, 3, 1}), random_array({2, 2, 2, 1}, -1, 1, 8)});
  const Indices lanes = indices_of({1, 0, 1, 1, 2, 2, 0, 2}, {2, 2, 2});
  const auto along = [&](const Inputs& in) { return ag::square(ag::take_along(in[0], lanes, 1)); };
  require_gradients(along, {random_array({2, 3, 2})});
  const auto add_along = [&](const Inputs& in) {
    return ag::square(ag::scatter_add_along(in[0], lanes, in[1], -2));
  };
  require_gradients(add_along, {random_array({2, 3, 2}), random_array({2, 2, 2}, -1, 1, 8)});
}

TEST_CASE("a wide lane is added in pieces without gaps", "[index]") {
  const std::size_t width = 700;
  std::vector<std::int64_t> positions(2 * width);
  std::vector<double> expected(3 * width, 0.0);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = std::int64_t(i % 3);
    expected[i % 3 * width + i % width] += double(i);
  }
  Array updates = ag::zeros({2, width});
  for (std::size_t i = 0; i < updates.size(); ++i) updates.data()[i] = Real(i);
  const Variable base = ag::constant(ag::zeros({3, width}));
  const Indices indices = indices_of(positions, {2, width});
  require_array(ag::scatter_add_along(base, indices, ag::constant(updates), 0), {3, width},
                expected);
}
