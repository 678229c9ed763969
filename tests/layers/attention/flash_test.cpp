// What is particular to flash attention: tiles, ranges of queries, and how exact it is in float.
#include "layers/attention/flash.hpp"

#include "common/test.hpp"
#include "layers/attention/composed.hpp"

namespace {

struct Arrays {
  Array q, k, v, dy;
};

// (1, length, width) each
Arrays random_arrays(std::size_t queries, std::size_t keys, std::size_t width, double size = 1) {
  return {random_array({1, queries, width}, -size, size, 1),
          random_array({1, keys, width}, -size, size, 2), random_array({1, keys, width}, -1, 1, 3),
          random_array({1, queries, width}, -1, 1, 4)};
}

struct Results {
  Array y, log_sum_exp, dq, dk, dv;
};

Results run(const ag::AttentionKernel& kernel, const Arrays& a, const ag::Mask& mask,
            std::size_t heads = 1) {
  const Variable q = ag::parameter(a.q), k = ag::parameter(a.k), v = ag::parameter(a.v);
  Tape tape;
  const ag::AttentionOutput out =
      kernel({ag::split_heads(q, heads), ag::split_heads(k, heads), ag::split_heads(v, heads)},
             {.mask = mask, .scale = {}});
  const ag::Gradients g = tape.gradients(out.output, Variable(a.dy));
  return {out.output.value(), out.log_sum_exp, g.of(q).value(), g.of(k).value(), g.of(v).value()};
}

double largest(const Array& x) {
  double top = 0;
  for (const Real number : x) top = std::max(top, std::abs(double(number)));
  return top;
}
double distance(const Array& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < b.size(); ++i)
    worst = std::max(worst, std::abs(double(a.data()[i]) - b[i]));
  return worst;
}
double distance(const Array& a, const Array& b) {
  return distance(a, std::vector<double>(b.begin(), b.end()));
}

// One head by the formulas, with plain loops in double.
struct Reference {
  std::vector<double> y, dq, dk, dv;
};
Reference by_loops(const Arrays& a, bool causal) {
  const std::size_t n = a.q.shape()[1], d = a.q.shape()[2];
  Reference r{std::vector<double>(n * d), std::vector<double>(n * d), std::vector<double>(n * d),
              std::vector<double>(n * d)};
  const auto dot = [&](const Array& x, std::size_t i, const Array& y, std::size_t j) {
    double sum = 0;
    for (std::size_t e = 0; e < d; ++e)
      sum += double(x.data()[i * d + e]) * double(y.data()[j * d + e]);
    return sum;
  };
  const double scale = 1 / std::sqrt(double(d));
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t keys = causal ? i + 1 : n;
    std::vector<double> p(keys), dp(keys);
    double top = -1e300, total = 0, share = 0;
    for (std::size_t j = 0; j < keys; ++j) top = std::max(top, p[j] = scale * dot(a.q, i, a.k, j));
    for (double& x : p) total += x = std::exp(x - top);
    for (std::size_t j = 0; j < keys; ++j)
      share += (p[j] /= total) * (dp[j] = dot(a.dy, i, a.v, j));
    for (std::size_t j = 0; j < keys; ++j) {
      const double ds = scale * p[j] * (dp[j] - share);
      for (std::size_t e = 0; e < d; ++e) {
        r.y[i * d + e] += p[j] * double(a.v.data()[j * d + e]);
        r.dv[j * d + e] += p[j] * double(a.dy.data()[i * d + e]);
        r.dq[i * d + e] += ds * double(a.k.data()[j * d + e]);
        r.dk[j * d + e] += ds * double(a.q.data()[i * d + e]);
      }
    }
  }
  return r;
}

}  // namespace

TEST_CASE("a kernel in float errs at most twice as much as composed, its gradients thrice",
          "[flash]") {
  const auto* name = GENERATE("flash", "fused");
  const std::size_t length = GENERATE(64, 130, 500);
  const bool causal = GENERATE(false, true);
  CAPTURE(name, length, causal);
  const Arrays a = random_arrays(length, length, 64, 2);
  const Reference exact = by_loops(a, causal);
  const ag::Mask mask = causal ? ag::causal() : ag::Mask();
  const Results kernel = run(ag::attention_kernel(name), a, mask),
                composed = run(ag::composed_attention, a, mask);
  const double least = tolerance(1e-15, 1e-8);  // where composed happens to be exact
  CHECK(distance(kernel.y, exact.y) <= 2 * distance(composed.y, exact.y) + least);
  CHECK(distance(kernel.dq, exact.dq) <= 3 * distance(composed.dq, exact.dq) + least);
  CHECK(distance(kernel.dk, exact.dk) <= 3 * distance(composed.dk, exact.dk) + least);
  CHECK(distance(kernel.dv, exact.dv) <= 3 * distance(composed.dv, exact.dv) + least);
}

TEST_CASE("the log-sum-exp of flash attention is that of the visible scores", "[flash]") {
  const Arrays a = random_arrays(150, 210, 8, 3);
  const ag::Mask mask = ag::causal(-20);  // the first twenty queries see nothing
  const Array expected = run(ag::composed_attention, a, mask).log_sum_exp;
  REQUIRE(expected.data()[0] == -std::numeric_limits<Real>::infinity());
  require_close(run(ag::flash_attention, a, mask).log_sum_exp, {expected.begin(), expected.end()},
                tolerance(1e-14, 1e-6));
}

TEST_CASE("scores of ten thousand neither overflow nor lose the gradient", "[flash]") {
  const Arrays a = random_arrays(130, 200, 16, 110);
  const Results flash = run(ag::flash_attention, a, {}),
                composed = run(ag::composed_attention, a, {});
  REQUIRE(largest(composed.log_sum_exp) > 1e4);
  // a score of 1e4 is known to 1e4 units in the last place of 1, and so is its exponential
  const double bound = tolerance(1e-11, 1e-2);
  REQUIRE(distance(flash.y, composed.y) <= bound);
  REQUIRE(distance(flash.dv, composed.dv) <= bound * largest(composed.dv));
  REQUIRE(distance(flash.dq, composed.dq) <= 100 * bound);
  REQUIRE(std::isfinite(largest(flash.dk)));
}

TEST_CASE("a NaN behind a causal mask stays behind it in every tile", "[flash]") {
  // query 140 and key 140 are bad: earlier queries and later keys must not notice
  const double rounding = tolerance(1e-14, 1e-5);  // a spoiled tile takes another loop
  Arrays a = random_arrays(200, 200, 8);
  const Results clean = run(ag::flash_attention, a, ag::causal());
  for (Array* x : {&a.q, &a.k, &a.v, &a.dy})
    x->data()[140 * 8 + 3] = std::numeric_limits<Real>::quiet_NaN();
  const Results spoiled = run(ag::flash_attention, a, ag::causal());
  for (std::size_t i = 0; i < 140 * 8; ++i) {
    REQUIRE(std::abs(spoiled.y.data()[i] - clean.y.data()[i]) <= rounding);
    REQUIRE(std::abs(spoiled.dq.data()[i] - clean.dq.data()[i]) <= rounding);
  }
  REQUIRE(std::isnan(spoiled.y.data()[140 * 8 + 3]));
  // query 140 sees the keys up to 140 only
  Arrays query_only = random_arrays(200, 200, 8);
  query_only.q.data()[140 * 8] = query_only.dy.data()[140 * 8] =
      std::numeric_limits<Real>::quiet_NaN();
  const Results r = run(ag::flash_attention, query_only, ag::causal());
  for (std::size_t i = 141 * 8; i < 200 * 8; ++i) {
    REQUIRE(std::abs(r.dk.data()[i] - clean.dk.data()[i]) <= rounding);
    REQUIRE(std::abs(r.dv.data()[i] - clean.dv.data()[i]) <= rounding);
  }
}

TEST_CASE("queries, keys and values may be one array", "[flash]") {
  // one head, several ranges of queries in the backward pass: all three gradients meet
  const Array x = random_array({1, 300, 8});
  const auto gradient = [&](const ag::AttentionKernel& kernel) {
    const Variable p = ag::parameter(x);
    const ag::Heads heads = ag::split_heads(p, 1);
    Tape tape;
    return tape
        .gradients(kernel({heads, heads, heads}, {.mask = ag::causal(), .scale = {}}).output,
                   Variable(random_array({1, 300, 8}, -1, 1, 5)))
        .of(p)
        .value();
  };
  const Array expected = gradient(ag::composed_attention);
  REQUIRE(distance(gradient(ag::flash_attention), expected) <=
          tolerance(1e-13, 1e-5) * largest(expected));
}

TEST_CASE("a query that sees one key gives its score a gradient of exactly zero", "[flash]") {
  const Results r = run(ag::flash_attention, random_arrays(5, 1, 80), {});
  REQUIRE(largest(r.dq) == 0);
  REQUIRE(largest(r.dk) == 0);
}

TEST_CASE("heads are disjoint where they lie side by side", "[flash]") {
  const Variable x(ag::zeros({2, 3, 12})), other(ag::zeros({2, 3, 12}));
  const auto part = [&](std::size_t i) { return ag::split_heads(x, 2, i, 3); };
  REQUIRE(ag::disjoint(part(0), part(1)));
  REQUIRE(ag::disjoint(part(2), part(0)));
  REQUIRE_FALSE(ag::disjoint(part(1), part(1)));
  REQUIRE_FALSE(ag::disjoint(part(1), ag::split_heads(x, 2)));
  REQUIRE(ag::disjoint(part(1), ag::split_heads(other, 2, 1, 3)));
}
