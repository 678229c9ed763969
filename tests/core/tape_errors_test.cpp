// Misuse of recording is an error with a sentence that says what to do, and leaves everything
// usable.
#ifdef __linux__
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <csignal>
#include <memory>
#include <thread>

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace {

Variable scalar(double x) { return ag::parameter(ag::array_of({x}, {})); }

// The square, of an op with one joint backward that the caller gives.
Variable joint_square(const Variable& x, ag::JointBackward backward) {
  Variable y;
  {
    ag::Pause pause;
    y = x * x;
  }
  return ag::record_joint("joint_square", Variable(y.value()), {x}, std::move(backward),
                          [](const std::vector<Variable>& in) { return in[0] * in[0]; });
}

}  // namespace

TEST_CASE("a value of a tape that has ended cannot enter another", "[tape][errors]") {
  const Variable x = scalar(2);
  Variable old;
  {
    Tape tape;
    old = x * x;
  }
  REQUIRE((old * old).item() == 16);  // outside of tapes it is a value like any other
  Tape tape;
  REQUIRE_THROWS_AS(ag::exp(old), ag::TapeError);
  REQUIRE_THROWS_WITH(
      ag::exp(old),
      "exp: an input of shape () was recorded on a tape that has ended, or of another "
      "thread; use its value (item, detach) or compute it again");
  REQUIRE(double(tape.gradients(ag::detach(old) * x).of(x).item()) == 4);
}

TEST_CASE("a saved value that was edited is named by its op", "[tape][errors][C30]") {
  Variable a = ag::parameter(ag::array_of({1, 2, 3}, {3}));
  SECTION("the output that sigmoid saved") {
    Tape tape;
    Variable b = ag::sigmoid(a);
    const Variable loss = ag::sum(b);
    b.edit().data()[1] = 2;
    REQUIRE_THROWS_AS(tape.gradients(loss, ag::keep), ag::TapeError);
    REQUIRE_THROWS_WITH(tape.gradients(loss),
                        "sigmoid: a value of shape (3) that the derivative "
                        "needs was changed after it was recorded");
  }
  SECTION("an operand that multiply saved") {
    Variable w = ag::parameter(ag::ones({3}));
    Tape tape;
    const Variable loss = ag::sum(a * w);
    w.assign(ag::zeros({3}));
    REQUIRE_THROWS_WITH(tape.gradients(loss), ContainsSubstring("multiply: a value of shape (3)"));
  }
  SECTION("a value that no derivative needs may change") {
    Tape tape;
    Variable b = a + a;
    const Variable loss = ag::sum(b);
    b.edit().data()[1] = 2;
    require_close(tape.gradients(loss).of(a).value(), {2, 2, 2});
  }
}

TEST_CASE("a loss has one element", "[tape][errors]") {
  const Variable x = ag::parameter(ag::ones({2, 3}));
  Tape tape;
  const Variable y = x * x;
  REQUIRE_THROWS_AS(tape.gradients(y), ag::ShapeError);
  REQUIRE_THROWS_WITH(tape.gradients(y),
                      "gradients: the loss must have one element, got shape (2, 3)");
  REQUIRE_THROWS_WITH(tape.gradients(y, Variable(ag::ones({3}))),
                      "gradients: seed must be (2, 3) like y, got (3)");
  REQUIRE(double(tape.gradients(ag::sum(y)).of(x).value().data()[0]) == 2);  // nothing is used up
}

TEST_CASE("gradients cannot be asked twice of a tape that was not kept", "[tape][errors]") {
  const Variable x = scalar(2);
  Tape tape;
  const Variable y = x * x;
  tape.gradients(y);
  REQUIRE_THROWS_AS(tape.gradients(y), ag::TapeError);
  REQUIRE_THROWS_WITH(tape.gradients(y), ContainsSubstring("used up; pass `keep`"));
}

TEST_CASE("only the innermost tape can be asked", "[tape][errors]") {
  const Variable x = scalar(2);
  Tape outer;
  const Variable y = x * x;
  {
    Tape inner;
    REQUIRE_THROWS_AS(outer.gradients(y), ag::TapeError);
    REQUIRE_THROWS_WITH(outer.gradients(y), ContainsSubstring("a tape opened later"));
  }
  REQUIRE(double(outer.gradients(y).of(x).item()) == 4);
}

TEST_CASE("the gradient of an intermediate value has to be watched", "[tape][errors]") {
  const Variable x = scalar(2);
  Tape tape;
  const Variable y = x * x;
  const ag::Gradients gradients = tape.gradients(y * y);
  REQUIRE_THROWS_AS(gradients.of(y), ag::TapeError);
  REQUIRE_THROWS_WITH(gradients.of(y), ContainsSubstring("Tape::watch"));
  ag::Gradients total;
  total += gradients;
  REQUIRE_THROWS_AS(total.of(y), ag::TapeError);
}

TEST_CASE("a loss has to be computed under the tape that is asked", "[tape][errors]") {
  const Variable x = scalar(2);
  const char* message = "gradients: the loss was not computed under this tape";
  const Variable before = x * x;
  Tape outer;
  REQUIRE_THROWS_WITH(outer.gradients(before), message);
  REQUIRE_THROWS_WITH(outer.gradients(Variable(Real(1))), message);
  const Variable between = x * x;
  Tape inner;
  REQUIRE_THROWS_WITH(inner.gradients(between), message);
  ag::Pause pause;
  REQUIRE_THROWS_WITH(inner.gradients(x * x), message);
}

TEST_CASE("a variable that holds nothing says so", "[tape][errors]") {
  const Variable nothing;
  REQUIRE_FALSE(nothing.holds_value());
  REQUIRE_THROWS_AS(nothing.value(), ag::TapeError);
  REQUIRE_THROWS_WITH(nothing.shape(), "variable: used before it was given a value");
  REQUIRE_THROWS_AS(ag::exp(nothing), ag::TapeError);
}

TEST_CASE("assign keeps the shape and item needs one element", "[tape][errors]") {
  Variable x = ag::parameter(ag::ones({2, 3}));
  REQUIRE_THROWS_AS(x.assign(ag::ones({3, 2})), ag::ShapeError);
  REQUIRE_THROWS_WITH(x.assign(ag::ones({6})), "assign: shape must stay (2, 3), got (6)");
  REQUIRE(x.version() == 0);
  REQUIRE_THROWS_WITH(x.item(), "item: needs exactly one element, got shape (2, 3)");
  REQUIRE(x.size(-1) == 3);
  REQUIRE_THROWS_WITH(x.size(2), "size: axis 2 is outside an array of rank 2");
}

TEST_CASE("an exception in the middle of a backward leaves the thread usable", "[tape][errors]") {
  const Variable x = scalar(3);
  struct Oops {};
  bool fail = true;
  const auto backward = [&](const Array& g) {
    if (fail) throw Oops();
    return ag::list_of(ag::array_of({6.0 * double(g.data()[0])}, {}));
  };
  {
    Tape tape;
    Variable y = ag::exp(joint_square(x, backward) * Real(0));
    for (int i = 0; i < 3; ++i) y = y + joint_square(x, backward);
    REQUIRE_THROWS_AS(tape.gradients(y, ag::keep), Oops);
    REQUIRE(ag::recording());
    fail = false;
    REQUIRE(double(tape.gradients(y, ag::keep).of(x).item()) == 18);
    fail = true;
    REQUIRE_THROWS_AS(tape.gradients(y), Oops);
    REQUIRE_THROWS_AS(tape.gradients(y), ag::TapeError);
  }
  REQUIRE_FALSE(ag::recording());
  Tape tape;
  REQUIRE(double(tape.gradients(x * x).of(x).item()) == 6);
}

TEST_CASE("a joint backward must give each input its gradient, in its shape", "[tape][errors]") {
  const Variable x = ag::parameter(ag::ones({2}));
  const auto ask = [&](ag::JointBackward backward) {
    Tape tape;
    tape.gradients(ag::sum(joint_square(x, std::move(backward))));
  };
  REQUIRE_THROWS_WITH(ask([](const Array&) { return std::vector<Array>(); }),
                      "joint_square: the backward returned 0 gradients for 1 inputs");
  REQUIRE_THROWS_AS(ask([](const Array&) { return ag::list_of(ag::ones({1})); }), ag::ShapeError);
  REQUIRE_THROWS_WITH(ask([](const Array&) { return ag::list_of(ag::ones({1})); }),
                      "joint_square: the derivative returned shape (1) for an input of shape (2)");
  REQUIRE_NOTHROW(ask([](const Array& g) { return ag::list_of(g); }));
}

TEST_CASE("a derivative must return the shape of its input", "[tape][errors]") {
  const Variable x = ag::parameter(ag::ones({2}));
  Tape tape;
  const Variable y =
      ag::record("bent", Variable(ag::ones({3})), ag::edge(x, [](const Variable& g) { return g; }));
  REQUIRE_THROWS_WITH(tape.gradients(ag::sum(y)),
                      "bent: the derivative returned shape (3) for an input of shape (2)");
}

TEST_CASE("a broadcast edge sums what was repeated, and nothing else", "[tape][errors]") {
  const Variable x = ag::parameter(ag::ones({2}));
  const auto through = [](const Variable& g) { return g; };
  Tape tape;
  const Variable rows =
      ag::record("rows", Variable(ag::ones({3, 2})), ag::broadcast_edge(x, through));
  REQUIRE(tape.gradients(ag::sum(rows)).of(x).value() == ag::filled({2}, 3));
  Tape other;
  const Variable bent = ag::record("bent", Variable(ag::ones({3})), ag::broadcast_edge(x, through));
  REQUIRE_THROWS_WITH(other.gradients(ag::sum(bent)),
                      Catch::Matchers::ContainsSubstring("a is (2), b is (3)"));
}

TEST_CASE("a joint op needs both of its forms", "[tape][errors]") {
  const Variable x = scalar(1);
  const ag::Composed composed = [](const std::vector<Variable>& in) { return in[0]; };
  REQUIRE_THROWS_WITH(ag::record_joint("half_an_op", x, {x}, nullptr, composed),
                      "half_an_op: record_joint needs a backward");
  const ag::JointBackward backward = [](const Array& g) { return ag::list_of(g); };
  REQUIRE_THROWS_WITH(ag::record_joint("half_an_op", x, {x}, backward, nullptr),
                      ContainsSubstring("half_an_op: record_joint needs the op's composed form"));
}

TEST_CASE("a result that is an input, or was recorded before, is refused", "[tape][errors]") {
  const Variable w = ag::parameter(ag::ones({2}));
  const auto through = [](const Variable& g) { return g; };
  Tape tape;
  const Variable h = w * w;
  REQUIRE_THROWS_WITH(ag::record("same", w, ag::edge(w, through)),
                      ContainsSubstring("same: the result"));
  REQUIRE_THROWS_WITH(ag::record("again", h, ag::edge(w, through)),
                      ContainsSubstring("again: the result"));
  require_close(tape.gradients(ag::sum(h)).of(w).value(), {2, 2});
}

TEST_CASE("a derivative that returns nothing is an error that names the op", "[tape][errors]") {
  const Variable w = ag::parameter(ag::ones({2}));
  Tape tape;
  const Variable y = ag::record("hollow", Variable(ag::ones({2})),
                                ag::edge(w, [](const Variable&) { return Variable(); }));
  REQUIRE_THROWS_WITH(tape.gradients(y, ag::constant(ag::ones({2}))),
                      "hollow: a derivative returned no value");
}

TEST_CASE("an input whose shape changes between two calls is an error that names the op",
          "[tape][errors]") {
  Variable w = ag::parameter(ag::ones({2}));
  Tape tape;
  const Variable once = ag::sum(w + w);
  w.edit() = ag::ones({300});
  const Variable both = once + ag::sum(w);
  REQUIRE_THROWS_WITH(tape.gradients(both), ContainsSubstring("it was (2) and is (300)"));
}

#ifdef __linux__
TEST_CASE("a tape destroyed in another thread ends the program and says why", "[tape][errors]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);
    auto tape = std::make_unique<Tape>();
    std::thread([&] { tape.reset(); }).join();
    _exit(0);
  }
  close(ends[1]);
  char said[200] = {};
  const ssize_t count = read(ends[0], said, sizeof said - 1);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(count > 0);
  REQUIRE_THAT(said, ContainsSubstring("destroyed in a thread other than its own"));
}
#endif

TEST_CASE("a tape opened while recording is paused records", "[tape]") {
  const Variable w = ag::parameter(ag::filled({2}, 3));
  const ag::Pause outside;
  {
    Tape tape;
    require_close(tape.gradients(ag::sum(w * w)).of(w).value(), {6, 6});
  }
  REQUIRE_FALSE(ag::recording());
}

TEST_CASE("zeros of a parameter that is not reached live as long as the gradients", "[tape]") {
  const Variable w = ag::parameter(ag::ones({4})), unused = ag::parameter(ag::ones({4}));
  Tape tape;
  const ag::Gradients gradients = tape.gradients(ag::sum(w * w));
  const Array& zero = gradients.of(unused).value();
  const Array other = ag::filled({4}, 8), another = ag::filled({4}, 8);
  require_close(zero, {0, 0, 0, 0});
  REQUIRE_FALSE(gradients.reached(unused));
}
