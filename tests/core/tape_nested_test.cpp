// Gradients of gradients: nested tapes, and joint ops by their composed form.
#include <cmath>

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace {

Variable scalar(double x) { return ag::parameter(ag::array_of({x}, {})); }

using Scalars = Variable (*)(const Variable&);

// The derivative of this order, by as many nested tapes.
Variable derivative(Scalars f, const Variable& x, int order) {
  if (order == 0) return f(x);
  Tape tape;
  return tape.gradients(derivative(f, x, order - 1)).of(x);
}

// x^3, with a backward by hand that counts how often it runs, and its composed form.
int analytic_runs = 0;
Variable joint_cube(const Variable& x) {
  Array y = x.value();
  for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] *= y.data()[i] * y.data()[i];
  return ag::record_joint(
      "joint_cube", Variable(y), {x},
      [value = x.value()](const Array& g) {
        ++analytic_runs;
        std::vector<Array> gradients = ag::list_of(g);
        for (std::size_t i = 0; i < value.size(); ++i)
          gradients[0].data()[i] *= 3 * value.data()[i] * value.data()[i];
        return gradients;
      },
      [](const std::vector<Variable>& in) { return in[0] * in[0] * in[0]; });
}

}  // namespace

TEST_CASE("the third and fifth derivative of sin are those of calculus", "[tape]") {
  const Variable x = scalar(0.7);
  const double expected[] = {std::sin(0.7),  std::cos(0.7), -std::sin(0.7),
                             -std::cos(0.7), std::sin(0.7), std::cos(0.7)};
  for (int order = 0; order <= 5; ++order)
    REQUIRE(std::abs(double(derivative(ag::sin, x, order).item()) - expected[order]) <
            tolerance(1e-15, 1e-6));
}

TEST_CASE("the second derivative of a linear function is zero, not an error", "[tape][C36]") {
  const Variable one = scalar(1), two = scalar(2);
  const Scalars twice = [](const Variable& x) { return 2 * x; };
  const Scalars cube = [](const Variable& x) { return x * x * x; };
  REQUIRE(derivative(twice, one, 1).item() == 2);
  REQUIRE(derivative(twice, one, 2).item() == 0);
  REQUIRE(derivative(cube, two, 1).item() == 12);
  REQUIRE(derivative(cube, two, 2).item() == 12);
  REQUIRE(derivative(cube, two, 3).item() == 6);
  REQUIRE(derivative(cube, two, 4).item() == 0);
}

TEST_CASE("a Hessian times a vector by a tape within a tape", "[tape]") {
  // f = sum x_i^3 / 6 + x_0 x_1: the Hessian is diag(x) plus ones at (0, 1) and (1, 0)
  const Variable x = ag::parameter(ag::array_of({2, 3, 5}, {3}));
  const Variable v(ag::array_of({1, 10, 100}, {3}));
  const Variable cross(ag::array_of({1, 0, 0}, {3}));
  Tape outer;
  Variable gradient;
  {
    Tape inner;
    const Variable x0 = ag::sum(x * cross);
    const Variable x1 = ag::sum(x * Variable(ag::array_of({0, 1, 0}, {3})));
    gradient = inner.gradients(ag::sum(ag::pow(x, 3)) / Real(6) + x0 * x1).of(x);
    require_close(gradient.value(), {2 + 3, 4.5 + 2, 12.5});
  }
  require_close(outer.gradients(ag::sum(gradient * v)).of(x).value(), {2 + 10, 30 + 1, 500});
}

TEST_CASE("an inner gradient with respect to an outer intermediate stops there", "[tape]") {
  const Variable x = scalar(3);
  Tape outer;
  const Variable y = x * x;
  Variable dz;
  {
    Tape inner;
    const Variable z = y * y * y;  // y was recorded before the inner tape
    const ag::Gradients gradients = inner.gradients(z);
    dz = gradients.of(y);
    REQUIRE(dz.item() == 3 * 81);
    REQUIRE_FALSE(gradients.reached(x));
  }
  // d/dx 3 x^4 = 12 x^3
  REQUIRE(outer.gradients(dz).of(x).item() == 12 * 27);
}

TEST_CASE("what an inner tape recorded still carries the outer gradient", "[tape]") {
  const Variable x = scalar(3);
  Tape outer;
  Variable y;
  {
    Tape inner;
    y = x * x;
    REQUIRE(inner.gradients(y * x).of(x).item() == 27);
  }
  REQUIRE(outer.gradients(y * x).of(x).item() == 27);
}

TEST_CASE("a step along a gradient can be differentiated", "[tape]") {
  // meta-learning: w' = w - r dL/dw, L = (w - t)^2; d(w' - t)^2 / dr = -4 (w - t)^2 (1 - 2 r)
  const Variable rate = scalar(0.25), w = scalar(1), t(Real(3));
  Tape outer;
  Variable next;
  {
    Tape inner;
    next = w - rate * inner.gradients(ag::square(w - t)).of(w);
  }
  const ag::Gradients gradients = outer.gradients(ag::square(next - t));
  REQUIRE(gradients.of(rate).item() == -4 * 4 * Real(0.5));
  REQUIRE(gradients.of(w).item() == 2 * (-2) * Real(0.5) * Real(0.5));
}

TEST_CASE("a pause inside an outer tape makes inner gradients plain numbers", "[tape]") {
  const Variable x = scalar(3);
  Tape outer;
  Tape inner;
  const Variable y = x * x * x;
  const std::size_t before = outer.size();
  ag::Pause pause;
  const Variable g = inner.gradients(y).of(x);
  REQUIRE(g.item() == 27);
  REQUIRE_FALSE(g.needs_grad());
  REQUIRE(outer.size() == before);
}

TEST_CASE("a joint op uses its backward once, and its composed form for higher orders", "[tape]") {
  const Variable x = scalar(2);
  analytic_runs = 0;
  REQUIRE(derivative(joint_cube, x, 1).item() == 12);
  REQUIRE(analytic_runs == 1);
  REQUIRE(derivative(joint_cube, x, 2).item() == 12);
  REQUIRE(analytic_runs == 1);
  REQUIRE(derivative(joint_cube, x, 3).item() == 6);
}

TEST_CASE("a joint op of intermediate values hands its gradients on", "[tape]") {
  require_gradients(
      [](const std::vector<Variable>& in) {
        const Variable y = joint_cube(in[0] * in[1]);
        return joint_cube(y + in[0]) * in[1];
      },
      {random_array({2, 3}, 0.5, 1), random_array({3}, 0.5, 1, 8)});
}

TEST_CASE("a joint op given the same input twice counts each once, to second order", "[tape]") {
  const auto joint_product = [](const Variable& a, const Variable& b) {
    const Array u = a.value(), v = b.value();
    const auto times = [](const Array& g, const Array& by) {
      Array product = g;
      for (std::size_t i = 0; i < g.size(); ++i) product.data()[i] *= by.data()[i];
      return product;
    };
    return ag::record_joint(
        "joint_product", Variable(times(u, v)), {a, b},
        [=](const Array& g) { return ag::list_of(times(g, v), times(g, u)); },
        [](const std::vector<Variable>& in) { return in[0] * in[1]; });
  };
  require_gradients(
      [&](const std::vector<Variable>& in) {
        const Variable x = ag::sin(in[0]);
        return joint_product(x, x) * joint_product(in[0], x) + joint_product(in[0], in[0]);
      },
      {random_array({4})});
}

TEST_CASE("a composed form with the wrong shape is an error that names the op", "[tape][errors]") {
  const Variable x = ag::parameter(ag::ones({2}));
  Tape outer, inner;
  const Variable y = ag::record_joint(
      "crooked", Variable(ag::ones({2})), {x}, [](const Array& g) { return ag::list_of(g); },
      [](const std::vector<Variable>& in) { return ag::sum(in[0]); });
  REQUIRE_THROWS_WITH(inner.gradients(ag::sum(y)),
                      "crooked: the composed form has shape (), the op (2)");
}
