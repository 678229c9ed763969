#include "core/array.hpp"

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"

#if __has_include(<xtensor/core/xeval.hpp>)
#include <xtensor/core/xeval.hpp>
#include <xtensor/core/xmath.hpp>
#else
#include <xtensor/xeval.hpp>
#include <xtensor/xmath.hpp>
#endif

TEST_CASE("an array has as many elements as its shape holds", "[array]") {
  REQUIRE(ag::element_count({}) == 1);
  REQUIRE(ag::element_count({2, 3}) == 6);
  REQUIRE(ag::element_count({2, 0, 3}) == 0);
  REQUIRE(ag::element_count({1, 2, 1, 2, 1, 2}) == 8);
}

TEST_CASE("array_of takes numbers in row-major order, and as many as the shape holds", "[array]") {
  const Array x = ag::array_of({1, 2, 3, 4, 5, 6}, {2, 3});
  REQUIRE(x(1, 0) == 4);
  REQUIRE(ag::array_of({7}, {}).dimension() == 0);
  REQUIRE(ag::array_of({}, {0, 2}).shape() == ag::Shape{0, 2});
  REQUIRE_THROWS_AS(ag::array_of({1, 2}, {3}), ag::ShapeError);
  REQUIRE_THROWS_WITH(ag::array_of({1, 2}, {3}), "array_of: shape (3) needs 3 numbers, got 2");
}

TEST_CASE("shapes broadcast by NumPy's rule", "[array]") {
  const auto shape = [](const ag::Shape& a, const ag::Shape& b) {
    return ag::broadcast_shape("op", a, b);
  };
  REQUIRE(shape({}, {}) == ag::Shape{});
  REQUIRE(shape({2, 1, 3}, {4, 1}) == ag::Shape{2, 4, 3});
  REQUIRE(shape({1}, {0}) == ag::Shape{0});
  REQUIRE(shape({0, 2}, {1}) == ag::Shape{0, 2});
  REQUIRE(shape({3}, {1, 1, 1, 1, 1, 1}) == ag::Shape{1, 1, 1, 1, 1, 3});
  REQUIRE_THROWS_WITH(shape({0}, {2}), "op: shapes do not broadcast: a is (0), b is (2)");
  REQUIRE_THROWS_AS(shape({2, 3}, {3, 2}), ag::ShapeError);
}

TEST_CASE("an axis counts from either end and lies inside", "[array]") {
  REQUIRE(ag::check_axis("op", 0, 3) == 0);
  REQUIRE(ag::check_axis("op", -1, 3) == 2);
  REQUIRE(ag::check_axis("op", -3, 3) == 0);
  REQUIRE_THROWS_WITH(ag::check_axis("op", 3, 3), "op: axis 3 is outside an array of rank 3");
  REQUIRE_THROWS_WITH(ag::check_axis("op", -4, 3), "op: axis -4 is outside an array of rank 3");
  REQUIRE_THROWS_AS(ag::check_axis("op", 0, 0), ag::ArgumentError);
}

TEST_CASE("a set of axes is one, several, none or all", "[array]") {
  using Flags = std::vector<bool>;
  REQUIRE(ag::Axes().flags("op", 2) == Flags{true, true});
  REQUIRE(ag::Axes(-1).flags("op", 2) == Flags{false, true});
  REQUIRE(ag::Axes({0, -1}).flags("op", 3) == Flags{true, false, true});
  REQUIRE(ag::Axes(std::vector<std::ptrdiff_t>{}).flags("op", 2) == Flags{false, false});
  REQUIRE_THROWS_WITH(ag::Axes({1, -1}).flags("op", 2), "op: axis -1 is named twice");
  REQUIRE_THROWS_AS(ag::Axes(2).flags("op", 2), ag::ArgumentError);
}

TEST_CASE("xtensor gives evaluated expressions and reductions their rank", "[array]") {
  // g++ with C++20 and xtensor < 0.26 needs -fno-new-ttp-matching for this; the flag is public
  const Array g = random_array({4, 6});
  const auto doubled = xt::eval(g + g);
  REQUIRE(doubled.dimension() == 2);
  REQUIRE(doubled.shape() == g.shape());
  const Array rows = xt::sum(g, {1}, xt::evaluation_strategy::immediate);
  REQUIRE(rows.shape() == ag::Shape{4});
  const Array largest = xt::amax(g, {0}, xt::evaluation_strategy::immediate);
  REQUIRE(largest.shape() == ag::Shape{6});
  const Array mean = xt::mean(g, {0}, xt::evaluation_strategy::immediate);
  REQUIRE(mean.shape() == ag::Shape{6});
}

TEST_CASE("shapes beyond memory throw before anything is written", "[array][errors]") {
  const std::size_t huge = std::size_t{1} << 61, half = std::size_t{1} << 32;
  REQUIRE_THROWS_AS(ag::zeros({huge}), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::uninitialized({half, half}), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::broadcast_to(Variable(ag::ones({3})), {huge, 3}), ag::ShapeError);
  const Variable x(ag::ones({2, 4}));
  REQUIRE_THROWS_AS(ag::pad(x, {{0, 0}, {std::size_t(-1), 1}}), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::pad(x, {{half, 0}, {half, 1}}), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::PoolAllocator<double>().allocate(std::size_t(-1)), std::bad_alloc);
}
