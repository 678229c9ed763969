// Score functions: their values and the slopes from dual numbers, against the tape and the
// ready-made steps.
#include "layers/attention/score_function.hpp"

#include "common/test.hpp"
#include "layers/attention/composed.hpp"
#include "layers/attention/flash.hpp"
#include "layers/attention/score_steps.hpp"

namespace {

using Step = std::shared_ptr<const ag::ScoreStep>;

// The output and the gradients of queries, keys, values and parameters.
std::vector<Array> attend(ag::AttentionOutput (*kernel)(const ag::AttentionInputs&,
                                                        const ag::AttentionOptions&),
                          const Step& step, const ag::Mask& mask = ag::causal()) {
  const std::size_t batch = 2, heads = 4, queries = 110, keys = 130, width = 6;
  std::vector<Variable> all{
      ag::parameter(random_array({batch, queries, heads * width}, -1, 1, 1)),
      ag::parameter(random_array({batch, keys, heads / 2 * width}, -1, 1, 2)),
      ag::parameter(random_array({batch, keys, heads / 2 * width}, -1, 1, 3))};
  all.insert(all.end(), step->parameters().begin(), step->parameters().end());
  Tape tape;
  const Variable y = kernel({ag::split_heads(all[0], heads), ag::split_heads(all[1], heads / 2),
                             ag::split_heads(all[2], heads / 2)},
                            {.mask = mask, .scores = {step}})
                         .output;
  const ag::Gradients g = tape.gradients(y, Variable(random_array(y.shape(), -1, 1, 4)));
  std::vector<Array> results{y.value()};
  for (const Variable& x : all) results.push_back(g.of(x).value());
  return results;
}

void require_same(const std::vector<Array>& a, const std::vector<Array>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    REQUIRE(ag::relative_difference(a[i], b[i]) < tolerance(1e-12, 1e-4));
  }
}

}  // namespace

TEST_CASE("a score function agrees with its composed form in value and gradients", "[score]") {
  const Variable table = ag::parameter(random_array({4, 32}, -1, 1, 5)),
                 temperature = ag::parameter(ag::array_of({1.5}, {})),
                 by_batch = ag::parameter(random_array({2, 4}, 0.5, 1, 6));
  const Step step = GENERATE_COPY(
      ag::score([](auto e, auto, auto head, auto query, auto key,
                   const auto& p) { return e / p[1]() + p[0](head, clamp(query - key, 0, 31)); },
                {table, temperature}),
      ag::score(
          [](auto e, auto batch, auto head, auto query, auto key, const auto& p) {
            const auto far = log(1 + abs(query - key)) * 0.25;
            return tanh(e * p[0](batch, head)) - far * p[0](batch, head) + 2 - e * key / 200;
          },
          {by_batch}),
      ag::score(
          [](auto e, auto, auto, auto query, auto, const auto& p) {
            const auto a = p[0](0, 0), b = p[0](1, minimum(query, 3));
            return maximum(e, a) + minimum(e, b) - clamp(e, -0.5, 0.5) * sigmoid(b) + abs(e - a) +
                   1 / (3 + exp(-e)) + 0.5 * (query - 3) / (4 + maximum(query, 5));
          },
          {by_batch}),
      ag::score([](auto e, auto, auto, auto, auto, const auto&) { return 2 * e; }));
  require_same(attend(&ag::flash_attention, step), attend(&ag::composed_attention, step));
}

TEST_CASE("a score function does what the ready-made steps do", "[score]") {
  const ag::Mask mask = ag::sliding_window(60, 10);
  const auto both = [&](const Step& mine, const Step& ready) {
    std::vector<Array> results = attend(&ag::flash_attention, mine, mask),
                       expected = attend(&ag::flash_attention, ready, mask);
    results.resize(4 + ready->parameters().size());  // a slope that is given is not learned
    require_same(results, expected);
  };
  both(ag::score([](auto e, auto, auto, auto, auto, const auto&) { return 2 * tanh(e / 2); }),
       ag::soft_cap(2));
  both(ag::score(
           [](auto e, auto, auto head, auto query, auto key, const auto& p) {
             return e - p[0](head) * abs(query + 20 - key);  // keys - queries is 20
           },
           {ag::constant(ag::array_of({0.25, 0.0625, 0.015625, 0.00390625}, {4}))}),
       ag::alibi(ag::alibi_slopes(4)));
  const Variable table = ag::parameter(random_array({4, 9}, -1, 1, 5));
  both(ag::score([](auto e, auto, auto head, auto query, auto key,
                    const auto& p) { return e + p[0](head, clamp(key - query - 20, -4, 4) + 4); },
                 {table}),
       ag::relative_positions(table));
}

TEST_CASE("a score function can be differentiated twice", "[score]") {
  require_gradients(
      [](const std::vector<Variable>& in) {
        const Step step =
            ag::score([](auto e, auto, auto, auto query, auto key,
                         const auto& p) { return tanh(e) * p[0](clamp(query - key, 0, 2)); },
                      {2 * in[3]});
        return ag::flash_attention({ag::split_heads(in[0], 1), ag::split_heads(in[1], 1),
                                    ag::split_heads(in[2], 1)},
                                   {.scores = {step}})
            .output;
      },
      {random_array({1, 4, 3}, -1, 1, 1), random_array({1, 5, 3}, -1, 1, 2),
       random_array({1, 5, 2}, -1, 1, 3), random_array({3}, -1, 1, 4)});
}

TEST_CASE("a score function says where it reads outside of a parameter", "[score]") {
  const Variable table = ag::parameter(ag::ones({4}));
  const Step step = ag::score(
      [](auto e, auto, auto, auto query, auto key, const auto& p) { return e + p[0](query - key); },
      {table});
  REQUIRE_THROWS_WITH(attend(&ag::flash_attention, step), Catch::Matchers::Contains("[0, 4)"));
  const Step axes = ag::score(
      [](auto e, auto, auto head, auto, auto, const auto& p) { return e + p[0](head, 0); },
      {table});
  REQUIRE_THROWS_AS(attend(&ag::flash_attention, axes), ag::ShapeError);
  const Step many = ag::score(
      [](auto e, auto, auto, auto, auto, const auto& p) {
        auto sum = e;
        for (int i = 0; i < 9; ++i) sum = sum + p[0](0);
        return sum;
      },
      {table});
  REQUIRE_THROWS_WITH(attend(&ag::flash_attention, many),
                      Catch::Matchers::Contains("more than 8 elements"));
}
