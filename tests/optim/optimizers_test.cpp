#include <functional>

#include "core/ops/elementwise.hpp"
#include "core/ops/loss.hpp"
#include "core/ops/reduce.hpp"
#include "core/parallel.hpp"
#include "layers/embedding.hpp"
#include "layers/linear.hpp"
#include "layers/normalization.hpp"
#include "optim/adam.hpp"
#include "optim/clip.hpp"
#include "optim/given_gradients.hpp"
#include "optim/sgd.hpp"

namespace {

Variable number(double value) { return ag::parameter(ag::array_of({value}, {})); }

// The value of a parameter that starts at `start` after one step per gradient, at rate 0.1.
Array after(ag::Optimizer& optimizer, Variable p, const std::vector<double>& gradients) {
  for (const double g : gradients)
    optimizer.step(given_gradients({p}, {ag::array_of({g}, p.shape())}), 0.1);
  return p.value();
}

using Make = std::function<std::unique_ptr<ag::Optimizer>(const ag::Parameters&)>;

template <class O, class Options>
Make make(const Options& options) {
  return [options](const ag::Parameters& p) { return std::make_unique<O>(p, options); };
}

}  // namespace

TEST_CASE("optimisers take the steps that PyTorch takes", "[optim]") {
  // numbers: tests/reference/optimizers.py
  struct Row {
    Make make;
    std::vector<double> expected;
  };
  const ag::SgdOptions decaying{.weight_decay = 0.1, .decays = ag::decay_all};
  const ag::SgdOptions momentum{.momentum = 0.9, .weight_decay = 0.1, .decays = ag::decay_all};
  const ag::SgdOptions nesterov{
      .momentum = 0.9, .nesterov = true, .weight_decay = 0.1, .decays = ag::decay_all};
  const ag::AdamOptions adam{0.8, 0.95, 1e-3, 0.1, ag::decay_all};
  const ag::AdamWOptions adamw{0.8, 0.95, 1e-3, 0.1, ag::decay_all};
  const std::vector<Row> rows{
      {make<ag::Sgd>(decaying), {0.87029702, -1.88049104, 0.289198305, 0.499901}},
      {make<ag::Sgd>(momentum), {0.84647762, -1.84509224, -0.438547545, 0.499811}},
      {make<ag::Sgd>(nesterov), {0.733006199042, -1.743084221084, -0.52608278336, 0.94973261}},
      {make<ag::Adam>(adam), {0.838413063725, -1.856642788335, 0.286361494711, 0.039469839376}},
      {make<ag::AdamW>(adamw), {0.874944255628, -1.907054702861, 0.275384529146, 0.039727241367}}};
  for (const Row& row : rows) {
    Variable w = ag::parameter(ag::array_of({1, -2, 0.5, 0}, {4}));
    const auto optimizer = row.make({{"w", w}});
    const std::vector<std::vector<double>> gradients{
        {0.1, -0.2, 3, 0}, {-0.4, 0.5, 1, 0}, {0.2, 0.3, -2, 1e-3}, {1, -1, 0, -5}};
    for (const auto& g : gradients)
      optimizer->step(given_gradients({w}, {ag::array_of(g, {4})}), 0.1);
    require_close(w.value(), row.expected, tolerance(1e-11, 1e-6));
  }
}

TEST_CASE("the first step of Adam is corrected for the moments' start at 0", "[optim][C81]") {
  Variable p = number(0);
  ag::Adam one({{"p", p}});
  require_close(after(one, p, {1}), {-0.1});
  Variable q = number(0);
  ag::Adam four({{"q", q}});
  require_close(after(four, q, {1, 2, 3, 4}), {-0.388359});
}

TEST_CASE("decay of AdamW does not pass through the moments, that of Adam does", "[optim][C82]") {
  Variable p = number(1), q = number(1);
  ag::AdamW decoupled({{"p", p}}, {.weight_decay = 0.1, .decays = ag::decay_all});
  ag::Adam coupled({{"q", q}}, {.weight_decay = 0.1, .decays = ag::decay_all});
  require_close(after(decoupled, p, {0}), {0.99});
  require_close(after(coupled, q, {0}), {0.9});
}

namespace {

struct DecayModel : ag::Layer {
  ag::Rng rng{1};
  ag::Embedding embedding{{.rows = 3, .width = 2}, rng};
  ag::LayerNorm norm{ag::LayerNormOptions{.width = 2}};
  ag::Linear head{{.in = 2, .out = 3}, rng};
  void visit(auto&& f) {
    f("embedding", embedding);
    f("norm", norm);
    f("head", head);
  }
};

ag::Gradients zero_gradients(const ag::Parameters& parameters) {
  std::vector<Variable> values;
  std::vector<Array> zeros;
  for (const auto& entry : parameters) {
    values.push_back(entry.value);
    zeros.push_back(ag::zeros(entry.value.shape()));
  }
  return given_gradients(values, zeros);
}

}  // namespace

TEST_CASE("decay leaves out biases, gains and shifts, and takes a tied weight once",
          "[optim][C83]") {
  for (const bool everything : {false, true}) {
    DecayModel model;
    model.head.weight = model.embedding.weight;
    const ag::Parameters all = ag::parameters(model);
    REQUIRE(all.names() ==
            std::vector<std::string>{"embedding.weight", "norm.weight", "norm.bias", "head.bias"});
    std::vector<std::vector<double>> expected;
    for (const auto& [name, x] : all) {
      const double kept = everything || x.rank() == 2 ? 0.99 : 1;
      expected.emplace_back();
      for (std::size_t i = 0; i < x.size(); ++i)
        expected.back().push_back(kept * double(x.value().data()[i]));
    }
    ag::AdamWOptions options{.weight_decay = 0.1};
    if (everything) options.decays = ag::decay_all;
    ag::AdamW(all, options).step(zero_gradients(all), 0.1);
    for (std::size_t i = 0; i < all.size(); ++i)
      require_close(all[i].value.value(), expected[i], tolerance(1e-12, 1e-6));
  }
}

TEST_CASE("a tied weight is updated once, by the sum of its gradients", "[optim][C84]") {
  Variable w = number(1);
  ag::Sgd sgd({{"embedding", w}, {"head", w}});
  Tape tape;
  sgd.step(tape.gradients(ag::add(w, w)), 0.1);
  require_close(w.value(), {0.8});
}

TEST_CASE("a step after a loss without targets changes nothing", "[optim][C75]") {
  const Make optimizers[] = {make<ag::Sgd>(ag::SgdOptions{.momentum = 0.9}),
                             make<ag::Adam>(ag::AdamOptions{}),
                             make<ag::AdamW>(ag::AdamWOptions{.weight_decay = 0})};
  for (const Make& make : optimizers) {
    Variable logits = ag::parameter(ag::array_of({1, 2, 3, 4, 5, 6}, {2, 3}));
    ag::Indices targets = ag::Indices::from_shape({2});
    targets.fill(-100);
    Tape tape;
    const Variable loss = ag::cross_entropy(logits, targets, {.ignore_index = -100});
    REQUIRE(loss.item() == 0);
    make({{"logits", logits}})->step(tape.gradients(loss), 0.1);
    require_close(logits.value(), {1, 2, 3, 4, 5, 6}, 0);
  }
}

TEST_CASE("a parameter the loss does not reach is left alone, and its steps are not counted",
          "[optim]") {
  Variable p = number(1), late = number(0), frozen = ag::constant(ag::ones({2, 2}));
  ag::AdamW adamw({{"p", p}, {"late", late}, {"frozen", frozen}},
                  {.weight_decay = 0.1, .decays = ag::decay_all});
  REQUIRE(adamw.parameters().names() == std::vector<std::string>{"p", "late"});
  for (int i = 0; i < 3; ++i) adamw.step(given_gradients({p}, {ag::ones({})}), 0.1);
  REQUIRE(late.item() == 0);
  REQUIRE(late.version() == 0);
  adamw.step(given_gradients({p, late}, {ag::ones({}), ag::ones({})}), 0.1);
  require_close(late.value(), {-0.1});  // its first step
  REQUIRE(adamw.state().find("steps.late").item() == 1);
  REQUIRE(adamw.state().find("steps.p").item() == 4);
}

TEST_CASE("a step and clipping make no gradient for what the loss does not reach", "[optim]") {
  const Variable used = ag::parameter(ag::ones({3})), unused = ag::parameter(ag::ones({100000}));
  const ag::Parameters parameters{{"used", used}, {"unused", unused}};
  ag::Sgd optimizer(parameters);
  Tape tape;
  const ag::Gradients gradients = tape.gradients(ag::sum(ag::square(used)));
  const std::size_t before = ag::pool_statistics().bytes_alive;
  const double factor = double(ag::clip_norm(parameters, gradients, 1).factor);
  optimizer.step(gradients, 0.1, factor);
  REQUIRE(ag::pool_statistics().bytes_alive < before + 100000 * sizeof(Real));
}

TEST_CASE("a step applies the factor to the gradient and leaves the gradient as it was",
          "[optim]") {
  Variable p = ag::parameter(ag::array_of({1, 1}, {2}));
  const ag::Gradients gradients = given_gradients({p}, {ag::array_of({3, 4}, {2})});
  ag::Sgd({{"p", p}}, {.momentum = 0.5}).step(gradients, 1, 0.5);
  require_close(p.value(), {-0.5, -1}, 0);
  require_close(gradients.of(p).value(), {3, 4}, 0);
}

TEST_CASE("a value that a tape has saved may not be stepped before its gradients", "[optim]") {
  Variable p = number(2);
  Tape tape;
  const Variable loss = ag::square(p);
  ag::Sgd({{"p", p}}).step(given_gradients({p}, {ag::ones({})}), 0.1);
  REQUIRE_THROWS_AS(tape.gradients(loss), ag::TapeError);
}

TEST_CASE("parameters longer than a piece have the same bits on one thread and on three",
          "[optim]") {
  const int before = ag::threads();
  std::vector<Array> results;
  for (const int threads : {1, 3}) {
    ag::set_threads(threads);
    Variable p = ag::parameter(random_array({3, 20001})), empty = ag::parameter(ag::zeros({0, 4}));
    ag::AdamW adamw({{"p", p}, {"empty", empty}});
    const Array g = random_array({3, 20001}, -1, 1, 8);
    for (int i = 0; i < 2; ++i) adamw.step(given_gradients({p, empty}, {g, empty.value()}), 0.01);
    results.push_back(p.value());
  }
  ag::set_threads(before);
  REQUIRE(std::equal(results[0].data(), results[0].data() + results[0].size(), results[1].data()));
}

TEST_CASE("options and rates outside their range are refused by name", "[optim]") {
  Variable p = number(1);
  const ag::Parameters all{{"p", p}};
  REQUIRE_THROWS_WITH(ag::Sgd(all, {.momentum = 1}), "sgd: momentum must be in [0, 1), got 1");
  REQUIRE_THROWS_WITH(ag::Sgd(all, {.nesterov = true}), "sgd: nesterov needs momentum");
  REQUIRE_THROWS_WITH(ag::Adam(all, {.beta2 = 1}), ContainsSubstring("adam: beta1 and beta2"));
  REQUIRE_THROWS_WITH(ag::AdamW(all, {.epsilon = 0}),
                      ContainsSubstring("epsilon must be positive"));
  REQUIRE_THROWS_WITH(ag::AdamW(all, {.weight_decay = -1}), ContainsSubstring("weight_decay"));
  ag::Sgd sgd(all);
  const ag::Gradients gradients = given_gradients({p}, {ag::ones({})});
  REQUIRE_THROWS_WITH(sgd.step(gradients, -0.1), ContainsSubstring("sgd: rate must be finite"));
  REQUIRE_THROWS_AS(sgd.step(gradients, 0.1, std::nan("")), ag::ArgumentError);
  REQUIRE(p.item() == 1);
}

TEST_CASE("a parameter whose shape was changed behind the gradient's back is refused", "[optim]") {
  Variable p = ag::parameter(ag::ones({4}));
  ag::Sgd sgd(ag::Parameters{{"p", p}});
  const ag::Gradients gradients = given_gradients({p}, {ag::ones({4})});
  p.edit() = ag::ones({1});
  REQUIRE_THROWS_WITH(sgd.step(gradients, 0.1),
                      ContainsSubstring("(1)") && ContainsSubstring("(4)"));
  // made larger before the gradient was taken: the state of the optimiser is too small
  ag::Adam adam(ag::Parameters{{"p", p}});
  p.edit() = ag::ones({300});
  REQUIRE_THROWS_WITH(adam.step(given_gradients({p}, {ag::ones({300})}), 0.1),
                      ContainsSubstring("(1)") && ContainsSubstring("(300)"));
  REQUIRE(p.value().data()[299] == 1);
}

TEST_CASE("an optimiser without anything to train is refused", "[optim]") {
  const Variable constant = ag::constant(ag::ones({2}));
  REQUIRE_THROWS_WITH(ag::Sgd(ag::Parameters{{"x", constant}}),
                      ContainsSubstring("sgd: none of 1 variables needs a gradient"));
  REQUIRE_THROWS_AS(ag::Adam(ag::Parameters()), ag::ArgumentError);
}
