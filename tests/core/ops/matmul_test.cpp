#include "core/ops/matmul.hpp"

#include "common/bits.hpp"
#include "common/test.hpp"
#include "core/kernels/gemm.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"

namespace {

// Gives the number of threads back when the test ends, however it ends.
using Inputs = std::vector<Variable>;

Variable numbers(const std::vector<double>& values, const ag::Shape& shape) {
  return ag::parameter(ag::array_of(values, shape));
}

void require_array(const Variable& x, const ag::Shape& shape, const std::vector<double>& expected) {
  REQUIRE(x.shape() == shape);
  require_close(x.value(), expected, 0);
}

// The matrix product by its definition, in double, for two arrays of one batch shape.
std::vector<double> by_definition(const Array& a, const Array& b) {
  const std::size_t inner = a.shape().back(), columns = b.shape().back();
  const std::size_t rows = a.shape()[a.dimension() - 2], count = a.size() / (rows * inner);
  std::vector<double> y(count * rows * columns, 0.0);
  for (std::size_t i = 0; i < count * rows; ++i)
    for (std::size_t k = 0; k < inner; ++k)
      for (std::size_t j = 0; j < columns; ++j)
        y[i * columns + j] += double(a.data()[i * inner + k]) *
                              double(b.data()[(i / rows * inner + k) * columns + j]);
  return y;
}

}  // namespace

TEST_CASE("matmul multiplies matrices, vectors and batches by NumPy's rule", "[matmul]") {
  const Variable a = numbers({1, 2, 3, 4, 5, 6}, {2, 3}), v = numbers({1, 0, -1}, {3});
  require_array(ag::matmul(a, numbers({1, 2, 3, 4, 5, 6}, {3, 2})), {2, 2}, {22, 28, 49, 64});
  require_array(ag::matmul(a, v), {2}, {-2, -2});
  require_array(ag::matmul(v, numbers({1, 2, 3, 4, 5, 6}, {3, 2})), {2}, {-4, -4});
  require_array(ag::matmul(v, v), {}, {2});
  const Variable stack = numbers({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}),
                 column = numbers({1, 1}, {2, 1});
  require_array(ag::matmul(stack, column), {2, 2, 1}, {3, 7, 11, 15});
  require_array(ag::matmul(numbers({1, 1}, {1, 2}), stack), {2, 1, 2}, {4, 6, 12, 14});
  require_array(ag::matmul(stack, numbers({1, 1}, {2})), {2, 2}, {3, 7, 11, 15});
  require_array(ag::matmul(numbers({1, 1}, {2}), stack), {2, 2}, {4, 6, 12, 14});
}

TEST_CASE("matmul names both shapes when they do not fit", "[matmul]") {
  const auto ones = [](const ag::Shape& shape) { return ag::constant(ag::ones(shape)); };
  REQUIRE_THROWS_WITH(ag::matmul(ones({2, 3}), ones({4, 2})),
                      "matmul: inner sizes differ: a is (2, 3), b is (4, 2)");
  REQUIRE_THROWS_WITH(ag::matmul(ones({2}), ones({3})),
                      "matmul: inner sizes differ: a is (2), b is (3)");
  REQUIRE_THROWS_WITH(ag::matmul(ones({}), ones({3})),
                      "matmul: needs rank 1 or more, a is (), b is (3)");
  REQUIRE_THROWS_WITH(ag::matmul(ones({2, 2, 3}), ones({3, 3, 2})), ContainsSubstring("matmul: "));
  REQUIRE_THROWS_AS(ag::matmul(ones({2, 2, 3}), ones({3, 3, 2})), ag::ShapeError);
  REQUIRE_THROWS_WITH(ag::linear(ones({2, 3}), ones({2, 4})),
                      "linear: x must end in 4, got (2, 3)");
  REQUIRE_THROWS_WITH(ag::linear(ones({2, 3}), ones({3})),
                      "linear: weight must be (out, in), got (3)");
  REQUIRE_THROWS_WITH(ag::linear(ones({2, 3}), ones({4, 3}), ones({3})),
                      ContainsSubstring("linear: bias must be (4)"));
  REQUIRE_THROWS_WITH(ag::linear(ones({}), ones({2, 1})),
                      ContainsSubstring("linear: x must end in 1"));
}

TEST_CASE("gradients of matmul agree with differences for every kind of shape", "[matmul]") {
  const auto product = [](const Inputs& in) { return ag::matmul(in[0], in[1]); };
  const std::vector<std::pair<ag::Shape, ag::Shape>> shapes = {
      {{2, 3}, {3, 4}},       {{1, 1}, {1, 1}},    {{3}, {3}},
      {{2, 3}, {3}},          {{3}, {3, 2}},       {{2, 2, 3}, {2, 3, 1}},
      {{2, 2, 3}, {3, 2}},    {{2, 3}, {2, 3, 2}}, {{2, 1, 2, 3}, {4, 3, 2}},
      {{1, 2, 3}, {3, 3, 2}}, {{2, 2, 3}, {3}},    {{3}, {2, 3, 2}},
      {{2, 0}, {0, 3}},       {{0, 2}, {2, 3}},    {{0, 2, 3}, {3, 2}},
      {{2, 2, 0}, {0, 2}}};
  for (const auto& [a, b] : shapes) {
    CAPTURE(ag::text(a, " ", b));
    require_gradients(product, {random_array(a), random_array(b, -1, 1, 8)});
  }
}

TEST_CASE("gradients of linear agree with differences", "[matmul]") {
  const auto biased = [](const Inputs& in) { return ag::linear(in[0], in[1], in[2]); };
  const auto plain = [](const Inputs& in) { return ag::linear(in[0], in[1]); };
  for (const ag::Shape& shape : {ag::Shape{3}, {2, 3}, {2, 1, 3}, {0, 3}}) {
    require_gradients(
        biased, {random_array(shape), random_array({2, 3}, -1, 1, 8), random_array({2}, -1, 1, 9)});
    require_gradients(plain, {random_array(shape), random_array({1, 3}, -1, 1, 8)});
  }
  require_array(ag::linear(numbers({1, 2}, {2}), numbers({1, 1, 0, 2, 3, 0}, {3, 2}),
                           numbers({1, 0, -1}, {3})),
                {3}, {4, 4, 2});
}

TEST_CASE("contract is closed: its transposes and its sum over a batch have gradients",
          "[matmul]") {
  using ag::Transpose;
  const auto check = [](ag::Shape a, Transpose ta, ag::Shape b, Transpose tb, ag::Batch batch) {
    if (ta == Transpose::yes) std::swap(*a.rbegin(), *(a.rbegin() + 1));
    if (tb == Transpose::yes) std::swap(*b.rbegin(), *(b.rbegin() + 1));
    require_gradients([=](const Inputs& in) { return ag::contract(in[0], ta, in[1], tb, batch); },
                      {random_array(a), random_array(b, -1, 1, 8)});
  };
  for (const Transpose ta : {Transpose::no, Transpose::yes})
    for (const Transpose tb : {Transpose::no, Transpose::yes})
      for (const ag::Batch batch : {ag::Batch::keep, ag::Batch::sum}) {
        check({2, 2, 3}, ta, {2, 3, 4}, tb, batch);
        check({2, 2, 3}, ta, {1, 3, 4}, tb, batch);
        check({2, 3}, ta, {2, 3, 1}, tb, batch);
        check({2, 1, 1, 2}, ta, {1, 3, 2, 1}, tb, batch);
      }
  REQUIRE_THROWS_WITH(ag::contract(ag::constant(ag::ones({2, 3})), Transpose::yes,
                                   ag::constant(ag::ones({3, 2})), Transpose::no),
                      "matmul: inner sizes differ: a is (2, 3), b is (3, 2)");
}

TEST_CASE("the gradient of an operand without batch is summed over the batch", "[matmul][C55]") {
  const Variable a = numbers({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}),
                 b = numbers({9, 10, 11, 12}, {2, 2});
  {
    Tape tape;
    const Variable y = ag::matmul(a, b);
    const ag::Gradients g = tape.gradients(y, ag::constant(ag::ones({2, 2, 2})));
    require_array(g.of(b), {2, 2}, {16, 16, 20, 20});
    require_array(g.of(a), {2, 2, 2}, {19, 23, 19, 23, 19, 23, 19, 23});
  }
  const Variable one = ag::parameter(random_array({1, 2, 2}));
  Tape tape;
  const Variable y = ag::matmul(one, ag::constant(random_array({3, 2, 2})));
  REQUIRE(tape.gradients(y, ag::constant(ag::ones({3, 2, 2}))).of(one).shape() ==
          ag::Shape{1, 2, 2});
}

TEST_CASE("a vector operand gets a gradient of its own shape", "[matmul][C56]") {
  const Variable a = numbers({1, 2, 3, 4, 5, 6}, {2, 3}), b = numbers({1, 0, -1}, {3});
  Tape tape;
  const Variable y = ag::matmul(a, b);
  const ag::Gradients g = tape.gradients(y, numbers({1, 2}, {2}));
  require_array(g.of(a), {2, 3}, {1, 0, -1, 2, 0, -2});
  require_array(g.of(b), {3}, {9, 12, 15});
}

TEST_CASE("a result outlives the operands it was computed from", "[matmul][C99]") {
  const auto make = [] {
    return ag::matmul(numbers({1, 2}, {2}), numbers({1, 2, 3, 1, 2, 4}, {2, 3}));
  };
  auto&& y = make();
  require_array(y, {3}, {3, 6, 11});
}

TEST_CASE("products over an empty axis are zeros", "[matmul][C103]") {
  const auto none = [](const ag::Shape& shape) { return ag::constant(ag::zeros(shape)); };
  require_array(ag::matmul(none({2, 0}), none({0, 3})), {2, 3}, {0, 0, 0, 0, 0, 0});
  require_array(ag::matmul(none({0}), none({0})), {}, {0});
  require_array(ag::matmul(none({2, 1, 0}), none({0, 1})), {2, 1, 1}, {0, 0});
  REQUIRE(ag::matmul(none({0, 2}), none({2, 3})).shape() == ag::Shape{0, 3});
  REQUIRE(ag::matmul(none({0, 2, 3}), none({3, 4})).shape() == ag::Shape{0, 2, 4});
  REQUIRE(ag::linear(none({0, 3}), none({2, 3})).shape() == ag::Shape{0, 2});
  require_array(ag::linear(none({1, 0}), none({2, 0}), numbers({4, 5}, {2})), {1, 2}, {4, 5});
}

TEST_CASE("a slice of a batch multiplies its own numbers", "[matmul][C105]") {
  const Variable p = numbers({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}),
                 q = numbers({1, 2, 3, 4}, {2, 2, 1});
  require_array(ag::matmul(ag::select(p, 0, 1), ag::select(q, 0, 1)), {2, 1}, {39, 53});
  // overlapping rows
  const Variable x = numbers({1, 2, 3, 4, 5}, {5});
  const Variable rows =
      ag::stack({ag::slice(x, 0, {0, 3}), ag::slice(x, 0, {1, 4}), ag::slice(x, 0, {2, 5})});
  require_array(ag::matmul(rows, numbers({.25, .5, .25}, {3})), {3}, {2, 3, 4});
}

TEST_CASE("a matrix times its own transpose, whole or in part, is right", "[matmul]") {
  // xtensor-blas 0.20 to 0.23 answer (4, 4) to the first: it compares the start of the data only
  const Variable a = ag::constant(random_array({4, 6})), part = ag::slice(a, 0, {0, 3});
  const Variable y = ag::contract(a, ag::Transpose::no, part, ag::Transpose::yes);
  REQUIRE(y.shape() == ag::Shape{4, 3});
  require_close(y.value(), by_definition(a.value(), ag::transpose(part).value()),
                tolerance(1e-15, 1e-6));
  require_close(ag::matmul(a, ag::transpose(a)).value(),
                by_definition(a.value(), ag::transpose(a).value()), tolerance(1e-15, 1e-6));
}

TEST_CASE("gemm reads transposed matrices that are not square, and c only if beta is not 0",
          "[matmul][C106]") {
  namespace kernels = ag::kernels;
  const Array x = ag::array_of({1, 2, 3, 1, 2, 3}, {2, 3}),
              xt = ag::array_of({1, 1, 2, 2, 3, 3}, {3, 2});
  const Variable stored = ag::constant(x), flipped = ag::constant(xt);
  const std::vector<double> inner{2, 4, 6, 4, 8, 12, 6, 12, 18}, outer{14, 14, 14, 14};
  using ag::Transpose;
  require_array(ag::contract(stored, Transpose::yes, stored, Transpose::no), {3, 3}, inner);
  require_array(ag::contract(flipped, Transpose::no, flipped, Transpose::yes), {3, 3}, inner);
  require_array(ag::contract(stored, Transpose::no, stored, Transpose::yes), {2, 2}, outer);
  require_array(ag::contract(flipped, Transpose::yes, flipped, Transpose::no), {2, 2}, outer);

  const kernels::SingleThreadedBlas guard;
  Array c = ag::filled({3, 3}, std::numeric_limits<Real>::quiet_NaN());
  kernels::gemm<Real>({3, 3, 2}, 1, {x.data(), 3, true}, {x.data(), 3, false}, 0, c.data(), 3);
  require_close(c, inner, 0);
  c = ag::ones({3, 3});
  kernels::gemm<Real>({3, 3, 2}, 1, {x.data(), 3, true}, {x.data(), 3, false}, 1, c.data(), 3);
  require_close(c, {3, 5, 7, 5, 9, 13, 7, 13, 19}, 0);
  c = ag::filled({3, 3}, std::numeric_limits<Real>::quiet_NaN());
  kernels::gemm<Real>({3, 3, 0}, 1, {x.data(), 3, true}, {x.data(), 3, false}, 0, c.data(), 3);
  require_close(c, std::vector<double>(9, 0), 0);
}

TEST_CASE("large products are right at every tile and have the same bits on any number of threads",
          "[matmul]") {
  const ThreadsScope restore;
  for (const auto& [a_shape, b_shape] : {std::pair{ag::Shape{333, 130}, ag::Shape{130, 277}},
                                         {ag::Shape{3, 150, 70}, ag::Shape{3, 70, 170}}}) {
    const Array a = random_array(a_shape), b = random_array(b_shape, -1, 1, 8);
    ag::set_threads(1);
    const Array single = ag::matmul(ag::constant(a), ag::constant(b)).value();
    ag::set_threads(4);
    const Array several = ag::matmul(ag::constant(a), ag::constant(b)).value();
    require_close(single, by_definition(a, b), tolerance(1e-13, 1e-5));
    REQUIRE(std::equal(single.data(), single.data() + single.size(), several.data()));
  }
}

TEST_CASE("gemm is right at every size, read as stored or transposed, and writes c alone",
          "[matmul]") {
  const ag::kernels::SingleThreadedBlas guard;
  ag::Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    const auto rows = std::size_t(rng.integer(1, 50)), columns = std::size_t(rng.integer(1, 150)),
               inner = std::size_t(rng.integer(1, round % 4 == 0 ? 300 : 40));
    const bool flip_a = rng.uniform() < 0.5, flip_b = rng.uniform() < 0.5;
    const Real alpha = rng.uniform() < 0.7 ? 1 : Real(-0.5),
               beta = std::vector<Real>{0, 1, Real(0.25)}[std::size_t(rng.integer(0, 3))];
    CAPTURE(rows, columns, inner, flip_a, flip_b, alpha, beta);
    const Array a = random_array({rows, inner}), b = random_array({inner, columns}, -1, 1, 8);
    const Variable stored_a = flip_a ? ag::transpose(ag::constant(a)) : ag::constant(a),
                   stored_b = flip_b ? ag::transpose(ag::constant(b)) : ag::constant(b);
    const std::size_t stride = columns + 3;
    const Array before = random_array({rows, stride}, -1, 1, 9);
    Array c = before;
    ag::kernels::gemm<Real>(
        {rows, columns, inner}, alpha, {stored_a.value().data(), flip_a ? rows : inner, flip_a},
        {stored_b.value().data(), flip_b ? inner : columns, flip_b}, beta, c.data(), stride);
    const std::vector<double> product = by_definition(a, b);
    std::vector<double> expected(before.data(), before.data() + before.size());
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        expected[i * stride + j] =
            double(alpha) * product[i * columns + j] + double(beta) * expected[i * stride + j];
    require_close(c, expected, tolerance(1e-13, 1e-4));
  }
}
