#include "core/memory.hpp"

#include <sstream>

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/index.hpp"
#include "core/ops/reduce.hpp"
#include "core/recompute.hpp"
#include "layers/transformer.hpp"

TEST_CASE("a report tells what each op keeps, a shared value once, and no parameter", "[memory]") {
  const ag::MemoryTrace trace;
  const Variable w = ag::parameter(ag::ones({1000})), constant(ag::ones({1000}));
  Tape tape;
  const Variable a = ag::exp(w);         // keeps its output
  const Variable b = a * constant;       // keeps the constant; a is exp's already
  const Variable c = ag::square(b);      // keeps b
  const Variable d = c + c;              // keeps nothing
  const Variable e = ag::exp(constant);  // is not recorded
  const std::vector<ag::SavedMemory> saved = ag::memory_report().saved;
  REQUIRE(saved.size() == 4);
  std::size_t total = 0;
  for (const ag::SavedMemory& entry : saved) {
    CAPTURE(entry.op);
    REQUIRE(entry.calls == 1);
    REQUIRE(entry.layer.empty());
    REQUIRE(entry.bytes == (entry.op == "add" ? 0 : 1000 * sizeof(Real)));
    total += entry.bytes;
  }
  REQUIRE(total == 3000 * sizeof(Real));
  REQUIRE_THROWS_AS(ag::MemoryTrace(), ag::TapeError);
}

TEST_CASE("a report names layers, and adds up to what a step keeps alive", "[memory]") {
  ag::Rng rng(1);
  const ag::Transformer model(
      {.vocabulary = 50, .context = 64, .width = 64, .heads = 2, .layers = 2}, rng);
  const ag::Indices tokens = rng.integers(0, 50, {4, 64});
  const std::size_t before = ag::memory_report().bytes_alive;
  const ag::MemoryTrace trace;
  Tape tape;
  const Variable loss = ag::mean(model(tokens));
  const ag::MemoryReport report = ag::memory_report();
  std::size_t total = 0;
  bool attention = false;
  for (const ag::SavedMemory& entry : report.saved) {
    total += entry.bytes;
    attention |= entry.layer == "blocks.1.attention" && entry.op == "flash_attention" &&
                 entry.bytes > 4 * 64 * 64 * sizeof(Real);
  }
  REQUIRE(attention);
  const double alive = double(report.bytes_alive - before);
  CAPTURE(total, alive);
  REQUIRE(double(total) > 0.75 * alive);   // the pool rounds sizes up by at most a fifth
  REQUIRE(double(total) <= 1.02 * alive);  // a norm's statistics are not in the pool
  REQUIRE(report.most_bytes_alive >= report.bytes_alive);
  std::ostringstream out;
  out << report;
  REQUIRE_THAT(out.str(), ContainsSubstring("in blocks.1.feed_forward"));
}

TEST_CASE("a report counts what stays and nothing else", "[memory]") {
  const Variable w = ag::parameter(ag::ones({1000})), constant(ag::ones({1000}));
  const auto bytes_of = [](const char* op) {
    std::size_t bytes = 0;
    for (const ag::SavedMemory& entry : ag::memory_report().saved)
      if (entry.op == op) bytes += entry.bytes;
    return bytes;
  };
  const ag::MemoryTrace trace;
  constexpr std::size_t array = 1000 * sizeof(Real);
  {
    Tape tape;
    const Variable y = (w + w) * constant;  // the derivative to the constant is dropped
    REQUIRE(bytes_of("multiply") == array);
    const Variable z = ag::checkpoint([](const Variable& x) { return ag::exp(ag::tanh(x)); }, y);
    REQUIRE(bytes_of("tanh") + bytes_of("exp") == 0);  // forgotten at once
    REQUIRE(bytes_of("checkpoint") == array);
    const ag::Indices rows = xt::zeros<std::int64_t>({300});
    const Variable rows_of_w = ag::take(w, rows, 0);
    REQUIRE(bytes_of("take") == 300 * sizeof(std::int64_t));
    const ag::Bools flags = ag::greater(constant, 0);
    const Variable chosen = ag::where(flags, w, constant);
    REQUIRE(bytes_of("where") == 1000);
  }
  for (int step = 0; step < 20; ++step) {  // where the values of one step lay, those of the next do
    Tape tape;
    const Variable y = ag::sigmoid(w);
    REQUIRE(bytes_of("sigmoid") == std::size_t(step + 1) * array);
  }
}
