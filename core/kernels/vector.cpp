// The loops of vector.hpp. CMake compiles this file once per instruction set, with ATTNGRAD_ARCH
// naming a namespace; it may include nothing that other units share as inline code beyond xsimd.
#include "core/kernels/vector.hpp"

#include "core/kernels/formulas.hpp"
#include "core/kernels/lanes.hpp"

namespace attngrad::kernels::ATTNGRAD_ARCH {
namespace {

template <class T, class F>
void unary(const T* x, T* y, std::size_t n) {
  map<T>([](const auto& v) { return Batch<T>(F::value(v)); }, y, n, x);
}

template <class T, class F>
void unary_slope(const T* g, const T* s, T* gx, std::size_t n) {
  map<T>(
      [](const auto& gv, const auto& sv) {
        const Batch<T> zero(T(0));
        return xsimd::select(gv == zero, zero, gv * Batch<T>(F::slope(sv)));
      },
      gx, n, g, s);
}

template <class T, Binary op>
void binary(Operand<T> a, Operand<T> b, T* y, std::size_t n) {
  using V = Batch<T>;
  if (a.step == 1 && b.step == 1) {
    map<T>([](const V& u, const V& v) { return apply<op>(u, v); }, y, n, a.data, b.data);
  } else if (a.step == 1) {
    map<T>([v = V(*b.data)](const V& u) { return apply<op>(u, v); }, y, n, a.data);
  } else if (b.step == 1) {
    map<T>([u = V(*a.data)](const V& v) { return apply<op>(u, v); }, y, n, b.data);
  } else {
    Tail<T> both;
    apply<op>(V(*a.data), V(*b.data)).store_aligned(both.numbers);
    for (std::size_t i = 0; i < n; ++i) y[i] = both.numbers[0];
  }
}

template <class T>
void scale(const T* x, T factor, T shift, T* y, std::size_t n) {
  const Batch<T> f(factor), s(shift);
  if (shift == T(0)) {
    map<T>([&](const auto& v) { return f * v; }, y, n, x);
  } else {
    map<T>([&](const auto& v) { return f * v + s; }, y, n, x);
  }
}

template <class T>
void accumulate(const T* x, T* y, std::size_t n) {
  map<T>([](const auto& u, const auto& v) { return u + v; }, y, n, y, x);
}

template <class T>
void combine(const T* const* x, const T* weights, std::size_t count, T* y, std::size_t n) {
  using V = Batch<T>;
  const auto combined = [=](auto read) {
    V total(T(0));
    for (std::size_t k = 0; k < count; ++k) total = multiply_add(V(weights[k]), read(x[k]), total);
    return total;
  };
  std::size_t i = 0;
  // four at a time, so that none waits for another, and a weight is read once for all
  for (; i + 4 * V::size <= n; i += 4 * V::size) {
    V totals[4]{V(T(0)), V(T(0)), V(T(0)), V(T(0))};
    for (std::size_t k = 0; k < count; ++k)
      for (std::size_t j = 0; j < 4; ++j)
        totals[j] =
            multiply_add(V(weights[k]), V::load_unaligned(x[k] + i + j * V::size), totals[j]);
    for (std::size_t j = 0; j < 4; ++j) totals[j].store_unaligned(y + i + j * V::size);
  }
  for (; i + V::size <= n; i += V::size)
    combined([i](const T* from) { return V::load_unaligned(from + i); }).store_unaligned(y + i);
  if (i == n) return;
  Tail<T> tail;
  tail.store(combined([&](const T* from) { return tail.load(from + i, n - i, T(0)); }), y + i,
             n - i);
}

template <class T>
double sum(const T* x, std::size_t n) {
  return sum_terms(0, n, [x](auto read, std::size_t i) { return read(x, i); });
}

template <class T>
double dot(const T* a, const T* b, std::size_t n) {
  return sum_terms(0, n, [a, b](auto read, std::size_t i) { return read(a, i) * read(b, i); });
}

template <class T>
void accumulate_wide(const T* x, std::size_t rows, double* sums, std::size_t n) {
  constexpr std::size_t together = 4;  // rows, for which a sum is read and written once
  const auto add = [=]<std::size_t count>(const T* from,
                                          std::integral_constant<std::size_t, count>) {
    std::size_t i = 0;
    for (; i + wide_lanes <= n; i += wide_lanes) {
      Wide sum = ReadWide()(sums, i);
      unrolled<count>([&](auto r) { sum += ReadWide()(from + r * n, i); });
      __builtin_memcpy(sums + i, &sum, sizeof sum);
    }
    for (; i < n; ++i)
      for (std::size_t r = 0; r < count; ++r) sums[i] += from[r * n + i];
  };
  std::size_t row = 0;
  for (; row + together <= rows; row += together)
    add(x + row * n, std::integral_constant<std::size_t, together>());
  for (; row < rows; ++row) add(x + row * n, std::integral_constant<std::size_t, 1>());
}

// `side` batches of y, whose sums stay in registers.
template <std::size_t side, class T>
inline void convolve_block(const T* x, const T* taps, std::size_t count, T* y) {
  constexpr std::size_t width = Batch<T>::size;
  Batch<T> sums[side];
  unrolled<side>([&](auto i) { sums[i] = Batch<T>::load_unaligned(y + i * width); });
  for (std::size_t k = 0; k < count; ++k) {
    const Batch<T> tap(taps[k]);
    unrolled<side>(
        [&](auto i) { sums[i] = sums[i] + tap * Batch<T>::load_unaligned(x + k + i * width); });
  }
  unrolled<side>([&](auto i) { sums[i].store_unaligned(y + i * width); });
}

template <class T>
void convolve(const T* x, const T* taps, std::size_t count, T* y, std::size_t n) {
  constexpr std::size_t width = Batch<T>::size, side = 4;
  std::size_t j = 0;
  for (; j + side * width <= n; j += side * width) convolve_block<side>(x + j, taps, count, y + j);
  for (; j + width <= n; j += width) convolve_block<1>(x + j, taps, count, y + j);
  for (; j < n; ++j)
    for (std::size_t k = 0; k < count; ++k) y[j] = y[j] + taps[k] * x[j + k];
}

inline float square_root(float x) { return __builtin_sqrtf(x); }
inline double square_root(double x) { return __builtin_sqrt(x); }

template <class T>
void adam(const AdamStep& step, const T* __restrict g, T* __restrict w, T* __restrict m,
          T* __restrict v, std::size_t n) {
  const T scale = T(step.gradient_scale), l2 = T(step.l2_decay),
          kept = T(1 - step.rate * step.decoupled_decay);
  const T b1 = T(step.beta1), b2 = T(step.beta2), c1 = T(1 - step.beta1), c2 = T(1 - step.beta2);
  const T rate = T(step.rate / step.correction1), root = T(1 / __builtin_sqrt(step.correction2));
  const T epsilon = T(step.epsilon);
  for (std::size_t i = 0; i < n; ++i) {
    const T gradient = scale * g[i] + l2 * w[i];
    m[i] = b1 * m[i] + c1 * gradient;
    v[i] = b2 * v[i] + c2 * gradient * gradient;
    w[i] = kept * w[i] - rate * m[i] / (square_root(v[i]) * root + epsilon);
  }
}

template <class T>
void sgd(const SgdStep& step, const T* __restrict g, T* __restrict w, T* __restrict velocity,
         std::size_t n) {
  const T scale = T(step.gradient_scale), decay = T(step.decay), rate = T(step.rate),
          mu = T(step.momentum);
  for (std::size_t i = 0; i < n; ++i) {
    T gradient = scale * g[i] + decay * w[i];
    if (velocity != nullptr) {
      velocity[i] = mu * velocity[i] + gradient;
      gradient = step.nesterov ? gradient + mu * velocity[i] : velocity[i];
    }
    w[i] -= rate * gradient;
  }
}

template <class T, class... Formulas>
void fill_unary(VectorKernels<T>& kernels, formula::List<Formulas...>) {
  static_assert(sizeof...(Formulas) == unary_count);
  std::size_t i = 0;
  ((kernels.unary[i] = unary<T, Formulas>, kernels.unary_slope[i] = unary_slope<T, Formulas>, ++i),
   ...);
}

template <class T>
VectorKernels<T> make_kernels() {
  VectorKernels<T> k{};
  fill_unary(k, formula::Unary());
  k.binary[std::size_t(Binary::add)] = binary<T, Binary::add>;
  k.binary[std::size_t(Binary::subtract)] = binary<T, Binary::subtract>;
  k.binary[std::size_t(Binary::multiply)] = binary<T, Binary::multiply>;
  k.binary[std::size_t(Binary::divide)] = binary<T, Binary::divide>;
  k.binary[std::size_t(Binary::maximum)] = binary<T, Binary::maximum>;
  k.binary[std::size_t(Binary::minimum)] = binary<T, Binary::minimum>;
  k.binary[std::size_t(Binary::chain)] = binary<T, Binary::chain>;
  k.scale = scale<T>;
  k.accumulate = accumulate<T>;
  k.combine = combine<T>;
  k.accumulate_wide = accumulate_wide<T>;
  k.convolve = convolve<T>;
  k.sum = sum<T>;
  k.dot = dot<T>;
  k.max = extreme<T, Binary::maximum>;
  k.min = extreme<T, Binary::minimum>;
  k.adam = adam<T>;
  k.sgd = sgd<T>;
  return k;
}

}  // namespace

template <class T>
const VectorKernels<T>& vectors() {
  static const VectorKernels<T> kernels = make_kernels<T>();
  return kernels;
}
template const VectorKernels<float>& vectors();
template const VectorKernels<double>& vectors();

}  // namespace attngrad::kernels::ATTNGRAD_ARCH
