// The layers, their names, their errors and their copies.
#include "layers/layers.hpp"

#include "common/test.hpp"
#include "core/ops/loss.hpp"
#include "core/ops/reduce.hpp"

namespace {

ag::TransformerOptions small_options() {
  return {.vocabulary = 11, .context = 6, .width = 8, .heads = 2, .layers = 2};
}

ag::Indices tokens(std::size_t batch, std::size_t time) {
  ag::Rng rng(3);
  return rng.integers(0, 11, {batch, time});
}

}  // namespace

TEST_CASE("a transformer's parameters have dotted names", "[layers]") {
  ag::Rng rng(1);
  const ag::Transformer model(small_options(), rng);
  const ag::Parameters all = ag::parameters(model);
  REQUIRE(all.names().front() == "token_embedding.weight");
  for (const char* name :
       {"position_embedding.weight", "blocks.0.norm1.weight", "blocks.1.norm2.bias",
        "blocks.1.attention.qkv.weight", "blocks.0.attention.projection.bias",
        "blocks.0.feed_forward.up.weight", "blocks.1.feed_forward.down.bias", "norm.weight"})
    REQUIRE(all.contains(name));
  // tied: 11 * 8 + 6 * 8, then 12 width^2 + 13 width a block, then the last norm
  REQUIRE(all.count() == 11 * 8 + 6 * 8 + 2 * (12 * 64 + 13 * 8) + 16);
}

TEST_CASE("options leave out biases and untie the head", "[layers]") {
  ag::Rng rng(1);
  ag::TransformerOptions options = small_options();
  options.bias = false;
  options.tied = false;
  const ag::Transformer model(options, rng);
  const ag::Parameters all = ag::parameters(model);
  REQUIRE(all.count() == 11 * 8 + 6 * 8 + 2 * (12 * 64 + 2 * 8) + 8 + 11 * 8);
  for (const std::string& name : all.names()) REQUIRE(name.find("bias") == std::string::npos);
  REQUIRE(all.contains("head.weight"));
  REQUIRE(model(tokens(2, 6)).shape() == ag::Shape{2, 6, 11});
}

TEST_CASE("options make a transformer shaped like Llama", "[layers]") {
  ag::Rng rng(1);
  ag::TransformerOptions options = small_options();
  options.bias = false;
  options.key_heads = 1;
  options.norm = ag::NormKind::rms;
  options.positions = ag::Positions::rotary;
  options.activation = ag::silu;
  options.gated = true;
  options.hidden = 12;
  const ag::Transformer model(options, rng);
  const ag::Parameters all = ag::parameters(model);
  REQUIRE(!all.contains("position_embedding.weight"));
  REQUIRE(all.find("blocks.0.attention.qkv.weight").shape() == ag::Shape{16, 8});
  REQUIRE(all.find("blocks.0.feed_forward.up.weight").shape() == ag::Shape{24, 8});
  REQUIRE(all.count() == 11 * 8 + 2 * (16 * 8 + 8 * 8 + 24 * 8 + 8 * 12 + 2 * 8) + 8);
  REQUIRE(model(tokens(2, 6)).shape() == ag::Shape{2, 6, 11});

  // places count: without a first token the second sees something else, alone or not
  const Array both = model(tokens(1, 2)).value();
  options.positions = ag::Positions::none;
  options.window = 1;
  ag::Rng again(1);
  const ag::Transformer alone(options, again);
  const ag::Indices two = tokens(1, 2);
  ag::Indices second = ag::Indices::from_shape({1, 1});
  second.data()[0] = two.data()[1];
  const Array with_first = alone(two).value(), by_itself = alone(second).value();
  for (std::size_t i = 0; i < 11; ++i)
    REQUIRE(std::abs(with_first(0, 1, i) - by_itself(0, 0, i)) < 1e-6);
  REQUIRE(std::abs(both(0, 1, 0) - with_first(0, 1, 0)) > 1e-6);
  options.window = 0;
  REQUIRE_THROWS_WITH(ag::Transformer(options, rng), ContainsSubstring("window"));
}

TEST_CASE("a gated feed-forward part multiplies the activation by a second map", "[layers]") {
  ag::Rng rng(2);
  for (const ag::Activation activation : {ag::Activation(ag::silu), ag::Activation(ag::gelu)}) {
    const ag::FeedForward layer({.width = 3, .hidden = 2, .activation = activation, .gated = true},
                                rng);
    const Variable x(random_array({4, 3}));
    const Variable both = layer.up(x);
    const Variable expected = layer.down(activation(ag::slice(both, 1, {.start = 0, .stop = 2})) *
                                         ag::slice(both, 1, {.start = 2, .stop = 4}));
    REQUIRE(ag::relative_difference(layer(x).value(), expected.value()) < 1e-6);
  }
  // a gradient of 0 stays 0, whatever it is multiplied by
  Array infinite = ag::ones({1, 2});
  infinite(0, 1) = std::numeric_limits<Real>::infinity();
  const Variable gate = ag::parameter(infinite);
  Tape tape;
  const Array slope =
      tape.gradients(ag::silu_gate(gate), Variable(ag::zeros({1, 1}))).of(gate).value();
  REQUIRE(slope(0, 0) == 0);
  REQUIRE(slope(0, 1) == 0);
  REQUIRE_THROWS_WITH(ag::silu_gate(Variable(ag::zeros({2, 3}))),
                      "silu_gate: rows must be of even length, got (2, 3)");
}

TEST_CASE("an error names the path of layers that it happened in", "[layers]") {
  ag::Rng rng(1);
  ag::Transformer model(small_options(), rng);
  model.blocks[1].attention.qkv.weight = ag::parameter(ag::zeros({24, 7}));
  REQUIRE_THROWS_WITH(model(tokens(1, 3)),
                      "blocks.1.attention.qkv: linear: x must end in 7, got (1, 3, 8)");
}

TEST_CASE("wrong sizes are refused at construction", "[layers][C69]") {
  ag::Rng rng(1);
  ag::TransformerOptions options = small_options();
  options.heads = 3;
  REQUIRE_THROWS_WITH(ag::Transformer(options, rng),
                      ContainsSubstring("width 8 is not a multiple of heads 3"));
  options.heads = 0;
  REQUIRE_THROWS_AS(ag::Transformer(options, rng), ag::ArgumentError);
  REQUIRE_THROWS_WITH(ag::MultiHeadAttention({.width = 10, .heads = 4}, rng),
                      "MultiHeadAttention: width 10 is not a multiple of heads 4");
  REQUIRE_THROWS_WITH(ag::MultiHeadAttention({.width = 12, .heads = 4, .key_heads = 3}, rng),
                      "MultiHeadAttention: heads 4 is not a multiple of key_heads 3");
  REQUIRE_THROWS_WITH(ag::LayerNorm({.width = 4, .epsilon = -1}), ContainsSubstring("epsilon"));
  REQUIRE_THROWS_WITH(ag::RMSNorm({.width = 4, .epsilon = -1}), ContainsSubstring("epsilon"));
  REQUIRE_THROWS_WITH(ag::Dropout({.probability = 1.5}), ContainsSubstring("1.5"));
}

TEST_CASE("tokens of a wrong shape or value are refused", "[layers]") {
  ag::Rng rng(1);
  const ag::Transformer model(small_options(), rng);
  REQUIRE_THROWS_WITH(model(tokens(1, 7)), ContainsSubstring("(1, 7)"));
  ag::Indices outside = tokens(1, 3);
  outside.data()[1] = 11;
  REQUIRE_THROWS_WITH(model(outside),
                      ContainsSubstring("token_embedding: ") && ContainsSubstring("11"));
}

TEST_CASE("no position of a transformer sees a later token", "[layers][C07]") {
  ag::Rng rng(1);
  const ag::Transformer model(small_options(), rng);
  ag::Indices one = tokens(1, 6), other = one;
  other.data()[5] = (one.data()[5] + 1) % 11;
  const Array a = model(one).value(), b = model(other).value();
  REQUIRE(std::equal(a.data(), a.data() + 5 * 11, b.data()));
  REQUIRE(!std::equal(a.data() + 5 * 11, a.data() + 6 * 11, b.data() + 5 * 11));
}

TEST_CASE("a layer moves but does not copy, and its clone has weights of its own", "[layers]") {
  STATIC_REQUIRE(!std::is_copy_constructible_v<ag::Transformer>);
  STATIC_REQUIRE(std::is_move_constructible_v<ag::Transformer>);
  ag::Rng rng(1);
  const ag::Transformer model(small_options(), rng);
  const ag::Transformer copy = ag::clone(model);
  REQUIRE(ag::relative_difference(model(tokens(2, 4)).value(), copy(tokens(2, 4)).value()) == 0);
  Variable weight = ag::parameters(copy).find("norm.weight");
  weight.edit().data()[0] = 5;
  REQUIRE(ag::parameters(model).find("norm.weight").value().data()[0] == Real(1));
}

TEST_CASE("dropout acts only where a generator is given", "[layers][C16]") {
  ag::Rng rng(1);
  ag::TransformerOptions options = small_options();
  options.dropout = 0.8;
  const ag::Transformer model(options, rng);
  options.dropout = 0;
  ag::Rng same(1);
  const ag::Transformer without(options, same);
  const Array first = model(tokens(2, 6)).value();
  REQUIRE(first == model(tokens(2, 6)).value());
  REQUIRE(first == without(tokens(2, 6)).value());
  ag::Rng noise(2);
  REQUIRE(first != model(tokens(2, 6), &noise).value());
}

TEST_CASE("every parameter of a transformer has the right gradient, with every kernel",
          "[layers]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  ag::Rng rng(1);
  ag::TransformerOptions options{
      .vocabulary = 5, .context = 3, .width = 4, .heads = 2, .layers = 1};
  options.kernel = ag::attention_kernel(kernel);
  ag::Transformer model(options, rng);
  const ag::Parameters all = ag::parameters(model);
  std::vector<Array> values;
  for (const auto& [name, value] : all)
    values.push_back(random_array(value.shape(), -1, 1, values.size() + 1));
  const ag::Indices in = ag::Rng(2).integers(0, 5, {2, 3}),
                    target = ag::Rng(3).integers(0, 5, {2, 3});
  const auto loss = [&](const std::vector<Variable>& given) {
    std::size_t i = 0;
    ag::visit_variables(model, [&](const std::string&, Variable& x) { x = given[i++]; });
    return ag::cross_entropy(model(in), target);
  };
  require_gradients(loss, values, 1);
}

TEST_CASE("a sequence of layers and functions names its layers by place", "[layers]") {
  ag::Rng rng(1);
  const ag::Sequential model(ag::Linear({.in = 2, .out = 3}, rng), ag::relu,
                             ag::Linear({.in = 3, .out = 1}, rng));
  REQUIRE(ag::parameters(model).names() ==
          std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"});
  REQUIRE(model(Variable(ag::ones({4, 2}))).shape() == ag::Shape{4, 1});
  REQUIRE_THROWS_WITH(model(Variable(ag::ones({4, 3}))),
                      ContainsSubstring("0: linear: x must end in 2, got (4, 3)"));
}

TEST_CASE("weights start as their initialisation says", "[layers]") {
  ag::Rng rng(1);
  const auto deviation = [](const Array& x) {
    double square = 0;
    for (const Real v : x) square += double(v) * double(v);
    return std::sqrt(square / double(x.size()));
  };
  REQUIRE(std::abs(deviation(ag::normal_weights(0.02)(rng, {200, 200})) - 0.02) < 0.0005);
  REQUIRE(std::abs(deviation(ag::uniform_fan_in()(rng, {200, 300})) - 1 / std::sqrt(3.0 * 300)) <
          0.0005);
  const Array truncated = ag::truncated_normal_fan_in()(rng, {100, 400});
  REQUIRE(std::abs(deviation(truncated) - 1 / 20.0) < 0.001);
  for (const Real v : truncated) REQUIRE(std::abs(v) <= Real(3.0001 / 20));
}

TEST_CASE("one head of keys and values for all equals many that are alike", "[layers]") {
  ag::Rng rng(5);
  ag::MultiHeadAttention shared({.width = 12, .heads = 3, .key_heads = 1}, rng);
  ag::MultiHeadAttention full({.width = 12, .heads = 3}, rng);
  REQUIRE(shared.qkv.weight.shape() == ag::Shape{20, 12});
  const auto copy_rows = [&](const Array& from, Array& to, std::size_t first, std::size_t into) {
    const std::size_t width = from.size() / from.shape()[0];
    std::copy_n(from.data() + first * width, 4 * width, to.data() + into * width);
  };
  for (const auto& [from, to] :
       {std::pair{shared.qkv.weight, full.qkv.weight}, std::pair{shared.qkv.bias, full.qkv.bias}}) {
    Variable target = to;
    for (std::size_t part = 0; part < 3; ++part) {
      copy_rows(from.value(), target.edit(), 4 * part, 4 * part);  // queries
      copy_rows(from.value(), target.edit(), 12, 12 + 4 * part);   // keys
      copy_rows(from.value(), target.edit(), 16, 24 + 4 * part);   // values
    }
  }
  full.projection.weight.assign(shared.projection.weight.value());
  full.projection.bias.assign(shared.projection.bias.value());
  const Variable x(random_array({2, 5, 12}));
  require_close(shared(x, ag::causal()).value(), numbers(full(x, ag::causal()).value()),
                tolerance(1e-13, 1e-5));
}
