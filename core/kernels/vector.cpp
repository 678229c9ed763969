// The loops of vector.hpp. CMake compiles this file once per instruction set, with ATTNGRAD_ARCH
// naming a namespace; it may include nothing that other units share as inline code beyond xsimd.
#include "core/kernels/vector.hpp"

#include <limits>

#include "core/kernels/formulas.hpp"

namespace attngrad::kernels::ATTNGRAD_ARCH {
namespace {

template <class T>
using Batch = xsimd::batch<T, xsimd::default_arch>;

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

// The elements after the last whole batch go through the same vector instructions, by way of a
// padded copy.
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

// y[i] = f(inputs[i]...)
template <class T, class F, class... In>
inline void map(F f, T* y, std::size_t n, const In*... inputs) {
  constexpr std::size_t width = Batch<T>::size;
  std::size_t i = 0;
  for (; i + width <= n; i += width)
    f(Batch<T>::load_unaligned(inputs + i)...).store_unaligned(y + i);
  if (i < n) {
    Tail<T> tail;
    tail.store(f(tail.load(inputs + i, n - i, T(0))...), y + i, n - i);
  }
}

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
void accumulate_wide(const T* x, double* sums, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) sums[i] += x[i];
}

// The sum of term(i), pairwise over blocks, each block over 16 lanes in double.
template <class Term>
double sum_terms(std::size_t begin, std::size_t end, Term term) {
  constexpr std::size_t block = 4096, lanes = 16;
  if (end - begin > block) {
    const std::size_t middle = begin + ((end - begin) / 2 + block - 1) / block * block;
    return sum_terms(begin, middle, term) + sum_terms(middle, end, term);
  }
  double lane[lanes] = {};
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes)
    for (std::size_t l = 0; l < lanes; ++l) lane[l] += term(i + l);
  for (std::size_t l = 0; i < end; ++i, ++l) lane[l] += term(i);
  for (std::size_t half = lanes / 2; half > 0; half /= 2)
    for (std::size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

template <class T>
double sum(const T* x, std::size_t n) {
  return sum_terms(0, n, [x](std::size_t i) { return double(x[i]); });
}

template <class T>
double dot(const T* a, const T* b, std::size_t n) {
  return sum_terms(0, n, [a, b](std::size_t i) { return double(a[i]) * double(b[i]); });
}

template <class T, Binary op>
T extreme(const T* x, std::size_t n) {
  using V = Batch<T>;
  const T worst = op == Binary::maximum ? -infinity<T> : infinity<T>;
  V best(worst);
  std::size_t i = 0;
  for (; i + V::size <= n; i += V::size) best = apply<op>(best, V::load_unaligned(x + i));
  Tail<T> tail;
  best = apply<op>(best, tail.load(x + i, n - i, worst));
  best.store_aligned(tail.numbers);
  T result = worst;
  for (const T number : tail.numbers) {
    if (number != number) return number;
    if (op == Binary::maximum ? number > result : number < result) result = number;
  }
  return result;
}

template <class T>
double softmax(const T* x, T* y, std::size_t n) {
  const T top = extreme<T, Binary::maximum>(x, n);
  if (top == -infinity<T>) {
    for (std::size_t i = 0; i < n; ++i) y[i] = 0;
    return -infinity<double>;
  }
  const Batch<T> shift(top);
  map<T>([&](const auto& v) { return xsimd::exp(v - shift); }, y, n, x);
  const double total = sum(y, n);
  scale(y, T(1 / total), T(0), y, n);
  return double(top) + __builtin_log(total);
}

template <class T>
void softmax_backward(const T* y, const T* g, T* gx, std::size_t n) {
  const Batch<T> zero(T(0));
  // g may be anything, even NaN, where y is exactly 0
  const double share =
      sum_terms(0, n, [=](std::size_t i) { return y[i] == 0 ? 0.0 : double(y[i]) * double(g[i]); });
  const Batch<T> s(static_cast<T>(share));
  map<T>([&](const auto& yv,
             const auto& gv) { return xsimd::select(yv == zero, zero, yv * (gv - s)); },
         gx, n, y, g);
}

template <class T>
LogSumExp log_sum_exp(const T* x, std::size_t n) {
  const T top = extreme<T, Binary::maximum>(x, n);
  if (top == -infinity<T> || top == infinity<T> || top != top) return {double(top), 0};
  constexpr std::size_t piece = 256;
  T powers[piece];
  const Batch<T> shift(top);
  double total = 0;
  for (std::size_t i = 0; i < n; i += piece) {
    const std::size_t count = n - i < piece ? n - i : piece;
    map<T>([&](const auto& v) { return xsimd::exp(v - shift); }, powers, count, x + i);
    total += sum(powers, count);
  }
  return {double(top), __builtin_log(total)};
}

template <class T>
void normalize(const T* x, const T* gain, const T* shift, bool centered, double epsilon, T* y,
               RowStatistics* stats, std::size_t n) {
  const double mean = centered ? sum(x, n) / double(n) : 0;
  const double square =
      sum_terms(0, n, [=](std::size_t i) { return (x[i] - mean) * (x[i] - mean); }) / double(n);
  const double rstd = 1 / __builtin_sqrt(square + epsilon);
  for (std::size_t i = 0; i < n; ++i) y[i] = T((x[i] - mean) * rstd) * gain[i];
  if (shift != nullptr)
    for (std::size_t i = 0; i < n; ++i) y[i] += shift[i];
  *stats = {mean, rstd};
}

template <class T>
void normalize_backward(const T* x, const T* gain, const T* g, bool centered, RowStatistics stats,
                        T* gx, double* ggain, double* gshift, std::size_t n) {
  const auto [mean, rstd] = stats;
  const auto unit = [=, mean = mean, rstd = rstd](std::size_t i) { return (x[i] - mean) * rstd; };
  // the mean and the scale are shared by the row, so each entry's gradient loses its share of both
  const double along =
      sum_terms(0, n, [=](std::size_t i) { return double(g[i]) * gain[i] * unit(i); }) / double(n);
  const double level =
      centered ? sum_terms(0, n, [=](std::size_t i) { return double(g[i]) * gain[i]; }) / double(n)
               : 0;
  for (std::size_t i = 0; i < n; ++i)
    gx[i] = T(rstd * (double(g[i]) * gain[i] - level - unit(i) * along));
  for (std::size_t i = 0; i < n; ++i) ggain[i] += g[i] * unit(i);
  if (gshift != nullptr) accumulate_wide(g, gshift, n);
}

template <class T>
void cross_entropy_backward(const T* x, LogSumExp log_sum_exp, std::int64_t target,
                            double smoothing, double scale, T* gx, std::size_t n) {
  const Batch<T> top(static_cast<T>(log_sum_exp.top)),
      log_total(static_cast<T>(log_sum_exp.log_total));
  const Batch<T> factor(static_cast<T>(scale)), everywhere(static_cast<T>(smoothing / double(n)));
  map<T>([&](const auto& v) { return factor * (xsimd::exp(v - top - log_total) - everywhere); }, gx,
         n, x);
  gx[target] -= T(scale * (1 - smoothing));
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
  k.name = ATTNGRAD_ARCH_NAME;
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
  k.accumulate_wide = accumulate_wide<T>;
  k.sum = sum<T>;
  k.dot = dot<T>;
  k.max = extreme<T, Binary::maximum>;
  k.min = extreme<T, Binary::minimum>;
  k.softmax = softmax<T>;
  k.softmax_backward = softmax_backward<T>;
  k.log_sum_exp = log_sum_exp<T>;
  k.normalize = normalize<T>;
  k.normalize_backward = normalize_backward<T>;
  k.cross_entropy_backward = cross_entropy_backward<T>;
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
