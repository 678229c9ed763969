#include "layers/encoder_decoder.hpp"

#include "common/test.hpp"
#include "core/ops/loss.hpp"
#include "layers/attention/composed.hpp"

namespace {

ag::EncoderDecoder small_model(ag::AttentionKernel kernel = ag::flash_attention) {
  ag::Rng rng(4);
  return ag::EncoderDecoder({.source_vocabulary = 9,
                             .target_vocabulary = 7,
                             .source_context = 6,
                             .target_context = 5,
                             .width = 8,
                             .heads = 2,
                             .deviation = 0.5,
                             .kernel = std::move(kernel)},
                            rng);
}

ag::Indices tokens(std::initializer_list<std::int64_t> numbers, const ag::Shape& shape) {
  ag::Indices all = ag::Indices::from_shape(shape);
  std::copy(numbers.begin(), numbers.end(), all.data());
  return all;
}

const std::vector<std::size_t> lengths{4, 2};
ag::Indices source() { return tokens({1, 2, 3, 4, 5, 6, 0, 0}, {2, 4}); }
ag::Indices target() { return tokens({6, 1, 2, 6, 3, 4}, {2, 3}); }

}  // namespace

TEST_CASE("an encoder-decoder gives the same logits with flash and composed attention",
          "[encoder_decoder]") {
  const auto logits = [](const ag::EncoderDecoder& model) {
    return model.decode(target(), model.encode(source(), lengths)).value();
  };
  const Array flash = logits(small_model()), composed = logits(small_model(ag::composed_attention));
  REQUIRE(flash.shape() == ag::Shape{2, 3, 7});
  require_close(flash, std::vector<double>(composed.begin(), composed.end()),
                tolerance(1e-12, 1e-4));
}

TEST_CASE("padding of the source changes nothing", "[encoder_decoder]") {
  const ag::EncoderDecoder model = small_model();
  const Array padded = model.decode(target(), model.encode(source(), lengths)).value();
  const Array other =
      model.decode(target(), model.encode(tokens({1, 2, 3, 4, 5, 6, 8, 7}, {2, 4}), lengths))
          .value();
  REQUIRE(std::equal(padded.begin(), padded.end(), other.begin()));
  const Array alone =
      model.decode(tokens({6, 3, 4}, {1, 3}), model.encode(tokens({5, 6}, {1, 2}), {2})).value();
  require_close(alone, std::vector<double>(padded.data() + 21, padded.data() + 42),
                tolerance(1e-13, 1e-5));
}

TEST_CASE("a position of the target sees the source, and nothing that comes later",
          "[encoder_decoder]") {
  const ag::EncoderDecoder model = small_model();
  const auto logits = [&](const ag::Indices& from, const ag::Indices& to) {
    return model.decode(to, model.encode(from, lengths)).value();
  };
  const Array before = logits(source(), target());
  const Array later = logits(source(), tokens({6, 1, 5, 6, 3, 5}, {2, 3}));
  REQUIRE(std::equal(before.data(), before.data() + 14, later.data()));
  REQUIRE_FALSE(std::equal(before.data() + 14, before.data() + 21, later.data() + 14));
  const Array elsewhere = logits(tokens({1, 2, 3, 8, 5, 6, 0, 0}, {2, 4}), target());
  REQUIRE_FALSE(std::equal(before.data(), before.data() + 7, elsewhere.data()));
}

TEST_CASE("every parameter of an encoder-decoder gets a gradient", "[encoder_decoder]") {
  const ag::EncoderDecoder model = small_model();
  const ag::Parameters all = ag::parameters(model);
  Tape tape;
  const Variable loss = ag::cross_entropy(model.decode(target(), model.encode(source(), lengths)),
                                          tokens({1, 2, 3, 3, 4, 5}, {2, 3}));
  const ag::Gradients gradients = tape.gradients(loss);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(all[i].name);
    const Array g = gradients.of(all[i].value).value();
    // a bias of keys moves all scores of a query alike, and so nothing
    REQUIRE(std::any_of(g.begin(), g.end(), [](Real x) { return x != 0; }));
  }
}

TEST_CASE("translate writes what the model thinks most likely, a token at a time",
          "[encoder_decoder]") {
  const ag::EncoderDecoder model = small_model();
  const ag::Indices written = ag::translate(model, source(), lengths, 6, 3);
  REQUIRE(written.shape() == ag::Shape{2, 3});
  ag::Indices input = ag::Indices::from_shape({2, 3});
  for (std::size_t b = 0; b < 2; ++b) {
    input.data()[b * 3] = 6;
    std::copy_n(written.data() + b * 3, 2, input.data() + b * 3 + 1);
  }
  const Array logits = model.decode(input, model.encode(source(), lengths)).value();
  for (std::size_t row = 0; row < 6; ++row) {
    const Real* from = logits.data() + row * 7;
    REQUIRE(written.data()[row] == std::max_element(from, from + 7) - from);
  }
}

TEST_CASE("an encoder-decoder says what does not fit", "[encoder_decoder]") {
  const ag::EncoderDecoder model = small_model();
  REQUIRE_THROWS_AS(model.encode(tokens({1, 2, 3, 4, 5, 6, 7}, {1, 7}), {7}), ag::ShapeError);
  REQUIRE_THROWS_AS(model.encode(source(), {4, 2, 1}), ag::ShapeError);
  REQUIRE_THROWS_AS(model.encode(source(), {4, 5}), ag::ShapeError);
  REQUIRE_THROWS_AS(
      model.decode(tokens({1, 2, 3, 4, 5, 6}, {1, 6}), model.encode(source(), lengths)),
      ag::ShapeError);
  ag::Rng rng(1);
  REQUIRE_THROWS_AS(ag::EncoderDecoder({.source_vocabulary = 9,
                                        .target_vocabulary = 7,
                                        .source_context = 6,
                                        .target_context = 5,
                                        .width = 10,
                                        .heads = 4},
                                       rng),
                    ag::ArgumentError);
}
