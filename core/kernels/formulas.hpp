// The unary elementwise functions: for each, its value and its slope, side by side.
//
// Both are generic. On a batch of numbers they become one vectorised loop per function
// (kernels/vector.cpp); the slope is also called with Variables, when an outer tape records, so a
// derivative is written once. A slope is a function of the input x or of the output y, whichever it
// says; only that is saved for the backward pass. The operations used (exp, tanh, step, ...) are
// found by argument type.
//
// To add one: a struct here and its name in the list at the end, one more in unary_count
// (kernels/vector.hpp), a declaration with its contract in ops/elementwise.hpp and its line in
// ops/elementwise.cpp.
#pragma once

#include <numbers>

#include "core/kernels/simd.hpp"

namespace attngrad::formula {

using namespace kernels::vector_functions;

enum class SlopeOf { input, output };

struct Square {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return x * x; }
  static auto slope(const auto& x) { return 2 * x; }
};

struct Exp {
  static constexpr SlopeOf slope_of = SlopeOf::output;
  static auto value(const auto& x) { return exp(x); }
  static auto slope(const auto& y) { return y; }
};

struct Log {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return log(x); }
  static auto slope(const auto& x) { return 1 / x; }
};

struct Log1p {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return log1p(x); }
  static auto slope(const auto& x) { return 1 / (1 + x); }
};

struct Sqrt {
  static constexpr SlopeOf slope_of = SlopeOf::output;
  static auto value(const auto& x) { return sqrt(x); }
  static auto slope(const auto& y) { return 0.5 / y; }
};

struct Rsqrt {
  static constexpr SlopeOf slope_of = SlopeOf::output;
  static auto value(const auto& x) { return 1 / sqrt(x); }
  static auto slope(const auto& y) { return -0.5 * y * y * y; }
};

struct Reciprocal {
  static constexpr SlopeOf slope_of = SlopeOf::output;
  static auto value(const auto& x) { return 1 / x; }
  static auto slope(const auto& y) { return -1 * y * y; }
};

struct Abs {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return abs(x); }
  static auto slope(const auto& x) { return sign(x); }
};

struct Sin {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return sin(x); }
  static auto slope(const auto& x) { return cos(x); }
};

struct Cos {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return cos(x); }
  static auto slope(const auto& x) { return -1 * sin(x); }
};

struct Tanh {
  static constexpr SlopeOf slope_of = SlopeOf::output;
  static auto value(const auto& x) { return tanh(x); }
  static auto slope(const auto& y) { return 1 - y * y; }
};

struct Sigmoid {
  static constexpr SlopeOf slope_of = SlopeOf::output;
  static auto value(const auto& x) { return 1 / (1 + exp(-1 * x)); }
  static auto slope(const auto& y) { return y * (1 - y); }
};

struct Erf {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return erf(x); }
  static auto slope(const auto& x) { return 2 * std::numbers::inv_sqrtpi * exp(-1 * x * x); }
};

struct Relu {
  static constexpr SlopeOf slope_of = SlopeOf::output;
  static auto value(const auto& x) { return positive_part(x); }
  static auto slope(const auto& y) { return step(y); }
};

// x Phi(x), with Phi the normal distribution function: Hendrycks, Gimpel, "Gaussian Error Linear
// Units", 2016.
struct Gelu {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return 0.5 * x * (1 + erf(x * (0.5 * std::numbers::sqrt2))); }
  // Phi(x) + x phi(x), phi the normal density
  static auto slope(const auto& x) {
    return 0.5 * (1 + erf(x * (0.5 * std::numbers::sqrt2))) +
           x * exp(-0.5 * x * x) * (0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  }
};

// The same paper's approximation, x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3). It
// is x sigmoid(2 u), which takes one exponential.
struct GeluTanh {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static constexpr double scale = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  static auto value(const auto& x) { return x * sigmoid(bent(x)); }
  // sigmoid' = sigmoid(u) sigmoid(-u). It vanishes for large x and comes first, or x * x would
  // overflow beside it.
  static auto slope(const auto& x) {
    const auto [share, rest] = both_sigmoids(bent(x));
    const auto vanishing = share * rest * x;
    return share + scale * vanishing + (3 * 0.044715 * scale) * (vanishing * x * x);
  }

 private:
  static auto bent(const auto& x) { return x * (scale + (0.044715 * scale) * (x * x)); }
};

struct Silu {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return x / (1 + exp(-1 * x)); }
  static auto slope(const auto& x) {
    const auto [share, rest] = both_sigmoids(x);
    return share * (1 + x * rest);
  }
};

// log(1 + exp(x)), without overflow
struct Softplus {
  static constexpr SlopeOf slope_of = SlopeOf::input;
  static auto value(const auto& x) { return positive_part(x) + log1p(exp(-1 * abs(x))); }
  static auto slope(const auto& x) { return 1 / (1 + exp(-1 * x)); }
};

template <class... Formulas>
struct List {
  static constexpr std::size_t size = sizeof...(Formulas);
  // The place of a formula in the list, which is its place in the tables of kernels.
  template <class F>
  static constexpr std::size_t index_of() {
    std::size_t index = 0;
    bool found = false;
    ((found = found || std::is_same_v<F, Formulas>, index += found ? 0 : 1), ...);
    return index;
  }
};

using Unary = List<Square, Exp, Log, Log1p, Sqrt, Rsqrt, Reciprocal, Abs, Sin, Cos, Tanh, Sigmoid,
                   Erf, Relu, Gelu, GeluTanh, Silu, Softplus>;

}  // namespace attngrad::formula
