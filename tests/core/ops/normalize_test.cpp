#include "core/ops/normalize.hpp"

#include "common/pull_back.hpp"
#include "core/ops/elementwise.hpp"
#include "core/parallel.hpp"

namespace {

// The numbers expected below are NumPy's for these arrays.
const Array& sample() {
  static const Array x = ag::array_of({1, 2, 3, -1, 0.5, 4}, {2, 3});
  return x;
}
Variable sample_gain() { return Variable(ag::array_of({2, 1, -1}, {3})); }
Variable sample_shift() { return Variable(ag::array_of({0.5, 0, 1}, {3})); }

Variable plain_layer_norm(const Variable& x) {
  return ag::layer_norm(x, Variable(ag::ones({std::size_t(x.size(-1))})), {});
}
Variable plain_rms_norm(const Variable& x) {
  return ag::rms_norm(x, Variable(ag::ones({std::size_t(x.size(-1))})));
}

}  // namespace

TEST_CASE("layer_norm equals NumPy's numbers, with and without a shift", "[normalize]") {
  const Variable x(sample());
  require_close(ag::layer_norm(x, sample_gain(), sample_shift()).value(),
                {-1.94947137, 0, -0.224735686, -1.56844658, -0.318222551, -0.352445842});
  require_close(ag::layer_norm(x, sample_gain(), {}).value(),
                {-2.44947137, 0, -1.224735686, -2.06844658, -0.318222551, -1.352445842});
}

TEST_CASE("rms_norm equals NumPy's numbers", "[normalize]") {
  require_close(ag::rms_norm(Variable(sample()), sample_gain()).value(),
                {0.925819108, 0.925819108, -1.38872866, -0.834056931, 0.208514233, -1.66811386});
}

TEST_CASE("gradients of the norms match differences", "[normalize]") {
  for (const ag::Shape& shape : {ag::Shape{4}, ag::Shape{1, 5}, ag::Shape{2, 3, 4}, ag::Shape{3, 1},
                                 ag::Shape{0, 3}, ag::Shape{2, 0}}) {
    const Array x = random_array(shape, -2, 2), gain = random_array({shape.back()}, 0.5, 1.5),
                shift = random_array({shape.back()});
    require_gradients([](const auto& v) { return ag::layer_norm(v[0], v[1], v[2], Real(0.1)); },
                      {x, gain, shift});
    require_gradients([](const auto& v) { return ag::layer_norm(v[0], v[1], {}, Real(0.1)); },
                      {x, gain});
    require_gradients([](const auto& v) { return ag::rms_norm(v[0], v[1], Real(0.1)); }, {x, gain});
  }
}

TEST_CASE("the norms equal their composed forms", "[normalize]") {
  const std::vector<Array> inputs{random_array({70, 48}, -3, 3), random_array({48}, 0.5, 1.5),
                                  random_array({48})};
  const ag::Comparison layer = ag::compare_functions(
      [](const auto& v) { return ag::layer_norm(v[0], v[1], v[2]); },
      [](const auto& v) { return ag::composed_layer_norm(v[0], v[1], v[2]); }, inputs);
  const ag::Comparison rms = ag::compare_functions(
      [](const auto& v) { return ag::rms_norm(v[0], v[1]) + v[2]; },
      [](const auto& v) { return ag::composed_rms_norm(v[0], v[1]) + v[2]; }, inputs);
  CAPTURE(layer.value, layer.gradient, rms.value, rms.gradient);
  REQUIRE(std::max(layer.value, layer.gradient) <= tolerance(1e-13, 3e-6));
  REQUIRE(std::max(rms.value, rms.gradient) <= tolerance(1e-13, 3e-6));
}

TEST_CASE("the norms name what does not fit", "[normalize]") {
  const Variable x(ag::zeros({2, 8})), four(ag::ones({4})), eight(ag::ones({8}));
  REQUIRE_THROWS_WITH(ag::layer_norm(x, four, {}), "layer_norm: gain must be (8), got (4)");
  REQUIRE_THROWS_AS(ag::layer_norm(x, eight, four), ag::ShapeError);
  REQUIRE_THROWS_WITH(ag::rms_norm(x, four), "rms_norm: gain must be (8), got (4)");
  REQUIRE_THROWS_AS(ag::rms_norm(Variable(Real(1)), eight), ag::ShapeError);
}

// ---- cases ------------------------------------------------------------------------------------

TEST_CASE("a constant row is 0 after layer_norm and its gradient finite", "[normalize][C66]") {
  const Array y = plain_layer_norm(Variable(ag::filled({256}, 1234))).value();
  require_close(y, std::vector<double>(256, 0.0), 0);
  require_close(pull_back(plain_layer_norm, ag::zeros({4}), ag::array_of({1, 0, 0, 0}, {4})),
                {237.1708, -79.0569, -79.0569, -79.0569});
}

TEST_CASE("rows around a large mean keep their digits, whatever the width", "[normalize]") {
  for (const double mean : {0.0, 1e5, 16777216.0})
    for (const std::size_t width : {2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 300}) {
      Array x = ag::uninitialized({width});
      std::vector<double> expected(width);
      for (std::size_t i = 0; i < width; ++i) x.data()[i] = Real(mean + 2.0 * double(i % 3));
      double average = 0, square = 0;
      for (std::size_t i = 0; i < width; ++i) average += double(x.data()[i]) / double(width);
      for (std::size_t i = 0; i < width; ++i)
        square += std::pow(double(x.data()[i]) - average, 2) / double(width);
      for (std::size_t i = 0; i < width; ++i)
        expected[i] = (double(x.data()[i]) - average) / std::sqrt(square + 1e-5);
      CAPTURE(mean, width);
      require_close(plain_layer_norm(Variable(x)).value(), expected, 1e-5);
    }
}

TEST_CASE("epsilon is added inside the root", "[normalize][C67]") {
  const Array small = ag::array_of({0.001, 0.001}, {2});
  require_close(plain_rms_norm(Variable(small)).value(), {0.301511, 0.301511});
  require_close(plain_rms_norm(Variable(ag::zeros({2}))).value(), {0, 0});
  require_close(pull_back(plain_rms_norm, ag::zeros({2}), ag::array_of({1, 2}, {2})),
                {316.227766, 632.455532});
  require_close(plain_layer_norm(Variable(small)).value(), {0, 0});
  require_close(plain_layer_norm(Variable(ag::zeros({2}))).value(), {0, 0});
}

TEST_CASE("rows around 1e30 do not overflow in float", "[normalize][C68]") {
  const Array large = ag::array_of({1e30, -1e30, 1e30, -1e30}, {4});
  require_close(plain_layer_norm(Variable(large)).value(), {1, -1, 1, -1});
  require_close(plain_rms_norm(Variable(large)).value(), {1, -1, 1, -1});
  for (const Real slope : pull_back(plain_layer_norm, large, random_array({4})))
    REQUIRE(std::isfinite(slope));
}

TEST_CASE("a negative epsilon throws, and 0 gives NaN for a row of zeros", "[normalize][C69]") {
  const Variable x(ag::zeros({4})), gain(ag::ones({4}));
  REQUIRE_THROWS_WITH(ag::layer_norm(x, gain, {}, -1),
                      "layer_norm: epsilon must not be negative, got -1");
  REQUIRE_THROWS_AS(ag::rms_norm(x, gain, -1), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::rms_norm(x, gain, Real(NAN)), ag::ArgumentError);
  require_close(ag::layer_norm(x, gain, {}, 0).value(), {NAN, NAN, NAN, NAN});
  require_close(ag::rms_norm(x, gain, 0).value(), {NAN, NAN, NAN, NAN});
}

TEST_CASE("the norms of empty arrays keep their shape", "[normalize][C103]") {
  for (const ag::Shape& shape :
       {ag::Shape{0}, ag::Shape{0, 2}, ag::Shape{1, 2, 0, 1}, ag::Shape{3, 4, 0}}) {
    REQUIRE(plain_layer_norm(Variable(ag::zeros(shape))).shape() == shape);
    REQUIRE(plain_rms_norm(Variable(ag::zeros(shape))).shape() == shape);
  }
}

TEST_CASE("gradients of gain and shift have the same bits at any thread count", "[normalize]") {
  const Array x = random_array({3000, 24});
  const int before = ag::threads();
  std::vector<Array> results;
  for (const int count : {1, 2, 8}) {
    ag::set_threads(count);
    const auto of_gain = [&](const Variable& v) { return ag::layer_norm(Variable(x), v, v); };
    results.push_back(pull_back(of_gain, random_array({24}), x));
  }
  ag::set_threads(before);
  REQUIRE(std::equal(results[0].begin(), results[0].end(), results[1].begin()));
  REQUIRE(std::equal(results[0].begin(), results[0].end(), results[2].begin()));
}
