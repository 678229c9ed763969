#include "core/ops/dropout.hpp"

#include "common/bits.hpp"
#include "common/pull_back.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "core/parallel.hpp"

namespace {

Array dropped(const Array& x, double probability, std::uint64_t seed = 42) {
  ag::Rng rng(seed);
  return ag::dropout(Variable(x), probability, rng).value();
}

}  // namespace

TEST_CASE("an element is dropped or divided by what is kept", "[dropout]") {
  const Array y = dropped(ag::ones({1000}), 0.2);
  std::size_t kept = 0;
  for (const Real value : y) {
    REQUIRE((value == 0 || value == Real(1.25)));
    kept += value != 0;
  }
  REQUIRE(kept > 760);
  REQUIRE(kept < 840);
}

TEST_CASE("the mask is that of the generator's blocks, four elements each", "[dropout]") {
  ag::Rng rng(42, 5);
  const Array y = ag::dropout(Variable(ag::ones({3, 3})), 0.5, rng).value();
  REQUIRE(rng.offset() == 8);
  for (std::size_t i = 0; i < 9; ++i)
    REQUIRE((y.data()[i] == 0) == (ag::philox(42, 5 + i / 4)[i % 4] < 0x80000000u));
}

TEST_CASE("the gradient of dropout passes through the same mask", "[dropout]") {
  for (const ag::Shape& shape : {ag::Shape{}, ag::Shape{7}, ag::Shape{2, 3, 4}, ag::Shape{0, 3}}) {
    const auto with_seed = [](const Variable& x) {
      ag::Rng rng(42);
      return ag::dropout(x, 0.5, rng);
    };
    const Array x = random_array(shape);
    REQUIRE(same_bits(pull_back(with_seed, x, ag::ones(shape)), dropped(ag::ones(shape), 0.5)));
    require_gradients([&](const auto& v) { return ag::square(with_seed(v[0])); }, {x});
  }
}

TEST_CASE("a dropped element is 0 even if it was not finite", "[dropout]") {
  const Array mask = dropped(ag::ones({64}), 0.5), y = dropped(ag::filled({64}, Real(NAN)), 0.5);
  for (std::size_t i = 0; i < 64; ++i) REQUIRE(std::isnan(y.data()[i]) == (mask.data()[i] != 0));
}

TEST_CASE("dropout at 0 and 1 is the identity and zero, and throws outside", "[dropout][C114]") {
  const Array x = ag::ones({100});
  const auto all = [](const Variable& v) {
    ag::Rng rng(1);
    return ag::dropout(v, 1, rng);
  };
  REQUIRE(same_bits(all(Variable(x)).value(), ag::zeros({100})));
  REQUIRE(same_bits(pull_back(all, x, x), ag::zeros({100})));
  const Array random = random_array({100});
  REQUIRE(same_bits(dropped(random, 0), random));
  ag::Rng rng(1);
  for (const double probability : {-10.0, 1.5, double(NAN)})
    REQUIRE_THROWS_WITH(ag::dropout(Variable(x), probability, rng),
                        ContainsSubstring("dropout: probability must be in [0, 1], got "));
  REQUIRE(rng.offset() == 0);
}

TEST_CASE("a seeded mask does not depend on threads, and the next one differs", "[dropout][C115]") {
  const Array x = ag::ones({20000});
  const int before = ag::threads();
  const Array expected = dropped(x, 0.5);
  for (const int count : {1, 2, 8}) {
    ag::set_threads(count);
    REQUIRE(same_bits(dropped(x, 0.5), expected));
  }
  ag::set_threads(before);
  ag::Rng rng(42);
  const Array first = ag::dropout(Variable(x), 0.5, rng).value();
  const Array second = ag::dropout(Variable(x), 0.5, rng).value();
  REQUIRE(same_bits(first, expected));
  REQUIRE(!same_bits(first, second));
  const double mean = ag::mean(Variable(first)).item();  // twice the share that was kept
  REQUIRE(std::abs(mean - 1) < 0.04);
}
