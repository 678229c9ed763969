#include "core/parallel.hpp"

#include <atomic>
#include <thread>

#include "common/bits.hpp"
#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/reduce.hpp"

namespace {

// Values and gradients of everything that shares out its work, on inputs large enough for that.
std::vector<Array> work() {
  const Variable x = ag::parameter(random_array({7, 300, 130})),
                 w = ag::parameter(random_array({130, 90}));
  const Variable row = ag::parameter(random_array({130}, -1, 1, 8));
  Tape tape;
  const Variable mapped = ag::gelu(x * row + x);
  const Variable product = ag::matmul(mapped, w);
  const Variable flipped =
      ag::matmul(ag::parameter(random_array({200, 700})), ag::parameter(random_array({700, 300})));
  std::vector<Array> results{mapped.value(), product.value(), flipped.value()};
  for (const ag::Axes& axes : {ag::Axes{}, ag::Axes{0}, ag::Axes{1}, ag::Axes{2}, ag::Axes{0, 2}})
    for (const auto reduction : {ag::sum, ag::mean, ag::max})
      results.push_back(reduction(x, axes, ag::Dims::drop).value());
  const Variable long_row(random_array({1000003}));
  results.push_back(ag::sum(long_row).value());
  const ag::Gradients gradients = tape.gradients(ag::mean(ag::square(product)) + ag::sum(mapped));
  for (const Variable& p : {x, w, row}) results.push_back(gradients.of(p).value());
  return results;
}

}  // namespace

TEST_CASE("results have the same bits at any number of threads", "[parallel]") {
  const ThreadsScope restore;
  ag::set_threads(1);
  const std::vector<Array> expected = work();
  for (const int count : {2, 3, 8}) {
    ag::set_threads(count);
    const std::vector<Array> results = work();
    REQUIRE(results.size() == expected.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      INFO("result " << i << " with " << count << " threads");
      REQUIRE(same_bits(results[i], expected[i]));
    }
  }
}

TEST_CASE("results have the same bits when threads of the caller work at the same time",
          "[parallel]") {
  const std::vector<Array> expected = work();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      const std::vector<Array> results = work();
      for (std::size_t i = 0; i < results.size(); ++i) wrong += !same_bits(results[i], expected[i]);
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == 0);
}

TEST_CASE("a sum of twenty million ones is exact", "[parallel]") {
  const std::size_t count = 20'000'000;  // in float, adding one to 2^24 changes nothing
  const Variable many(ag::ones({count}));
  REQUIRE(ag::sum(many).item() == Real(count));
  REQUIRE(ag::mean(many).item() == Real(1));
}

TEST_CASE("a parallel loop visits every index once", "[parallel]") {
  const ThreadsScope restore;
  for (const int count : {1, 3}) {
    ag::set_threads(count);
    for (const std::size_t n : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> visits(n);
      ag::parallel_for(n, [&](std::size_t i) { ++visits[i]; });
      for (const auto& visit : visits) REQUIRE(visit == 1);
    }
  }
}

TEST_CASE("chunks cover the range and are cut by the grain alone", "[parallel]") {
  const ThreadsScope restore;
  for (const int count : {1, 4}) {
    ag::set_threads(count);
    for (const std::size_t n : {0, 1, 9, 10, 11, 100}) {
      std::vector<std::atomic<int>> length(n + 1);
      ag::parallel_chunks(
          n, 10, [&](std::size_t begin, std::size_t end) { length[begin] = int(end - begin); });
      for (std::size_t i = 0; i < n; ++i)
        REQUIRE(length[i] == (i % 10 == 0 ? int(std::min<std::size_t>(10, n - i)) : 0));
    }
  }
}

TEST_CASE("a parallel loop within another runs in its thread", "[parallel]") {
  const ThreadsScope restore;
  ag::set_threads(2);
  std::atomic<int> total{0};
  ag::parallel_for(4, [&](std::size_t) { ag::parallel_for(100, [&](std::size_t) { ++total; }); });
  REQUIRE(total == 400);
}

TEST_CASE("an exception in a parallel loop reaches the caller", "[parallel][errors]") {
  const ThreadsScope restore;
  for (const int count : {1, 3}) {
    ag::set_threads(count);
    const auto loop = [] {
      ag::parallel_for(100, [](std::size_t i) { ag::check_argument(i % 10 != 7, "seven"); });
    };
    REQUIRE_THROWS_AS(loop(), ag::ArgumentError);
    REQUIRE_THROWS_WITH(loop(), "seven");
    std::atomic<int> total{0};
    ag::parallel_for(100, [&](std::size_t) { ++total; });
    REQUIRE(total == 100);
  }
}

TEST_CASE("the number of threads is from 1 to 1024", "[parallel][errors]") {
  const ThreadsScope restore;
  ag::set_threads(3);
  REQUIRE(ag::threads() == 3);
  for (const int count : {0, -1}) REQUIRE_THROWS_AS(ag::set_threads(count), ag::ArgumentError);
  REQUIRE_THROWS_WITH(ag::set_threads(0), "set_threads: count must be in [1, 1024], got 0");
  REQUIRE_THROWS_AS(ag::set_threads(100000), ag::ArgumentError);
  REQUIRE(ag::threads() == 3);
}
