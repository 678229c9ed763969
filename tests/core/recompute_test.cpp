#include "core/recompute.hpp"

#include "common/bits.hpp"
#include "common/test.hpp"
#include "core/ops/dropout.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/reduce.hpp"
#include "layers/transformer.hpp"

namespace {

ag::TransformerBlock block(std::uint64_t seed) {
  ag::Rng rng(seed);
  return ag::TransformerBlock({.attention = {.width = 8, .heads = 2},
                               .feed_forward = {.width = 8, .hidden = 32},
                               .norm = ag::LayerNormOptions{.width = 8},
                               .dropout = 0.2},
                              rng);
}

struct Run {
  Array y;
  std::vector<Array> gradients;
  std::uint64_t offset;
  std::size_t most_bytes;
};

// A deep stack of blocks with dropout, with or without a checkpoint around each.
Run run(bool checkpointed, std::size_t depth) {
  ag::Rng rng(3);
  std::vector<ag::TransformerBlock> blocks;
  for (std::size_t i = 0; i < depth; ++i) blocks.push_back(block(i));
  const Variable x = ag::parameter(random_array({2, 50, 8}));
  ag::pool_reset_peak();
  const std::size_t before = ag::pool_statistics().bytes_alive;
  Tape tape;
  Variable y = x;
  for (const ag::TransformerBlock& b : blocks) {
    const auto call = [&](const Variable& in) { return b(in, ag::causal(), &rng); };
    y = checkpointed ? ag::checkpoint(&rng, call, y) : call(y);
  }
  const ag::Gradients g = tape.gradients(ag::mean(ag::square(y)));
  Run result{
      y.value(), {g.of(x).value()}, rng.offset(), ag::pool_statistics().most_bytes_alive - before};
  for (ag::TransformerBlock& b : blocks)
    for (const auto& [name, parameter] : ag::parameters(b))
      result.gradients.push_back(g.of(parameter).value());
  return result;
}

}  // namespace

TEST_CASE("checkpoint gives the gradients that there are without it, bit for bit",
          "[checkpoint][C37]") {
  const Run plain = run(false, 3), again = run(true, 3);
  REQUIRE(same_bits(plain.y, again.y));
  REQUIRE(plain.gradients.size() == 37);
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    CAPTURE(i);
    REQUIRE(same_bits(plain.gradients[i], again.gradients[i]));
  }
  REQUIRE(plain.offset == again.offset);  // the generator stands where it would
}

TEST_CASE("dropout under checkpoint drops the same elements when it runs again",
          "[checkpoint][C37]") {
  ag::Rng rng(1);
  const Variable x = ag::parameter(ag::ones({1000}));
  Tape tape;
  const Variable y =
      ag::checkpoint(&rng, [&](const Variable& in) { return ag::dropout(in, Real(0.5), rng); }, x);
  const Array dx = tape.gradients(ag::sum(y)).of(x).value();
  REQUIRE(same_bits(dx, y.value()));
}

TEST_CASE("the memory of a deep model falls with checkpoint", "[checkpoint]") {
  const std::size_t plain = run(false, 24).most_bytes, again = run(true, 24).most_bytes;
  CAPTURE(plain, again);
  REQUIRE(again < plain / 3);
}

TEST_CASE("checkpoints nest, and are transparent without a tape", "[checkpoint]") {
  const Variable x = ag::parameter(random_array({3})), w = ag::parameter(random_array({3}, 1, 2));
  const auto inner = [&](const Variable& a) { return ag::sin(a * w); };
  const auto outer = [&](const Variable& a) { return ag::checkpoint(inner, ag::exp(a)) * a; };
  const Array untaped = ag::checkpoint(outer, x).value();
  REQUIRE(same_bits(untaped, (ag::sin(ag::exp(x) * w) * x).value()));
  const auto gradient = [&](auto&& f) {
    Tape tape;
    return tape.gradients(ag::sum(f())).of(w).value();
  };
  REQUIRE(same_bits(gradient([&] { return ag::checkpoint(outer, x); }),
                    gradient([&] { return ag::sin(ag::exp(x) * w) * x; })));
  require_gradients([&](const auto& in) { return ag::checkpoint(outer, in[0]); }, {x.value()});
}

TEST_CASE("a value that escapes from a checkpoint is refused", "[checkpoint]") {
  const Variable x = ag::parameter(random_array({3}));
  Variable escaped;
  Tape tape;
  const Variable y = ag::checkpoint(
      [&](const Variable& in) {
        escaped = ag::exp(in);
        return escaped * in;
      },
      x);
  REQUIRE_THROWS_WITH(tape.gradients(ag::sum(y + escaped)),
                      ContainsSubstring("inside checkpoint() was used outside"));
}

TEST_CASE("an error inside of a checkpoint leaves the tape usable", "[checkpoint]") {
  const Variable x = ag::parameter(random_array({3}));
  Tape tape;
  const Variable before = ag::square(x);
  REQUIRE_THROWS(ag::checkpoint(
      [](const Variable& in) { return ag::matmul(in, Variable(ag::ones({2, 2}))); }, x));
  require_close(tape.gradients(ag::sum(before)).of(x).value(),
                {2.0 * x.value().data()[0], 2.0 * x.value().data()[1], 2.0 * x.value().data()[2]});
}

TEST_CASE("a checkpoint of what f returns unchanged passes the gradient on", "[checkpoint]") {
  const Variable x = ag::parameter(random_array({3}));
  Tape tape;
  const Variable h = ag::exp(x);
  const Variable same = ag::checkpoint([](const Variable& v) { return v; }, h);
  const Variable captured = ag::checkpoint([h] { return h; });
  const Variable nested = ag::checkpoint(
      [](const Variable& v) { return ag::checkpoint([](const Variable& u) { return u; }, v) + v; },
      x);
  const Variable constant =
      ag::checkpoint([](const Variable&) { return Variable(ag::ones({3})); }, x);
  const ag::Gradients g = tape.gradients(ag::sum(same + captured + nested + constant));
  for (std::size_t i = 0; i < 3; ++i)
    REQUIRE(std::abs(g.of(x).value().data()[i] - (2 * h.value().data()[i] + 2)) < 1e-5);
}
