#include "layers/residual/depth_mix.hpp"

#include "common/bits.hpp"
#include "common/pull_back.hpp"
#include "core/memory.hpp"
#include "core/ops/elementwise.hpp"

namespace {

using ag::DepthSource;
using Variables = std::vector<Variable>;

std::vector<DepthSource> sources_of(const Variables& values, double epsilon = 1e-5) {
  std::vector<DepthSource> sources;
  for (const Variable& value : values) sources.emplace_back(value, Real(epsilon));
  return sources;
}

Variable vector(const std::vector<double>& numbers) {
  return Variable(ag::array_of(numbers, {numbers.size()}));
}

// Of the vectors given, one row each.
Variable mix_of(const std::vector<std::vector<double>>& rows, const Variable& query,
                double epsilon) {
  Variables values;
  for (const auto& row : rows) values.push_back(vector(row));
  return ag::depth_mix(sources_of(values, epsilon), query);
}

// The three sources of the reference script, whose element (i, j) is sin(0.7 i + 1.3 j + 0.2).
std::vector<std::vector<double>> sine_rows() {
  std::vector<std::vector<double>> rows(3, std::vector<double>(4));
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 4; ++j)
      rows[i][j] = std::sin(0.7 * double(i) + 1.3 * double(j) + 0.2);
  return rows;
}

// Sources and, last, a query: the values and gradients of the fused op.
Variable fused(const Variables& in) {
  return ag::depth_mix(sources_of({in.begin(), in.end() - 1}), in.back());
}
Variable composed(const Variables& in) {
  return ag::composed_depth_mix({in.begin(), in.end() - 1}, in.back());
}

std::vector<Array> random_inputs(std::size_t sources, const ag::Shape& shape) {
  std::vector<Array> inputs;
  for (std::size_t i = 0; i < sources; ++i) inputs.push_back(random_array(shape, -2, 2, 20 + i));
  inputs.push_back(random_array({shape.back()}, -2, 2, 19));
  return inputs;
}

}  // namespace

// ---- cases ------------------------------------------------------------------------------------

TEST_CASE("C25: a query of zeros gives the plain mean", "[residual][C25]") {
  require_close(mix_of({{1, 1}, {3, 5}}, vector({0, 0}), 1e-5).value(), {2, 3});
  require_close(
      mix_of({{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}, vector({0, 0, 0, 0}), 0).value(),
      {5, 6, 7, 8});
}

TEST_CASE("C25: keys are normalised and values are not", "[residual][C25]") {
  require_close(mix_of({{3, 4}, {1, -1}}, vector({1, 0}), 0).value(), {1.924408, 1.311020});
}

TEST_CASE("a mix and its gradients equal the numbers of the reference script", "[residual]") {
  const Variable query = vector({.3, -.2, .5, .1}), gain = vector({1, .9, 1.1, 1.2});
  require_close(mix_of(sine_rows(), query * gain, 1e-6).value(),
                {.60949, .723878, -.222217, -.842763});

  const auto with_query = [&](const Variable& q) { return mix_of(sine_rows(), q * gain, 1e-6); };
  const auto with_gain = [&](const Variable& w) {
    return mix_of(sine_rows(), vector({0, 0, 0, 0}) * w, 1e-6);
  };
  const Array g = ag::array_of({.5, -1, .25, 2}, {4});
  require_close(pull_back(with_query, ag::zeros({4}), g), {.156474, -.20692, -.307423, .096471});
  require_close(pull_back(with_gain, gain.value(), g), {0, 0, 0, 0}, 0);
}

// ---- against the composed form ----------------------------------------------------------------

TEST_CASE("gradients of a mix match differences, of both orders", "[residual]") {
  for (const ag::Shape& shape : {ag::Shape{4}, ag::Shape{1, 5}, ag::Shape{2, 3, 4}, ag::Shape{3, 1},
                                 ag::Shape{0, 3}, ag::Shape{2, 0}})
    for (const std::size_t sources : {1, 2, 5}) {
      CAPTURE(shape, sources);
      require_gradients(fused, random_inputs(sources, shape));
    }
}

TEST_CASE("a mix of many rows equals its composed form", "[residual]") {
  for (const ag::Shape& shape : {ag::Shape{300, 33}, ag::Shape{2, 70, 64}}) {
    const ag::Comparison difference =
        ag::compare_functions(fused, composed, random_inputs(7, shape));
    CAPTURE(difference.value, difference.gradient);
    REQUIRE(difference.value <= tolerance(1e-13, 3e-6));
    REQUIRE(difference.gradient <= tolerance(1e-13, 2e-5));
  }
}

TEST_CASE("a source that needs no gradient gets none, and the others theirs", "[residual]") {
  const std::vector<Array> inputs = random_inputs(3, {5, 6});
  const auto with_constant = [&](auto mix) {
    return [&inputs, mix](const Variables& in) {
      return mix({in[0], Variable(inputs[1]), in[1], in[2]});
    };
  };
  const ag::Comparison difference = ag::compare_functions(
      with_constant(fused), with_constant(composed), {inputs[0], inputs[2], inputs[3]});
  REQUIRE(difference.gradient <= tolerance(1e-13, 1e-5));
}

TEST_CASE("rows whose squares leave the range of float keep their weights", "[residual]") {
  for (const double size : {1e-25, 1e25}) {
    const Variable y =
        mix_of({{3 * size, 4 * size}, {size, -size}}, vector({1, 0}), 0) * Real(1 / size);
    require_close(y.value(), {1.924408, 1.311020});
  }
}

TEST_CASE("logits of any size and rows around 1e30 do not overflow", "[residual]") {
  require_close(mix_of({{1, 0}, {0, 1}, {1, 1}}, vector({1e6, -1e6}), 0).value(), {1, 0});
  require_close(mix_of({{2e30, 0}, {0, 1e30}}, vector({0, 0}), 0).value(), {1e30, 5e29});
}

TEST_CASE("with epsilon 0 a row of zeros gives NaN, with another it counts as logit 0",
          "[residual]") {
  require_close(mix_of({{0, 0}, {1, 2}}, vector({1, 1}), 0).value(), {NAN, NAN});
  const double share = 1 / (1 + std::exp(-3 / std::sqrt(2.5)));  // of the other row
  require_close(mix_of({{0, 0}, {1, 2}}, vector({1, 1}), 1e-12).value(), {share, 2 * share});
}

// ---- bits and memory --------------------------------------------------------------------------

TEST_CASE("a mix and its gradients have the same bits at 1, 2, 3 and 8 threads", "[residual]") {
  const ThreadsScope restore;
  const std::vector<Array> inputs = random_inputs(5, {3000, 24});
  const auto run = [&] {
    Variables in;
    for (const Array& x : inputs) in.push_back(ag::parameter(x));
    const ag::OpenMix open = ag::open_mixes(sources_of({in[0], in[1]}), {in[5]})[0];
    std::vector<Array> results{open.mix.value(),
                               ag::close_mix(open, DepthSource(in[2]), in[5]).value()};
    Tape tape;
    const Variable y = fused(in);
    const ag::Gradients gradients = tape.gradients(y, Variable(inputs[0]));
    results.push_back(y.value());
    for (const Variable& x : in) results.push_back(gradients.of(x).value());
    return results;
  };
  ag::set_threads(1);
  const std::vector<Array> expected = run();
  for (const int count : {2, 3, 8}) {
    ag::set_threads(count);
    const std::vector<Array> results = run();
    CAPTURE(count);
    for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(same_bits(results[i], expected[i]));
  }
}

TEST_CASE("a mix keeps a weight per row and source, and one number per row once for all mixes",
          "[residual][memory]") {
  constexpr std::size_t rows = 50, width = 32;
  Variables values;  // parameters, which a report leaves out
  for (const Array& x : random_inputs(4, {rows, width})) values.push_back(ag::parameter(x));
  const Variable query = values.back();
  values.pop_back();
  const auto saved_by = [&](auto mix_three_then_four) {
    const ag::MemoryTrace trace;
    Tape tape;
    mix_three_then_four();
    std::size_t bytes = 0;
    for (const ag::SavedMemory& entry : ag::memory_report().saved) bytes += entry.bytes;
    return bytes;
  };
  const Variables three(values.begin(), values.end() - 1);
  const std::size_t kept = saved_by([&] {
    std::vector<DepthSource> sources = sources_of(three);
    ag::depth_mix(sources, query);
    sources.emplace_back(values.back());
    ag::depth_mix(sources, query);
  });
  REQUIRE(kept == rows * (3 + 4 + 4) * sizeof(Real));
  const std::size_t kept_by_composed = saved_by([&] {
    ag::composed_depth_mix(three, query);
    ag::composed_depth_mix(values, query);
  });
  CAPTURE(kept_by_composed);
  REQUIRE(kept_by_composed > 2 * rows * width * (3 + 4) * sizeof(Real));
}

// ---- two phases -------------------------------------------------------------------------------

TEST_CASE("two phases equal one mix of all sources", "[residual]") {
  for (const double spread : {1.0, 30.0})
    for (const std::size_t count : {1, 4}) {
      Variables values;
      for (std::size_t i = 0; i <= count; ++i)
        values.push_back(Variable(random_array({7, 9}, -2, 2, 40 + i)));
      Variables queries;
      for (std::size_t i = 0; i < 3; ++i)
        queries.push_back(Variable(random_array({9}, -spread, spread, 50 + i)));
      const std::vector<DepthSource> all = sources_of(values), before(all.begin(), all.end() - 1);
      const std::vector<ag::OpenMix> open = ag::open_mixes(before, queries);
      REQUIRE(open.size() == 3);
      for (std::size_t i = 0; i < 3; ++i) {
        CAPTURE(spread, count, i);
        REQUIRE(same_bits(open[i].mix.value(), ag::depth_mix(before, queries[i]).value()));
        const Array closed = ag::close_mix(open[i], all.back(), queries[i]).value();
        const Array direct = ag::depth_mix(all, queries[i]).value();
        REQUIRE(ag::relative_difference(closed, direct) <= tolerance(1e-12, 1e-5));
      }
    }
  REQUIRE(ag::open_mixes(sources_of({vector({1, 2})}), {}).empty());
}

// ---- errors -----------------------------------------------------------------------------------

TEST_CASE("a mix names what does not fit", "[residual]") {
  const Variable x(ag::ones({2, 4})), wider(ag::ones({2, 5})), query(ag::ones({4}));
  REQUIRE_THROWS_WITH(ag::depth_mix({}, query), "depth_mix: needs at least one source, got none");
  REQUIRE_THROWS_WITH(ag::depth_mix(sources_of({x, wider}), query),
                      "depth_mix: sources must have one shape, source 0 is (2, 4), source 1 is "
                      "(2, 5)");
  REQUIRE_THROWS_WITH(ag::depth_mix(sources_of({x}), wider),
                      "depth_mix: query must be (4), got (2, 5)");
  REQUIRE_THROWS_WITH(ag::depth_mix({DepthSource(x, 1), DepthSource(x, 2)}, query),
                      "depth_mix: sources must have one epsilon, got 1 and 2");
  REQUIRE_THROWS_WITH(DepthSource(x, -1), "DepthSource: epsilon must not be negative, got -1");
  REQUIRE_THROWS_AS(DepthSource(x, Real(NAN)), ag::ArgumentError);
  REQUIRE_THROWS_AS(DepthSource(Variable(Real(1))), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::composed_depth_mix({x}, query, -1), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::composed_depth_mix({}, query), ag::ArgumentError);

  REQUIRE_THROWS_AS(ag::open_mixes(sources_of({x}), {query, wider}), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::open_mixes({}, {query}), ag::ArgumentError);
  const ag::OpenMix open = ag::open_mixes(sources_of({x}), {query})[0];
  REQUIRE_THROWS_AS(ag::close_mix(open, DepthSource(wider), Variable(ag::ones({5}))),
                    ag::ShapeError);
}

TEST_CASE("a source that was edited can be mixed no more", "[residual]") {
  Variable x = ag::parameter(ag::ones({2, 4}));
  const Variable query(ag::ones({4}));
  const std::vector<DepthSource> sources = sources_of({x});
  Tape tape;
  const Variable y = ag::depth_mix(sources, query);
  x.edit();
  REQUIRE_THROWS_WITH(ag::depth_mix(sources, query),
                      "depth_mix: source 0 has been edited since it was made one");
  REQUIRE_THROWS_AS(tape.gradients(y, Variable(ag::ones({2, 4}))), ag::TapeError);
}
