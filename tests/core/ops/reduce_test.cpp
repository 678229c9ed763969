#include "core/ops/reduce.hpp"

#include "common/pull_back.hpp"
#include "core/ops/elementwise.hpp"
#include "core/parallel.hpp"

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The numbers expected below are NumPy's for this array.
Array sample() { return ag::array_of({1, -2, 3, 0.5, 4, -1, 2, 2, -3, 1.5, 0, 6}, {2, 2, 3}); }

// Numbers in no order, a tenth apart: no step of a difference changes which of them is largest.
Array apart(const ag::Shape& shape) {
  Array x = ag::zeros(shape);
  for (std::size_t i = 0; i < x.size(); ++i)
    x.data()[i] = Real(0.1) * Real(i * 7 % x.size()) - Real(1.03);
  return x;
}

// Shapes with size-1 axes, of rank 0, 1 and 3, and empty.
std::vector<Array> samples() {
  return {apart({}), apart({5}), apart({1, 4}), apart({2, 3, 4}), apart({0, 3})};
}

template <class X>
concept reduces = requires(X x) { ag::sum(x); } || requires(X x) { ag::mean(x); };

// The square root, with slope 0 at 0.
Variable root(const Variable& v) {
  return ag::where(ag::greater(v, 0), ag::sqrt(v), Variable(Real(0)));
}

}  // namespace

TEST_CASE("a sum runs over all axes, one, or several", "[reduce]") {
  const Variable x(sample());
  require_close(ag::sum(x).value(), {14});
  require_close(ag::sum(x, 0).value(), {3, 0, 0, 2, 4, 5});
  require_close(ag::sum(x, 1).value(), {1.5, 2, 2, 3.5, 2, 3});
  require_close(ag::sum(x, {0, 2}).value(), {3, 11});
  require_close(ag::mean(x, -2).value(), {0.75, 1, 1, 1.75, 1, 1.5});
  require_close(ag::mean(x, {1, 0}).value(), {1.25, 1, 1.25});
}

TEST_CASE("a reduced axis goes, or stays with size 1", "[reduce]") {
  const Variable x(sample());
  REQUIRE(ag::sum(x).rank() == 0);
  REQUIRE(ag::sum(x, {0, 2}).shape() == ag::Shape{2});
  REQUIRE(ag::sum(x, {0, 2}, ag::keep_dims).shape() == ag::Shape{1, 2, 1});
  REQUIRE(ag::max(x, {}, ag::keep_dims).shape() == ag::Shape{1, 1, 1});
  REQUIRE(ag::logsumexp(x, 1, ag::keep_dims).shape() == ag::Shape{2, 1, 3});
  REQUIRE(ag::variance(x, 1).shape() == ag::Shape{2, 3});
}

TEST_CASE("a sum over an empty list of axes is the array itself", "[reduce]") {
  const Variable x(sample());
  const ag::Axes none(std::vector<std::ptrdiff_t>{});
  REQUIRE(ag::sum(x, none).shape() == x.shape());
  REQUIRE(ag::relative_difference(ag::sum(x, none).value(), x.value()) == 0);
}

TEST_CASE("a variance equals NumPy's, with and without a correction", "[reduce]") {
  const Variable x(sample());
  require_close(ag::variance(x).value(), {5.84722222});
  require_close(ag::variance(x, -1).value(), {4.22222222, 4.38888889, 5.55555556, 6.5});
  require_close(ag::variance(x, {0, 2}, ag::Dims::drop, 1).value(), {5.9, 7.06666667});
}

TEST_CASE("the largest and smallest elements are found over any axes", "[reduce]") {
  const Variable x(sample());
  require_close(ag::max(x, 0).value(), {2, 2, 3, 1.5, 4, 6});
  require_close(ag::max(x, {1, 2}).value(), {4, 6});
  require_close(ag::min(x, {0, 2}).value(), {-3, -1});
  require_close(ag::min(x).value(), {-3});
}

TEST_CASE("a NaN is the largest and the smallest, and gets the gradient", "[reduce]") {
  const Array x = ag::array_of({1, NAN, 2, -infinity, -infinity, -infinity}, {2, 3});
  require_close(ag::max(Variable(x), 1).value(), {NAN, -infinity});
  require_close(ag::min(Variable(x), 1).value(), {NAN, -infinity});
  const auto top = [](const Variable& v) { return ag::max(v, 1); };
  require_close(pull_back(top, x, ag::array_of({1, 3}, {2})), {0, 1, 0, 1, 1, 1});
}

TEST_CASE("ties of an extreme share its gradient evenly", "[reduce]") {
  const Array x = ag::array_of({3, 1, 3, 2, 2, 2}, {2, 3}), g = ag::array_of({1, 6}, {2});
  const auto top = [](const Variable& v) { return ag::max(v, 1); };
  const auto bottom = [](const Variable& v) { return ag::min(v, -1); };
  require_close(pull_back(top, x, g), {0.5, 0, 0.5, 2, 2, 2});
  require_close(pull_back(bottom, x, g), {0, 1, 0, 2, 2, 2});
}

TEST_CASE("logsumexp equals log(sum(exp)) over any axes", "[reduce]") {
  const Variable x(sample());
  require_close(ag::logsumexp(x, -1).value(), {3.13284523, 4.03626957, 2.69651049, 6.01349626});
  require_close(ag::logsumexp(x, {0, 2}).value(), {3.63143712, 6.1431663});
  require_close(ag::logsumexp(x).value(), {6.22117109});
}

TEST_CASE("cumsum adds along each axis", "[reduce]") {
  const Variable x(sample());
  require_close(ag::cumsum(x, 0).value(), {1, -2, 3, 0.5, 4, -1, 3, 0, 0, 2, 4, 5});
  require_close(ag::cumsum(x, 1).value(), {1, -2, 3, 1.5, 2, 2, 2, 2, -3, 3.5, 2, 3});
  require_close(ag::cumsum(x, -1).value(), {1, -1, 2, 0.5, 4.5, 3.5, 2, 4, 1, 1.5, 1.5, 7.5});
}

TEST_CASE("gradients of reductions over everything match differences", "[reduce]") {
  for (const Array& x : samples()) {
    require_gradients([](const auto& v) { return ag::square(ag::sum(v[0])); }, {x});
    require_gradients([](const auto& v) { return ag::sum(v[0], {}, ag::keep_dims); }, {x});
    require_gradients([](const auto& v) { return ag::logsumexp(v[0]); }, {x});
    if (x.size() == 0) continue;
    require_gradients([](const auto& v) { return ag::square(ag::mean(v[0])); }, {x});
    require_gradients([](const auto& v) { return ag::square(ag::max(v[0])); }, {x});
    require_gradients([](const auto& v) { return ag::square(ag::min(v[0])); }, {x});
    require_gradients([](const auto& v) { return ag::square(ag::variance(v[0])); }, {x});
  }
}

TEST_CASE("gradients of reductions over some axes match differences", "[reduce]") {
  for (const ag::Axes& axes : std::vector<ag::Axes>{0, 1, -1, {0, 1}, {0, 2}, {2, 1}}) {
    for (const ag::Dims dims : {ag::Dims::drop, ag::Dims::keep}) {
      const auto check = [&](auto op) {
        require_gradients([&](const auto& v) { return op(v[0], axes, dims); }, {apart({2, 3, 4})});
      };
      check([](const auto&... a) { return ag::square(ag::sum(a...)); });
      check([](const auto&... a) { return ag::square(ag::mean(a...)); });
      check([](const auto&... a) { return ag::square(ag::max(a...)); });
      check([](const auto&... a) { return ag::square(ag::min(a...)); });
      check([](const auto&... a) { return ag::logsumexp(a...); });
      check([](const auto&... a) { return ag::variance(a..., 1); });
    }
  }
}

TEST_CASE("gradients of cumsum match differences along every axis", "[reduce]") {
  for (const std::ptrdiff_t axis : {0, 1, 2, -1})
    for (const ag::Shape& shape : {ag::Shape{2, 3, 4}, ag::Shape{1, 1, 3}, ag::Shape{2, 0, 3}})
      require_gradients([&](const auto& v) { return ag::square(ag::cumsum(v[0], axis)); },
                        {random_array(shape)});
}

TEST_CASE("axes that are wrong are named", "[reduce]") {
  const Variable x(sample());
  REQUIRE_THROWS_WITH(ag::sum(x, 3), "sum: axis 3 is outside an array of rank 3");
  REQUIRE_THROWS_WITH(ag::mean(x, -4), "mean: axis -4 is outside an array of rank 3");
  REQUIRE_THROWS_WITH(ag::max(x, {0, -3}), "max: axis -3 is named twice");
  REQUIRE_THROWS_WITH(ag::cumsum(Variable(Real(1)), 0),
                      "cumsum: axis 0 is outside an array of rank 0");
  REQUIRE_THROWS_AS(ag::variance(x, 0, ag::Dims::drop, -1), ag::ArgumentError);
}

// ---- cases ------------------------------------------------------------------------------------

TEST_CASE("the second derivative of a linear function is 0, of a cube 6x", "[reduce][C36]") {
  const Variable x = ag::parameter(ag::array_of({2}, {1}));
  Tape outer;
  const auto slope = [&](auto f) {
    Tape inner;
    return inner.gradients(ag::sum(f(x))).of(x);
  };
  const Variable line = slope([](const Variable& v) { return v * Real(2); });
  const Variable cube = slope([](const Variable& v) { return v * v * v; });
  require_close(line.value(), {2});
  require_close(outer.gradients(line, ag::keep).of(x).value(), {0});
  require_close(cube.value(), {12});
  require_close(outer.gradients(cube).of(x).value(), {12});
}

TEST_CASE("a 2-norm chosen by where has gradient 0 at the origin", "[reduce][C41]") {
  const auto norm = [](const Variable& x) { return root(ag::sum(ag::square(x))); };
  const auto norm_squared = [&](const Variable& x) { return ag::square(norm(x)); };
  require_close(pull_back(norm, ag::zeros({3})), {0, 0, 0});
  require_close(pull_back(norm_squared, ag::zeros({3})), {0, 0, 0});
  require_close(pull_back(norm, ag::array_of({3, 4}, {2})), {0.6, 0.8});
}

TEST_CASE("a constant vector has variance 0 and its deviation gradient 0", "[reduce][C46]") {
  const auto deviation = [](const Variable& x) { return root(ag::variance(x)); };
  const auto unbiased = [](const Variable& x) { return ag::variance(x, {}, ag::Dims::drop, 1); };
  require_close(pull_back(deviation, ag::ones({2})), {0, 0});
  require_close(unbiased(Variable(ag::array_of({1, 3}, {2}))).value(), {2});
  require_close(pull_back(unbiased, ag::array_of({1, 3}, {2})), {-2, 2});
  require_close(unbiased(Variable(ag::array_of({5}, {1}))).value(), {NAN});
  REQUIRE(pull_back(unbiased, ag::array_of({5}, {1})).shape() == ag::Shape{1});
}

TEST_CASE("logsumexp of large, small and infinite numbers is exact", "[reduce][C48]") {
  const auto lse = [](const Variable& x) { return ag::logsumexp(x, 1); };
  const Array x =
      ag::array_of({-infinity, -infinity, -infinity, 0, 1000, 1000, -1000, -1000}, {4, 2});
  require_close(lse(Variable(x)).value(), {-infinity, 0, 1000.693147, -999.306853});
  require_close(pull_back(lse, x, ag::ones({4})), {0, 0, 0, 1, 0.5, 0.5, 0.5, 0.5});
}

TEST_CASE("no second derivative of a row of -infinity is NaN", "[reduce][C48]") {
  const Variable x = ag::parameter(ag::array_of({-infinity, -infinity, -infinity, 0}, {2, 2}));
  Tape outer;
  const Variable g = [&] {
    Tape inner;
    return inner.gradients(ag::logsumexp(x, 1), ag::constant(ag::ones({2}))).of(x);
  }();
  require_close(outer.gradients(g, ag::constant(ag::ones({2, 2}))).of(x).value(), {0, 0, 0, 0});
}

TEST_CASE("a binary cross-entropy from softplus is exact when most wrong", "[reduce][C49]") {
  const auto loss = [](const Variable& x) { return ag::sum(ag::softplus(x) - x * Real(1)); };
  const Array x = ag::array_of({-100}, {1});
  require_close(loss(Variable(x)).value(), {100});
  require_close(pull_back(loss, x), {-1});
  const Array hard = ag::array_of({20, 50, 100, -100}, {4});
  require_close(ag::softplus(Variable(hard)).value(), {20, 50, 100, 0});
  require_close(pull_back([](const Variable& v) { return ag::softplus(v); }, hard, ag::ones({4})),
                {1, 1, 1, 0});
}

TEST_CASE("the gradient of cumsum is the upstream summed from the end", "[reduce][C50]") {
  const auto sums = [](const Variable& v) { return ag::cumsum(v, 0); };
  const Array x = ag::array_of({1, 2, 3}, {3});
  require_close(pull_back(sums, x, ag::array_of({1, 10, 100}, {3})), {111, 110, 100});
  const Array wide = pull_back(sums, x, ag::array_of({1e8, 1, 1}, {3}));
  REQUIRE(wide.data()[0] == Real(1e8 + 2));
  REQUIRE(wide.data()[1] == 2);
  REQUIRE(wide.data()[2] == 1);
  REQUIRE(ag::cumsum(Variable(ag::zeros({0, 2})), 0).shape() == ag::Shape{0, 2});
}

TEST_CASE("a mean over several axes returns its gradient to the right places", "[reduce][C54]") {
  const auto over = [](ag::Axes axes) {
    return [axes](const Variable& v) { return ag::mean(v, axes); };
  };
  const Array x = ag::ones({2, 3, 4});
  const Array first = pull_back(over({1, 2}), x, ag::array_of({1, 2}, {2}));
  for (std::size_t i = 0; i < 24; ++i) REQUIRE(first.data()[i] == Real(i < 12 ? 1. / 12 : 2. / 12));
  for (const ag::Axes& axes : std::vector<ag::Axes>{{0, 2}, {-1, 0}}) {
    const Array second = pull_back(over(axes), x, ag::array_of({1, 2, 3}, {3}));
    for (std::size_t i = 0; i < 24; ++i)
      REQUIRE(second.data()[i] == Real(double(1 + i / 4 % 3) / 8));
  }
  const auto mean_of_squares = [](const Variable& v) { return ag::mean(ag::square(v), 0); };
  require_close(pull_back(mean_of_squares, ag::ones({5})), {0.4, 0.4, 0.4, 0.4, 0.4});
}

TEST_CASE("a sum of ones goes on beyond 2^24 in float", "[reduce][C70]") {
  const std::size_t n = in_double ? 200000 : 20000000;
  const Variable x(ag::ones({n}));
  REQUIRE(ag::sum(x).item() == Real(n));
  REQUIRE(ag::mean(x).item() == 1);
  require_close(ag::mean(Variable(ag::ones({n, 2})), 0).value(), {1, 1}, 0);
  REQUIRE(ag::sum(Variable(ag::array_of({16777216, 1, 1, 1, 1}, {5}))).item() == 16777220);
}

TEST_CASE("a long sum of one number does not drift", "[reduce][C71]") {
  const double first = ag::sum(Variable(ag::filled({1392640}, Real(0.1)))).item();
  const double second = ag::sum(Variable(ag::filled({62500}, Real(1.23456)))).item();
  REQUIRE(std::abs(first / 139264.0 - 1) <= 1e-6);
  REQUIRE(std::abs(second / 77160.0 - 1) <= 1e-6);
}

TEST_CASE("integers and booleans are refused by type", "[reduce][C72]") {
  STATIC_REQUIRE(reduces<Variable>);
  STATIC_REQUIRE(!reduces<ag::Indices>);
  STATIC_REQUIRE(!reduces<ag::Bools>);
}

TEST_CASE("reductions return values that own their numbers", "[reduce][C97]") {
  const Variable v(ag::array_of({-0.042808, -0.042504, -0.043407, -0.047227}, {4}));
  STATIC_REQUIRE(std::is_same_v<decltype(ag::logsumexp(v)), Variable>);
  STATIC_REQUIRE(std::is_same_v<decltype(ag::sum(v)), Variable>);
  require_close(ag::logsumexp(v).value(), {1.342310});
  require_close(ag::logsumexp(v + Real(0)).value(), {1.342310});
}

TEST_CASE("reductions of empty arrays are defined or throw", "[reduce][C103]") {
  for (const ag::Shape& shape :
       {ag::Shape{0}, ag::Shape{0, 2}, ag::Shape{1, 2, 0, 1}, ag::Shape{3, 4, 0}}) {
    const Variable x(ag::zeros(shape));
    REQUIRE(ag::sum(x).item() == 0);
    REQUIRE(std::isnan(ag::mean(x).item()));
    REQUIRE(std::isnan(ag::variance(x).item()));
    REQUIRE(ag::logsumexp(x).item() == Real(-infinity));
    REQUIRE_THROWS_WITH(ag::max(x), ContainsSubstring("max: there is no element to choose from"));
    REQUIRE_THROWS_AS(ag::min(x), ag::ArgumentError);
    REQUIRE(ag::cumsum(x, 0).shape() == shape);
  }
  const Variable x(ag::zeros({0, 2}));
  require_close(ag::sum(x, 0).value(), {0, 0});
  require_close(ag::mean(x, 0).value(), {NAN, NAN});
  REQUIRE(ag::max(x, 1).shape() == ag::Shape{0});
  REQUIRE_THROWS_AS(ag::max(x, 0), ag::ArgumentError);
}

TEST_CASE("reductions have the same bits at any thread count", "[reduce]") {
  const Variable x(random_array({3, 70000, 2}));
  const int before = ag::threads();
  std::vector<Array> results;
  for (const int count : {1, 2, 8}) {
    ag::set_threads(count);
    results.push_back((ag::sum(x) + ag::sum(x, 1) + ag::logsumexp(x, {0, 1})).value());
  }
  ag::set_threads(before);
  REQUIRE(std::equal(results[0].begin(), results[0].end(), results[1].begin()));
  REQUIRE(std::equal(results[0].begin(), results[0].end(), results[2].begin()));
}
