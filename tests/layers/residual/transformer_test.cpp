// Attention residuals as an option of the transformer.
#include "layers/transformer.hpp"
#include "common/bits.hpp"
#include "common/temporary_folder.hpp"
#include "common/test.hpp"
#include "core/capture.hpp"
#include "core/checkpoint.hpp"
#include "core/ops/loss.hpp"
#include "optim/adam.hpp"

namespace {

ag::TransformerOptions options_of(double epsilon) {
  return {.vocabulary = 13,
          .context = 8,
          .width = 12,
          .heads = 3,
          .layers = 3,
          .bias = false,
          .norm = ag::NormKind::rms,
          .norm_epsilon = Real(epsilon),
          .positions = ag::Positions::rotary,
          .activation = ag::silu,
          .gated = true,
          .initialization = ag::truncated_normal_fan_in()};
}

struct Step {
  Array logits;
  std::vector<Array> gradients;  // of what all residuals have in common
};

// The first step of a model whose depth queries are still 0.
Step first_step(double epsilon, const ag::Residual& residual) {
  ag::TransformerOptions options = options_of(epsilon);
  options.residual = residual;
  ag::Rng weights(3), data(4);
  const ag::Transformer model(options, weights);
  const ag::Indices tokens = data.integers(0, 13, {2, 8}), targets = data.integers(0, 13, {2, 8});
  Tape tape;
  const Variable logits = model(tokens);
  const ag::Gradients g = tape.gradients(ag::cross_entropy(logits, targets));
  Step step{logits.value(), {}};
  for (const auto& [name, value] : ag::parameters(model))
    if (!name.starts_with("residuals.")) step.gradients.push_back(g.of(value).value());
  return step;
}

double largest_difference(const Step& a, const Step& b) {
  double worst = ag::relative_difference(a.logits, b.logits);
  REQUIRE(a.gradients.size() == b.gradients.size());
  double largest = 0, difference = 0;  // of the largest of all gradients
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    for (std::size_t e = 0; e < a.gradients[i].size(); ++e) {
      const double x = double(a.gradients[i].data()[e]), y = double(b.gradients[i].data()[e]);
      largest = std::max(largest, std::abs(x));
      difference = std::max(difference, std::abs(x - y));
    }
  return std::max(worst, difference / largest);
}

}  // namespace

TEST_CASE("a transformer with depth queries of 0 computes what a residual sum does",
          "[residual][transformer]") {
  for (const double epsilon : {0.0, 1e-12}) {
    const Step sum = first_step(epsilon, ag::ResidualSum{});
    const double bound = epsilon == 0 ? tolerance(1e-13, 1e-4) : tolerance(1e-9, 1e-4);
    CHECK(largest_difference(first_step(epsilon, ag::FullAttention{}), sum) < bound);
    for (const std::size_t blocks : {1u, 2u, 3u, 4u, 6u, 9u}) {
      CAPTURE(epsilon, blocks);
      CHECK(largest_difference(first_step(epsilon, ag::BlockAttention{.blocks = blocks}), sum) <
            bound);
    }
  }
}

TEST_CASE("as many blocks as sublayers are the full form, bit for bit", "[residual][transformer]") {
  const Step full = first_step(1e-5, ag::FullAttention{});
  const Step blocks = first_step(1e-5, ag::BlockAttention{.blocks = 6});
  CHECK(same_bits(full.logits, blocks.logits));
  for (std::size_t i = 0; i < full.gradients.size(); ++i)
    CHECK(same_bits(full.gradients[i], blocks.gradients[i]));
}

TEST_CASE("depth weights can be captured, and each mix's sum to 1", "[residual][transformer]") {
  ag::TransformerOptions options = options_of(1e-5);
  options.residual = ag::BlockAttention{.blocks = 2};
  ag::Rng rng(1);
  const ag::Transformer model(options, rng);
  const ag::Capture seen = ag::capture("residuals.*.weights"),
                    inputs = ag::capture("residuals.inputs.*.weights"),
                    mixes = ag::capture("residuals.inputs.*");
  model(rng.integers(0, 13, {2, 8}));
  REQUIRE(inputs.values().size() == 6);
  REQUIRE(mixes.values().size() == 6);
  REQUIRE(seen.values().size() == 1);  // the output's
  // blocks of 3: the sublayers see 1, 2, 2, then 2, 3, 3 sources, the output 3
  std::vector<std::size_t> counts;
  for (const auto& [name, weights] : inputs.values()) counts.push_back(weights.size(0));
  CHECK(counts == std::vector<std::size_t>{1, 2, 2, 2, 3, 3});
  const Array& last = seen.values()[0].value.value();
  CHECK(std::abs(double(last(0, 1, 5) + last(1, 1, 5) + last(2, 1, 5)) - 1) < 1e-6);
}

TEST_CASE("transformers with multi-token attention and attention residuals resume bit for bit",
          "[residual][transformer][multi-token]") {
  const TemporaryFolder folder;
  ag::TransformerOptions options = options_of(1e-5);
  options.attention = ag::MultiToken{.layer = {.before = ag::KernelSize{2, 3}, .norm = true}};
  options.residual = ag::BlockAttention{.blocks = 2};
  const auto train = [&](std::size_t steps, bool load, const std::string& save) {
    ag::Rng rng(1);
    const ag::Transformer model(options, rng);
    const ag::Parameters parameters = ag::parameters(model);
    ag::Adam optimizer(parameters);
    ag::Parameters all;
    all.join(parameters, "model").join(optimizer.state(), "optimizer");
    if (load) ag::load(all, folder.path() / "half.safetensors");
    for (std::size_t step = 0; step < steps; ++step) {
      ag::Rng data(load ? 2 + step : step);
      const ag::Indices tokens = data.integers(0, 13, {2, 8});
      Tape tape;
      optimizer.step(tape.gradients(ag::cross_entropy(model(tokens), tokens)), 1e-2);
    }
    ag::save(all, folder.path() / save);
    std::vector<Array> values;
    for (const auto& [name, value] : parameters) values.push_back(value.value());
    return values;
  };
  const auto whole = train(4, false, "whole.safetensors");
  train(2, false, "half.safetensors");
  const auto resumed = train(2, true, "resumed.safetensors");
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(same_bits(whole[i], resumed[i]));
}
