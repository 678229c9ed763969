#include "core/random.hpp"

#include <algorithm>
#include <cmath>

#include "common/test.hpp"

TEST_CASE("philox gives the known answers of its authors", "[random]") {
  // kat_vectors of Random123, philox4x32 with 10 rounds: counter 0, key 0
  const auto block = ag::philox(0, 0);
  REQUIRE(block == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
}

TEST_CASE("philox uses all bits of seed and offset", "[random]") {
  // made with a transcription of the paper's round into Python that gives all three known answers
  REQUIRE(ag::philox(0xa4093822299f31d0, 0x243f6a8885a308d3) ==
          std::array<std::uint32_t, 4>{0xaab1d1d0, 0xc1e29602, 0x4034014c, 0x9b2e8474});
  for (int bit = 0; bit < 64; ++bit) {
    REQUIRE(ag::philox(std::uint64_t{1} << bit, 0) != ag::philox(0, 0));
    REQUIRE(ag::philox(0, std::uint64_t{1} << bit) != ag::philox(0, 0));
  }
}

TEST_CASE("the same seed and offset repeat, and a copy repeats", "[random]") {
  ag::Rng a(5), b(5);
  REQUIRE(a.uniform() == b.uniform());
  REQUIRE(a.normal() == b.normal());
  REQUIRE(a.offset() == 2);
  ag::Rng copy = a;
  const double next = a.uniform();
  REQUIRE(copy.uniform() == next);
  REQUIRE(a.uniform() != next);
  ag::Rng there(5, 2);
  REQUIRE(there.uniform() == next);
  REQUIRE(ag::Rng(6).uniform() != ag::Rng(5).uniform());
}

TEST_CASE("skip reserves blocks that later draws do not use", "[random]") {
  ag::Rng rng(1);
  REQUIRE(rng.skip(10) == 0);
  REQUIRE(rng.skip(3) == 10);
  REQUIRE(rng.offset() == 13);
  REQUIRE(rng.uniform() == ag::Rng(1, 13).uniform());
}

TEST_CASE("uniform numbers fill the half-open unit interval evenly", "[random]") {
  ag::Rng rng(11);
  const int n = 100000;
  int counts[10] = {};
  for (int i = 0; i < n; ++i) {
    const double u = rng.uniform();
    REQUIRE((u >= 0 && u < 1));
    ++counts[int(u * 10)];
  }
  for (const int count : counts) REQUIRE(std::abs(count - n / 10) < 5 * std::sqrt(n * 0.09));
}

TEST_CASE("normal numbers have mean 0, deviation 1, and normal tails", "[random]") {
  ag::Rng rng(12);
  const int n = 200000;
  double sum = 0, squares = 0, fourth = 0;
  int beyond_two = 0;
  for (int i = 0; i < n; ++i) {
    const double x = rng.normal();
    REQUIRE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    beyond_two += std::abs(x) > 2;
  }
  // five standard errors each
  REQUIRE(std::abs(sum / n) < 5 / std::sqrt(n));
  REQUIRE(std::abs(squares / n - 1) < 5 * std::sqrt(2.0 / n));
  REQUIRE(std::abs(fourth / n - 3) < 5 * std::sqrt(96.0 / n));
  REQUIRE(std::abs(beyond_two / double(n) - 0.0455003) < 5 * std::sqrt(0.0434 / n));
}

TEST_CASE("neighbouring draws and split generators are uncorrelated", "[random]") {
  const int n = 100000;
  const auto correlation = [&](auto first, auto second) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += first() * second();
    return sum / n;
  };
  ag::Rng a(13), b = a.split(), c = a.split(), d = b.split();
  const auto draw = [](ag::Rng& rng) { return [&rng] { return rng.normal(); }; };
  const double bound = 5 / std::sqrt(n);
  REQUIRE(std::abs(correlation(draw(a), draw(a))) < bound);
  REQUIRE(std::abs(correlation(draw(a), draw(b))) < bound);
  REQUIRE(std::abs(correlation(draw(b), draw(c))) < bound);
  REQUIRE(std::abs(correlation(draw(b), draw(d))) < bound);
  ag::Rng seed0(0), seed1(1);
  REQUIRE(std::abs(correlation(draw(seed0), draw(seed1))) < bound);
}

TEST_CASE("a split generator does not depend on how often its parent draws later", "[random]") {
  ag::Rng a(3), b(3);
  ag::Rng of_a = a.split(), of_b = b.split();
  for (int i = 0; i < 5; ++i) b.uniform();
  REQUIRE(of_a.uniform() == of_b.uniform());
  REQUIRE(of_a.seed() != a.seed());
  REQUIRE(a.split().seed() != of_a.seed());
}

TEST_CASE("integers lie in their range and reach both ends", "[random]") {
  ag::Rng rng(14);
  const ag::Indices numbers = rng.integers(-3, 4, {7, 1000});
  REQUIRE(numbers.shape() == ag::Shape{7, 1000});
  REQUIRE(*std::min_element(numbers.begin(), numbers.end()) == -3);
  REQUIRE(*std::max_element(numbers.begin(), numbers.end()) == 3);
  for (std::int64_t k = -3; k < 4; ++k)
    REQUIRE(std::abs(std::count(numbers.begin(), numbers.end(), k) - 1000) < 5 * std::sqrt(860));
  REQUIRE(rng.integer(5, 6) == 5);
  REQUIRE(rng.integers(0, 1, {0}).size() == 0);
}

TEST_CASE("the widest range of integers does not overflow", "[random]") {
  ag::Rng rng(15);
  const std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = ~low;
  int negative = 0;
  for (int i = 0; i < 1000; ++i) negative += rng.integer(low, high) < 0;
  REQUIRE(std::abs(negative - 500) < 100);
  for (int i = 0; i < 100; ++i) REQUIRE(rng.integer(high - 2, high) >= high - 2);
}

TEST_CASE("an empty range of numbers is rejected", "[random][errors]") {
  ag::Rng rng(1);
  REQUIRE_THROWS_WITH(ag::uniform(rng, {2}, 1, 0), "uniform: needs low <= high, got 1 and 0");
  REQUIRE_THROWS_WITH(ag::normal(rng, {2}, 0, -1), ContainsSubstring("got -1"));
  REQUIRE_THROWS_AS(rng.integer(2, 2), ag::ArgumentError);
  REQUIRE_THROWS_WITH(rng.integer(3, -1), "integer: needs low < high, got 3 and -1");
  REQUIRE(rng.offset() == 0);
}

TEST_CASE("arrays of random numbers are the same in both precisions", "[random]") {
  ag::Rng rng(16), again(16);
  const Array u = ag::uniform(rng, {2, 3}, -1, 3), n = ag::normal(rng, {5}, 10, 0.5);
  for (const Real x : u) REQUIRE(x == Real(-1 + 4 * again.uniform()));
  for (const Real x : n) REQUIRE(x == Real(10 + 0.5 * again.normal()));
  REQUIRE(rng.offset() == 11);
}
