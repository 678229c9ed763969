// The numbers and indices that a score function is called with: those of 16 queries side by side,
// with or without slopes.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <utility>

#include "core/kernels/formulas.hpp"
#include "core/kernels/tile.hpp"
#include "core/kernels/vector.hpp"
#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

inline constexpr std::size_t score_lanes = kernels::tile_lanes;

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

// f of each lane; loops of fixed length, which compilers make vector instructions of.
template <class F>
Lanes map_lanes(F f, const Lanes& a, const Lanes& b) {
  Lanes y;
  for (std::size_t i = 0; i < score_lanes; ++i) y.of[i] = f(a.of[i], b.of[i]);
  return y;
}
inline Lanes operator+(const Lanes& a, const Lanes& b) {
  return map_lanes([](Real x, Real y) { return x + y; }, a, b);
}
inline Lanes operator-(const Lanes& a, const Lanes& b) {
  return map_lanes([](Real x, Real y) { return x - y; }, a, b);
}
inline Lanes operator*(const Lanes& a, const Lanes& b) {
  return map_lanes([](Real x, Real y) { return x * y; }, a, b);
}
inline Lanes operator/(const Lanes& a, const Lanes& b) {
  return map_lanes([](Real x, Real y) { return x / y; }, a, b);
}
// g slope, and exactly 0 where g is 0.
inline Lanes chain_lanes(const Lanes& g, const Lanes& slope) {
  return map_lanes([](Real x, Real y) { return x == 0 ? Real(0) : x * y; }, g, slope);
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
    for (std::size_t i = 0; i < score_lanes; ++i) y.of[i] = Real(of[i]);
    return y;
  }
};

template <class F>
IndexLanes map_indices(F f, IndexLanes a, const IndexLanes& b) {
  for (std::size_t i = 0; i < score_lanes; ++i) a.of[i] = f(a.of[i], b.of[i]);
  return a;
}
inline IndexLanes operator+(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto x, auto y) { return x + y; }, a, b);
}
inline IndexLanes operator-(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto x, auto y) { return x - y; }, a, b);
}
inline IndexLanes operator*(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto x, auto y) { return x * y; }, a, b);
}
inline IndexLanes minimum(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto x, auto y) { return std::min(x, y); }, a, b);
}
inline IndexLanes maximum(const IndexLanes& a, const IndexLanes& b) {
  return map_indices([](auto x, auto y) { return std::max(x, y); }, a, b);
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
  const Lanes share =
      map_lanes([](Real x, Real y) { return x > y    ? Real(1)
                                            : x == y ? Real(0.5)
                                                     : Real(0); },
                a.value, b.value);
  return a.chained(map_lanes([](Real x, Real y) { return x < y ? y : x; }, a.value, b.value),
                   share) +
         b.chained(Lanes(0.0), Lanes(1.0) - share);
}
template <std::size_t n>
ScoreNumber<n> minimum(const ScoreNumber<n>& a, const ScoreNumber<n>& b) {
  return -maximum(-a, -b);
}
// The slope is 1 at the ends, as of Variables.
template <std::size_t n>
ScoreNumber<n> clamp(const ScoreNumber<n>& x, Real low, Real high) {
  return x.chained(
      map_lanes([&](Real v, Real) { return std::clamp(v, low, high); }, x.value, x.value),
      map_lanes([&](Real v, Real) { return Real(v >= low && v <= high); }, x.value, x.value));
}

// ---- parameters -------------------------------------------------------------------------------

// An element of a parameter for each lane, or one for all of them; counted from the start.
struct ScoreRead {
  std::size_t parameter;
  bool same;
  std::size_t at_all;
  IndexLanes at;
};

// A parameter as it lies in memory, and whether it wants a gradient.
struct ScoreParameter {
  const Real* data;
  const Shape* shape;
  bool learned;
};

// What one call of f has read of the parameters that want a gradient.
class ScoreReads {
 public:
  static constexpr std::size_t most = 8;

  explicit ScoreReads(const std::vector<ScoreParameter>& parameters) : parameters_(parameters) {}

  std::size_t count() const { return count_; }
  const ScoreRead& operator[](std::size_t i) const { return reads_[i]; }

  // One index for each axis.
  template <class... Index>
  Lanes read(std::size_t parameter, const Index&... indices) {
    check_argument(parameter < parameters_.size(), "score: the function reads parameter ",
                   parameter, " of ", parameters_.size());
    const auto& [data, shape, learned] = parameters_[parameter];
    check_shape(shape->size() == sizeof...(indices), "score: parameter ", parameter, " of shape ",
                *shape, " is read with ", sizeof...(indices), " indices");
    check_argument(count_ < most, "score: the function reads more than ", most,
                   " elements for one score");
    ScoreRead& read = reads_[count_];
    read.parameter = parameter;
    read.same = (std::is_integral_v<Index> && ...);
    if (learned) ++count_;
    std::size_t axis = 0;
    if constexpr ((std::is_integral_v<Index> && ...)) {
      read.at_all = 0;
      ((check_index(parameter, (*shape)[axis], indices, indices),
        read.at_all = read.at_all * (*shape)[axis++] + std::size_t(indices)),
       ...);
      return Lanes(data[read.at_all]);
    } else {
      read.at = IndexLanes(0);
      (add_axis(read, (*shape)[axis++], IndexLanes(indices)), ...);
      Lanes values;
      for (std::size_t lane = 0; lane < score_lanes; ++lane)
        values.of[lane] = data[read.at.of[lane]];
      return values;
    }
  }

 private:
  static void check_index(std::size_t parameter, std::size_t size, std::ptrdiff_t low,
                          std::ptrdiff_t high) {
    check_argument(low >= 0 && high < std::ptrdiff_t(size), "score: the function reads parameter ",
                   parameter, " at ", low < 0 ? low : high, ", outside of [0, ", size,
                   "); it is called for hidden pairs too, so clamp the index");
  }
  static void add_axis(ScoreRead& read, std::size_t size, const IndexLanes& index) {
    std::int32_t low = index.of[0], high = index.of[0];
    for (const std::int32_t i : index.of) {
      low = std::min(low, i);
      high = std::max(high, i);
    }
    check_index(read.parameter, size, low, high);
    read.at = read.at * IndexLanes(std::int32_t(size)) + index;
  }

  const std::vector<ScoreParameter>& parameters_;
  std::array<ScoreRead, most> reads_;
  std::size_t count_ = 0;
};

template <std::size_t slopes>
class NumberParameters {
 public:
  explicit NumberParameters(ScoreReads& reads) : reads_(reads) {}

  auto operator[](std::size_t parameter) const {
    return [this, parameter](const auto&... indices) {
      [[maybe_unused]] const std::size_t before = reads_.count();
      ScoreNumber<slopes> x{reads_.read(parameter, indices...), {}};
      if constexpr (slopes > 0)
        if (reads_.count() > before) {
          check_argument(1 + before < slopes,
                         "score: the function reads more elements for some keys than for others");
          x.slope[1 + before] = Lanes(1.0);
        }
      return x;
    };
  }

 private:
  ScoreReads& reads_;
};

// Adds up the gradient of one read over a block. While it stays at one element, in double.
class ScoreSum {
 public:
  void add(const Lanes& gradient, std::size_t count, const ScoreRead& read,
           Real* const* gradients) {
    Real* const to = gradients[read.parameter];
    if (!read.same) {
      for (std::size_t lane = 0; lane < count; ++lane) to[read.at.of[lane]] += gradient.of[lane];
      return;
    }
    if (to_ != to + read.at_all) {
      flush();
      to_ = to + read.at_all;
    }
    for (std::size_t lane = 0; lane < count; ++lane) sum_ += double(gradient.of[lane]);
  }

  void flush() {
    if (to_ != nullptr) *to_ += Real(sum_);
    sum_ = 0;
  }

 private:
  Real* to_ = nullptr;
  double sum_ = 0;
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
