// The tile kernels of the instruction set in use, against plain loops.
#include "core/kernels/tile.hpp"

#include "common/test.hpp"

using namespace attngrad::kernels;

TEST_CASE("products of tiles of every size agree with plain loops", "[tile]") {
  const TileKernels<Real>& kernels = tile_kernels<Real>();
  ag::Rng rng(3);
  for (int round = 0; round < 400; ++round) {
    const TileSizes s{std::size_t(rng.integer(1, 40)), std::size_t(rng.integer(1, 70)),
                      std::size_t(rng.integer(0, round % 10 == 0 ? 300 : 30))};
    const bool add = rng.uniform() < 0.5, transposed = rng.uniform() < 0.5;
    const Array a = ag::uniform(rng, {s.rows * s.inner + 1}),
                b = ag::uniform(rng, {s.inner, s.columns});
    const LeftFactor<Real> left =
        transposed ? LeftFactor<Real>{a.data(), 1, s.rows} : LeftFactor<Real>{a.data(), s.inner, 1};
    const std::size_t stride = s.columns + 3;
    Array c = ag::uniform(rng, {s.rows, stride});
    const Array before = c;
    kernels.multiply(s, left, {b.data(), s.columns}, add, c.data(), stride);
    CAPTURE(s.rows, s.columns, s.inner, add, transposed);
    for (std::size_t i = 0; i < s.rows; ++i)
      for (std::size_t j = 0; j < stride; ++j) {
        const std::size_t at = i * stride + j;
        if (j >= s.columns) {
          REQUIRE(c.data()[at] == before.data()[at]);
          continue;
        }
        double sum = add ? double(before.data()[at]) : 0;
        for (std::size_t k = 0; k < s.inner; ++k)
          sum += double(left.data[i * left.row_stride + k * left.inner_stride]) *
                 double(b.data()[k * s.columns + j]);
        REQUIRE(std::abs(double(c.data()[at]) - sum) <= tolerance(1e-13, 1e-4));
      }
  }
}

TEST_CASE("a tile is transposed, scaled and padded with zeros", "[tile]") {
  for (std::size_t rows = 1; rows <= 20; ++rows)
    for (std::size_t columns = 1; columns <= 9; ++columns) {
      const Array x = random_array({rows, columns + 2});
      Array y = ag::ones({columns, 32});
      tile_kernels<Real>().transpose(x.data(), columns + 2, rows, columns, Real(3), y.data(), 32);
      for (std::size_t j = 0; j < columns; ++j)
        for (std::size_t i = 0; i < (rows + 15) / 16 * 16; ++i) {
          const Real expected = i < rows ? 3 * x.data()[i * (columns + 2) + j] : 0;
          REQUIRE(y.data()[j * 32 + i] == expected);
        }
    }
}

TEST_CASE(
    "the exponential of the running softmax errs by at most two units, and is 0 below exp(-60)",
    "[tile]") {
  constexpr std::size_t keys = 20000, lanes = tile_lanes;
  Array scores = ag::zeros({keys, lanes});
  for (std::size_t i = lanes; i < scores.size(); ++i)
    scores.data()[i] = Real(-87.0 * double(i) / double(scores.size()));
  const Array x = scores;
  Array top = ag::filled({lanes}, -std::numeric_limits<Real>::infinity());
  Array total = ag::zeros({lanes}), factors = ag::zeros({lanes});
  tile_kernels<Real>().softmax_step({scores.data(), lanes, keys, lanes}, top.data(), total.data(),
                                    factors.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x.data()[i] < -60) {
      REQUIRE(scores.data()[i] == 0);
      continue;
    }
    const double exact = std::exp(double(x.data()[i]));
    const double unit = std::ldexp(1.0, std::ilogb(exact) - std::numeric_limits<Real>::digits + 1);
    const double error = std::abs(double(scores.data()[i]) - exact) / unit;
    if (!(error <= 2)) FAIL("exp(" << x.data()[i] << ") is off by " << error << " units");
  }
}

TEST_CASE("a tile with one number that is not finite is found", "[tile]") {
  Array x = random_array({5, 37});
  REQUIRE(tile_kernels<Real>().all_finite(x.data(), 37, 5, 37));
  for (const std::size_t at : {0, 36, 100, 184})
    for (const Real bad :
         {std::numeric_limits<Real>::infinity(), -std::numeric_limits<Real>::quiet_NaN()}) {
      const Real before = std::exchange(x.data()[at], bad);
      REQUIRE_FALSE(tile_kernels<Real>().all_finite(x.data(), 37, 5, 37));
      x.data()[at] = before;
    }
}
