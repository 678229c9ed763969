// The row kernels that one query of attention needs, of the instruction set in use, against plain
// loops.
#include "core/kernels/rows.hpp"

#include "common/bits.hpp"
#include "common/test.hpp"

using attngrad::kernels::row_kernels;

namespace {

// Rows that end with the array, `gap` numbers apart; the gaps hold what must not be used.
struct Rows {
  std::size_t count, width, stride;
  Array numbers;

  Rows(std::size_t count, std::size_t width, std::size_t gap)
      : count(count),
        width(width),
        stride(width + gap),
        numbers(random_array({(count - 1) * stride + width}, -1, 1, count * 100 + width)) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (i % stride >= width) numbers.data()[i] = std::numeric_limits<Real>::quiet_NaN();
  }
  double at(std::size_t row, std::size_t column) const {
    return double(numbers.data()[row * stride + column]);
  }
};

template <class F>
void for_sizes(F f) {
  for (const std::size_t count : {1, 2, 3, 4, 7, 8, 15, 16, 17, 33, 96})
    for (std::size_t width = 1; width <= 70; width += width < 20 ? 1 : 7)
      for (const std::size_t gap : {0, 5}) {
        CAPTURE(count, width, gap);
        f(Rows(count, width, gap));
      }
}

}  // namespace

TEST_CASE("the products of a row with others agree with plain loops, at every place alike",
          "[rows]") {
  for_sizes([](const Rows& rows) {
    const Array x = random_array({rows.width});
    Array y = ag::zeros({rows.count + 1});
    row_kernels<Real>().dots(x.data(), rows.numbers.data(), rows.stride, rows.count, rows.width, 3,
                             y.data());
    REQUIRE(y.data()[rows.count] == 0);
    for (std::size_t j = 0; j < rows.count; ++j) {
      double sum = 0;
      for (std::size_t d = 0; d < rows.width; ++d) sum += double(x.data()[d]) * rows.at(j, d);
      REQUIRE(std::abs(double(y.data()[j]) - 3 * sum) < tolerance(1e-13, 1e-4));
      Real alone = 0;
      row_kernels<Real>().dots(x.data(), rows.numbers.data() + j * rows.stride, rows.stride, 1,
                               rows.width, 3, &alone);
      REQUIRE(alone == y.data()[j]);
    }
  });
}

TEST_CASE("a weighted sum of rows agrees with a plain loop and is added", "[rows]") {
  for_sizes([](const Rows& rows) {
    const Array weights = random_array({rows.count}, -1, 1, 3);
    Array y = ag::ones({rows.width + 1});
    row_kernels<Real>().add_rows(weights.data(), rows.numbers.data(), rows.stride, rows.count,
                                 rows.width, y.data());
    REQUIRE(y.data()[rows.width] == 1);
    for (std::size_t d = 0; d < rows.width; ++d) {
      double sum = 1;
      for (std::size_t j = 0; j < rows.count; ++j) sum += double(weights.data()[j]) * rows.at(j, d);
      REQUIRE(std::abs(double(y.data()[d]) - sum) < tolerance(1e-13, 1e-4));
    }
  });
}

TEST_CASE("powers of a row are exp(x - top), or 0 below exp(-60), and sum up", "[rows]") {
  for (const std::size_t n : {1, 5, 16, 100}) {
    Array x = random_array({n}, -80, 0);
    x.data()[0] = -std::numeric_limits<Real>::infinity();
    const Array before = x;
    const double total = row_kernels<Real>().powers(x.data(), Real(-1), n);
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double exponent = double(before.data()[i]) + 1;
      const double expected = exponent < -60 ? 0 : std::exp(exponent);
      REQUIRE(std::abs(double(x.data()[i]) - expected) <= tolerance(1e-15, 1e-6) * expected);
      sum += double(x.data()[i]);
    }
    REQUIRE(std::abs(total - sum) <= tolerance(1e-15, 1e-6) * sum);
  }
}
