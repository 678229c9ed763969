#include "core/parameters.hpp"

#include <memory>
#include <optional>

#include "common/test.hpp"

namespace {

Variable weight(const ag::Shape& shape) { return ag::parameter(ag::zeros(shape)); }

struct Affine {
  Variable weight, bias;
  void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }
};

struct Model {
  Affine embedding{weight({5, 2}), {}};
  std::vector<Affine> blocks;
  std::unique_ptr<Affine> head;
  std::optional<Affine> extra;
  Variable scale = weight({});
  void visit(auto&& f) {
    f("embedding", embedding);
    f("blocks", blocks);
    f("head", head);
    f("extra", extra);
    f("scale", scale);
  }
};

static_assert(ag::VisitableLayer<Model> && !ag::VisitableLayer<Variable>);

Model model_with_two_blocks() {
  Model model;
  model.blocks.push_back({weight({2, 2}), weight({2})});
  model.blocks.push_back({weight({2, 2}), weight({2})});
  model.head = std::make_unique<Affine>(Affine{weight({5, 2}), weight({5})});
  return model;
}

}  // namespace

TEST_CASE("parameters of a layer have dotted names in the order of visit", "[parameters]") {
  const Model model = model_with_two_blocks();
  const ag::Parameters all = ag::parameters(model);
  REQUIRE(all.names() == std::vector<std::string>{"embedding.weight", "blocks.0.weight",
                                                  "blocks.0.bias", "blocks.1.weight",
                                                  "blocks.1.bias", "head.weight", "head.bias",
                                                  "scale"});
  REQUIRE(all.count() == 10 + 6 + 6 + 15 + 1);
  REQUIRE(all.find("blocks.1.bias").same_as(model.blocks[1].bias));
}

TEST_CASE("a prefix comes before every name", "[parameters]") {
  const Affine affine{weight({1}), weight({1})};
  REQUIRE(ag::parameters(affine, "a.b").names() ==
          std::vector<std::string>{"a.b.weight", "a.b.bias"});
}

TEST_CASE("members without a value are skipped", "[parameters]") {
  REQUIRE(ag::parameters(Affine{}).empty());
  REQUIRE(ag::parameters(Model()).names() == std::vector<std::string>{"embedding.weight", "scale"});
}

TEST_CASE("a tied weight is listed once, under its first name", "[parameters][C84]") {
  Model model = model_with_two_blocks();
  model.head->weight = model.embedding.weight;
  const ag::Parameters all = ag::parameters(model);
  REQUIRE(all.size() == 7);
  REQUIRE(all.count() == 10 + 6 + 6 + 5 + 1);
  REQUIRE(all[0].name == "embedding.weight");
  REQUIRE(all.find("head.weight").same_as(model.embedding.weight));
  REQUIRE(all.place("head.weight") == 0);
}

TEST_CASE("joined lists keep order, prefixes, ties and aliases", "[parameters]") {
  const Variable shared = weight({3}), own = weight({2});
  const ag::Parameters a{{"w", shared}, {"tied", shared}}, b{{"w", shared}, {"v", own}};
  ag::Parameters all;
  all.join(a, "first").join(b, "second");
  REQUIRE(all.names() == std::vector<std::string>{"first.w", "second.v"});
  REQUIRE(all.contains("first.tied"));
  REQUIRE(all.find("second.w").same_as(shared));
  REQUIRE((a + b).names() == std::vector<std::string>{"w", "v"});
}

TEST_CASE("two variables with one name are refused and nothing is appended", "[parameters]") {
  ag::Parameters a{{"w", weight({1})}};
  const ag::Parameters b{{"v", weight({1})}, {"w", weight({1})}};
  REQUIRE_THROWS_WITH(a += b, "parameters: two variables are named w");
  REQUIRE(a.size() == 1);
  REQUIRE_FALSE(a.contains("v"));
}

TEST_CASE("a missing name is reported with the nearest ones", "[parameters]") {
  const ag::Parameters all = ag::parameters(model_with_two_blocks());
  REQUIRE_THROWS_WITH(all.find("blocks.1.wieght"),
                      ContainsSubstring("there is no blocks.1.wieght; nearest: blocks.1.weight, "));
  REQUIRE_THROWS_WITH(ag::Parameters().find("w"), ContainsSubstring("the list is empty"));
  REQUIRE_THROWS_WITH(ag::Parameters().add("w", {}), ContainsSubstring("w holds no value"));
  REQUIRE_THROWS_AS(ag::Parameters().add("", weight({})), ag::ArgumentError);
}
