// What a tape keeps alive and for how long; deep graphs; threads.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <thread>

#include "common/test.hpp"
#include "core/ops/bias_gelu.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/loss.hpp"
#include "core/ops/normalize.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/softmax.hpp"

namespace {

Variable scalar(double x) { return ag::parameter(ag::array_of({x}, {})); }

std::size_t bytes_alive() { return ag::pool_statistics().bytes_alive; }

double resident_megabytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return double(resident) * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// Runs f on a thread with a stack of this many bytes.
template <class F>
void on_small_stack(std::size_t bytes, F f) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
  pthread_t thread;
  const auto body = [](void* p) -> void* {
    (*static_cast<F*>(p))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, body, &f) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
}

// A step of training as programs do it: forward, gradients, update.
double train_step(Variable& w, Variable& b, const Variable& x) {
  Tape tape;
  const Variable loss = ag::mean(ag::square(ag::tanh(x * w + b) - x));
  const ag::Gradients gradients = tape.gradients(loss);
  for (Variable* p : {&w, &b})
    for (std::size_t i = 0; i < p->size(); ++i)
      p->edit().data()[i] -= Real(0.01) * gradients.of(*p).value().data()[i];
  return double(loss.item());
}

// x -> x, with a derivative that holds `kept`.
Variable holding(const Variable& x, std::shared_ptr<int> kept) {
  return ag::record("holding", Variable(x.value()),
                    ag::edge(x, [kept](const Variable& g) { return g; }));
}

}  // namespace

TEST_CASE("a chain of a million ops needs no stack, forward, back or when freed", "[tape][C31]") {
  double value = 0, gradient = 0, freed_unasked = 0;
  const std::size_t before = bytes_alive();
  on_small_stack(256 * 1024, [&] {
    const Variable x = scalar(1);
    {
      Tape tape;
      Variable y = x;
      for (int i = 0; i < 1000000; ++i) y = y * Real(1 + 1e-6);
      value = double(y.item());
      gradient = double(tape.gradients(y).of(x).item());
    }
    Tape tape;
    Variable y = x;
    for (int i = 0; i < 1000000; ++i) y = y * Real(1);
    freed_unasked = double(y.item());
  });
  // in float 1 + 1e-6 is 1 + 2^-20, and each product rounds
  const double expected = std::exp(1e6 * std::log1p(in_double ? 1e-6 : 0x1p-20));
  REQUIRE(std::abs(value / expected - 1) < tolerance(1e-9, 0.05));
  REQUIRE(std::abs(gradient / expected - 1) < tolerance(1e-9, 0.05));
  REQUIRE(freed_unasked == 1);
  REQUIRE(bytes_alive() == before);
}

TEST_CASE("a tape frees what it recorded when its scope ends", "[tape][C32]") {
  const std::size_t before = bytes_alive();
  std::weak_ptr<int> watch;
  {
    Variable result, y;
    const Variable x = scalar(1);
    {
      Tape tape;
      auto kept = std::make_shared<int>(1);
      watch = kept;
      y = holding(x * x, std::move(kept));
      result = y + y;
      REQUIRE_FALSE(watch.expired());
    }  // never asked
    REQUIRE(watch.expired());
    REQUIRE(result.item() == 2);
  }
  REQUIRE(bytes_alive() == before);
}

TEST_CASE("gradients free what ops saved, also when a derivative throws", "[tape][C32]") {
  const std::size_t before = bytes_alive();
  std::weak_ptr<int> watch;
  {
    Variable x = scalar(1);
    auto kept = std::make_shared<int>(1);
    watch = kept;
    Tape tape;
    Variable y = holding(x * x, std::move(kept));
    y = y * y;
    SECTION("asked once") {
      tape.gradients(y);
      REQUIRE(watch.expired());
    }
    SECTION("kept") {
      tape.gradients(y, ag::keep);
      REQUIRE_FALSE(watch.expired());
    }
    SECTION("thrown") {
      x.edit();
      REQUIRE_THROWS_AS(tape.gradients(y), ag::TapeError);
    }
  }
  REQUIRE(watch.expired());
  REQUIRE(bytes_alive() == before);
}

TEST_CASE("a tape keeps alive only what derivatives saved", "[tape]") {
  const std::size_t one = 65536 * sizeof(Real);  // much more than the nodes take
  const Variable x = ag::parameter(ag::ones({65536}));
  Tape tape;
  const std::size_t before = bytes_alive();
  Variable y = x;
  for (int i = 0; i < 100; ++i) y = y + x;  // saves nothing
  REQUIRE(bytes_alive() < before + 3 * one);
  for (int i = 0; i < 100; ++i) y = ag::exp(y * Real(0));  // saves its output
  REQUIRE(bytes_alive() > before + 100 * one);
  REQUIRE(bytes_alive() < before + 104 * one);
}

TEST_CASE("an input that needs no gradient is not kept for it", "[tape]") {
  const std::size_t one = 65536 * sizeof(Real);  // much more than the nodes take
  const Variable x = ag::parameter(ag::ones({65536}));
  Tape tape;
  const std::size_t before = bytes_alive();
  Variable y = x;
  for (int i = 0; i < 100; ++i) y = y + Variable(ag::ones({65536}));
  REQUIRE(bytes_alive() < before + 3 * one);
}

TEST_CASE("a running sum of losses is freed with its tape", "[tape][C33]") {
  const std::size_t before = bytes_alive();
  {
    const Variable x = scalar(2);
    double total = 0;
    Variable sum_of_all(Real(0));
    std::size_t alive = 0;
    for (int step = 0; step < 1000; ++step) {
      Tape tape;
      const Variable loss = x * x;
      total += double(loss.item());
      sum_of_all = sum_of_all + ag::detach(loss);
      if (step == 0) alive = bytes_alive();
      REQUIRE(bytes_alive() == alive);
    }
    REQUIRE(total == 4000);
    REQUIRE(sum_of_all.item() == 4000);
    Tape tape;
    Variable recorded(Real(0));
    for (int step = 0; step < 1000; ++step) recorded = recorded + (x + Real(0)) * x;
    REQUIRE(bytes_alive() > alive);
    REQUIRE(tape.gradients(recorded).of(x).item() == 4000);
  }
  REQUIRE(bytes_alive() == before);
}

TEST_CASE("every step records the same number of ops", "[tape][C34]") {
  const Variable x = scalar(2);
  for (int step = 0; step < 1000; ++step) {
    Tape tape;
    REQUIRE(tape.size() == 0);
    const Variable y = ag::exp(x) * x;
    REQUIRE(tape.size() == 2);
    tape.gradients(y);
  }
}

TEST_CASE("fused ops do not copy the gradients that they hand over", "[tape]") {
  const Variable x = ag::parameter(random_array({256, 1024}));
  const Variable row = ag::parameter(random_array({1024}));
  const ag::Indices targets = xt::zeros<std::int64_t>({256});
  const std::pair<const char*, std::function<Variable()>> ops[] = {
      {"softmax", [&] { return ag::softmax(x, -1); }},
      {"log_softmax", [&] { return ag::log_softmax(x, -1); }},
      {"layer_norm", [&] { return ag::layer_norm(x, row, row); }},
      {"rms_norm", [&] { return ag::rms_norm(x, row); }},
      {"bias_gelu", [&] { return ag::bias_gelu(x, row); }},
      {"cross_entropy", [&] { return ag::cross_entropy(x, targets); }},
  };
  for (const auto& [name, op] : ops) {
    INFO(name);
    Tape tape;
    const Variable y = op(), dy(random_array(y.shape()));
    const std::size_t before = bytes_alive();
    ag::pool_reset_peak();
    const ag::Gradients gradients = tape.gradients(y, dy);
    const std::size_t most = ag::pool_statistics().most_bytes_alive - before;
    REQUIRE(most >= x.size() * sizeof(Real));
    REQUIRE(double(most) < 1.5 * double(x.size() * sizeof(Real)));
  }
}

TEST_CASE("steps of training stop taking memory", "[tape][C32]") {
  const std::size_t before = bytes_alive();
  {
    Variable w = ag::parameter(random_array({300})), b = ag::parameter(random_array({300}));
    const Variable x(random_array({64, 300}));
    std::size_t alive = 0, asked = 0;
    double resident = 0, loss = 0, first_loss = 0;
    for (int step = 1; step <= 500; ++step) {
      loss = train_step(w, b, x);
      if (step == 1) first_loss = loss;
      if (step == 50) {
        alive = bytes_alive();
        asked = ag::pool_statistics().system_allocations;
        resident = resident_megabytes();
      }
    }
    REQUIRE(loss < first_loss);
    REQUIRE(bytes_alive() == alive);
    REQUIRE(ag::pool_statistics().system_allocations == asked);
#ifndef __SANITIZE_ADDRESS__                       // which holds freed memory back
    REQUIRE(resident_megabytes() < resident + 1);  // a step works on about 1 MB
#endif
  }
  REQUIRE(bytes_alive() == before);
}

TEST_CASE("threads record independently", "[tape]") {
  const Variable w = ag::parameter(random_array({50}));
  std::vector<Array> expected;
  const auto gradient = [&w](int k) {
    Tape tape;
    Variable y = w;
    for (int i = 0; i <= k; ++i) y = ag::sin(y) * w;
    return tape.gradients(ag::sum(y)).of(w).value();
  };
  for (int k = 0; k < 4; ++k) expected.push_back(gradient(k));

  std::atomic<int> wrong{0};
  Tape here;  // records in this thread only
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      if (ag::recording()) ++wrong;
      for (int repeat = 0; repeat < 50; ++repeat)
        if (!(gradient(k) == expected[std::size_t(k)])) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == 0);
  REQUIRE(here.size() == 0);
}

TEST_CASE("a tape belongs to the thread that opened it", "[tape][errors]") {
  const Variable x = scalar(2);
  Tape tape;
  const Variable y = x * x;
  std::string message;
  std::thread([&] {
    try {
      tape.gradients(y);
    } catch (const ag::TapeError& error) {
      message = error.what();
    }
  }).join();
  REQUIRE(message == "gradients: this tape belongs to another thread");
  REQUIRE(tape.gradients(y).of(x).item() == 4);
}

TEST_CASE("a backward that adds in place takes no array beside the sum, and writes to no other's",
          "[tape][memory]") {
  // 2 x; notes how often there was a sum to add to
  std::size_t added = 0;
  const auto twice = [&](const Variable& x) {
    Array y = x.value();
    for (Real& each : y) each *= 2;
    return ag::record_joint_in_place(
        "twice", Variable(std::move(y)), {x},
        [&added, size = x.size()](const Array& g, const std::vector<ag::GradientPlace>& places) {
          const ag::GradientPlace& place = places[0];
          added += place.adds ? 1 : 0;
          for (std::size_t i = 0; i < size; ++i)
            place.data[i] = (place.adds ? place.data[i] : 0) + 2 * g.data()[i];
        },
        [](const std::vector<Variable>& in) { return in[0] * Real(2); });
  };
  const Variable a = ag::parameter(ag::ones({3})), b = ag::parameter(ag::ones({3}));
  {
    Tape tape;
    const Variable h = a * Real(1);
    const Variable y = twice(a) + twice(h) + twice(h) + twice(h) + (a + b);
    const ag::Gradients gradients = tape.gradients(ag::sum(y));
    require_close(gradients.of(a).value(), {9, 9, 9}, 0);
    require_close(gradients.of(b).value(), {1, 1, 1}, 0);  // a + b gave both inputs one array
    REQUIRE(added >= 2);
  }
  Tape outer;
  Variable g;
  {
    Tape inner;
    g = inner.gradients(ag::sum(ag::square(twice(a)))).of(a);
  }
  require_close(outer.gradients(ag::sum(g)).of(a).value(), {8, 8, 8}, 0);
}
