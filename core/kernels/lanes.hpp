// Loops over the lanes of a vector, shared by the units that are compiled once per instruction set.
// Only they may include it: everything here is in the namespace of the set, ATTNGRAD_ARCH.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>

#include "core/kernels/simd.hpp"
#include "core/kernels/vector.hpp"

namespace attngrad::kernels::ATTNGRAD_ARCH {
namespace {

using vector_functions::exp_bounded;
using vector_functions::multiply_add;

template <class T>
using Batch = xsimd::batch<T, xsimd::default_arch>;

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

// Fewer elements than fill a batch go through the same vector instructions, by way of a padded
// copy.
template <class T>
struct Tail {
  static constexpr std::size_t width = Batch<T>::size;
  alignas(64) T numbers[width];

  Batch<T> load(const T* from, std::size_t count, T fill) {
    for (std::size_t i = 0; i < width; ++i) numbers[i] = i < count ? from[i] : fill;
    return Batch<T>::load_aligned(numbers);
  }
  void store(const Batch<T>& batch, T* to, std::size_t count) {
    batch.store_aligned(numbers);
    for (std::size_t i = 0; i < count; ++i) to[i] = numbers[i];
  }
};

// y[i] = f(inputs[i]...); y may be one of the inputs. The last batch ends with the last element and
// so overlaps the one before it; its inputs are read before anything is written.
template <class T, class F, class... In>
inline void map(F f, T* y, std::size_t n, const In*... inputs) {
  constexpr std::size_t width = Batch<T>::size;
  if (n < width) {
    Tail<T> tail;
    return tail.store(f(tail.load(inputs, n, T(0))...), y, n);
  }
  const bool ragged = n % width != 0;
  Batch<T> last(T(0));
  if (ragged) last = f(Batch<T>::load_unaligned(inputs + n - width)...);
  for (std::size_t i = 0; i + width <= n; i += width)
    f(Batch<T>::load_unaligned(inputs + i)...).store_unaligned(y + i);
  if (ragged) last.store_unaligned(y + n - width);
}

// 0, 1, 2, ...
template <class T>
struct LaneNumbers {
  alignas(64) T numbers[Batch<T>::size] = {};
  constexpr LaneNumbers() {
    for (std::size_t i = 0; i < Batch<T>::size; ++i) numbers[i] = T(i);
  }
};

// f of the last `count` of n elements, fewer than a batch, each in a lane; `fill` in all other
// lanes, whatever f gives there.
template <class T, class F, class... In>
inline Batch<T> map_rest(F f, std::size_t n, std::size_t count, T fill, const In*... inputs) {
  using V = Batch<T>;
  static constexpr LaneNumbers<T> lane_numbers;
  const V lanes = V::load_aligned(lane_numbers.numbers);
  if (n >= V::size)  // a batch that overlaps the one before
    return xsimd::select(lanes < V(T(V::size - count)), V(fill),
                         f(V::load_unaligned(inputs + n - V::size)...));
  return xsimd::select(lanes < V(T(count)), f(Tail<T>().load(inputs, count, T(0))...), V(fill));
}

// A vector of a row at a time, for loops of several outputs. Of a row shorter than a vector,
// padded.
template <class T>
struct ShortPart {
  std::size_t count;

  Batch<T> load(const T* row) const { return Tail<T>().load(row, count, T(0)); }
  void store(const Batch<T>& v, T* row) const { Tail<T>().store(v, row, count); }
  Batch<T> fresh(const Batch<T>& v) const { return v; }
};
// Else one that begins at `at`; it may overlap the one before, and its first `seen` lanes are then
// those that have been there already.
template <class T, bool overlaps>
struct Part {
  std::size_t at, seen;

  Batch<T> load(const T* row) const { return Batch<T>::load_unaligned(row + at); }
  void store(const Batch<T>& v, T* row) const { v.store_unaligned(row + at); }
  // v, with 0 in the lanes that have been there already: to add what each element gives once.
  Batch<T> fresh(const Batch<T>& v) const {
    static constexpr LaneNumbers<T> lane_numbers;
    if constexpr (!overlaps) return v;
    return xsimd::select(Batch<T>::load_aligned(lane_numbers.numbers) < Batch<T>(T(seen)),
                         Batch<T>(T(0)), v);
  }
};
// Calls f(part) for the parts of a row of n; what it stores of an element that comes twice must be
// the same, and may not be an input unless through fresh().
template <class T, class F>
inline void for_parts(std::size_t n, F f) {
  constexpr std::size_t width = Batch<T>::size;
  if (n < width) return f(ShortPart<T>{n});
  std::size_t at = 0;
  for (; at + width <= n; at += width) f(Part<T, false>{at, 0});
  if (at < n) f(Part<T, true>{n - width, width - (n - at)});
}

// f(0), f(1), ... with constant arguments. In an ordinary loop g++ would see only too late that an
// array of sums can stay in registers.
template <std::size_t count, class F>
[[gnu::always_inline]] inline void unrolled(F&& f) {
  [&]<std::size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<std::size_t, i>()), ...);
  }(std::make_index_sequence<count>());
}

// NaN is found by a == a, because xsimd 8 calls NaN != NaN false with AVX.
template <Binary op, class V>
inline V apply(const V& a, const V& b) {
  if constexpr (op == Binary::add) return a + b;
  if constexpr (op == Binary::subtract) return a - b;
  if constexpr (op == Binary::multiply) return a * b;
  if constexpr (op == Binary::divide) return a / b;
  if constexpr (op == Binary::maximum) return xsimd::select(a == a, xsimd::select(a > b, a, b), a);
  if constexpr (op == Binary::minimum) return xsimd::select(a == a, xsimd::select(a < b, a, b), a);
  if constexpr (op == Binary::chain) return xsimd::select(a == V(0), V(0), a * b);
}

// exp(x), and 0 below exp(-60): beside a row's largest power, near 1, that is far less than
// rounding, and its products would be denormal numbers, on which processors take a hundred times
// longer.
template <class V>
[[gnu::always_inline]] inline V power_of(const V& x) {
  return vector_functions::exp_from(-60, x);
}

// Eight doubles at a time, for sums of numbers of either precision.
constexpr std::size_t wide_lanes = 8;
using Wide [[gnu::vector_size(8 * sizeof(double))]] = double;

// Reads x[i], as a double, or from there on as many as Wide holds.
struct ReadOne {
  template <class T>
  double operator()(const T* x, std::size_t i) const {
    return double(x[i]);
  }
};
struct ReadWide {
  template <class T>
  Wide operator()(const T* x, std::size_t i) const {
    using Narrow [[gnu::vector_size(wide_lanes * sizeof(T))]] = T;
    Narrow numbers;
    __builtin_memcpy(&numbers, x + i, sizeof numbers);
    return __builtin_convertvector(numbers, Wide);
  }
};
// The sum of term(read, i), pairwise over blocks, each block over 16 lanes in double.
template <class Term>
double sum_terms(std::size_t begin, std::size_t end, Term term) {
  constexpr std::size_t block = 4096, lanes = 2 * wide_lanes;
  if (end - begin > block) {
    const std::size_t middle = begin + ((end - begin) / 2 + block - 1) / block * block;
    return sum_terms(begin, middle, term) + sum_terms(middle, end, term);
  }
  Wide low{}, high{};
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    low += term(ReadWide(), i);
    high += term(ReadWide(), i + wide_lanes);
  }
  double lane[lanes];
  __builtin_memcpy(lane, &low, sizeof low);
  __builtin_memcpy(lane + wide_lanes, &high, sizeof high);
  for (std::size_t l = 0; i < end; ++i, ++l) lane[l] += term(ReadOne(), i);
  for (std::size_t half = lanes / 2; half > 0; half /= 2)
    for (std::size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

// The sum of the lanes, half to half. In vectors of the compiler, which halve without a detour
// through memory.
template <class T, std::size_t count>
using Lanes [[gnu::vector_size(count * sizeof(T))]] = T;

template <class T, std::size_t count>
inline T fold_lanes(const Lanes<T, count>& lanes) {
  if constexpr (count == 1) {
    return lanes[0];
  } else {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return fold_lanes<T, count / 2>(__builtin_shufflevector(lanes, lanes, i...) +
                                      __builtin_shufflevector(lanes, lanes, (count / 2 + i)...));
    }(std::make_index_sequence<count / 2>());
  }
}
template <class T>
inline T sum_of_lanes(const Batch<T>& batch) {
  Lanes<T, Batch<T>::size> lanes;
  static_assert(sizeof lanes == sizeof batch);
  __builtin_memcpy(&lanes, &batch, sizeof lanes);
  return fold_lanes<T, Batch<T>::size>(lanes);
}

// The sum of term(inputs[i]...), over the lanes of a vector within blocks and then in double: as
// good as the rounding of its terms.
template <class T, class F, class... In>
inline double sum_lanes(F term, std::size_t n, const In*... inputs) {
  using V = Batch<T>;
  constexpr std::size_t block = 16 * V::size;
  double total = 0;
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = begin + block < n ? begin + block : n;
    V sum(T(0));
    std::size_t i = begin;
    for (; i + V::size <= end; i += V::size) sum = sum + term(V::load_unaligned(inputs + i)...);
    if (i < end) sum = sum + map_rest<T>(term, n, end - i, T(0), inputs...);
    total += double(sum_of_lanes<T>(sum));
  }
  return total;
}

template <class T, Binary op>
T extreme(const T* x, std::size_t n) {
  using V = Batch<T>;
  const T worst = op == Binary::maximum ? -infinity<T> : infinity<T>;
  V best(worst);
  std::size_t i = 0;
  for (; i + V::size <= n; i += V::size) best = apply<op>(best, V::load_unaligned(x + i));
  if (i < n) best = apply<op>(best, map_rest<T>([](const V& v) { return v; }, n, n - i, worst, x));
  Tail<T> lanes;
  best.store_aligned(lanes.numbers);
  T result = worst;
  for (const T number : lanes.numbers) {
    if (number != number) return number;
    if (op == Binary::maximum ? number > result : number < result) result = number;
  }
  return result;
}

}  // namespace
}  // namespace attngrad::kernels::ATTNGRAD_ARCH
