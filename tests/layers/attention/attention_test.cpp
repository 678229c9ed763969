// Faults that attention libraries had, each on its smallest input, for every kernel we have.
#include "layers/attention/kernel.hpp"

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "layers/attention/heads.hpp"

namespace {

constexpr double nan_ = std::numeric_limits<double>::quiet_NaN();

struct Attended {
  Array output, dq, dk, dv;
};

// q, k, v: (batch, length, heads * width). The loss is sum(output * weights), by default the sum.
Attended attend(const std::string& kernel, const Array& q, const Array& k, const Array& v,
                const ag::Mask& mask = {}, std::optional<double> scale = {},
                const Array& weights = {}, std::size_t heads = 1) {
  const Variable pq = ag::parameter(q), pk = ag::parameter(k), pv = ag::parameter(v);
  Tape tape;
  const Variable y =
      ag::attention_kernel(kernel)(
          {ag::split_heads(pq, heads), ag::split_heads(pk, heads), ag::split_heads(pv, heads)},
          {.mask = mask, .scale = scale})
          .output;
  const ag::Gradients g =
      tape.gradients(y, Variable(weights.shape() == y.shape() ? weights : ag::ones(y.shape())));
  return {y.value(), g.of(pq).value(), g.of(pk).value(), g.of(pv).value()};
}

ag::Bools bools(const std::vector<int>& flags, const ag::Shape& shape) {
  ag::Bools all = ag::Bools::from_shape(shape);
  for (std::size_t i = 0; i < flags.size(); ++i) all.data()[i] = flags[i] != 0;
  return all;
}

Array row(const std::vector<double>& numbers) {
  return ag::array_of(numbers, {1, numbers.size(), 1});
}
Array zero_rows(std::size_t length) { return ag::zeros({1, length, 1}); }

// sin(0.7 i + 1.3 j + s), the numbers of the published golden vectors
Array golden(std::size_t rows, std::size_t columns, double s) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      numbers.push_back(std::sin(0.7 * double(i) + 1.3 * double(j) + s));
  return ag::array_of(numbers, {1, rows, columns});
}

std::vector<double> row_of(const Array& x, std::size_t row, std::size_t width) {
  return {x.data() + row * width, x.data() + (row + 1) * width};
}
void require_row(const Array& x, std::size_t index, const std::vector<double>& expected) {
  require_close(ag::array_of(row_of(x, index, expected.size()), {expected.size()}), expected);
}

}  // namespace

TEST_CASE("attention reproduces the golden vectors of an independent implementation",
          "[attention]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  CAPTURE(kernel);
  const Attended a = attend(kernel, golden(3, 4, 0.1), golden(5, 4, 0.2), golden(5, 4, 0.3),
                            ag::causal(), 0.5, golden(3, 4, 0.4));
  require_row(a.output, 0, {.646942, .717835, -.262902, -.858487});
  require_row(a.dq, 2, {.101862, .038702, -.081156, -.08212});
  require_row(a.dk, 0, {-.089074, -.005501, .086131, .051581});
  const Variable q(golden(3, 4, 0.1)), k(golden(5, 4, 0.2)), v(golden(5, 4, 0.3));
  const ag::AttentionOutput out = ag::attention_kernel(kernel)(
      {ag::split_heads(q, 1), ag::split_heads(k, 1), ag::split_heads(v, 1)},
      {.mask = ag::causal(), .scale = 0.5});
  require_close(out.log_sum_exp, {1.75685, 2.242111, 2.36821});
}

TEST_CASE("a query that sees no key gives 0 and poisons no gradient", "[attention][C01]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const bool first_row_only = GENERATE(false, true);
  CAPTURE(kernel, first_row_only);
  const Array identity = ag::array_of({1, 0, 0, 1}, {1, 2, 2}),
              v = ag::array_of({1, 2, 3, 4}, {1, 2, 2});
  const Array weights = ag::array_of(
      first_row_only ? std::vector<double>{1, 1, 0, 0} : std::vector<double>{1, 1, 1, 1},
      {1, 2, 2});
  const Attended a = attend(kernel, identity, identity, v,
                            ag::visible_where(bools({1, 1, 0, 0}, {2, 2})), {}, weights);
  require_close(a.output, {1.660477, 2.660477, 0, 0});
  require_close(a.dq, {-0.625594, 0.625594, 0, 0});
  require_close(a.dk, {-0.625594, 0, 0.625594, 0});
  require_close(a.dv, {0.669762, 0.669762, 0.330238, 0.330238});
}

TEST_CASE("two masks that together empty a row leave it 0", "[attention][C02]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const ag::Mask mask = ag::causal() & ag::visible_where(bools({0, 1}, {1, 1, 1, 2}));
  const Attended a = attend(kernel, zero_rows(2), zero_rows(2), row({5, 7}), mask);
  require_close(a.output, {0, 7});
  require_close(a.dv, {0, 1});
}

TEST_CASE("a NaN stored behind the mask reaches nothing", "[attention][C04]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const bool in_value = GENERATE(false, true);
  CAPTURE(kernel, in_value);
  const Array k = row({1, in_value ? 1 : nan_}), v = row({2, in_value ? nan_ : 3});
  const Attended a =
      attend(kernel, row({1, 1}), k, v, ag::visible_where(bools({1, 0}, {1, 1, 1, 2})));
  require_close(a.output, {2, 2});
  require_close(a.dq, {0, 0});
  require_close(a.dk, {0, 0});
  require_close(a.dv, {2, 0});
}

TEST_CASE("a NaN that is visible is not hidden", "[attention]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const Attended a = attend(kernel, row({1, 1}), row({1, nan_}), row({2, 3}), ag::causal());
  require_close(a.output, {2, nan_});
}

TEST_CASE("a causal mask is aligned at the last key unless an offset is given",
          "[attention][C05][C06]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  CAPTURE(kernel);
  require_close(
      attend(kernel, zero_rows(2), zero_rows(5), row({1, 2, 3, 4, 5}), ag::causal()).output,
      {2.5, 3});
  require_close(
      attend(kernel, zero_rows(2), zero_rows(5), row({1, 2, 3, 4, 5}), ag::causal(0)).output,
      {1, 1.5});
  require_close(attend(kernel, zero_rows(5), zero_rows(2), row({1, 2}), ag::causal()).output,
                {0, 0, 0, 1, 1.5});
  require_close(attend(kernel, zero_rows(5), zero_rows(2), row({1, 2}), ag::causal(0)).output,
                {1, 1.5, 1.5, 1.5, 1.5});
}

TEST_CASE("a causal offset of any size hides or shows, and never overflows", "[attention]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  constexpr std::ptrdiff_t most = std::numeric_limits<std::ptrdiff_t>::max();
  const auto with = [&](std::ptrdiff_t offset) {
    return attend(kernel, zero_rows(2), zero_rows(2), row({1, 3}), ag::causal(offset)).output;
  };
  require_close(with(most), {2, 2});
  require_close(with(-most), {0, 0});
}

TEST_CASE("a scale that is not a number is refused", "[attention]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  REQUIRE_THROWS_WITH(attend(kernel, row({1}), row({1}), row({1}), {}, nan_),
                      ContainsSubstring("scale"));
}

TEST_CASE("a change of a future key or value leaves earlier rows as they were, to the bit",
          "[attention][C07]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const Array q = random_array({1, 4, 6}, -1, 1, 1);
  Array k = random_array({1, 4, 6}, -1, 1, 2), v = random_array({1, 4, 6}, -1, 1, 3);
  const Array before = attend(kernel, q, k, v, ag::causal(), {}, {}, 2).output;
  for (std::size_t d = 0; d < 6; ++d) k.data()[3 * 6 + d] += 100, v.data()[3 * 6 + d] += 100;
  const Array after = attend(kernel, q, k, v, ag::causal(), {}, {}, 2).output;
  REQUIRE(std::equal(before.data(), before.data() + 3 * 6, after.data()));
  REQUIRE(!std::equal(before.data() + 3 * 6, before.data() + 4 * 6, after.data() + 3 * 6));
}

TEST_CASE("a boolean mask hides and is not added to the scores", "[attention][C08]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const ag::Mask mask = ag::visible_where(bools({1, 0}, {1, 2}));
  require_close(attend(kernel, zero_rows(1), zero_rows(2), row({1, 3}), mask).output, {1});
}

TEST_CASE("an array of numbers is not accepted as a mask", "[attention][C09]") {
  // a 0/1 array of numbers could mean a mask or an additive bias: the types say which, so nothing
  // is guessed
  STATIC_REQUIRE(!std::is_constructible_v<ag::Mask, Array>);
  STATIC_REQUIRE(!std::is_invocable_v<decltype(ag::visible_where), Variable>);
}

TEST_CASE("a mask of keys hides keys in every query", "[attention][C10]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const ag::Mask mask = ag::visible_where(bools({1, 1, 0, 0}, {1, 1, 1, 4}));
  require_close(attend(kernel, zero_rows(4), zero_rows(4), row({1, 2, 3, 4}), mask).output,
                {1.5, 1.5, 1.5, 1.5});
}

TEST_CASE("queries and keys of different lengths keep their own mask axes", "[attention][C11]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const ag::Mask mask = ag::visible_where(bools({1, 0, 1, 0, 1, 0}, {2, 3}));
  require_close(attend(kernel, zero_rows(2), zero_rows(3), row({1, 2, 6}), mask).output, {3.5, 2});
  REQUIRE_THROWS_WITH(attend(kernel, zero_rows(2), zero_rows(3), row({1, 2, 6}),
                             ag::visible_where(bools({1, 0, 1, 0}, {2, 2}))),
                      ContainsSubstring("(1, 1, 2, 3)") && ContainsSubstring("(1, 1, 2, 2)"));
  REQUIRE_THROWS_WITH(ag::visible_where(bools({1, 0, 1, 0, 1, 0}, {1, 2, 3})),
                      ContainsSubstring("(1, 2, 3)"));

  // keys of different number in each batch row
  const ag::Mask lengths = ag::visible_where(bools({1, 0, 0, 1, 1, 1}, {2, 1, 1, 3}));
  const Array zero_q = ag::zeros({2, 2, 1}), zero_k = ag::zeros({2, 3, 1});
  const Array v = ag::array_of({1, 2, 6, 1, 2, 6}, {2, 3, 1});
  require_close(attend(kernel, zero_q, zero_k, v, lengths).output, {1, 1, 3, 3});
}

TEST_CASE("splitting and merging heads never mixes times", "[attention][C15]") {
  // (batch 1, heads 2, time 2, width 2): h0t0 = 1 2, h0t1 = 3 4, h1t0 = 5 6, h1t1 = 7 8
  const Variable heads(ag::array_of({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 2, 2}));
  const Variable merged = ag::merge_heads(heads);
  require_close(merged.value(), {1, 2, 5, 6, 3, 4, 7, 8});
  require_close(ag::gather(ag::split_heads(merged, 2)).value(), {1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("attention over any number of keys averages them when all scores are equal",
          "[attention][C17]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const std::size_t length = GENERATE(1u, 3u, 4u, 5u, 9u, 64u, 65u, 130u);
  CAPTURE(kernel, length);
  std::vector<double> numbers(length);
  for (std::size_t i = 0; i < length; ++i) numbers[i] = double(i + 1);
  const Attended a = attend(kernel, zero_rows(length), zero_rows(length), row(numbers));
  require_close(a.output, std::vector<double>(length, double(length + 1) / 2));
  require_close(a.dv, std::vector<double>(length, 1.0), tolerance(1e-12, 2e-5));
}

TEST_CASE("attention without keys gives 0", "[attention][C103]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const Attended a =
      attend(kernel, ag::zeros({1, 2, 3}), ag::zeros({1, 0, 3}), ag::zeros({1, 0, 3}));
  require_close(a.output, {0, 0, 0, 0, 0, 0});
  REQUIRE(a.dv.shape() == ag::Shape{1, 0, 3});
  REQUIRE(attend(kernel, ag::zeros({1, 0, 3}), ag::zeros({1, 2, 3}), ag::zeros({1, 2, 3}))
              .output.size() == 0);
}

TEST_CASE("one huge score takes all the weight", "[attention]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const Attended a = attend(kernel, row({100}), row({1, 100, -100}), row({1, 2, 3}), {}, 1.0);
  require_close(a.output, {2});
  require_close(a.dq, {0});
}

TEST_CASE("attention names the shapes that do not fit", "[attention]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  REQUIRE_THROWS_WITH(
      attend(kernel, ag::zeros({1, 2, 3}), ag::zeros({1, 2, 4}), ag::zeros({1, 2, 4})),
      ContainsSubstring("(1, 1, 2, 3)") && ContainsSubstring("(1, 1, 2, 4)"));
  REQUIRE_THROWS_WITH(
      attend(kernel, ag::zeros({1, 2, 4}), ag::zeros({1, 2, 4}), ag::zeros({1, 3, 4})),
      ContainsSubstring("length"));
  REQUIRE_THROWS_WITH(ag::attention_kernel("flush"),
                      ContainsSubstring("composed fused") && ContainsSubstring("flush"));
  REQUIRE_THROWS_WITH(ag::split_heads(Variable(ag::zeros({1, 2, 5})), 2),
                      ContainsSubstring("(1, 2, 5)"));
}

TEST_CASE("queries, keys and values in one array give one gradient", "[attention]") {
  const std::string kernel = GENERATE(from_range(ag::attention_kernel_names()));
  const auto packed = [kernel](const std::vector<Variable>& in) {
    const auto part = [&](std::size_t i) { return ag::split_heads(in[0], 2, i, 3); };
    return ag::attention_kernel(kernel)({part(0), part(1), part(2)},
                                        {.mask = ag::causal(), .scale = {}})
        .output;
  };
  require_gradients(packed, {random_array({2, 3, 12})});
}

TEST_CASE("heads must lie inside their array, each element once", "[attention][errors]") {
  const Variable x(random_array({2, 3, 8}));
  const ag::Heads good = ag::split_heads(x, 2);
  for (const std::string& name : ag::attention_kernel_names()) {
    const ag::AttentionKernel kernel = ag::attention_kernel(name);
    ag::Heads longer = good, shared = good, shifted = good;
    longer.length = 100;
    shared.head_stride = 0;
    shifted.offset = 1;
    REQUIRE_NOTHROW(kernel({good, good, good}, {}));
    REQUIRE_THROWS_AS(kernel({good, longer, longer}, {}), ag::ShapeError);
    REQUIRE_THROWS_AS(kernel({good, shared, good}, {}), ag::ShapeError);
    REQUIRE_THROWS_AS(kernel({good, good, shifted}, {}), ag::ShapeError);
  }
}

TEST_CASE("a NaN that a query sees reaches its whole output with every kernel", "[attention]") {
  Array k = random_array({1, 3, 4});
  k.data()[5] = NAN;
  const Variable q(random_array({1, 2, 4})), keys(k), v(random_array({1, 3, 4}));
  for (const std::string& name : ag::attention_kernel_names()) {
    CAPTURE(name);
    const Variable y =
        ag::attention_kernel(name)(
            {ag::split_heads(q, 1), ag::split_heads(keys, 1), ag::split_heads(v, 1)}, {})
            .output;
    for (const Real entry : y.value()) REQUIRE(std::isnan(entry));
  }
}

TEST_CASE("heads of queries share those of keys in groups of neighbours", "[attention][C13]") {
  const Variable q(ag::zeros({1, 1, 4})), k(ag::zeros({1, 1, 2}));
  const Variable v(ag::array_of({10, 20}, {1, 1, 2}));
  for (const std::string& name : ag::attention_kernel_names()) {
    CAPTURE(name);
    const ag::AttentionKernel kernel = ag::attention_kernel(name);
    const ag::Heads keys = ag::split_heads(k, 2), values = ag::split_heads(v, 2);
    require_close(kernel({ag::split_heads(q, 4), keys, values}, {}).output.value(),
                  {10, 10, 20, 20});
    const Variable three(ag::zeros({1, 1, 3}));
    REQUIRE_THROWS_WITH(kernel({ag::split_heads(three, 3), keys, values}, {}),
                        "attention: heads of queries must be a multiple of those of keys, got 3 "
                        "and 2");
  }
}

TEST_CASE("a shared head of keys and values collects the gradients of its group",
          "[attention][C14]") {
  const Variable q = ag::parameter(ag::array_of({1, 2}, {1, 1, 2}));
  const Variable k = ag::parameter(ag::array_of({0, 1}, {1, 2, 1}));
  const Variable v = ag::parameter(ag::array_of({1, 3}, {1, 2, 1}));
  for (const std::string& name : ag::attention_kernel_names()) {
    CAPTURE(name);
    Tape tape;
    const Variable y =
        ag::attention_kernel(name)(
            {ag::split_heads(q, 2), ag::split_heads(k, 1), ag::split_heads(v, 1)}, {.scale = 1})
            .output;
    require_close(y.value(), {2.462117, 2.761594}, 1e-6);
    const ag::Gradients g = tape.gradients(ag::sum(y));
    require_close(g.of(q).value(), {0.393224, 0.209987}, 1e-6);
    require_close(g.of(k).value(), {-0.813198, 0.813198}, 1e-6);
    require_close(g.of(v).value(), {0.388144, 1.611856}, 1e-6);
  }
}

TEST_CASE("grouped attention equals full attention on repeated keys and values", "[attention]") {
  const std::size_t heads = 6, group = 3, width = 4;
  const Array q = random_array({2, 5, heads * width}), k = random_array({2, 7, 2 * width}),
              v = random_array({2, 7, 2 * width});
  const auto repeated = [&](const Array& x) {
    Array y = ag::uninitialized({2, 7, heads * width});
    for (std::size_t row = 0; row < 14; ++row)
      for (std::size_t h = 0; h < heads; ++h)
        for (std::size_t d = 0; d < width; ++d)
          y.data()[(row * heads + h) * width + d] = x.data()[(row * 2 + h / group) * width + d];
    return y;
  };
  const auto run = [&](const ag::AttentionKernel& kernel, const Array& keys, const Array& values,
                       std::size_t key_heads) {
    return kernel({ag::split_heads(Variable(q), heads), ag::split_heads(Variable(keys), key_heads),
                   ag::split_heads(Variable(values), key_heads)},
                  {.mask = ag::causal()})
        .output.value();
  };
  for (const std::string& name : ag::attention_kernel_names()) {
    const ag::AttentionKernel kernel = ag::attention_kernel(name);
    require_close(run(kernel, k, v, 2), numbers(run(kernel, repeated(k), repeated(v), heads)),
                  tolerance(1e-13, 1e-5));
  }
}
