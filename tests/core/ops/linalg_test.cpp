// Numbers by hand.
#include "core/ops/linalg.hpp"

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/shape.hpp"

namespace {

using Inputs = std::vector<Variable>;

Variable matrix(const std::vector<double>& numbers, const ag::Shape& shape) {
  return ag::constant(ag::array_of(numbers, shape));
}

// Far from singular: random numbers, and 3 along the diagonal.
Array regular(const ag::Shape& shape, std::uint64_t seed = 7) {
  Array a = random_array(shape, -1, 1, seed);
  const std::size_t n = shape.back();
  for (std::size_t i = 0; i < a.size(); ++i)
    if (i / n % n == i % n) a.data()[i] += Real(3);
  return a;
}

const std::vector<double> four_one_two_three{4, 1, 2, 3};  // determinant 10

}  // namespace

TEST_CASE("solve finds the x of a x = b", "[linalg]") {
  const Variable a = matrix(four_one_two_three, {2, 2});
  require_close(ag::solve(a, matrix({1, 2}, {2})).value(), {0.1, 0.6});
  const Variable x = ag::solve(a, matrix({1, 0, 5, 0, 1, 5}, {2, 3}));
  REQUIRE(x.shape() == ag::Shape{2, 3});
  require_close(x.value(), {0.3, -0.1, 1, -0.2, 0.4, 1});
  require_close(ag::solve(matrix({4}, {1, 1}), matrix({1, 2, 3}, {1, 3})).value(),
                {0.25, 0.5, 0.75});
}

TEST_CASE("solve needs pivoting and does it", "[linalg]") {
  const Variable a = matrix({0, 2, 0, 0, 0, 4, 8, 0, 0}, {3, 3});
  require_close(ag::solve(a, matrix({2, 4, 8}, {3})).value(), {1, 1, 1});
}

TEST_CASE("solve broadcasts batches", "[linalg]") {
  const Array a = regular({2, 1, 3, 3}), b = random_array({4, 3, 2});
  const Variable x = ag::solve(ag::constant(a), ag::constant(b));
  REQUIRE(x.shape() == ag::Shape{2, 4, 3, 2});
  const Array back = ag::matmul(ag::constant(a), x).value();
  const Array expected = ag::broadcast_to(ag::constant(b), {2, 4, 3, 2}).value();
  REQUIRE(ag::relative_difference(back, expected) < tolerance(1e-14, 1e-5));
  REQUIRE(ag::solve(ag::constant(a), ag::constant(ag::ones({3}))).shape() == ag::Shape{2, 1, 3});
}

TEST_CASE("inverse and log_determinant agree with numbers by hand", "[linalg]") {
  const Variable a = matrix({4, 1, 2, 3, 0, 1, 1, 0}, {2, 2, 2});
  const Variable y = ag::inverse(a);
  REQUIRE(y.shape() == ag::Shape{2, 2, 2});
  require_close(y.value(), {0.3, -0.1, -0.2, 0.4, 0, 1, 1, 0});
  const Variable d = ag::log_determinant(a);
  REQUIRE(d.shape() == ag::Shape{2});
  require_close(d.value(), {2.302585093, 0});  // log 10; the second determinant is -1
  REQUIRE(ag::log_determinant(matrix({-2}, {1, 1})).shape() == ag::Shape{});
}

TEST_CASE("matrices without elements have empty solutions and determinant 1", "[linalg][C103]") {
  const Variable none = ag::constant(ag::zeros({0, 0}));
  REQUIRE(ag::inverse(none).shape() == ag::Shape{0, 0});
  REQUIRE(ag::log_determinant(none).item() == 0);
  REQUIRE(ag::log_determinant(ag::constant(ag::zeros({0, 2, 2}))).shape() == ag::Shape{0});
  REQUIRE(ag::solve(none, ag::constant(ag::zeros({0, 3}))).shape() == ag::Shape{0, 3});
  REQUIRE(ag::solve(ag::constant(ag::ones({1, 1})), ag::constant(ag::zeros({1, 0}))).shape() ==
          ag::Shape{1, 0});
}

TEST_CASE("a singular matrix is named", "[linalg]") {
  const Variable a = matrix({1, 0, 0, 1, 1, 2, 2, 4}, {2, 2, 2});
  REQUIRE_THROWS_AS(ag::inverse(a), ag::ArgumentError);
  REQUIRE_THROWS_WITH(ag::inverse(a), "inverse: matrix 1 of a is singular");
  REQUIRE_THROWS_WITH(ag::solve(a, matrix({1, 1}, {2})), "solve: matrix 1 of a is singular");
  require_close(ag::log_determinant(a).value(), {0, -std::numeric_limits<double>::infinity()});
  const Variable p = ag::parameter(a.value());
  Tape tape;
  const Variable y = ag::log_determinant(p);
  REQUIRE_THROWS_WITH(tape.gradients(y, ag::constant(ag::ones({2}))),
                      "log_determinant: matrix 1 of a is singular");
}

TEST_CASE("shapes that do not fit are named", "[linalg]") {
  const Variable wide = ag::constant(ag::ones({2, 3})), square = ag::constant(ag::ones({2, 2}));
  REQUIRE_THROWS_WITH(ag::inverse(wide), "inverse: a must be (..., n, n), got (2, 3)");
  REQUIRE_THROWS_WITH(ag::log_determinant(wide),
                      "log_determinant: a must be (..., n, n), got (2, 3)");
  REQUIRE_THROWS_WITH(ag::log_determinant(ag::constant(ag::ones({3}))),
                      ContainsSubstring("got (3)"));
  REQUIRE_THROWS_WITH(ag::solve(wide, square), "solve: a must be (..., n, n), got (2, 3)");
  REQUIRE_THROWS_WITH(ag::solve(square, ag::constant(ag::ones({3}))),
                      "solve: b must have 2 rows, a is (2, 2), b is (3)");
  REQUIRE_THROWS_AS(ag::solve(ag::constant(regular({2, 2, 2})), ag::constant(ag::ones({3, 2, 1}))),
                    ag::ShapeError);
}

TEST_CASE("NaN in a matrix stays in the result", "[linalg]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Variable a = matrix({nan, 1, 1, 2}, {2, 2});
  REQUIRE(std::isnan(ag::log_determinant(a).item()));
  REQUIRE(std::isnan(ag::inverse(a).value().data()[0]));
}

TEST_CASE("gradients of linalg agree with differences", "[linalg]") {
  const auto solve = [](const Inputs& in) { return ag::solve(in[0], in[1]); };
  require_gradients(solve, {regular({3, 3}), random_array({3})});
  require_gradients(solve, {regular({3, 3}), random_array({3, 2})});
  require_gradients(solve, {regular({2, 2, 2}), random_array({2, 3})});
  require_gradients(solve, {regular({2, 1, 2, 2}), random_array({3, 2, 1})});
  require_gradients(solve, {regular({1, 1}), random_array({1, 2})});
  require_gradients(solve, {ag::zeros({0, 0}), ag::zeros({0, 2})});
  for (const ag::Shape& shape : {ag::Shape{3, 3}, {1, 1}, {2, 1, 2, 2}, {0, 2, 2}, {0, 0}}) {
    require_gradients([](const Inputs& in) { return ag::inverse(in[0]); }, {regular(shape)});
    require_gradients([](const Inputs& in) { return ag::log_determinant(in[0]); },
                      {regular(shape)});
  }
}

TEST_CASE("the gradient of log_determinant is the inverse, transposed", "[linalg]") {
  const Variable a = ag::parameter(ag::array_of(four_one_two_three, {2, 2}));
  Tape tape;
  const Variable y = ag::log_determinant(a);
  require_close(tape.gradients(y).of(a).value(), {0.3, -0.2, -0.1, 0.4});
}
