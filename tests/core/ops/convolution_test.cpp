#include "core/ops/convolution.hpp"

#include "common/bits.hpp"
#include "common/test.hpp"
#include "core/kernels/vector.hpp"
#include "core/ops/shape.hpp"

TEST_CASE("a convolution is the sum of shifted products", "[convolution]") {
  const Array x = random_array({2, 3, 7, 41}), kernel = random_array({3, 3, 5});
  const Array y = ag::convolve_2d(Variable(x), Variable(kernel)).value();
  REQUIRE(y.shape() == ag::Shape{2, 3, 5, 37});
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t i = 0; i < 5; ++i)
        for (std::size_t j = 0; j < 37; ++j) {
          double sum = 0;
          for (std::size_t a = 0; a < 3; ++a)
            for (std::size_t b = 0; b < 5; ++b)
              sum += double(kernel(c, a, b)) * double(x(n, c, i + a, j + b));
          REQUIRE(std::abs(double(y(n, c, i, j)) - sum) < tolerance(1e-14, 1e-5));
        }
}

TEST_CASE("gradients of a convolution, of both orders", "[convolution][gradcheck]") {
  const auto f = [](const auto& in) { return ag::convolve_2d(in[0], in[1]); };
  for (const auto& [x, kernel] : {std::pair<ag::Shape, ag::Shape>{{1, 1, 1, 1}, {1, 1, 1}},
                                  {{2, 3, 4, 5}, {3, 2, 3}},
                                  {{1, 2, 3, 4}, {2, 3, 4}},
                                  {{2, 1, 2, 6}, {1, 2, 1}}}) {
    CAPTURE(x, kernel);
    require_gradients(f, {random_array(x), random_array(kernel)});
  }
}

TEST_CASE("a convolution refuses what does not fit", "[convolution]") {
  const auto of = [](const ag::Shape& x, const ag::Shape& kernel) {
    return ag::convolve_2d(Variable(ag::zeros(x)), Variable(ag::zeros(kernel)));
  };
  REQUIRE_THROWS_WITH(of({2, 3, 4}, {3, 2, 2}), ContainsSubstring("got (2, 3, 4) and (3, 2, 2)"));
  REQUIRE_THROWS_WITH(of({1, 3, 4, 4}, {2, 2, 2}), ContainsSubstring("convolve_2d: needs x"));
  REQUIRE_THROWS_WITH(of({1, 2, 4, 4}, {2, 5, 2}), ContainsSubstring("must fit into x"));
  REQUIRE_THROWS_WITH(of({1, 2, 4, 4}, {2, 2, 0}), ContainsSubstring("must fit into x"));
}

TEST_CASE("the bits of a convolved element do not depend on its place", "[convolution]") {
  const Array x = random_array({300}), taps = random_array({9});
  const std::size_t n = 250;
  Array all = ag::zeros({n});
  const auto& convolve = ag::kernels::vector_kernels<Real>().convolve;
  convolve(x.data(), taps.data(), 9, all.data(), n);
  for (std::size_t i = 0; i < n; ++i) {
    Real one = 0;
    convolve(x.data() + i, taps.data(), 9, &one, 1);
    REQUIRE(one == all.data()[i]);
  }
}
