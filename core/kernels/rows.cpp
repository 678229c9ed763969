// The kernels of rows.hpp, compiled once per instruction set like vector.cpp.
#include "core/kernels/rows.hpp"

#include "core/kernels/lanes.hpp"

namespace attngrad::kernels::ATTNGRAD_ARCH {
namespace {

template <class T>
double softmax(const T* x, T* y, std::size_t n) {
  const T top = extreme<T, Binary::maximum>(x, n);
  if (top == -infinity<T>) {
    for (std::size_t i = 0; i < n; ++i) y[i] = 0;
    return -infinity<double>;
  }
  const Batch<T> shift(top);
  map<T>([&](const auto& v) { return exp_bounded(v - shift); }, y, n, x);
  const double total = sum_lanes<T>([](const auto& v) { return v; }, n, y);
  const Batch<T> share(T(1 / total));
  map<T>([&](const auto& v) { return share * v; }, y, n, y);
  return double(top) + __builtin_log(total);
}

template <class T>
void softmax_backward(const T* y, const T* g, T* gx, std::size_t n) {
  const Batch<T> zero(T(0));
  // In double, because little is left of g less its share where y is near 1. g may be anything,
  // even NaN, where y is exactly 0.
  const double share = sum_terms(0, n, [=](auto read, std::size_t i) {
    const auto weight = read(y, i);
    return weight == 0 ? weight : weight * read(g, i);
  });
  const Batch<T> s(static_cast<T>(share));
  map<T>([&](const auto& yv,
             const auto& gv) { return xsimd::select(yv == zero, zero, yv * (gv - s)); },
         gx, n, y, g);
}

template <class T>
LogSumExp log_sum_exp(const T* x, std::size_t n) {
  const T top = extreme<T, Binary::maximum>(x, n);
  if (top == -infinity<T> || top == infinity<T> || top != top) return {double(top), 0};
  const Batch<T> shift(top);
  const double total = sum_lanes<T>([&](const auto& v) { return exp_bounded(v - shift); }, n, x);
  return {double(top), __builtin_log(total)};
}

// x - center, where a row's center in double may have more digits than T: beside a large center, x
// less its first half is exact.
template <class T>
struct Centered {
  Batch<T> high, low;

  explicit Centered(double center)
      : high(static_cast<T>(center)),
        low(static_cast<T>(center - double(static_cast<T>(center)))) {}
  Batch<T> operator()(const Batch<T>& x) const { return (x - high) - low; }
};

template <class T>
double mean_of(const T* x, std::size_t n) {
  // differences from any element of the row have no large part in common, so few digits are lost
  const Batch<T> first(*x);
  const double rest = sum_lanes<T>([&](const auto& v) { return v - first; }, n, x);
  return double(*x) + rest / double(n);
}

template <class T>
void normalize(const T* x, const T* gain, const T* shift, bool centered, double epsilon, T* y,
               RowStatistics* stats, std::size_t n) {
  const double mean = centered ? mean_of(x, n) : 0;
  const Centered<T> from_mean(mean);
  double square = sum_lanes<T>(
      [&](const auto& v) {
        const Batch<T> d = from_mean(v);
        return d * d;
      },
      n, x);
  // squares that leave the range of T, or of a row that is nearly constant, are summed in double
  if (!(square > 1e-30 && square < infinity<double>))
    square = sum_terms(0, n, [=](auto read, std::size_t i) {
      const auto d = read(x, i) - mean;
      return d * d;
    });
  const double rstd = 1 / __builtin_sqrt(square / double(n) + epsilon);
  *stats = {mean, rstd};
  const Batch<T> scale(static_cast<T>(rstd));
  if (shift != nullptr) {
    map<T>(
        [&](const auto& v, const auto& w, const auto& b) { return from_mean(v) * scale * w + b; },
        y, n, x, gain, shift);
  } else {
    map<T>([&](const auto& v, const auto& w) { return from_mean(v) * scale * w; }, y, n, x, gain);
  }
}

template <class T>
void normalize_backward(const T* x, const T* gain, const T* g, bool centered, RowStatistics stats,
                        T* gx, T* ggain, T* gshift, std::size_t n) {
  const Centered<T> from_mean(stats.mean);
  const Batch<T> scale(static_cast<T>(stats.rstd));
  // the mean and the scale are shared by the row, so each entry's gradient loses its share of both
  const double along = sum_lanes<T>(
      [&](const auto& v, const auto& w, const auto& u) { return u * w * (from_mean(v) * scale); },
      n, x, gain, g);
  const double level =
      centered ? sum_lanes<T>([](const auto& w, const auto& u) { return u * w; }, n, gain, g) : 0;
  const Batch<T> a(static_cast<T>(along / double(n))), l(static_cast<T>(level / double(n)));
  map<T>([&](const auto& v, const auto& w,
             const auto& u) { return scale * (u * w - l - from_mean(v) * scale * a); },
         gx, n, x, gain, g);
  map<T>([&](const auto& sum, const auto& v,
             const auto& u) { return sum + u * (from_mean(v) * scale); },
         ggain, n, ggain, x, g);
  if (gshift != nullptr)
    map<T>([](const auto& sum, const auto& u) { return sum + u; }, gshift, n, gshift, g);
}

template <class T>
void cross_entropy_backward(const T* x, LogSumExp log_sum_exp, std::int64_t target,
                            double smoothing, double scale, T* gx, std::size_t n) {
  const Batch<T> top(static_cast<T>(log_sum_exp.top)),
      log_total(static_cast<T>(log_sum_exp.log_total));
  const Batch<T> factor(static_cast<T>(scale)), everywhere(static_cast<T>(smoothing / double(n)));
  map<T>([&](const auto& v) { return factor * (exp_bounded(v - top - log_total) - everywhere); },
         gx, n, x);
  gx[target] -= T(scale * (1 - smoothing));
}

// `rows` rows at a time share what is loaded of x; two sums a row, so that enough are under way.
template <class T, std::size_t rows>
void dot_block(const T* x, const T* from, std::size_t stride, std::size_t width, T factor, T* y) {
  using V = Batch<T>;
  V sums[2 * rows];
  unrolled<2 * rows>([&](auto i) { sums[i] = V(T(0)); });
  std::size_t d = 0;
  for (; d + 2 * V::size <= width; d += 2 * V::size) {
    const V low = V::load_unaligned(x + d), high = V::load_unaligned(x + d + V::size);
    unrolled<rows>([&](auto r) {
      const T* row = from + r * stride + d;
      sums[2 * r] = multiply_add(low, V::load_unaligned(row), sums[2 * r]);
      sums[2 * r + 1] = multiply_add(high, V::load_unaligned(row + V::size), sums[2 * r + 1]);
    });
  }
  for (; d + V::size <= width; d += V::size) {
    const V low = V::load_unaligned(x + d);
    unrolled<rows>([&](auto r) {
      sums[2 * r] = multiply_add(low, V::load_unaligned(from + r * stride + d), sums[2 * r]);
    });
  }
  unrolled<rows>([&](auto r) {
    T sum = xsimd::hadd(sums[2 * r] + sums[2 * r + 1]);
    for (std::size_t i = d; i < width; ++i) sum += x[i] * from[r * stride + i];
    y[r] = factor * sum;
  });
}

template <class T>
void dots(const T* x, const T* rows, std::size_t stride, std::size_t count, std::size_t width,
          T factor, T* y) {
  constexpr std::size_t block = 4;
  std::size_t j = 0;
  for (; j + block <= count; j += block)
    dot_block<T, block>(x, rows + j * stride, stride, width, factor, y + j);
  for (; j < count; ++j) dot_block<T, 1>(x, rows + j * stride, stride, width, factor, y + j);
}

// y += the weighted sum of `rows` rows, each element in the order of the rows.
template <class T, std::size_t rows>
void add_row_block(const T* weights, const T* from, std::size_t stride, std::size_t width, T* y) {
  using V = Batch<T>;
  V weight[rows];
  unrolled<rows>([&](auto r) { weight[r] = V(weights[r]); });
  const auto sum_of = [&](auto load, V sum) {
    unrolled<rows>([&](auto r) { sum = multiply_add(weight[r], load(from + r * stride), sum); });
    return sum;
  };
  std::size_t d = 0;
  for (; d + V::size <= width; d += V::size)
    sum_of([&](const T* row) { return V::load_unaligned(row + d); }, V::load_unaligned(y + d))
        .store_unaligned(y + d);
  if (d == width) return;
  Tail<T> tail, result;
  const std::size_t rest = width - d;
  result.store(sum_of([&](const T* row) { return tail.load(row + d, rest, T(0)); },
                      result.load(y + d, rest, T(0))),
               y + d, rest);
}

template <class T>
void add_rows(const T* weights, const T* rows, std::size_t stride, std::size_t count,
              std::size_t width, T* y) {
  constexpr std::size_t block = 8;
  std::size_t j = 0;
  for (; j + block <= count; j += block)
    add_row_block<T, block>(weights + j, rows + j * stride, stride, width, y);
  for (; j < count; ++j) add_row_block<T, 1>(weights + j, rows + j * stride, stride, width, y);
}

template <class T>
double powers(T* x, T top, std::size_t n) {
  const Batch<T> shift(top);
  map<T>([&](const auto& v) { return power_of(Batch<T>(v - shift)); }, x, n, x);
  return sum_lanes<T>([](const auto& v) { return v; }, n, x);
}

template <class T>
constexpr RowKernels<T> kernels{softmax<T>,   softmax_backward<T>,   log_sum_exp<T>,
                                normalize<T>, normalize_backward<T>, cross_entropy_backward<T>,
                                dots<T>,      add_rows<T>,           powers<T>};

}  // namespace

template <class T>
const RowKernels<T>& rows() {
  return kernels<T>;
}
template const RowKernels<float>& rows();
template const RowKernels<double>& rows();

}  // namespace attngrad::kernels::ATTNGRAD_ARCH
