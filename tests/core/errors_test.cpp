#include "core/errors.hpp"

#include <thread>

#include "common/test.hpp"
#include "core/ops/elementwise.hpp"

namespace {

struct Parent {
  const char* children[3];
};

std::string name_of(const void* parent, const void* child) {
  const auto* p = static_cast<const Parent*>(parent);
  return p->children[static_cast<const char* const*>(child) - p->children];
}

}  // namespace

TEST_CASE("a message joins its parts, and shapes read as (2, 3)", "[errors]") {
  REQUIRE(ag::text("op: rule, got ", ag::Shape{2, 3}) == "op: rule, got (2, 3)");
  REQUIRE(ag::text(ag::Shape{}) == "()");
  REQUIRE(ag::text(ag::Shape{8}) == "(8)");
  REQUIRE(ag::text(std::vector<int>{-1, 2}, ' ', 0.5, ' ', std::string("end"),
                   std::string_view("!")) == "(-1, 2) 0.5 end!");
}

TEST_CASE("every error can be caught as what the standard calls it", "[errors]") {
  REQUIRE_THROWS_AS(ag::check_shape(false, "x"), ag::ShapeError);
  REQUIRE_THROWS_AS(ag::check_shape(false, "x"), ag::ArgumentError);
  REQUIRE_THROWS_AS(ag::check_argument(false, "x"), std::invalid_argument);
  REQUIRE_THROWS_AS(throw ag::TapeError("x"), std::logic_error);
  REQUIRE_THROWS_AS(throw ag::FileError("x"), std::runtime_error);
  REQUIRE_NOTHROW(ag::check_shape(true, "x"));
}

TEST_CASE("a message starts with the path of the layers that run", "[errors]") {
  const Parent model{{"embedding", "blocks.2", "head"}}, block{{"norm", "attention", "mlp"}};
  const Variable a(ag::ones({2, 3})), b(ag::ones({2}));
  REQUIRE(ag::layer_path().empty());
  {
    const ag::PathScope outer(&model, &model.children[1], name_of);
    REQUIRE(ag::layer_path() == "blocks.2");
    {
      const ag::PathScope inner(&block, &block.children[1], name_of);
      REQUIRE(ag::layer_path() == "blocks.2.attention");
      REQUIRE_THROWS_WITH(a + b,
                          "blocks.2.attention: add: shapes do not broadcast: a is (2, 3), "
                          "b is (2)");
      REQUIRE_THROWS_WITH(Variable().value(),
                          "blocks.2.attention: variable: used before it was given a value");
      std::string elsewhere = "?";
      std::thread([&] { elsewhere = ag::layer_path(); }).join();
      REQUIRE(elsewhere.empty());
    }
    REQUIRE_THROWS_WITH(a + b, ContainsSubstring("blocks.2: add: "));
  }
  REQUIRE_THROWS_WITH(a + b, "add: shapes do not broadcast: a is (2, 3), b is (2)");
}

TEST_CASE("an exception takes the path down with it", "[errors]") {
  const Parent model{{"a", "b", "c"}};
  const auto run = [&] {
    const ag::PathScope scope(&model, &model.children[2], name_of);
    ag::check_argument(false, "stop");
  };
  REQUIRE_THROWS_WITH(run(), "c: stop");
  REQUIRE(ag::layer_path().empty());
}
