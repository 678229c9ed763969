#include "layers/residual/attention_residuals.hpp"

#include "common/bits.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/normalize.hpp"

namespace {

using ag::AttentionResiduals;
using Variables = std::vector<Variable>;

constexpr std::size_t width = 6;

// What a test stack is made of, as a list that differences and comparisons can take: x, then for
// each sublayer a matrix and a query, then the last query.
std::vector<Array> random_stack(std::size_t sublayers) {
  std::vector<Array> inputs{random_array({2, 3, width}, -1, 1, 60)};
  for (std::size_t i = 0; i <= sublayers; ++i) {
    if (i < sublayers) inputs.push_back(random_array({width, width}, -1, 1, 61 + 2 * i));
    inputs.push_back(random_array({width}, -2, 2, 62 + 2 * i));
  }
  return inputs;
}

// Epsilon 0, so that the size of a row makes no difference at all.
Variable normed(const Variable& x) { return ag::rms_norm(x, Variable(ag::ones({width})), 0); }

// A sublayer with its own norm.
Variable put_out(const Variables& in, std::size_t i, const Variable& h) {
  return ag::tanh(ag::linear(normed(h), in[2 * i + 1]));
}

// The layer under test, with the queries of the list.
Variable stack_of(const Variables& in, std::size_t blocks) {
  const std::size_t sublayers = (in.size() - 2) / 2;
  AttentionResiduals residuals({.width = width, .sublayers = sublayers, .blocks = blocks});
  for (std::size_t i = 0; i < sublayers; ++i) residuals.inputs[i].query = in[2 * i + 2];
  residuals.output.query = in.back();
  return residuals(in[0], [&](std::size_t i, const Variable& h) { return put_out(in, i, h); });
}

// The definition of the Full form: sublayer i reads a mix of x and of all that came out before it.
Variable full_form(const Variables& in) {
  Variables outputs{in[0]};
  for (std::size_t i = 0; i < (in.size() - 2) / 2; ++i)
    outputs.push_back(put_out(in, i, ag::composed_depth_mix(outputs, in[2 * i + 2])));
  return ag::composed_depth_mix(outputs, in.back());
}

// The definition of the Block form, one sum at a time from its outputs.
Variable block_form(const Variables& in, std::size_t size) {
  const std::size_t sublayers = (in.size() - 2) / 2;
  Variables outputs;
  const auto sources = [&](std::size_t done) {
    Variables blocks{in[0]};
    for (std::size_t first = 0; first < done; first += size) {
      Variable sum = outputs[first];
      for (std::size_t j = first + 1; j < std::min(first + size, done); ++j) sum = sum + outputs[j];
      blocks.push_back(sum);
    }
    return blocks;
  };
  for (std::size_t i = 0; i < sublayers; ++i)
    outputs.push_back(put_out(in, i, ag::composed_depth_mix(sources(i), in[2 * i + 2])));
  return ag::composed_depth_mix(sources(sublayers), in.back());
}

void require_equal(const ag::Function& f, const ag::Function& reference,
                   const std::vector<Array>& inputs) {
  const ag::Comparison difference = ag::compare_functions(f, reference, inputs);
  CAPTURE(difference.value, difference.gradient);
  REQUIRE(difference.value <= tolerance(1e-12, 1e-5));
  REQUIRE(difference.gradient <= tolerance(1e-11, 1e-4));
}

}  // namespace

TEST_CASE("C25: the last mix reads the input, the finished block and the unfinished one",
          "[residual][C25]") {
  const AttentionResiduals residuals({.width = 2, .sublayers = 3, .blocks = 2});
  REQUIRE(residuals.block_size() == 2);
  const std::vector<Variable> outputs{Variable(ag::array_of({3, 9}, {2})),
                                      Variable(ag::array_of({2, 0}, {2})),
                                      Variable(ag::array_of({30, 60}, {2}))};
  std::vector<Array> read;
  const Variable result =
      residuals(Variable(ag::array_of({1, 3}, {2})), [&](std::size_t i, const Variable& h) {
        read.push_back(h.value());
        return outputs[i];
      });
  REQUIRE(read.size() == 3);
  require_close(read[0], {1, 3});           // x
  require_close(read[1], {2, 6});           // x and the first output
  require_close(read[2], {3, 6});           // x and the first block, (5, 9)
  require_close(result.value(), {12, 24});  // and the third output
}

TEST_CASE("as many blocks as sublayers, or more, are the Full form", "[residual]") {
  for (const std::size_t sublayers : {0, 1, 2, 5})
    for (const std::size_t blocks : {std::max<std::size_t>(1, sublayers), sublayers + 3}) {
      CAPTURE(sublayers, blocks);
      require_equal([&](const Variables& in) { return stack_of(in, blocks); }, full_form,
                    random_stack(sublayers));
    }
}

TEST_CASE("any number of blocks is the Block form, with a shorter last one too", "[residual]") {
  for (const std::size_t sublayers : {3, 4, 7})
    for (std::size_t blocks = 1; blocks <= sublayers; ++blocks) {
      const std::size_t size = (sublayers + blocks - 1) / blocks;
      CAPTURE(sublayers, blocks, size);
      require_equal([&](const Variables& in) { return stack_of(in, blocks); },
                    [&](const Variables& in) { return block_form(in, size); },
                    random_stack(sublayers));
    }
}

TEST_CASE("gradients of a stack of both orders match differences", "[residual]") {
  require_gradients([](const Variables& in) { return stack_of(in, 2); }, random_stack(3));
}

TEST_CASE("without a tape, a stack of many blocks gives what a recorded run gives", "[residual]") {
  // of 20 blocks of two or 18 of three, with a last one of one, the last are read in two phases
  for (const std::size_t sublayers : {40, 52}) {
    Variables in;
    for (const Array& x : random_stack(sublayers)) in.push_back(ag::parameter(x));
    const std::size_t blocks = sublayers == 40 ? 20 : 18;
    const Array unrecorded = stack_of(in, blocks).value();
    Tape tape;
    const Array recorded = stack_of(in, blocks).value();
    CAPTURE(blocks);
    REQUIRE(ag::relative_difference(unrecorded, recorded) <= tolerance(1e-12, 1e-5));
    REQUIRE_FALSE(same_bits(unrecorded, recorded));  // two ways to the same numbers
  }
}

TEST_CASE("queries of zeros compute what a residual sum computes, in value and gradients",
          "[residual]") {
  // every reader is an RMS norm, which makes no difference between a mean and a sum
  // in: x and the matrices
  const auto with_queries = [](const Variables& in) {
    const Variable zero(ag::zeros({width}));
    Variables all{in[0]};
    for (std::size_t i = 1; i < in.size(); ++i) all.insert(all.end(), {in[i], zero});
    all.push_back(zero);
    return all;
  };
  const auto residual_sum = [&](const Variables& in) {
    Variable x = in[0];
    for (std::size_t i = 0; i + 1 < in.size(); ++i) x = x + put_out(with_queries(in), i, x);
    return normed(x);
  };
  std::vector<Array> inputs{random_array({2, 3, width})};
  for (std::size_t i = 0; i < 6; ++i) inputs.push_back(random_array({width, width}, -1, 1, 70 + i));
  for (const std::size_t blocks : {1, 2, 4, 6}) {
    CAPTURE(blocks);
    require_equal([&](const Variables& in) { return normed(stack_of(with_queries(in), blocks)); },
                  residual_sum, inputs);
  }
}

TEST_CASE("a gain of the norm multiplies the query and has no gradient while that is 0",
          "[residual]") {
  ag::DepthMix mix({.width = 4, .gain = true});
  std::vector<ag::DepthSource> sources;
  Variables values;
  for (std::size_t i = 0; i < 3; ++i) {
    values.push_back(Variable(random_array({5, 4}, -2, 2, 80 + i)));
    sources.emplace_back(values.back());
  }
  {
    Tape tape;
    const ag::Gradients gradients = tape.gradients(mix(sources), values[0]);
    require_close(gradients.of(mix.gain).value(), {0, 0, 0, 0}, 0);
  }
  mix.query.assign(random_array({4}, -2, 2, 90));
  mix.gain.assign(random_array({4}, 0.5, 1.5, 91));
  const Array expected = ag::composed_depth_mix(values, mix.query * mix.gain).value();
  REQUIRE(ag::relative_difference(mix(sources).value(), expected) <= tolerance(1e-13, 1e-6));
}

TEST_CASE("a stack holds a query for each sublayer and one for the result", "[residual]") {
  // 48 transformer blocks of width 150 with gains: 29,100 parameters more, as a report on the
  // method counts them (tokenbender/nanogpt-attnres-repro)
  const AttentionResiduals residuals({.width = 150, .sublayers = 96, .gain = true});
  REQUIRE(ag::parameters(residuals).count() == 29100);
  const AttentionResiduals small({.width = 3, .sublayers = 2});
  REQUIRE(ag::parameters(small).names() ==
          std::vector<std::string>{"inputs.0.query", "inputs.1.query", "output.query"});
  REQUIRE(ag::parameters(ag::clone(small)).count() == 9);
}

TEST_CASE("a stack names what does not fit", "[residual]") {
  REQUIRE_THROWS_WITH(AttentionResiduals({.width = 4, .sublayers = 2, .blocks = 0}),
                      "AttentionResiduals: blocks must be positive, got 0");
  REQUIRE_THROWS_AS(AttentionResiduals({.width = 4, .sublayers = 2, .epsilon = -1}),
                    ag::ArgumentError);
  const AttentionResiduals residuals({.width = 4, .sublayers = 2});
  const Variable x(ag::ones({3, 4}));
  REQUIRE_THROWS_WITH(ag::ResidualSources(residuals, Variable(ag::ones({3, 5}))),
                      "AttentionResiduals: x must end in 4, got (3, 5)");
  ag::ResidualSources sources(residuals, x);
  sources.add(x);
  REQUIRE_THROWS_WITH(sources.add(Variable(ag::ones({1, 4}))),
                      "AttentionResiduals: sublayer 1 must put out (3, 4), got (1, 4)");
  REQUIRE_THROWS_WITH(sources.result(),
                      "AttentionResiduals: result: only 1 of 2 sublayers are done");
  sources.add(x);
  REQUIRE_THROWS_WITH(sources.next(),
                      "AttentionResiduals: next: all sublayers are done, there are 2");
  REQUIRE_THROWS_AS(sources.add(x), ag::ArgumentError);
}
