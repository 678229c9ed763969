// xsimd, and the few vector functions it lacks. The only header that names xsimd.
#pragma once

#include <xsimd/xsimd.hpp>

#include <cstddef>
#include <type_traits>

namespace attngrad::kernels::vector_functions {

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
