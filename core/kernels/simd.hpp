// xsimd, and the few vector functions it lacks. The only header that includes xsimd.
#pragma once

#include <xsimd/xsimd.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace attngrad::kernels::vector_functions {

// a b + c, rounded once where the instruction set can. xsimd 8 has no such instruction for AVX-512
// and takes two.
template <class T, class A>
[[gnu::always_inline]] inline xsimd::batch<T, A> multiply_add(const xsimd::batch<T, A>& a,
                                                              const xsimd::batch<T, A>& b,
                                                              const xsimd::batch<T, A>& c) {
#ifdef __AVX512F__
  if constexpr (sizeof(xsimd::batch<T, A>) == 64) {
    if constexpr (std::is_same_v<T, float>) return _mm512_fmadd_ps(a, b, c);
    if constexpr (std::is_same_v<T, double>) return _mm512_fmadd_pd(a, b, c);
  }
#endif
  return xsimd::fma(a, b, c);
}

// exp(x) for x <= 88, to 1.2 units in the last place, and 0 below `lowest` >= -87.33; NaN stays.
// x = n log 2 + r, with r at most log(2) / 2 and exp(r) by the polynomial of Cephes' expf.
template <class A>
[[gnu::always_inline]] inline xsimd::batch<float, A> exp_from(float lowest,
                                                              const xsimd::batch<float, A>& x) {
  using V = xsimd::batch<float, A>;
  // 1.5 * 2^23: adding it leaves no fraction, and the last bits are the integer; 127 more makes
  // them the exponent of 2^n
  const V rounding(12582912.0f + 127.0f);
  const V shifted = multiply_add(x, V(1.44269504f), rounding), n = shifted - rounding;
  // log 2 in two parts, of which the first has few bits, so that n times it is exact
  const V r = multiply_add(n, V(2.12194440e-4f), multiply_add(n, V(-0.693359375f), x));
  V p(1.9875691500e-4f);
  for (const float coefficient : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                  1.6666665459e-1f, 5.0000001201e-1f, 1.0f, 1.0f})
    p = multiply_add(p, r, V(coefficient));
  const auto exponent = xsimd::bitwise_cast<xsimd::batch<std::int32_t, A>>(shifted) << 23;
  return xsimd::select(x < V(lowest), V(0.0f), p * xsimd::bitwise_cast<V>(exponent));
}
template <class A>
xsimd::batch<double, A> exp_from(double lowest, const xsimd::batch<double, A>& x) {
  using V = xsimd::batch<double, A>;
  return xsimd::select(x < V(lowest), V(0.0), xsimd::exp(x));
}

// exp(x) for x <= 88 in float; what would be smaller than the smallest normal number is 0.
template <class A>
[[gnu::always_inline]] inline xsimd::batch<float, A> exp_bounded(const xsimd::batch<float, A>& x) {
  return exp_from(-87.3365448f, x);
}
template <class A>
xsimd::batch<double, A> exp_bounded(const xsimd::batch<double, A>& x) {
  return xsimd::exp(x);
}

// sigmoid(x) and sigmoid(-x), which are 1 together, from one exponential.
template <class T, class A>
[[gnu::always_inline]] inline std::pair<xsimd::batch<T, A>, xsimd::batch<T, A>> both_sigmoids(
    const xsimd::batch<T, A>& x) {
  using V = xsimd::batch<T, A>;
  const V power = exp_bounded(-xsimd::abs(x)), larger = V(T(1)) / (V(T(1)) + power);
  const V smaller = power * larger;
  const auto negative = x < V(T(0));
  return {xsimd::select(negative, smaller, larger), xsimd::select(negative, larger, smaller)};
}

// 1 / (1 + exp(-x)), without overflow; NaN stays.
template <class T, class A>
[[gnu::always_inline]] inline xsimd::batch<T, A> sigmoid(const xsimd::batch<T, A>& x) {
  return both_sigmoids(x).first;
}
// The same of any other type that has a sigmoid.
template <class X>
std::pair<X, X> both_sigmoids(const X& x) {
  return {sigmoid(x), sigmoid(-1 * x)};
}

// 1 where x > 0, else 0; NaN gives 0.
template <class T, class A>
xsimd::batch<T, A> step(const xsimd::batch<T, A>& x) {
  return xsimd::select(x > xsimd::batch<T, A>(T(0)), xsimd::batch<T, A>(T(1)),
                       xsimd::batch<T, A>(T(0)));
}

// max(x, 0); NaN stays.
template <class T, class A>
xsimd::batch<T, A> positive_part(const xsimd::batch<T, A>& x) {
  return xsimd::select(x <= xsimd::batch<T, A>(T(0)), xsimd::batch<T, A>(T(0)), x);
}

// In double, preferred to xsimd's own by overload resolution: that of xsimd 8 is NaN from about
// 1e100 on. erf(6) is 1.
template <class A>
xsimd::batch<double, A> erf(const xsimd::batch<double, A>& x) {
  const xsimd::batch<double, A> high(6.0), low(-6.0);
  return xsimd::erf(xsimd::select(x > high, high, xsimd::select(x < low, low, x)));
}

}  // namespace attngrad::kernels::vector_functions
