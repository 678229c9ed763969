// What a tape records and what its gradients are; misuse is in tape_errors_test.cpp, higher orders
// in tape_nested_test.cpp, memory and threads in tape_memory_test.cpp.
#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace {

Variable scalar(double x) { return ag::parameter(ag::array_of({x}, {})); }

double gradient(const ag::Gradients& gradients, const Variable& x) {
  return double(gradients.of(x).item());
}

}  // namespace

TEST_CASE("a value used twice receives both gradients, also when it is no leaf", "[tape][C26]") {
  const Variable a = scalar(1);
  Tape tape;
  const Variable b = a + a;
  const Variable c = b + b;
  tape.watch(b);
  const ag::Gradients gradients = tape.gradients(c);
  REQUIRE(gradient(gradients, a) == 4);
  REQUIRE(gradient(gradients, b) == 2);
}

TEST_CASE("a sub-expression shared by two terms counts once for each", "[tape][C27]") {
  const Variable x = scalar(1);
  const Variable k(Real(1));
  Tape tape;
  const Variable xk = x * k;
  const Variable f = x * xk + x * xk + (x * x) * k;
  REQUIRE(f.item() == 3);
  REQUIRE(gradient(tape.gradients(f), x) == 6);
}

TEST_CASE("a chain of diamonds sums over all its paths", "[tape]") {
  const Variable x = scalar(1);
  Tape tape;
  Variable y = x;
  for (int i = 0; i < 20; ++i) y = y * Real(0.25) + y * Real(0.75) + (y - y);
  REQUIRE(y.item() == 1);
  REQUIRE(gradient(tape.gradients(y), x) == 1);
}

TEST_CASE("the first step of a loop starts from no gradient", "[tape][C29]") {
  Variable x = scalar(1);
  for (const double after : {0.8, 0.6}) {
    Tape tape;
    const ag::Gradients gradients = tape.gradients(2 * x);
    x.edit().data()[0] -= Real(0.1) * gradients.of(x).item();
    require_close(x.value(), {after});
  }
}

TEST_CASE("without a tape nothing is recorded", "[tape]") {
  const Variable x = scalar(2);
  REQUIRE_FALSE(ag::recording());
  const Variable y = x * x;
  REQUIRE(y.item() == 4);
  REQUIRE_FALSE(y.needs_grad());
  Tape tape;
  REQUIRE(ag::recording());
  REQUIRE(tape.size() == 0);
  const Variable loss = y + x;  // y entered as a constant
  REQUIRE(gradient(tape.gradients(loss), x) == 1);
}

TEST_CASE("an op is recorded only if an input needs a gradient", "[tape]") {
  const Variable x = scalar(2), c(Real(3));
  Tape tape;
  const Variable of_constants = ag::exp(c) * c;
  REQUIRE(tape.size() == 0);
  REQUIRE_FALSE(of_constants.needs_grad());
  const Variable y = x * c;
  REQUIRE(tape.size() == 1);
  REQUIRE(y.needs_grad());
}

TEST_CASE("nothing is recorded under a pause, and pauses nest", "[tape]") {
  const Variable x = scalar(2);
  Tape tape;
  {
    ag::Pause outer;
    {
      ag::Pause inner;
    }
    REQUIRE_FALSE(ag::recording());
    REQUIRE_FALSE((x * x).needs_grad());
  }
  REQUIRE(ag::recording());
  REQUIRE(tape.size() == 0);
  Variable stopped;
  {
    ag::Pause pause;
    stopped = x * x;
  }
  REQUIRE(gradient(tape.gradients(x * stopped), x) == 4);
}

TEST_CASE("detach cuts a value off from how it was computed", "[tape]") {
  const Variable x = scalar(3);
  Tape tape;
  const Variable y = x * x;
  REQUIRE(gradient(tape.gradients(y * ag::detach(y)), x) == 6 * 9);
}

TEST_CASE("an intermediate value that was watched has its gradient returned", "[tape]") {
  const Variable x = scalar(3);
  Tape tape;
  const Variable y = x * x, z = y * y, unused = x + x;
  for (const Variable& watched : {y, z, x, unused}) tape.watch(watched);
  const ag::Gradients gradients = tape.gradients(z);
  REQUIRE(gradient(gradients, z) == 1);
  REQUIRE(gradient(gradients, y) == 18);
  REQUIRE(gradient(gradients, x) == 108);
  REQUIRE(gradients.reached(y));
  REQUIRE_FALSE(gradients.reached(unused));
  REQUIRE(gradient(gradients, unused) == 0);
}

TEST_CASE("a tape that is kept can be asked again, for other losses too", "[tape]") {
  const Variable x = scalar(3);
  Tape tape;
  const Variable y = x * x, z = y * x;
  for (int i = 0; i < 2; ++i) REQUIRE(gradient(tape.gradients(z, ag::keep), x) == 27);
  REQUIRE(gradient(tape.gradients(y, ag::keep), x) == 6);
  REQUIRE(gradient(tape.gradients(z), x) == 27);
}

TEST_CASE("a seed gives the product of a vector with the Jacobian", "[tape]") {
  const Variable x = ag::parameter(ag::array_of({1, 2, 3}, {3}));
  const Variable seed(ag::array_of({1, 10, 100}, {3}));
  Tape tape;
  const Variable y = x * x;
  require_close(tape.gradients(y, seed, ag::keep).of(x).value(), {2, 40, 600});
  for (std::size_t row = 0; row < 3; ++row) {  // and so the Jacobian, row by row
    Array unit = ag::zeros({3});
    unit.data()[row] = 1;
    std::vector<double> expected(3, 0.0);
    expected[row] = 2.0 * double(row + 1);
    require_close(tape.gradients(y, Variable(unit), ag::keep).of(x).value(), expected);
  }
  require_close(seed.value(), {1, 10, 100});
}

TEST_CASE("the seed of a sum of a value with itself is not changed", "[tape]") {
  const Variable x = ag::parameter(ag::array_of({1, 2}, {2})), seed(ag::ones({2}));
  Tape tape;
  const Variable y = (x + x) + x;
  require_close(tape.gradients(y, seed).of(x).value(), {3, 3});
  require_close(seed.value(), {1, 1});
}

TEST_CASE("gradients of two parameters of one sum do not share later additions", "[tape]") {
  const Variable a = scalar(1), b = scalar(2);
  Tape tape;
  const Variable s = a + b;      // both receive the same gradient
  const Variable y = s + a * 3;  // and then a receives more
  const ag::Gradients gradients = tape.gradients(y);
  REQUIRE(gradient(gradients, a) == 4);
  REQUIRE(gradient(gradients, b) == 1);
}

TEST_CASE("a loss of any shape with one element will do", "[tape]") {
  const Variable x = ag::parameter(ag::array_of({3}, {1, 1}));
  Tape tape;
  const ag::Gradients gradients = tape.gradients(x * x);
  REQUIRE(gradients.of(x).shape() == ag::Shape{1, 1});
  REQUIRE(gradient(gradients, x) == 6);
}

TEST_CASE("the gradient of a parameter with respect to itself is one", "[tape]") {
  const Variable x = scalar(3);
  Tape tape;
  REQUIRE(gradient(tape.gradients(x), x) == 1);
}

TEST_CASE("a parameter that the loss does not depend on has gradient zero", "[tape]") {
  const Variable x = scalar(3), other = ag::parameter(ag::zeros({2, 3}));
  Tape tape;
  const ag::Gradients gradients = tape.gradients(x * x);
  REQUIRE(gradients.reached(x));
  REQUIRE_FALSE(gradients.reached(other));
  REQUIRE(gradients.of(other).shape() == ag::Shape{2, 3});
  require_close(gradients.of(other).value(), std::vector<double>(6, 0.0));
}

TEST_CASE("a loss that depends on no parameter has zero gradients", "[tape]") {
  const Variable x = scalar(3), c(Real(2));
  Tape tape;
  const ag::Gradients gradients = tape.gradients(ag::step(c) * c);
  REQUIRE(gradient(gradients, x) == 0);
  REQUIRE_FALSE(gradients.reached(x));
}

TEST_CASE("a loss that is a step of a parameter has gradient zero", "[tape]") {
  const Variable x = scalar(3);
  Tape tape;
  REQUIRE(gradient(tape.gradients(ag::sign(x), ag::keep), x) == 0);
  REQUIRE(gradient(tape.gradients(ag::step(x)), x) == 0);
}

TEST_CASE("gradients of several losses add up and scale", "[tape]") {
  const Variable a = scalar(2), b = scalar(5), c = scalar(7);
  ag::Gradients total;
  {
    Tape tape;
    const Variable unused = a * a;
    tape.watch(unused);  // watched, but not reached by the loss
    total += tape.gradients(a * b);
  }
  {
    Tape tape;
    total += tape.gradients(a * a);
  }
  total.scale(Real(0.5));
  REQUIRE(gradient(total, a) == 4.5);
  REQUIRE(gradient(total, b) == 1);
  REQUIRE(gradient(total, c) == 0);
  total += total;
  REQUIRE(gradient(total, a) == 9);
}

TEST_CASE("adding gradients leaves those that were added as they are", "[tape]") {
  const Variable a = scalar(2);
  std::vector<ag::Gradients> parts;
  for (int i = 0; i < 2; ++i) {
    Tape tape;
    parts.push_back(tape.gradients(a * a));
  }
  ag::Gradients total = parts[0];
  total += parts[1];
  total += parts[1];
  REQUIRE(gradient(total, a) == 12);
  REQUIRE(gradient(parts[0], a) == 4);
  REQUIRE(gradient(parts[1], a) == 4);
}

TEST_CASE("ops may go on after a tape was used up", "[tape]") {
  const Variable x = scalar(3);
  Tape tape;
  const Variable y = x * x;
  tape.gradients(y);
  const Variable more = y * x;  // recorded, though nobody can ask any more
  REQUIRE(more.item() == 27);
  Tape inner;
  REQUIRE(gradient(inner.gradients(x * y), x) == 9);
}

TEST_CASE("a list of inputs of any length gets one gradient each", "[tape]") {
  const Variable a = scalar(2), b = scalar(3), fixed(Real(4));
  const std::vector<Variable> inputs{a, fixed, b, a};
  const auto weighted_sum = [&] {
    Array y = ag::zeros({});
    for (std::size_t i = 0; i < inputs.size(); ++i) y.data()[0] += Real(i + 1) * inputs[i].item();
    return ag::record_list("weighted_sum", Variable(y), inputs,
                           [](std::size_t i, const Variable& g) { return g * Real(i + 1); });
  };
  Tape tape;
  const Variable y = weighted_sum();
  REQUIRE(y.item() == 2 + 8 + 9 + 8);
  const ag::Gradients gradients = tape.gradients(y);
  REQUIRE(gradient(gradients, a) == 5);
  REQUIRE(gradient(gradients, b) == 3);
  REQUIRE_FALSE(gradients.reached(fixed));
}
