// Values by hand, or from NumPy 2 on arange() arrays, whose elements name their own place.
#include "core/ops/shape.hpp"

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"

namespace {

// 0, 1, 2, ... in an array of this shape
Variable counting(const ag::Shape& shape, bool wanted = false) {
  Array x = ag::zeros(shape);
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = Real(i);
  return wanted ? ag::parameter(x) : ag::constant(x);
}

void require_array(const Variable& x, const ag::Shape& shape, const std::vector<double>& expected) {
  REQUIRE(x.shape() == shape);
  require_close(x.value(), expected, 0);
}

// The gradient of sum(y * seed) with respect to x, computed by f.
template <class F>
Variable gradient(const Variable& x, const std::vector<double>& seed, F f) {
  Tape tape;
  const Variable y = f(x);
  return tape.gradients(y, ag::constant(ag::array_of(seed, y.shape()))).of(x);
}

using Inputs = std::vector<Variable>;

}  // namespace

TEST_CASE("sizes whose product wraps are refused", "[shape]") {
  const std::ptrdiff_t large = std::ptrdiff_t{1} << 32;
  REQUIRE_THROWS_WITH(ag::reshape(Variable(ag::ones({3})), {large, large}),
                      ContainsSubstring("elements"));
  REQUIRE_THROWS_AS(ag::element_count({std::size_t{1} << 33, std::size_t{1} << 33}),
                    ag::ShapeError);
  REQUIRE(ag::element_count({std::size_t{1} << 33, 0}) == 0);
}

TEST_CASE("reshape keeps the order and works out one open size", "[shape]") {
  const Variable x = counting({2, 6});
  require_array(ag::reshape(x, {3, 4}), {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  REQUIRE(ag::reshape(x, {2, -1, 3}).shape() == ag::Shape{2, 2, 3});
  REQUIRE(ag::reshape(x, {-1}).shape() == ag::Shape{12});
  REQUIRE(ag::reshape(x, counting({4, 3}).shape()).shape() == ag::Shape{4, 3});
  REQUIRE(ag::reshape(counting({1}), {}).shape() == ag::Shape{});
  REQUIRE(ag::reshape(counting({0, 3}), {3, 0}).shape() == ag::Shape{3, 0});
  REQUIRE(ag::reshape(counting({0, 3}), {-1, 3}).shape() == ag::Shape{0, 3});
}

TEST_CASE("reshape refuses a shape that does not hold the elements", "[shape]") {
  const Variable x = counting({2, 3});
  REQUIRE_THROWS_WITH(ag::reshape(x, {4, 2}),
                      "reshape: (2, 3) has 6 elements, which (4, 2) does not hold");
  REQUIRE_THROWS_WITH(ag::reshape(x, {4, -1}),
                      "reshape: (2, 3) has 6 elements, which (4, -1) does not hold");
  REQUIRE_THROWS_WITH(ag::reshape(x, {-1, -1}), "reshape: only one size may be -1, got (-1, -1)");
  REQUIRE_THROWS_WITH(ag::reshape(x, {-2, 3}),
                      "reshape: a size must be 0 or more, or -1, got (-2, 3)");
  REQUIRE_THROWS_WITH(ag::reshape(counting({0}), {0, -1}),
                      "reshape: -1 has no definite value in (0, -1)");
}

TEST_CASE("axes of size 1 come and go", "[shape]") {
  const Variable x = counting({2, 3});
  REQUIRE(ag::expand_dims(x, 0).shape() == ag::Shape{1, 2, 3});
  REQUIRE(ag::expand_dims(x, 1).shape() == ag::Shape{2, 1, 3});
  REQUIRE(ag::expand_dims(x, -1).shape() == ag::Shape{2, 3, 1});
  REQUIRE(ag::expand_dims(counting({}), 0).shape() == ag::Shape{1});
  REQUIRE(ag::squeeze(counting({1, 2, 1, 3})).shape() == ag::Shape{2, 3});
  REQUIRE(ag::squeeze(counting({1, 2, 1}), -1).shape() == ag::Shape{1, 2});
  REQUIRE(ag::flatten(counting({2, 3, 4}), 1).shape() == ag::Shape{2, 12});
  REQUIRE(ag::flatten(counting({2, 3})).shape() == ag::Shape{6});
  REQUIRE(ag::flatten(counting({})).shape() == ag::Shape{1});
  REQUIRE_THROWS_WITH(ag::squeeze(x, 1), "squeeze: axis 1 must have size 1, got (2, 3)");
  REQUIRE_THROWS_WITH(ag::expand_dims(x, 3), ContainsSubstring("expand_dims: "));
  REQUIRE_THROWS_WITH(ag::squeeze(x, 2), ContainsSubstring("squeeze: "));
}

TEST_CASE("transpose puts axis order[i] in place i", "[shape]") {
  const Variable x = counting({2, 3, 2});
  require_array(ag::transpose(counting({2, 3})), {3, 2}, {0, 3, 1, 4, 2, 5});
  require_array(ag::transpose(x), {2, 3, 2}, {0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11});
  require_array(ag::transpose(x, {1, 2, 0}), {3, 2, 2}, {0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11});
  require_array(ag::swap_axes(x), {2, 2, 3}, {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11});
  require_array(ag::swap_axes(x, 0, 1), {3, 2, 2}, {0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11});
  REQUIRE(ag::transpose(counting({})).shape() == ag::Shape{});
  REQUIRE(ag::transpose(counting({0, 3})).shape() == ag::Shape{3, 0});
  const char* sentence = "transpose: order must name each axis of (2, 3, 2) once, got ";
  REQUIRE_THROWS_WITH(ag::transpose(x, {0, 0, 1}), ContainsSubstring(sentence));
  REQUIRE_THROWS_WITH(ag::transpose(x, {1, 0}), ContainsSubstring(sentence));
  REQUIRE_THROWS_WITH(ag::transpose(x, {0, 1, 3}), ContainsSubstring(sentence));
}

TEST_CASE("a large transpose moves every element", "[shape]") {
  const std::size_t rows = 301, columns = 517;
  const Variable x = counting({rows, columns}), y = ag::transpose(x);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      wrong += y.value().data()[j * rows + i] != x.value().data()[i * columns + j];
  REQUIRE(wrong == 0);

  const std::size_t batch = 3, heads = 33, time = 40, width = 35;
  const Variable z = counting({batch, heads, time, width}), moved = ag::transpose(z, {3, 0, 2, 1});
  for (std::size_t i = 0; i < z.size(); ++i) {
    const std::size_t w = i % width, t = i / width % time, h = i / width / time % heads,
                      b = i / width / time / heads;
    wrong += moved.value().data()[((w * batch + b) * time + t) * heads + h] != Real(i);
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("slice follows Python's rules", "[shape]") {
  const Variable x = counting({5});
  const auto cut = [&](ag::Slice s) {
    const Array y = ag::slice(x, 0, s).value();
    return std::vector<double>(y.data(), y.data() + y.size());
  };
  const std::optional<std::ptrdiff_t> open;
  REQUIRE(cut({1, 3}) == std::vector<double>{1, 2});
  REQUIRE(cut({}) == std::vector<double>{0, 1, 2, 3, 4});
  REQUIRE(cut({-2, open}) == std::vector<double>{3, 4});
  REQUIRE(cut({open, -3}) == std::vector<double>{0, 1});
  REQUIRE(cut({open, open, 2}) == std::vector<double>{0, 2, 4});
  REQUIRE(cut({1, 100, 3}) == std::vector<double>{1, 4});
  REQUIRE(cut({-100, 2}) == std::vector<double>{0, 1});
  REQUIRE(cut({open, open, -1}) == std::vector<double>{4, 3, 2, 1, 0});
  REQUIRE(cut({3, 0, -2}) == std::vector<double>{3, 1});
  REQUIRE(cut({100, -100, -3}) == std::vector<double>{4, 1});
  REQUIRE(cut({3, 1}).empty());
  REQUIRE(cut({1, 3, -1}).empty());
  REQUIRE(cut({9, open}).empty());
  REQUIRE_THROWS_WITH(ag::slice(x, 0, {0, 1, 0}), "slice: step must not be 0");
  REQUIRE_THROWS_WITH(ag::slice(x, 1, {0, 1}), ContainsSubstring("slice: "));
}

TEST_CASE("slice and select cut any axis", "[shape]") {
  const Variable x = counting({2, 3, 2});
  require_array(ag::slice(x, 1, {2, std::nullopt, -2}), {2, 2, 2}, {4, 5, 0, 1, 10, 11, 6, 7});
  require_array(ag::slice(x, -1, {1}), {2, 3, 1}, {1, 3, 5, 7, 9, 11});
  require_array(ag::select(x, 1, -1), {2, 2}, {4, 5, 10, 11});
  REQUIRE(ag::slice(counting({0, 3}), 1, {1, 3}).shape() == ag::Shape{0, 2});
  REQUIRE_THROWS_WITH(ag::select(x, 1, 3), "select: position must be in [-3, 3), got 3");
}

TEST_CASE("concatenate, stack and split undo each other", "[shape]") {
  const Variable a = counting({2, 2}), b = counting({2, 1});
  require_array(ag::concatenate({a, b}, 1), {2, 3}, {0, 1, 0, 2, 3, 1});
  require_array(ag::stack({a, a}, 1), {2, 2, 2}, {0, 1, 0, 1, 2, 3, 2, 3});
  require_array(ag::stack({counting({}), counting({})}), {2}, {0, 0});
  require_array(ag::stack({a, a}, -1), {2, 2, 2}, {0, 0, 1, 1, 2, 2, 3, 3});
  const std::vector<Variable> parts = ag::split(counting({2, 3}), {2, 0, 1}, -1);
  REQUIRE(parts.size() == 3);
  require_array(parts[0], {2, 2}, {0, 1, 3, 4});
  REQUIRE(parts[1].shape() == ag::Shape{2, 0});
  require_array(parts[2], {2, 1}, {2, 5});
  REQUIRE(ag::split(counting({6, 2}), 3).at(1).shape() == ag::Shape{2, 2});
  REQUIRE(ag::split(counting({3}), {3}).size() == 1);
}

TEST_CASE("joining and splitting name what does not fit", "[shape]") {
  const Variable a = counting({2, 3}), b = counting({3, 3});
  REQUIRE_THROWS_WITH(ag::concatenate({a, b}, 1),
                      "concatenate: parts may differ along axis 1 only, got (2, 3) and (3, 3)");
  REQUIRE_THROWS_WITH(ag::concatenate({a, counting({3})}), ContainsSubstring("got (2, 3) and (3)"));
  REQUIRE_THROWS_WITH(ag::concatenate({}), "concatenate: needs one part or more");
  REQUIRE_THROWS_WITH(ag::concatenate({counting({})}),
                      ContainsSubstring("concatenate: needs rank 1 or more"));
  REQUIRE_THROWS_WITH(ag::stack({a, b}), "stack: parts must have one shape, got (2, 3) and (3, 3)");
  REQUIRE_THROWS_WITH(ag::stack({}), "stack: needs one part or more");
  REQUIRE_THROWS_WITH(ag::split(a, {1, 1}, 1),
                      "split: sizes (1, 1) must add up to axis 1 of (2, 3)");
  REQUIRE_THROWS_WITH(ag::split(a, 2, 1),
                      "split: axis 1 of (2, 3) cannot be cut into 2 equal parts");
  REQUIRE_THROWS_WITH(ag::split(a, 0, 1), ContainsSubstring("cannot be cut into 0 equal parts"));
}

TEST_CASE("pad surrounds with one value", "[shape]") {
  require_array(ag::pad(counting({2, 1}), {{1, 0}, {0, 2}}, Real(7)), {3, 3},
                {7, 7, 7, 0, 7, 7, 1, 7, 7});
  require_array(ag::pad(counting({0}), {{1, 2}}), {3}, {0, 0, 0});
  require_array(ag::pad(counting({0, 1}), {{1, 0}, {1, 1}}), {1, 3}, {0, 0, 0});
  REQUIRE(ag::pad(counting({}), {}).item() == 0);
  REQUIRE_THROWS_WITH(ag::pad(counting({2, 1}), {{1, 1}}),
                      "pad: needs one pair of widths for each axis of (2, 1), got 1");
}

TEST_CASE("gradients of the shape ops agree with differences", "[shape]") {
  const auto check = [](const ag::Shape& shape, const std::function<Variable(const Variable&)>& f) {
    // the square makes the second order see where each element went
    require_gradients([&](const Inputs& in) { return ag::square(f(in[0])); },
                      {random_array(shape)});
  };
  for (const ag::Shape& shape : {ag::Shape{2, 1, 3}, {1, 1, 1}, {2, 0, 3}, {3, 2, 2}}) {
    check(shape, [](const Variable& x) { return ag::reshape(x, {-1}); });
    check(shape, [](const Variable& x) { return ag::expand_dims(ag::flatten(x, 1), 1); });
    check(shape, [](const Variable& x) { return ag::squeeze(x); });
    check(shape, [](const Variable& x) { return ag::transpose(x, {2, 0, 1}); });
    check(shape, [](const Variable& x) { return ag::swap_axes(x); });
    check(shape,
          [](const Variable& x) { return ag::slice(x, 2, {std::nullopt, std::nullopt, -2}); });
    check(shape, [](const Variable& x) { return ag::select(x, 0, -1); });
    check(shape, [](const Variable& x) { return ag::pad(x, {{0, 1}, {2, 0}, {1, 1}}, 3); });
    check(shape, [](const Variable& x) { return ag::stack({x, ag::sin(x)}, 1); });
    check(shape, [](const Variable& x) { return ag::concatenate({x, ag::sin(x), x}, -1); });
    check(shape, [](const Variable& x) { return ag::split(x, 1, 1)[0] * ag::slice(x, 0, {0, 1}); });
  }
  check({}, [](const Variable& x) { return ag::flatten(ag::transpose(x)); });
}

TEST_CASE("the gradient of a stretched operand adds up, and the stretched array is real",
          "[shape][C38]") {
  const Variable x = ag::parameter(ag::array_of({1, 2}, {2}));
  const Variable g = gradient(x, {1, 2, 3, 4, 5, 6},
                              [](const Variable& v) { return ag::broadcast_to(v, {3, 2}); });
  require_array(g, {2}, {9, 12});
  require_array(ag::broadcast_to(x, {3, 2}), {3, 2}, {1, 2, 1, 2, 1, 2});
}

TEST_CASE("the gradient of a broadcast operand has the operand's shape", "[shape][C51]") {
  const Variable a = ag::parameter(ag::array_of({1, 2, 3, 4}, {4, 1}));
  const Variable b = ag::parameter(ag::array_of({10, 20, 30, 40}, {1, 4}));
  const std::vector<double> ones(16, 1);
  require_array(gradient(a, ones, [&](const Variable& v) { return v * b; }), {4, 1},
                {100, 100, 100, 100});
  require_array(gradient(b, ones, [&](const Variable& v) { return a * v; }), {1, 4},
                {10, 10, 10, 10});
  const Variable h = ag::constant(random_array({2, 1, 4, 64})),
                 m = ag::parameter(random_array({2, 1, 4, 1}));
  const std::vector<double> many(512, 1);
  REQUIRE(gradient(m, many, [&](const Variable& v) { return h * v; }).shape() ==
          ag::Shape{2, 1, 4, 1});
}

TEST_CASE("the gradient of a scalar of rank 0 has rank 0", "[shape][C52]") {
  const Variable v = ag::parameter(ag::array_of({3}, {})),
                 c = ag::constant(ag::array_of({1, 1}, {2}));
  require_array(gradient(v, {1, 1}, [&](const Variable& s) { return c * s; }), {}, {2});
  require_array(gradient(v, {1, 1}, [&](const Variable& s) { return c + s; }), {}, {2});
  require_array(gradient(v, {1, 1}, [&](const Variable& s) { return c - s; }), {}, {-2});
  require_array(gradient(v, {1, 1}, [&](const Variable& s) { return s / c; }), {}, {2});
}

TEST_CASE("the gradient of a slice is zero outside it, and overlapping slices add up",
          "[shape][C57]") {
  const Variable x = ag::parameter(ag::array_of({1, 2, 3, 4}, {4}));
  require_array(gradient(x, {1, 1}, [](const Variable& v) { return ag::slice(v, 0, {1, 3}); }), {4},
                {0, 1, 1, 0});
  const auto both = [](const Variable& v) {
    return ag::slice(v, 0, {0, 3}) + ag::slice(v, 0, {1, 4});
  };
  require_array(gradient(x, {1, 1, 1}, both), {4}, {1, 2, 2, 1});
}

TEST_CASE("concatenate gives each part its own gradient, also an empty one and one used twice",
          "[shape][C59]") {
  const Variable full = ag::parameter(random_array({2, 5})),
                 empty = ag::parameter(ag::zeros({0, 5}));
  Tape tape;
  const Variable y = ag::concatenate({full, empty});
  const ag::Gradients g = tape.gradients(y, ag::constant(ag::ones({2, 5})));
  require_array(g.of(full), {2, 5}, std::vector<double>(10, 1));
  REQUIRE(g.of(empty).shape() == ag::Shape{0, 5});

  const Variable a = ag::parameter(random_array({2, 2})), b = ag::constant(random_array({2, 3}));
  const std::vector<double> seed{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  require_array(gradient(a, seed, [&](const Variable& v) { return ag::concatenate({v, b}, -1); }),
                {2, 2}, {1, 2, 6, 7});
  require_array(gradient(b, seed, [&](const Variable& v) { return ag::concatenate({a, v}, -1); }),
                {2, 3}, {0, 0, 0, 0, 0, 0});
  const Variable w = ag::parameter(b.value());
  require_array(gradient(w, seed, [&](const Variable& v) { return ag::concatenate({a, v}, -1); }),
                {2, 3}, {3, 4, 5, 8, 9, 10});
  const Variable x = ag::parameter(ag::array_of({1, 2}, {2}));
  require_array(
      gradient(x, {1, 2, 3, 4}, [](const Variable& v) { return ag::concatenate({v, v}); }), {2},
      {4, 6});
}

TEST_CASE("split keeps the axis and select drops it", "[shape][C60]") {
  const Variable a = ag::parameter(random_array({2, 3, 1})),
                 w = ag::constant(ag::array_of({1, 10}, {2, 1}));
  const std::vector<double> ones(12, 1);
  const auto by_split = [&](const Variable& v) {
    std::vector<Variable> products;
    for (const Variable& part : ag::split(v, 3, 1)) products.push_back(part * w);
    REQUIRE(products[0].shape() == ag::Shape{2, 2, 1});
    return ag::concatenate(products);
  };
  require_array(gradient(a, ones, by_split), {2, 3, 1}, std::vector<double>(6, 11));
  const auto by_select = [&](const Variable& v) {
    return ag::concatenate(
        {ag::select(v, 1, 0) * w, ag::select(v, 1, 1) * w, ag::select(v, 1, 2) * w});
  };
  require_array(gradient(a, {1, 1, 1, 1, 1, 1}, by_select), {2, 3, 1}, {1, 1, 1, 10, 10, 10});
}

TEST_CASE("a value may be replaced by its own transpose", "[shape][C100]") {
  Variable x = ag::constant(ag::array_of({0, 1, 1, 1}, {1, 4}));
  x = ag::transpose(x);
  require_array(x, {4, 1}, {0, 1, 1, 1});
  Variable square = counting({3, 3});
  square.assign(ag::transpose(square).value());
  require_array(square, {3, 3}, {0, 3, 6, 1, 4, 7, 2, 5, 8});
  square = square + ag::transpose(square);
  require_array(square, {3, 3}, {0, 4, 8, 4, 8, 12, 8, 12, 16});
}

TEST_CASE("no value takes on another rank or shape when it is assigned", "[shape][C101]") {
  Variable x = ag::parameter(ag::array_of({5, 6, 7, 8}, {2, 2}));
  REQUIRE_THROWS_AS(x.assign(ag::array_of({1, 2, 3, 4}, {1, 2, 2})), ag::ShapeError);
  REQUIRE_THROWS_AS(x.assign(ag::array_of({1, 2}, {2})), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::broadcast_to(ag::constant(ag::ones({1, 2, 2})), {2, 2}), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::sum_to(x, {1, 2, 2}), ag::ShapeError);
  require_array(x, {2, 2}, {5, 6, 7, 8});
}

TEST_CASE("shape ops take arrays without elements", "[shape][C103]") {
  for (const ag::Shape& shape : {ag::Shape{0, 2, 1}, {1, 0, 1}, {3, 4, 0}}) {
    const Variable x = counting(shape, true);
    Tape tape;
    const Variable pair = ag::transpose(ag::stack({x, x}), {1, 2, 3, 0});
    const Variable z = ag::slice(ag::flatten(ag::concatenate({pair, pair}, 3)), 0, {0, 3, 2});
    REQUIRE(z.shape() == ag::Shape{0});
    REQUIRE(tape.gradients(z, ag::constant(ag::zeros({0}))).of(x).shape() == shape);
  }
}
