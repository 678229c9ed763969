// Multi-token attention, and attention residuals, that go on from a cache.
#include "layers/attention/multi_token_decode.hpp"

#include "common/test.hpp"
#include "layers/transformer.hpp"

namespace {

// Kernels and matrices that do something.
void leave_identity(const ag::Transformer& model) {
  for (const auto& [name, value] : ag::parameters(model))
    if (name.find("multi_token") != std::string::npos) {
      Variable weight = value;
      weight.assign(Array(value.value() + 0.3 * random_array(value.shape())));
    }
}

}  // namespace

TEST_CASE(
    "multi-token attention and attention residuals, decoded piece by piece, give the full "
    "forward",
    "[multi-token][cache]") {
  for (const bool window : {false, true})
    for (int form = 0; form < 3; ++form) {
      ag::Rng rng(7);
      ag::TransformerOptions o{.vocabulary = 9,
                               .context = 12,
                               .width = 8,
                               .heads = 4,
                               .key_heads = 2,
                               .layers = 3,
                               .positions = ag::Positions::rotary,
                               .deviation = 0.5};
      if (window) o.window = 4;
      o.attention = ag::MultiToken{.layer = {.before = ag::KernelSize{3, 5}, .norm = true}};
      if (form > 0) o.attention->layer.after = ag::KernelSize{2, 3};
      if (form > 1) o.attention->layer.heads_before = o.attention->layer.heads_after = 4;
      if (form == 2) o.residual = ag::BlockAttention{.blocks = 2};
      ag::Transformer model(o, rng);
      leave_identity(model);
      const ag::Indices tokens = rng.integers(0, 9, {2, 10});
      const Array full = model(tokens).value();
      for (const std::vector<std::size_t>& pieces :
           {std::vector<std::size_t>(10, 1), {10}, {1, 9}, {4, 1, 5}, {2, 2, 2, 2, 2}}) {
        ag::TransformerCache cache = model.make_cache(2);
        std::size_t at = 0;
        for (const std::size_t count : pieces) {
          ag::Indices piece = ag::Indices::from_shape({2, count});
          for (std::size_t b = 0; b < 2; ++b)
            for (std::size_t t = 0; t < count; ++t) piece(b, t) = tokens(b, at + t);
          const Array logits = model.decode(piece, cache).value();
          double worst = 0;
          for (std::size_t b = 0; b < 2; ++b)
            for (std::size_t t = 0; t < count; ++t)
              for (std::size_t c = 0; c < 9; ++c)
                worst = std::max(worst, std::abs(double(logits(b, t, c) - full(b, at + t, c))));
          CAPTURE(form, window, pieces, at);
          CHECK(worst < tolerance(1e-12, 1e-4));
          at += count;
        }
      }
    }
}

TEST_CASE(
    "a cache of multi-token attention forks, goes on in rows of unequal lengths, and is not "
    "read once it was cut",
    "[multi-token][cache]") {
  ag::Rng rng(8);
  ag::TransformerOptions o{.vocabulary = 9, .context = 12, .width = 8, .heads = 2, .layers = 2};
  o.deviation = 0.5;
  o.attention = ag::MultiToken{
      .layer = {.before = ag::KernelSize{3, 5}, .after = ag::KernelSize{2, 3}, .heads_after = 2}};
  const ag::Transformer model(o, rng);
  leave_identity(model);
  const ag::Indices tokens = rng.integers(0, 9, {2, 6});
  ag::TransformerCache cache = model.make_cache(2);
  model.decode(tokens, {6, 3}, cache);  // row 1: its first three only
  ag::TransformerCache fork = cache.fork({1, 0});
  const ag::Indices next = rng.integers(0, 9, {2, 2});
  const Array logits = model.decode(next, fork).value();
  const auto whole = [&](std::size_t row, std::size_t count, std::size_t next_row) {
    ag::Indices all = ag::Indices::from_shape({1, count + 2});
    for (std::size_t t = 0; t < count; ++t) all(0, t) = tokens(row, t);
    for (std::size_t t = 0; t < 2; ++t) all(0, count + t) = next(next_row, t);
    return model(all).value();
  };
  const Array first = whole(1, 3, 0), second = whole(0, 6, 1);
  for (std::size_t t = 0; t < 2; ++t)
    for (std::size_t c = 0; c < 9; ++c) {
      CHECK(std::abs(double(logits(0, t, c) - first(0, 3 + t, c))) < tolerance(1e-12, 1e-4));
      CHECK(std::abs(double(logits(1, t, c) - second(0, 6 + t, c))) < tolerance(1e-12, 1e-4));
    }
  cache.truncate({4, 3});
  CHECK_THROWS_WITH(model.decode(next, cache), ContainsSubstring("clear it"));
  cache.clear();
  const Array again = model.decode(tokens, cache).value();
  CHECK(ag::relative_difference(again, model(tokens).value()) < tolerance(1e-12, 1e-4));
}

TEST_CASE("multi-token attention refuses the cache of a layer with other kernels or heads",
          "[multi-token][cache]") {
  ag::Rng rng(9);
  const auto layer = [&](std::size_t heads, ag::KernelSize size) {
    return ag::MultiHeadAttention({.width = 8,
                                   .heads = heads,
                                   .key_heads = 1,
                                   .value_width = 4,
                                   .multi_token = ag::MultiTokenOptions{.before = size}},
                                  rng);
  };
  const ag::MultiHeadAttention large = layer(2, {6, 11}), small = layer(2, {2, 3});
  const Variable x(ag::zeros({1, 1, 8}));
  ag::KeyValueCache of_small = small.make_cache(1, 4), of_large = large.make_cache(1, 4);
  CHECK_THROWS_WITH(large.decode(x, of_small), ContainsSubstring("other kernels or heads"));
  CHECK_THROWS_WITH(small.decode(x, of_large), ContainsSubstring("other kernels or heads"));
  ag::KeyValueCache plain(
      {.batch = 1, .heads = 1, .capacity = 4, .key_width = 4, .value_width = 4});
  CHECK_THROWS_WITH(large.decode(x, plain), ContainsSubstring("rows of scores"));
}

TEST_CASE("a decoding that fails half-way leaves a multi-token cache as it was",
          "[multi-token][cache]") {
  ag::Rng rng(10);
  ag::TransformerOptions o{.vocabulary = 9, .context = 12, .width = 8, .heads = 2, .layers = 2};
  o.deviation = 0.5;
  o.attention = ag::MultiToken{.layer = {.before = ag::KernelSize{3, 5}}};
  ag::Transformer model(o, rng);
  leave_identity(model);
  const ag::Indices tokens = rng.integers(0, 9, {1, 6});
  const auto part = [&](std::size_t first, std::size_t count) {
    ag::Indices piece = ag::Indices::from_shape({1, count});
    std::copy_n(tokens.begin() + std::ptrdiff_t(first), count, piece.begin());
    return piece;
  };
  ag::TransformerCache cache = model.make_cache(1);
  model.decode(part(0, 3), cache);
  const Variable whole = model.blocks[1].attention.projection.weight;
  model.blocks[1].attention.projection.weight = Variable(ag::zeros({8, 7}));  // the second breaks
  CHECK_THROWS_AS(model.decode(part(3, 3), cache), ag::ShapeError);
  model.blocks[1].attention.projection.weight = whole;
  const Array logits = model.decode(part(3, 3), cache).value(), full = model(tokens).value();
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t c = 0; c < 9; ++c)
      CHECK(std::abs(double(logits(0, t, c) - full(0, 3 + t, c))) < tolerance(1e-12, 1e-4));

  // other tokens to the same length do not make old rows fresh
  ag::KeyValueCache one = model.blocks[0].attention.make_cache(1, 8);
  model.blocks[0].attention.decode(Variable(random_array({1, 4, 8})), one);
  one.truncate({2});
  const Variable two(random_array({1, 2, 8}));
  one.append(ag::split_heads(two, 2), ag::split_heads(two, 2), {2});
  CHECK_THROWS_WITH(model.blocks[0].attention.decode(Variable(random_array({1, 1, 8})), one),
                    ContainsSubstring("clear it"));
}
