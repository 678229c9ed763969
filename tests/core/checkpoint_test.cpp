#include "core/checkpoint.hpp"

#include <cstring>

#include "common/temporary_folder.hpp"
#include "common/test.hpp"
#include "core/ops/dropout.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/loss.hpp"
#include "core/ops/matmul.hpp"
#include "optim/adam.hpp"
#include "optim/given_gradients.hpp"
#include "optim/schedules.hpp"
#include "optim/sgd.hpp"

namespace st = ag::safetensors;

namespace {

st::Tensor tensor(const std::string& name, st::Sizes shape, const std::vector<double>& values) {
  st::Tensor t{name, st::Dtype::f64, std::move(shape), {}};
  t.bytes.resize(values.size() * 8);
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

Variable vector(const std::vector<double>& values) {
  return ag::parameter(ag::array_of(values, {values.size()}));
}

}  // namespace

TEST_CASE("saved variables come back bit by bit, with their metadata", "[checkpoint]") {
  const TemporaryFolder folder;
  const Variable w = ag::parameter(random_array({3, 2})), s = ag::parameter(random_array({})),
                 none = ag::parameter(ag::zeros({0, 3}));
  ag::save({{"w", w}, {"a.s", s}, {"none", none}}, folder / "file", {{"step", "7"}});
  Variable w2 = ag::parameter(ag::zeros({3, 2})), s2 = ag::parameter(ag::zeros({})),
           none2 = ag::parameter(ag::zeros({0, 3}));
  const auto report = ag::load({{"none", none2}, {"a.s", s2}, {"w", w2}}, folder / "file");
  REQUIRE(w2.value() == w.value());
  REQUIRE(s2.item() == s.item());
  REQUIRE(report.metadata.at("step") == "7");
  REQUIRE(report.narrowed.empty());
}

TEST_CASE("doubles are rounded to float and reported, floats become doubles exactly",
          "[checkpoint][C93]") {
  const TemporaryFolder folder;
  st::Tensor single{"single", st::Dtype::f32, {1}, {}};
  const float value = 0.1f;
  single.bytes.resize(4);
  std::memcpy(single.bytes.data(), &value, 4);
  st::write({{tensor("double", {1}, {0.1}), single}, {}}, folder / "file");
  Variable a = vector({0}), b = vector({0});
  const auto report = ag::load({{"double", a}, {"single", b}}, folder / "file");
  REQUIRE(a.item() == Real(0.1));
  REQUIRE(b.item() == Real(0.1f));
  REQUIRE(report.narrowed ==
          (in_double ? std::vector<std::string>{} : std::vector<std::string>{"double"}));
}

TEST_CASE("a load that fails names all that does not fit and changes nothing",
          "[checkpoint][C94]") {
  const TemporaryFolder folder;
  st::Tensor integers{"integers", st::Dtype::i64, {1}, std::vector<std::byte>(8)};
  st::write({{tensor("good", {1}, {5}), tensor("shape", {2}, {1, 2}), tensor("extra", {1}, {1}),
              integers},
             {}},
            folder / "file");
  const Variable good = vector({1}), shape = vector({2}), missing = vector({3}), ints = vector({4});
  const ag::Parameters all{
      {"good", good}, {"shape", shape}, {"missing", missing}, {"integers", ints}};
  REQUIRE_THROWS_WITH(
      ag::load(all, folder / "file"),
      ContainsSubstring("missing: missing") &&
          ContainsSubstring("misfit: shape must be (1), is (2), integers holds I64") &&
          ContainsSubstring("unexpected: extra"));
  const std::string bytes = folder.read("file");
  folder.write("cut", bytes.substr(0, bytes.size() - 1));
  folder.write("long", bytes + "x");
  for (const char* name : {"cut", "long", "absent"})
    REQUIRE_THROWS_AS(
        ag::load({{"good", good}}, folder / name, {.fit = ag::Fit::file_may_hold_more}),
        ag::FileError);
  REQUIRE(good.item() == 1);
  REQUIRE(good.version() == 0);
  const auto report =
      ag::load({{"good", good}}, folder / "file", {.fit = ag::Fit::file_may_hold_more});
  REQUIRE(good.item() == 5);
  REQUIRE(report.unexpected.size() == 3);
}

TEST_CASE("a partial load takes what fits and reports the rest", "[checkpoint]") {
  const TemporaryFolder folder;
  st::write(
      {{tensor("good", {1}, {5}), tensor("shape", {2}, {1, 2}), tensor("extra", {1}, {1})}, {}},
      folder / "file");
  const Variable good = vector({1}), shape = vector({2}), missing = vector({3});
  const auto report = ag::load({{"good", good}, {"shape", shape}, {"missing", missing}},
                               folder / "file", {.fit = ag::Fit::partial});
  REQUIRE(good.item() == 5);
  REQUIRE(shape.item() == 2);
  REQUIRE(missing.item() == 3);
  REQUIRE(report.missing == std::vector<std::string>{"missing"});
  REQUIRE(report.misfits == std::vector<std::string>{"shape must be (1), is (2)"});
  REQUIRE(report.unexpected == std::vector<std::string>{"extra"});
}

TEST_CASE("tensors of other names go where a table says, some rows each", "[checkpoint]") {
  const TemporaryFolder folder;
  st::write({{tensor("upper", {1, 2}, {1, 2}), tensor("lower", {2, 2}, {3, 4, 5, 6}),
              tensor("other", {1}, {7})},
             {}},
            folder / "file");
  const Variable packed(ag::zeros({3, 2})), own = vector({0});
  const ag::Parameters all{{"packed", packed}, {"own", own}};
  const std::vector<ag::Placement> names{
      {"upper", "packed", 0}, {"lower", "packed", 1}, {"other", "own"}};
  ag::load(all, folder / "file", {.names = names});
  REQUIRE(packed.value() == ag::array_of({1, 2, 3, 4, 5, 6}, {3, 2}));
  REQUIRE(own.item() == 7);
  SECTION("a gap is missing, rows beyond the last are a misfit") {
    REQUIRE_THROWS_WITH(
        ag::load(all, folder / "file", {.names = {{"lower", "packed", 1}, {"other", "own"}}}),
        ContainsSubstring("missing: packed") && ContainsSubstring("unexpected: upper"));
    REQUIRE_THROWS_WITH(
        ag::load(all, folder / "file",
                 {.names = {{"upper", "packed", 0}, {"lower", "packed", 2}, {"other", "own"}}}),
        ContainsSubstring("misfit: lower must be rows of (3, 2), is (2, 2)"));
    REQUIRE_THROWS_AS(ag::load(all, folder / "file", {.names = {{"upper", "nowhere"}}}),
                      ag::ArgumentError);
  }
}

TEST_CASE("variables are saved under other names, some rows each, and load from there",
          "[checkpoint]") {
  const TemporaryFolder folder;
  const Variable qkv = ag::parameter(random_array({6, 2})), gain = ag::parameter(random_array({3})),
                 scale = ag::parameter(random_array({}));
  const ag::Parameters all{{"qkv", qkv}, {"gain", gain}, {"scale", scale}};
  const std::vector<ag::Placement> names{
      {"v", "qkv", 4}, {"q", "qkv", 0}, {"k", "qkv", 2}, {"norm", "gain"}, {"head", "gain"}};
  ag::save(all, folder / "named", {}, names);
  const auto file = ag::safetensors::read(folder / "named");
  REQUIRE(file.tensors.size() == 5);
  REQUIRE(file.find("head") == nullptr);  // the rows of "norm" again
  REQUIRE(file.find("scale")->shape.empty());
  REQUIRE(file.find("k")->shape == ag::safetensors::Sizes{2, 2});
  const std::vector<double> k = ag::safetensors::numbers(*file.find("k"));
  for (std::size_t i = 0; i < 4; ++i) REQUIRE(k[i] == double(qkv.value().data()[4 + i]));

  const Variable other = ag::parameter(ag::zeros({6, 2})), gain2 = ag::parameter(ag::zeros({3})),
                 scale2 = ag::parameter(ag::zeros({}));
  ag::load({{"qkv", other}, {"gain", gain2}, {"scale", scale2}}, folder / "named",
           {.names = names});
  REQUIRE(other.value() == qkv.value());
  REQUIRE(scale2.value() == scale.value());

  const auto refuses = [&](const std::vector<ag::Placement>& bad) {
    REQUIRE_THROWS_AS(ag::save(all, folder / "bad", {}, bad), ag::ArgumentError);
    REQUIRE(!std::filesystem::exists(folder / "bad"));
  };
  refuses({{"k", "qkv", 2}});
  refuses({{"q", "qkv", 0}, {"k", "qkv", 6}});
  refuses({{"q", "query", 0}});
}

TEST_CASE("a tied weight is stored once and is one object after loading", "[checkpoint][C84]") {
  const TemporaryFolder folder;
  const Variable w = vector({1});
  const ag::Parameters all{{"embedding", w}, {"head", w}};
  ag::save(all, folder / "file");
  REQUIRE(st::read(folder / "file").tensors.size() == 1);
  ag::load(all, folder / "file");
  ag::Sgd sgd(all);
  Tape tape;
  sgd.step(tape.gradients(ag::add(all.find("embedding"), all.find("head"))), 0.1);
  require_close(w.value(), {0.8});
}

TEST_CASE("a file that holds a tied weight under both names must give it the same bytes",
          "[checkpoint][C84]") {
  const TemporaryFolder folder;
  const Variable w = vector({1});
  const ag::Parameters all{{"embedding", w}, {"head", w}};
  st::write({{tensor("embedding", {1}, {2}), tensor("head", {1}, {2})}, {}}, folder / "same");
  st::write({{tensor("head", {1}, {3})}, {}}, folder / "second");
  st::write({{tensor("embedding", {1}, {4}), tensor("head", {1}, {5})}, {}}, folder / "differ");
  ag::load(all, folder / "same");
  REQUIRE(w.item() == 2);
  ag::load(all, folder / "second");
  REQUIRE(w.item() == 3);
  REQUIRE_THROWS_WITH(ag::load(all, folder / "differ"),
                      ContainsSubstring("head differs from embedding, to which it is tied"));
  REQUIRE(w.item() == 3);
}

TEST_CASE("Adam goes on after a restart as if there had been none", "[checkpoint][C88]") {
  const TemporaryFolder folder;
  const auto step = [](ag::Adam& adam, const Variable& p, double g) {
    adam.step(given_gradients({p}, {ag::array_of({g}, {1})}), 0.1);
  };
  const auto all = [](const ag::Adam& adam) {
    ag::Parameters joined;
    return joined.join(adam.parameters(), "model").join(adam.state(), "optimizer");
  };
  const Variable p = vector({0});
  ag::Adam first({{"p", p}});
  step(first, p, 1);
  step(first, p, 2);
  ag::save(all(first), folder / "file");
  const Variable q = vector({9});
  ag::Adam second({{"p", q}});
  ag::load(all(second), folder / "file");
  step(second, q, 3);
  step(second, q, 4);
  require_close(q.value(), {-0.388359}, tolerance(1.5e-6, 5e-6));
}

namespace {

// A model with dropout, its optimiser and generator, as an interrupted program would make them
// again.
struct Run {
  Variable w = ag::parameter(random_array({4, 3})), b = ag::parameter(ag::zeros({4}));
  ag::AdamW optimizer{{{"w", w}, {"b", b}}};
  ag::Rng rng{42};
  std::size_t step = 0;

  void train(std::size_t until) {
    const ag::Schedule rate = ag::warmup_cosine({.peak = 0.1, .warmup = 3, .total = 10});
    for (; step < until; ++step) {
      const Variable x = ag::constant(ag::uniform(rng, {8, 3})), y = ag::constant(ag::ones({8, 4}));
      Tape tape;
      const Variable loss = ag::mean_square(ag::dropout(ag::linear(x, w, b), 0.3, rng), y);
      optimizer.step(tape.gradients(loss), rate(step));
    }
  }
  ag::Parameters all() const {
    ag::Parameters joined;
    return joined.join(optimizer.parameters(), "model").join(optimizer.state(), "optimizer");
  }
};

}  // namespace

TEST_CASE("ten steps have the same bits with and without a restart after five",
          "[checkpoint][C88]") {
  const TemporaryFolder folder;
  Run whole, before, resumed;
  whole.train(10);
  before.train(5);
  ag::save(before.all(), folder / "file",
           {{"step", std::to_string(before.step)}, {"rng", std::to_string(before.rng.offset())}});
  const auto report = ag::load(resumed.all(), folder / "file");
  resumed.step = std::stoul(report.metadata.at("step"));
  resumed.rng = ag::Rng(42, std::stoull(report.metadata.at("rng")));
  resumed.train(10);
  REQUIRE(resumed.w.value() == whole.w.value());
  REQUIRE(resumed.b.value() == whole.b.value());
  REQUIRE_FALSE(resumed.w.value() == Run().w.value());
}
