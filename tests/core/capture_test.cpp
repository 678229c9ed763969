#include "core/capture.hpp"

#include "common/bits.hpp"
#include "common/test.hpp"
#include "core/ops/reduce.hpp"
#include "core/recompute.hpp"
#include "layers/attention/composed.hpp"
#include "layers/encoder_decoder.hpp"

namespace {

std::vector<std::string> names_of(const ag::Capture& seen) {
  std::vector<std::string> names;
  for (const auto& [name, value] : seen.values()) names.push_back(name);
  return names;
}

ag::Indices tokens(std::size_t batch, std::size_t time) {
  ag::Rng rng(5);
  ag::Indices all = ag::Indices::from_shape({batch, time});
  for (std::int64_t& token : all) token = rng.integer(0, 7);
  return all;
}

ag::Transformer transformer(double dropout = 0) {
  ag::Rng rng(1);
  return ag::Transformer(
      {.vocabulary = 7, .context = 6, .width = 8, .heads = 2, .layers = 3, .dropout = dropout},
      rng);
}

}  // namespace

TEST_CASE("capture gives the attention weights of every block by name", "[capture]") {
  const ag::Transformer model = transformer();
  const ag::Capture seen = ag::capture("blocks.*.attention.weights");
  model(tokens(2, 5));
  REQUIRE(names_of(seen) == std::vector<std::string>{"blocks.0.attention.weights",
                                                     "blocks.1.attention.weights",
                                                     "blocks.2.attention.weights"});
  for (const auto& [name, weights] : seen.values()) {
    CHECK(weights.shape() == ag::Shape{2, 2, 5, 5});
    CHECK(ag::relative_difference(ag::sum(weights, -1).value(), ag::ones({2, 2, 5})) < 1e-6);
    for (std::size_t i = 0; i < 5; ++i)
      for (std::size_t j = i + 1; j < 5; ++j) CHECK(weights.value()(1, 1, i, j) == 0);
  }
}

TEST_CASE("captured weights times the values are what the kernel returned", "[capture]") {
  ag::Rng rng(2);
  const ag::MultiHeadAttention attention(
      {.width = 6, .heads = 3, .bias = false, .scores = {.soft_cap = 2, .alibi = true}}, rng);
  const Variable x(random_array({1, 4, 6}));
  const ag::Capture weights = ag::capture("weights"), packed = ag::capture("qkv"),
                    output = ag::capture("projection");
  const Variable y = attention(x, ag::causal());
  REQUIRE(weights.values().size() == 1);
  REQUIRE(packed.values().size() == 1);
  REQUIRE(output.values().size() == 1);
  CHECK(same_bits(output.values()[0].value.value(), y.value()));
  const Array& a = weights.values()[0].value.value();
  const Array& qkv = packed.values()[0].value.value();
  Array attended = ag::zeros({1, 4, 6});
  for (std::size_t h = 0; h < 3; ++h)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 4; ++j)
        for (std::size_t c = 0; c < 2; ++c)
          attended(0, i, 2 * h + c) += a(0, h, i, j) * qkv(0, j, 12 + 2 * h + c);
  CHECK(ag::relative_difference(attention.projection(Variable(attended)).value(), y.value()) <
        1e-5);
}

TEST_CASE("a star of a pattern stays between two dots", "[capture]") {
  const ag::Transformer model = transformer();
  const ag::Capture one = ag::capture("blocks.[02].norm1"), none = ag::capture("blocks.*"),
                    last = ag::capture("*");
  model(tokens(1, 3));
  CHECK(names_of(one) == std::vector<std::string>{"blocks.0.norm1", "blocks.2.norm1"});
  CHECK(names_of(none) == std::vector<std::string>{"blocks.0", "blocks.1", "blocks.2"});
  CHECK(names_of(last) == std::vector<std::string>{"token_embedding", "norm"});
}

TEST_CASE("capture finds attention to a memory", "[capture]") {
  ag::Rng rng(3);
  const ag::EncoderDecoder model({.source_vocabulary = 7,
                                  .target_vocabulary = 7,
                                  .source_context = 6,
                                  .target_context = 6,
                                  .width = 8,
                                  .heads = 2},
                                 rng);
  const ag::Capture seen = ag::capture("decoder.*.cross.weights");
  model.decode(tokens(2, 3), model.encode(tokens(2, 5), {5, 2}));
  REQUIRE(names_of(seen) ==
          std::vector<std::string>{"decoder.0.cross.weights", "decoder.1.cross.weights"});
  const Array& weights = seen.values()[0].value.value();
  REQUIRE(weights.shape() == Array::shape_type{2, 2, 3, 5});
  CHECK(weights(1, 0, 0, 2) == 0);  // padding
  CHECK(weights(0, 0, 0, 4) > 0);
}

TEST_CASE("nothing is computed for a capture that does not ask", "[capture]") {
  int computed = 0;
  const auto value = [&] {
    ++computed;
    return Variable(Real(1));
  };
  ag::offer("x", value);
  {
    const ag::Capture other = ag::capture("y");
    ag::offer("x", value);
    CHECK(computed == 0);
    const ag::Capture first = ag::capture("x"), second = ag::capture("?");
    ag::offer("x", value);
    CHECK(computed == 1);
    CHECK(first.values().size() == 1);
    CHECK(second.values().size() == 1);
    CHECK(other.values().empty());
  }
  ag::offer("x", value);
  CHECK(computed == 1);
  CHECK_THROWS_AS(ag::capture(""), ag::ArgumentError);
}

TEST_CASE("looking changes no bit of a training step, and a checkpoint's second run is not seen",
          "[capture]") {
  const ag::Transformer model = transformer(0.3);
  const auto gradient_of_step = [&] {
    ag::Rng rng(4);
    Tape tape;
    const Variable y = ag::checkpoint(
        &rng, [&](const Variable& x) { return model.blocks[0](x, ag::causal(), &rng); },
        model.position_embedding->weight * Variable(random_array({2, 6, 8})));
    return tape.gradients(ag::sum(y)).of(model.position_embedding->weight).value();
  };
  const Array alone = gradient_of_step();
  const ag::Capture seen = ag::capture("attention.weights");
  CHECK(same_bits(gradient_of_step(), alone));
  CHECK(seen.values().size() == 1);
}
