// The numbers and indices that a score function is called with: those of 16 queries side by side,
// with or without slopes.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/kernels/formulas.hpp"
#include "core/kernels/tile.hpp"
#include "core/kernels/vector.hpp"
#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

inline constexpr std::size_t score_lanes = kernels::tile_lanes;

// ---- instruction sets -------------------------------------------------------------------------

// Runs work() with everything it calls compiled into it for the instruction set that the kernels
// use: f is a template of the user's, compiled wherever the user compiles it.
#ifdef __x86_64__
template <class Work>
[[gnu::target("avx512f,avx512cd,avx512bw,avx512dq,avx512vl,fma"), gnu::flatten]] void
run_with_avx512(const Work& work) {
  work();
}
template <class Work>
[[gnu::target("avx2,fma"), gnu::flatten]] void run_with_avx2(const Work& work) {
  work();
}
#endif
template <class Work>
void run_wide(const Work& work) {
#ifdef __x86_64__
  switch (kernels::instruction_set()) {
    case kernels::InstructionSet::avx512:
      return run_with_avx512(work);
    case kernels::InstructionSet::avx2:
      return run_with_avx2(work);
    case kernels::InstructionSet::baseline:
      break;
  }
#endif
  work();
}

// ---- lanes ------------------------------------------------------------------------------------

struct Lanes {
  Real of[score_lanes];

  Lanes() = default;
  template <std::floating_point T>
  Lanes(T x) {  // NOLINT: a real number is one for every lane
    for (Real& lane : of) lane = Real(x);
  }
  static Lanes load(const Real* from) {
    Lanes x;
    std::copy_n(from, score_lanes, x.of);
    return x;
  }
  void store(Real* to) const { std::copy_n(of, score_lanes, to); }
};

// A type of g++ and clang++, on which + - * / < ?: go by lane in whatever vectors there are. Never
// a parameter or a result, only behind references: how it is passed depends on the instruction set.
template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(score_lanes * sizeof(T))));
};
template <class T>
using LaneVector = typename VectorOf<T>::Type;

// y = f(a, b) by vectors: f(to, x, y) sets `to`.
template <class F, class T>
void map_vectors(F f, const T* a, const T* b, T* y) {
  LaneVector<T> left, right, to;
  std::memcpy(&left, a, sizeof left);
  std::memcpy(&right, b, sizeof right);
  f(to, left, right);
  std::memcpy(y, &to, sizeof to);
}
// The same numbers as another type.
template <class From, class To>
void convert_lanes(const From* from, To* to) {
  LaneVector<From> x;
  std::memcpy(&x, from, sizeof x);
  const auto y = __builtin_convertvector(x, LaneVector<To>);
  std::memcpy(to, &y, sizeof y);
}

template <class F>
Lanes map_lanes(F f, const Lanes& a, const Lanes& b) {
  Lanes y;
  map_vectors(f, a.of, b.of, y.of);
  return y;
}
inline Lanes operator+(const Lanes& a, const Lanes& b) {
  return map_lanes([](auto& to, const auto& x, const auto& y) { to = x + y; }, a, b);
}
inline Lanes operator-(const Lanes& a, const Lanes& b) {
  return map_lanes([](auto& to, const auto& x, const auto& y) { to = x - y; }, a, b);
}
inline Lanes operator*(const Lanes& a, const Lanes& b) {
  return map_lanes([](auto& to, const auto& x, const auto& y) { to = x * y; }, a, b);
}
inline Lanes operator/(const Lanes& a, const Lanes& b) {
  return map_lanes([](auto& to, const auto& x, const auto& y) { to = x / y; }, a, b);
}
// g slope, and exactly 0 where g is 0.
inline Lanes chain_lanes(const Lanes& g, const Lanes& slope) {
  return map_lanes(
      [](auto& to, const auto& x, const auto& y) { to = x == 0 ? LaneVector<Real>{} : x * y; }, g,
      slope);
}

// A function of formulas.hpp, and its slope.
template <class Formula>
Lanes value_of(const Lanes& x) {
  Lanes y;
  kernels::vector_kernels<Real>().unary[formula::Unary::index_of<Formula>()](x.of, y.of,
                                                                             score_lanes);
  return y;
}
template <class Formula>
Lanes slope_of(const Lanes& x, const Lanes& y) {
  const Lanes one(1.0), &at = Formula::slope_of == formula::SlopeOf::input ? x : y;
  Lanes slope;
  kernels::vector_kernels<Real>().unary_slope[formula::Unary::index_of<Formula>()](
      one.of, at.of, slope.of, score_lanes);
  return slope;
}

// ---- indices ----------------------------------------------------------------------------------

struct IndexLanes {
  std::int32_t of[score_lanes];

  IndexLanes() = default;
  // first, first + 1, ..., at most end - 1
  IndexLanes(std::int32_t first, std::int32_t end) {
    for (std::size_t i = 0; i < score_lanes; ++i)
      of[i] = std::min(first + std::int32_t(i), end - 1);
  }
  template <std::integral T>
  IndexLanes(T x) {  // NOLINT: as above; not of a real number, which would lose its fraction
    for (std::int32_t& lane : of) lane = std::int32_t(x);
  }
  operator Lanes() const {
    Lanes y;
    convert_lanes(of, y.of);
    return y;
  }
};

template <class F>
IndexLanes map_indices(F f, const IndexLanes& a, const IndexLanes& b) {
  IndexLanes y;
  map_vectors(f, a.of, b.of, y.of);
  return y;
}
inline IndexLanes operator+(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto& to, const auto& x, const auto& y) { to = x + y; }, a, b);
}
inline IndexLanes operator-(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto& to, const auto& x, const auto& y) { to = x - y; }, a, b);
}
inline IndexLanes operator*(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto& to, const auto& x, const auto& y) { to = x * y; }, a, b);
}
inline IndexLanes minimum(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto& to, const auto& x, const auto& y) { to = x < y ? x : y; }, a, b);
}
inline IndexLanes maximum(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto& to, const auto& x, const auto& y) { to = x < y ? y : x; }, a, b);
}
inline IndexLanes abs(const IndexLanes& x) { return maximum(x, 0 - x); }
inline IndexLanes clamp(const IndexLanes& x, std::ptrdiff_t low, std::ptrdiff_t high) {
  return minimum(maximum(x, low), high);
}

// ---- numbers ----------------------------------------------------------------------------------

// A value, and its slopes by the score and by the elements read so far.
template <std::size_t slopes>
struct ScoreNumber {
  Lanes value;
  std::array<Lanes, slopes> slope;

  // value, with every slope multiplied by `outer`
  ScoreNumber chained(const Lanes& value_now, const Lanes& outer) const {
    ScoreNumber y{value_now, {}};
    for (std::size_t k = 0; k < slopes; ++k) y.slope[k] = outer * slope[k];
    return y;
  }
  template <class Formula>
  ScoreNumber through() const {
    const Lanes y = value_of<Formula>(value);
    if constexpr (slopes == 0) return {y, {}};
    return chained(y, slope_of<Formula>(value, y));
  }
};

template <std::size_t n>
ScoreNumber<n> operator+(ScoreNumber<n> a, const ScoreNumber<n>& b) {
  a.value = a.value + b.value;
  for (std::size_t k = 0; k < n; ++k) a.slope[k] = a.slope[k] + b.slope[k];
  return a;
}
template <std::size_t n>
ScoreNumber<n> operator-(ScoreNumber<n> a, const ScoreNumber<n>& b) {
  a.value = a.value - b.value;
  for (std::size_t k = 0; k < n; ++k) a.slope[k] = a.slope[k] - b.slope[k];
  return a;
}
template <std::size_t n>
ScoreNumber<n> operator*(const ScoreNumber<n>& a, const ScoreNumber<n>& b) {
  ScoreNumber<n> y{a.value * b.value, {}};
  for (std::size_t k = 0; k < n; ++k) y.slope[k] = a.slope[k] * b.value + a.value * b.slope[k];
  return y;
}
template <std::size_t n>
ScoreNumber<n> operator/(const ScoreNumber<n>& a, const ScoreNumber<n>& b) {
  ScoreNumber<n> y{a.value / b.value, {}};
  for (std::size_t k = 0; k < n; ++k) y.slope[k] = (a.slope[k] - y.value * b.slope[k]) / b.value;
  return y;
}
template <std::size_t n>
ScoreNumber<n> operator-(const ScoreNumber<n>& a) {
  return a.chained(Lanes(0.0) - a.value, Lanes(-1.0));
}

// What has no slope: a real number, an index, indices, and what was computed of them.
template <class T>
concept ScoreConstant =
    std::is_arithmetic_v<T> || std::is_same_v<T, IndexLanes> || std::is_same_v<T, Lanes>;
template <ScoreConstant T>
Lanes constant_lanes(const T& x) {
  if constexpr (std::is_arithmetic_v<T>)
    return Lanes(Real(x));
  else
    return x;
}
template <std::size_t n, ScoreConstant T>
ScoreNumber<n> operator+(ScoreNumber<n> a, const T& b) {
  a.value = a.value + constant_lanes(b);
  return a;
}
template <std::size_t n, ScoreConstant T>
ScoreNumber<n> operator+(const T& a, const ScoreNumber<n>& b) {
  return b + a;
}
template <std::size_t n, ScoreConstant T>
ScoreNumber<n> operator-(ScoreNumber<n> a, const T& b) {
  a.value = a.value - constant_lanes(b);
  return a;
}
template <std::size_t n, ScoreConstant T>
ScoreNumber<n> operator-(const T& a, const ScoreNumber<n>& b) {
  return -b + a;
}
template <std::size_t n, ScoreConstant T>
ScoreNumber<n> operator*(const ScoreNumber<n>& a, const T& b) {
  const Lanes factor = constant_lanes(b);
  return a.chained(a.value * factor, factor);
}
template <std::size_t n, ScoreConstant T>
ScoreNumber<n> operator*(const T& a, const ScoreNumber<n>& b) {
  return b * a;
}
template <std::size_t n, ScoreConstant T>
ScoreNumber<n> operator/(const ScoreNumber<n>& a, const T& b) {
  const Lanes factor = Lanes(1.0) / constant_lanes(b);
  return a.chained(a.value * factor, factor);
}
template <std::size_t n, ScoreConstant T>
ScoreNumber<n> operator/(const T& a, const ScoreNumber<n>& b) {
  const Lanes y = constant_lanes(a) / b.value;
  return b.chained(y, (Lanes(0.0) - y) / b.value);
}

inline Lanes exp(const Lanes& x) { return value_of<formula::Exp>(x); }
inline Lanes log(const Lanes& x) { return value_of<formula::Log>(x); }
inline Lanes tanh(const Lanes& x) { return value_of<formula::Tanh>(x); }
inline Lanes sigmoid(const Lanes& x) { return value_of<formula::Sigmoid>(x); }
template <std::size_t n>
ScoreNumber<n> exp(const ScoreNumber<n>& x) {
  return x.template through<formula::Exp>();
}
template <std::size_t n>
ScoreNumber<n> log(const ScoreNumber<n>& x) {
  return x.template through<formula::Log>();
}
template <std::size_t n>
ScoreNumber<n> tanh(const ScoreNumber<n>& x) {
  return x.template through<formula::Tanh>();
}
template <std::size_t n>
ScoreNumber<n> sigmoid(const ScoreNumber<n>& x) {
  return x.template through<formula::Sigmoid>();
}
template <std::size_t n>
ScoreNumber<n> abs(const ScoreNumber<n>& x) {
  return x.template through<formula::Abs>();
}
// Where both are equal, each has half of the slope, as of Variables.
template <std::size_t n>
ScoreNumber<n> maximum(const ScoreNumber<n>& a, const ScoreNumber<n>& b) {
  const Lanes share = map_lanes(
      [](auto& to, const auto& x, const auto& y) {
        const LaneVector<Real> zero{}, half = zero + Real(0.5), one = zero + Real(1);
        to = x > y ? one : x == y ? half : zero;
      },
      a.value, b.value);
  const auto larger = [](auto& to, const auto& x, const auto& y) { to = x < y ? y : x; };
  return a.chained(map_lanes(larger, a.value, b.value), share) +
         b.chained(Lanes(0.0), Lanes(1.0) - share);
}
template <std::size_t n>
ScoreNumber<n> minimum(const ScoreNumber<n>& a, const ScoreNumber<n>& b) {
  return -maximum(-a, -b);
}
// The slope is 1 at the ends, as of Variables.
template <std::size_t n>
ScoreNumber<n> clamp(const ScoreNumber<n>& x, Real low, Real high) {
  const Lanes bottom(low), top(high);
  const auto at_least = [](auto& to, const auto& v, const auto& l) { to = v < l ? l : v; };
  const auto at_most = [](auto& to, const auto& v, const auto& l) { to = v > l ? l : v; };
  const auto above = [](auto& to, const auto& v, const auto& l) {
    const LaneVector<Real> zero{};
    to = v >= l ? zero + Real(1) : zero;
  };
  return x.chained(map_lanes(at_most, map_lanes(at_least, x.value, bottom), top),
                   map_lanes(above, x.value, bottom) * map_lanes(above, top, x.value));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
