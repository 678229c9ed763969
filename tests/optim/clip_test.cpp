#include "optim/clip.hpp"

#include <limits>

#include "optim/given_gradients.hpp"
#include "optim/sgd.hpp"

namespace {

struct Two {
  Variable a = ag::parameter(ag::zeros({2})), b = ag::parameter(ag::zeros({1}));
  ag::Parameters parameters{{"a", a}, {"b", b}};

  ag::Gradients gradients(double a0, double a1, double b0) const {
    return given_gradients({a, b}, {ag::array_of({a0, a1}, {2}), ag::array_of({b0}, {1})});
  }
  // What -step writes into parameters that are 0: the clipped gradients.
  void step(const ag::Gradients& gradients, double limit) const {
    ag::Sgd(parameters).step(gradients, 1, ag::clip_norm(parameters, gradients, limit).factor);
  }
};

}  // namespace

TEST_CASE("clipping measures all gradients together", "[optim][C86]") {
  const Two two;
  const ag::Gradients gradients = two.gradients(3, 4, 12);
  const ag::Clip clip = ag::clip_norm(two.parameters, gradients, 1);
  REQUIRE(clip.norm == 13);
  two.step(gradients, 1);
  require_close(two.a.value(), {-0.230769, -0.307692});
  require_close(two.b.value(), {-0.923077});
  require_close(gradients.of(two.a).value(), {3, 4}, 0);
}

TEST_CASE("gradients of zero stay zero when clipped", "[optim][C86]") {
  const Two two;
  const ag::Gradients gradients = two.gradients(0, 0, 0);
  REQUIRE(ag::clip_norm(two.parameters, gradients, 1).norm == 0);
  two.step(gradients, 1);
  require_close(two.a.value(), {0, 0}, 0);
  REQUIRE(ag::clip_norm(two.parameters, ag::Gradients(), 1).factor == 1);
}

TEST_CASE("gradients whose norm is not above the limit are not changed", "[optim][C86]") {
  const Two two;
  REQUIRE(ag::clip_norm(two.parameters, two.gradients(3, 4, 12), 13).factor == 1);
  two.step(two.gradients(3, 4, 12), 14);
  require_close(two.a.value(), {-3, -4}, 0);
  require_close(two.b.value(), {-12}, 0);
}

TEST_CASE("a norm that is not finite throws, names the parameter and changes nothing", "[optim]") {
  const Two two;
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const ag::Gradients gradients = two.gradients(1, 2, bad);
    REQUIRE_THROWS_WITH(two.step(gradients, 1),
                        ContainsSubstring("not finite") && ContainsSubstring("at b"));
    require_close(two.a.value(), {0, 0}, 0);
    require_close(gradients.of(two.a).value(), {1, 2}, 0);
  }
  REQUIRE_THROWS_AS(ag::clip_norm(two.parameters, two.gradients(1, 1, 1), 0), ag::ArgumentError);
}

TEST_CASE("the norm of a long gradient is summed in double", "[optim]") {
  Variable p = ag::parameter(ag::zeros({100000}));
  const ag::Gradients gradients = given_gradients({p}, {ag::filled({100000}, Real(0.1))});
  const double expected = double(Real(0.1)) * std::sqrt(100000.0);
  REQUIRE(std::abs(ag::clip_norm({{"p", p}}, gradients, 1).norm - expected) < 1e-10);
}
