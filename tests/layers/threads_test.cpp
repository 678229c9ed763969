// Bits and memory of a whole training step.
#include <atomic>
#include <thread>

#include "common/bits.hpp"
#include "common/test.hpp"
#include "core/ops/loss.hpp"
#include "layers/transformer.hpp"

namespace {

// The loss and every gradient of one step, on sizes that are cut into many tasks: with one sequence
// of few heads, the backward pass of attention cuts the queries too.
std::vector<Array> step(std::size_t batch, std::size_t time) {
  ag::Rng rng(1);
  ag::Transformer model(
      {.vocabulary = 65, .context = time, .width = 64, .heads = 2, .layers = 2, .dropout = 0.1},
      rng);
  const ag::Indices tokens = rng.integers(0, 65, {batch, time}),
                    targets = rng.integers(0, 65, {batch, time});
  Tape tape;
  const Variable loss = ag::cross_entropy(model(tokens, &rng), targets);
  const ag::Gradients gradients = tape.gradients(loss);
  std::vector<Array> results{loss.value()};
  for (const auto& [name, parameter] : ag::parameters(model))
    results.push_back(gradients.of(parameter).value());
  return results;
}

std::size_t differing(const std::vector<Array>& a, const std::vector<Array>& b) {
  std::size_t count = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += !same_bits(a[i], b[i]);
  return count;
}

}  // namespace

TEST_CASE("loss and every gradient have the same bits at 1, 2, 3 and 8 threads", "[threads]") {
  const ThreadsScope restore;
  const std::size_t batch = GENERATE(1, 6), time = batch == 1 ? 500 : 70;
  ag::set_threads(1);
  const std::vector<Array> expected = step(batch, time);
  REQUIRE(expected.size() == 29);
  for (const int count : {2, 3, 8}) {
    CAPTURE(batch, count);
    ag::set_threads(count);
    REQUIRE(differing(step(batch, time), expected) == 0);
  }
}

TEST_CASE("many user threads may train at once, with the same bits", "[threads]") {
  const std::vector<Array> expected = step(2, 130);
  std::atomic<std::size_t> wrong{0};
  std::vector<std::thread> users;
  for (int user = 0; user < 6; ++user)
    users.emplace_back([&] {
      for (int repeat = 0; repeat < 2; ++repeat) wrong += differing(step(2, 130), expected);
    });
  for (std::thread& user : users) user.join();
  REQUIRE(wrong == 0);
}

TEST_CASE("attention takes memory in proportion to the length", "[threads][flash]") {
  const auto beyond = [](std::size_t length) {
    const ag::Shape shape{1, length, 16};
    const Variable q = ag::parameter(random_array(shape)), k = ag::parameter(random_array(shape)),
                   v = ag::parameter(random_array(shape)), dy(random_array(shape));
    ag::pool_reset_peak();
    const std::size_t before = ag::pool_statistics().bytes_alive;
    Tape tape;
    tape.gradients(
        ag::flash_attention({ag::split_heads(q, 1), ag::split_heads(k, 1), ag::split_heads(v, 1)},
                            {.mask = ag::causal(), .scale = {}})
            .output,
        dy);
    return double(ag::pool_statistics().most_bytes_alive - before);
  };
  REQUIRE(beyond(4096) <= 2.1 * beyond(2048));
}
