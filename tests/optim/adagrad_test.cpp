#include "optim/adagrad.hpp"

#include "common/test.hpp"
#include "optim/given_gradients.hpp"

namespace {

Variable number(double value) { return ag::parameter(ag::array_of({value}, {})); }

void take_step(ag::Adagrad& optimizer, const Variable& p, double gradient) {
  optimizer.step(given_gradients({p}, {ag::array_of({gradient}, {})}), 0.1);
}

}  // namespace

TEST_CASE("Adagrad divides a gradient by the root of all squares so far", "[optim]") {
  Variable p = number(0);
  ag::Adagrad adagrad({{"p", p}});
  // the roots are 3, 5 and 13
  double expected = 0;
  for (const auto& [gradient, root] : {std::pair(3, 3.0), {4, 5.0}, {12, 13.0}}) {
    take_step(adagrad, p, gradient);
    expected -= 0.1 * gradient / root;
    require_close(p.value(), {expected});
  }
}

TEST_CASE("decay of Adagrad is part of the gradient that is squared", "[optim]") {
  Variable p = number(1);
  ag::Adagrad adagrad({{"p", p}}, {.weight_decay = 0.5, .decays = ag::decay_all});
  take_step(adagrad, p, 2.5);  // 3 with the decay
  require_close(p.value(), {0.9});
  take_step(adagrad, p, 3.55);  // 4 with the decay
  require_close(p.value(), {0.82});
  require_close(adagrad.state().find("sum_of_squares.p").value(), {25});
}

TEST_CASE("Adagrad leaves alone what has had no gradient but 0", "[optim]") {
  Variable p = number(2);
  ag::Adagrad adagrad({{"p", p}});
  take_step(adagrad, p, 0);
  require_close(p.value(), {2}, 0);
}

TEST_CASE("Adagrad goes on from a state that was handed over", "[optim]") {
  Variable p = number(1), q = number(1);
  ag::Adagrad first({{"p", p}});
  take_step(first, p, 3);
  ag::Adagrad second({{"p", q}});
  REQUIRE(second.state().names() == first.state().names());
  for (const auto& [name, value] : first.state())
    Variable(second.state().find(name)).assign(value.value());
  q.assign(p.value());
  take_step(first, p, 4);
  take_step(second, q, 4);
  require_close(q.value(), {double(p.item())}, 0);
}

TEST_CASE("Adagrad refuses an epsilon of 0 and a negative decay by name", "[optim]") {
  const ag::Parameters all{{"p", number(1)}};
  REQUIRE_THROWS_WITH(ag::Adagrad(all, {.epsilon = 0}),
                      ContainsSubstring("adagrad: epsilon must be positive, got 0"));
  REQUIRE_THROWS_WITH(ag::Adagrad(all, {.weight_decay = -1}),
                      ContainsSubstring("adagrad: weight_decay"));
}
