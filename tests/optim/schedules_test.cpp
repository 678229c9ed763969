#include "optim/schedules.hpp"

#include "common/test.hpp"

namespace {

void require_rates(const ag::Schedule& schedule, const std::vector<double>& expected) {
  for (std::size_t t = 0; t < expected.size(); ++t) {
    CAPTURE(t);
    REQUIRE(std::abs(schedule(t) - expected[t]) < 5e-7);
  }
}

}  // namespace

TEST_CASE("the cosine schedule starts above 0, reaches peak and floor, and stays there",
          "[optim][C87]") {
  require_rates(ag::warmup_cosine({.peak = 1, .floor = 0.1, .warmup = 4, .total = 10}),
                {0.25, 0.5, 0.75, 1, 1, 0.939711, 0.775, 0.55, 0.325, 0.160289, 0.1, 0.1, 0.1});
}

TEST_CASE("schedules without warm-up, or of warm-up only, never divide 0 by 0", "[optim][C87]") {
  for (const auto schedule : {ag::warmup_cosine, ag::warmup_linear}) {
    REQUIRE(schedule({.peak = 1, .floor = 0.1, .warmup = 0, .total = 10})(0) == 1);
    require_rates(schedule({.peak = 1, .floor = 0.1, .warmup = 4, .total = 4}),
                  {0.25, 0.5, 0.75, 1, 0.1, 0.1});
    require_rates(schedule({.peak = 1, .floor = 0, .warmup = 0, .total = 1}), {1, 0});
    REQUIRE_THROWS_AS(schedule({.peak = 1, .floor = 0.1, .warmup = 0, .total = 0}),
                      ag::ArgumentError);
  }
}

TEST_CASE("the linear schedule falls in equal steps", "[optim]") {
  require_rates(ag::warmup_linear({.peak = 1, .floor = 0.2, .warmup = 2, .total = 6}),
                {0.5, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
}

TEST_CASE("step decay multiplies once per interval; a constant rate stays", "[optim]") {
  require_rates(ag::step_decay(0.8, 0.5, 2), {0.8, 0.8, 0.4, 0.4, 0.2});
  require_rates(ag::constant_rate(0.3), {0.3, 0.3});
}

TEST_CASE("schedules refuse rates and steps that cannot be meant", "[optim]") {
  REQUIRE_THROWS_WITH(ag::warmup_cosine({.peak = 1, .warmup = 5, .total = 4}),
                      "warmup_cosine: warmup must be at most total 4, got 5");
  REQUIRE_THROWS_AS(ag::warmup_linear({.peak = 0, .total = 4}), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::warmup_linear({.peak = 1, .floor = 2, .total = 4}), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::constant_rate(std::nan("")), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::step_decay(1, 0, 1), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::step_decay(1, 0.5, 0), ag::ArgumentError);
}
