// The toy task: its data, and training on it with both kernels compared at every step.
#include "common/test.hpp"
#include "core/ops/loss.hpp"
#include "examples/common/sequence_tasks.hpp"
#include "layers/transformer.hpp"
#include "optim/sgd.hpp"

TEST_CASE("fused and automatic gradients agree at every step of a toy task trained with SGD",
          "[toy]") {
  SequenceTask task("reverse");
  ag::Rng weights(3), batches(4);
  ag::TransformerOptions options{.vocabulary = std::size_t(symbol_count) + 1,
                                 .context = task_length,
                                 .width = 16,
                                 .heads = 2,
                                 .layers = 2};
  options.kernel = ag::attention_kernel("fused");
  ag::Transformer fused(options, weights);
  options.kernel = ag::attention_kernel("composed");
  ag::Rng same_weights(3);
  ag::Transformer composed(options, same_weights);
  const ag::Parameters parameters = ag::parameters(fused), mirror = ag::parameters(composed);
  ag::Sgd optimizer(parameters);

  double worst = 0, worst_of_largest = 0;
  Real first_loss = 0, last_loss = 0;
  for (int step = 0; step < 60; ++step) {
    const TaskBatch batch = task.random_batch(8, batches);
    for (std::size_t i = 0; i < mirror.size(); ++i)
      Variable(mirror[i].value).assign(parameters[i].value.value());
    const auto gradients_of = [&](const ag::Transformer& model, Real& loss_value) {
      Tape tape;
      const Variable loss =
          ag::cross_entropy(model(batch.inputs), batch.targets, {.ignore_index = not_asked});
      loss_value = loss.item();
      return tape.gradients(loss);
    };
    Real other_loss = 0;
    const ag::Gradients analytic = gradients_of(fused, last_loss),
                        automatic = gradients_of(composed, other_loss);
    if (step == 0) first_loss = last_loss;
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < mirror.size(); ++i) {
      const Array a = analytic.of(parameters[i].value).value();
      const Array b = automatic.of(mirror[i].value).value();
      worst = std::max(worst, ag::relative_difference(a, b));
      for (std::size_t e = 0; e < b.size(); ++e) {
        largest = std::max(largest, std::abs(double(b.data()[e])));
        difference = std::max(difference, std::abs(double(a.data()[e]) - double(b.data()[e])));
      }
    }
    worst_of_largest = std::max(worst_of_largest, difference / largest);
    optimizer.step(analytic, 0.5);
  }
  CAPTURE(worst, worst_of_largest, first_loss, last_loss);
  // rounding of two orders of summation, through two layers
  REQUIRE(worst_of_largest <= tolerance(1e-13, 1e-5));
  // against each tensor's own scale only in double: some gradients (of the key's bias) vanish but
  // for rounding
  if (in_double) REQUIRE(worst <= 1e-8);
  REQUIRE(last_loss < first_loss);
}

TEST_CASE("a toy batch asks for the answer and nothing else", "[toy]") {
  const std::string name = GENERATE(from_range(SequenceTask::names()));
  SequenceTask task(name);
  ag::Rng rng(1);
  const TaskBatch batch = task.random_batch(5, rng);
  for (std::size_t r = 0; r < 5; ++r) {
    const std::int64_t* in = batch.inputs.data() + r * task_length;
    const std::int64_t* out = batch.targets.data() + r * task_length;
    REQUIRE(in[prompt_length] == separator);
    for (std::size_t t = 0; t < prompt_length; ++t) REQUIRE(out[t] == not_asked);
    for (std::size_t i = 0; i < prompt_length; ++i) {
      const std::int64_t answer = out[prompt_length + i];
      if (name == "copy") REQUIRE(answer == in[i]);
      if (name == "reverse") REQUIRE(answer == in[prompt_length - 1 - i]);
      if (name == "sort" && i > 0) REQUIRE(answer >= out[prompt_length + i - 1]);
      if (name == "recall" && i % 2 == 0) REQUIRE(answer == not_asked);
      if (name == "recall" && i % 2 == 1) {
        const std::int64_t key = in[prompt_length + i];
        std::size_t pair = 0;
        while (in[pair] != key) pair += 2;
        REQUIRE(answer == in[pair + 1]);
      }
    }
  }
}

TEST_CASE("no held-out prompt is ever trained on", "[toy]") {
  SequenceTask task("copy");
  ag::Rng held_out_rng(1), same(1);
  const TaskBatch held_out = task.hold_out(50, held_out_rng);
  // a generator in the same state would give the same prompts, were they not set aside
  const TaskBatch batch = task.random_batch(50, same);
  for (std::size_t r = 0; r < 50; ++r)
    REQUIRE(!std::equal(batch.inputs.data() + r * task_length,
                        batch.inputs.data() + r * task_length + prompt_length,
                        held_out.inputs.data() + r * task_length));
}
