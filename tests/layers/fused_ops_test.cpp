// The registry test: every fused op against its composed form.
#include "layers/fused_ops.hpp"

#include "common/test.hpp"

TEST_CASE("every fused op agrees with its composed form in value and gradients", "[fused]") {
  // rounding only: sums over at most a few hundred terms, in another order
  const double bound = tolerance(1e-12, 2e-4);
  for (const ag::FusedOp& op : ag::fused_ops()) {
    std::string worst_case = "none";
    const ag::Comparison worst = ag::check_fused(op, in_double ? 1000 : 200, 11, &worst_case);
    INFO(op.name << ": value " << worst.value << ", gradient " << worst.gradient << " at "
                 << worst_case);
    CHECK(worst.value <= bound);
    CHECK(worst.gradient <= bound);
  }
}

TEST_CASE("the table of fused ops is complete", "[fused]") {
  REQUIRE(ag::core_fused_ops().size() == 11);
  REQUIRE(ag::attention_fused_ops().size() == 4);
  REQUIRE(ag::layer_fused_ops().size() == 1);
  REQUIRE(ag::fused_ops().size() == 16);
}

TEST_CASE("every fused op can be differentiated twice", "[fused]") {
  for (const ag::FusedOp& op : ag::fused_ops()) {
    CAPTURE(op.name);
    ag::Rng rng(5);
    for (int checked = 0; checked < 8;) {
      const ag::FusedCase drawn = op.sample(rng);
      // differences need few numbers, none of them large: then none of the gradient is left to see
      std::size_t count = 0;
      bool moderate = true;
      for (const Array& x : drawn.inputs) {
        count += x.size();
        for (std::size_t e = 0; e < x.size(); ++e) moderate = moderate && std::abs(x.data()[e]) < 5;
      }
      if (!moderate || count > 800) continue;
      require_gradients(drawn.fused, drawn.inputs);
      ++checked;
    }
  }
}
