// Functions of one argument, arithmetic, and matrix products.
#include "core/ops/elementwise.hpp"

#include "core/ops/dropout.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/shape.hpp"
#include "onnx_conformance/call.hpp"

namespace conformance {
namespace {

using Unary = Variable (*)(const Variable&);
using Binary = Variable (*)(const Variable&, const Variable&);

Variable number(double x) { return Variable(Real(x)); }

// exp(x) - 1 for x <= 0, without cancellation.
Variable exp_minus_one(const Variable& x) {
  const Variable t = ag::tanh(ag::minimum(x, number(0)) / Real(2));
  return Real(2) * t / (Real(1) - t);
}

// x where it is positive, else negative(x).
Variable split_at_zero(const Variable& x, const Variable& negative) {
  return ag::where(ag::greater(x, 0), x, negative);
}

Variable hard_sigmoid(const Variable& x, double alpha, double beta) {
  return ag::clamp(x * Real(alpha) + Real(beta), 0, 1);
}

void add_functions(Mappings& mappings) {
  const std::map<std::string, Unary> functions{
      {"Abs", ag::abs},
      {"Cos", ag::cos},
      {"Erf", ag::erf},
      {"Exp", ag::exp},
      {"Identity", [](const Variable& x) { return x; }},
      {"Log", ag::log},
      {"Mish", [](const Variable& x) { return x * ag::tanh(ag::softplus(x)); }},
      {"Neg", ag::negate},
      {"Reciprocal", [](const Variable& x) { return Real(1) / x; }},
      {"Relu", ag::relu},
      {"Sigmoid", ag::sigmoid},
      {"Sign", ag::sign},
      {"Sin", ag::sin},
      {"Softplus", ag::softplus},
      {"Softsign", [](const Variable& x) { return x / (Real(1) + ag::abs(x)); }},
      {"Sqrt", ag::sqrt},
      {"Tan", [](const Variable& x) { return ag::sin(x) / ag::cos(x); }},
      {"Tanh", ag::tanh},
  };
  for (const auto& [op, f] : functions)
    mappings[op] = [f = f](const Call& call) -> std::vector<Value> { return {f(call[0])}; };
}

using Formula = Variable (*)(const Call&, const Variable&);

void add_functions_with_attributes(Mappings& mappings) {
  const std::map<std::string, Formula> formulas{
      {"Celu",
       [](const Call& call, const Variable& x) {
         const Real alpha = Real(call.number("alpha", 1));
         return split_at_zero(x, alpha * exp_minus_one(x / alpha));
       }},
      {"Elu",
       [](const Call& call, const Variable& x) {
         return split_at_zero(x, Real(call.number("alpha", 1)) * exp_minus_one(x));
       }},
      {"Gelu",
       [](const Call& call, const Variable& x) {
         const std::string approximate = call.text("approximate", "none");
         if (approximate != "none" && approximate != "tanh")
           throw Skip("approximate " + approximate);
         return approximate == "tanh" ? ag::gelu_tanh(x) : ag::gelu(x);
       }},
      {"HardSigmoid",
       [](const Call& call, const Variable& x) {
         return hard_sigmoid(x, call.number("alpha", 0.2), call.number("beta", 0.5));
       }},
      {"HardSwish",
       [](const Call&, const Variable& x) { return x * hard_sigmoid(x, 1.0 / 6, 0.5); }},
      {"LeakyRelu",
       [](const Call& call, const Variable& x) {
         return split_at_zero(x, x * Real(call.number("alpha", 0.01)));
       }},
      {"Selu",
       [](const Call& call, const Variable& x) {
         const Real alpha = Real(call.number("alpha", 1.67326319217681884765625)),
                    gamma = Real(call.number("gamma", 1.05070102214813232421875));
         return gamma * split_at_zero(x, alpha * exp_minus_one(x));
       }},
      {"Swish",
       [](const Call& call, const Variable& x) {
         const Real alpha = Real(call.number("alpha", 1));
         return alpha == 1 ? ag::silu(x) : x * ag::sigmoid(alpha * x);
       }},
      {"ThresholdedRelu",
       [](const Call& call, const Variable& x) {
         return ag::where(ag::greater(x, Real(call.number("alpha", 1))), x, number(0));
       }},
  };
  for (const auto& [op, f] : formulas)
    mappings[op] = [f = f](const Call& call) -> std::vector<Value> { return {f(call, call[0])}; };
}

// Any number of inputs, two by two.
Mapping folded(Binary f) {
  return [f](const Call& call) -> std::vector<Value> {
    Variable y = call[0];
    for (std::size_t i = 1; i < call.inputs(); ++i) y = f(y, call[i]);
    return {y};
  };
}

void refuse_integers(const Call& call, const char* what) {
  if (call.value(0).integers()) throw Skip(ag::text(what, " of integers, which rounds"));
}

std::vector<Value> divide(const Call& call) {
  refuse_integers(call, "division");
  return {call[0] / call[1]};
}

std::vector<Value> mean_of_inputs(const Call& call) {
  return {folded(ag::add)(call)[0].variable() / Real(call.inputs())};
}

std::vector<Value> clip(const Call& call) {
  // before opset 11 the bounds are attributes; the upper one wins where they cross
  Variable y = call[0];
  const auto low = call.number("min"), high = call.number("max");
  if (low || call.has(1)) y = ag::maximum(y, low ? number(*low) : call[1]);
  if (high || call.has(2)) y = ag::minimum(y, high ? number(*high) : call[2]);
  return {y};
}

std::vector<Value> dropout(const Call& call) {
  call.integer("seed", 0);
  const double given = call.number("ratio", 0.5), ratio = call.has(1) ? call.scalar(1) : given;
  const bool training = call.has(2) && call.scalar(2) != 0;
  if (training && ratio != 0) throw Skip("the random mask of Dropout in training");
  const Variable x = call[0];
  ag::Rng rng(0);
  Bools kept = Bools::from_shape(x.shape());
  kept.fill(true);
  return {ag::dropout(x, 0, rng), kept};
}

std::vector<Value> gemm(const Call& call) {
  const auto side = [&](const char* name) {
    return call.flag(name) ? ag::Transpose::yes : ag::Transpose::no;
  };
  Variable y = ag::contract(call[0], side("transA"), call[1], side("transB"));
  if (const double alpha = call.number("alpha", 1); alpha != 1) y = Real(alpha) * y;
  const double beta = call.number("beta", 1);
  if (call.has(2)) y = y + ag::broadcast_to(Real(beta) * call[2], y.shape());
  return {y};
}

}  // namespace

void add_elementwise(Mappings& mappings) {
  add_functions(mappings);
  add_functions_with_attributes(mappings);
  for (const auto& [op, f] : std::map<std::string, Binary>{{"Add", ag::add},
                                                           {"Max", ag::maximum},
                                                           {"Min", ag::minimum},
                                                           {"Mul", ag::multiply},
                                                           {"Pow", ag::pow},
                                                           {"Sub", ag::subtract},
                                                           {"Sum", ag::add}})
    mappings[op] = folded(f);
  mappings["Div"] = divide;
  mappings["Mean"] = mean_of_inputs;
  mappings["Clip"] = clip;
  mappings["Dropout"] = dropout;
  mappings["MatMul"] = folded(ag::matmul);
  mappings["Gemm"] = gemm;
  mappings["PRelu"] = [](const Call& call) -> std::vector<Value> {
    return {split_at_zero(call[0], call[0] * call[1])};
  };
  mappings["Where"] = [](const Call& call) -> std::vector<Value> {
    return {ag::where(call.value(0).bools(), call[1], call[2])};
  };
}

}  // namespace conformance
