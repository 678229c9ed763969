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

template <class T>
double dot(const T* a, const T* b, std::size_t n) {
  using V = Batch<T>;
  constexpr std::size_t block = 16 * V::size;
  double sum = 0;
  std::size_t begin = 0;
  for (; begin + block <= n; begin += block) {
    V sums[4]{V(T(0)), V(T(0)), V(T(0)), V(T(0))};  // which do not wait for each other
    for (std::size_t i = begin; i < begin + block; i += 4 * V::size)
      for (std::size_t j = 0; j < 4; ++j)
        sums[j] = multiply_add(V::load_unaligned(a + i + j * V::size),
                               V::load_unaligned(b + i + j * V::size), sums[j]);
    sum += double(sum_of_lanes<T>((sums[0] + sums[1]) + (sums[2] + sums[3])));
  }
  sum += sum_lanes<T>([](const auto& u, const auto& v) { return u * v; }, n - begin, a + begin,
                      b + begin);
  if (sum - sum == 0) return sum;
  return sum_terms(0, n, [=](auto read, std::size_t i) { return read(a, i) * read(b, i); });
}

// x - center, where a row's center in double may have more digits than T: beside a large center, x
// less its first half is exact.
template <class T>
struct Centered {
  T high, low;

  Batch<T> operator()(const Batch<T>& x) const { return (x - Batch<T>(high)) - Batch<T>(low); }
};
template <class T>
Centered<T> centered_at(double center) {
  return {static_cast<T>(center), static_cast<T>(center - double(static_cast<T>(center)))};
}

template <class T>
double mean_of(const T* x, std::size_t n) {
  // differences from any element of the row have no large part in common, so few digits are lost
  const Batch<T> first(*x);
  const double rest = sum_lanes<T>([&](const auto& v) { return v - first; }, n, x);
  return double(*x) + rest / double(n);
}

// The sum of squares of the centered row.
template <class T>
double square_of(const T* x, double mean, std::size_t n) {
  const Centered<T> from_mean = centered_at<T>(mean);
  const double square = sum_lanes<T>(
      [&](const auto& v) {
        const Batch<T> d = from_mean(v);
        return d * d;
      },
      n, x);
  if (square > 1e-30 && square < infinity<double>) return square;
  // squares that leave the range of T, or of a row that is nearly constant, are summed in double
  return sum_terms(0, n, [=](auto read, std::size_t i) {
    const auto d = read(x, i) - mean;
    return d * d;
  });
}

// Calls f(begin, end) for groups of rows that a norm takes through each of its steps together, up
// to 16 KiB: the steps of one row wait for each other, those of different rows do not.
constexpr std::size_t most_rows = 8;
template <class T, class F>
void for_row_groups(std::size_t rows, std::size_t n, F f) {
  const std::size_t fitting = 16384 / (sizeof(T) * (n + 1));
  const std::size_t group = fitting < 1 ? 1 : fitting < most_rows ? fitting : most_rows;
  for (std::size_t begin = 0; begin < rows; begin += group)
    f(begin, begin + group < rows ? begin + group : rows);
}

template <class T>
void normalize(const T* x, const T* gain, const T* shift, bool centered, double epsilon, T* y,
               RowStatistics* stats, std::size_t rows, std::size_t n) {
  for_row_groups<T>(rows, n, [=](std::size_t begin, std::size_t end) {
    double squares[most_rows];
    for (std::size_t r = begin; r < end; ++r) stats[r].mean = centered ? mean_of(x + r * n, n) : 0;
    for (std::size_t r = begin; r < end; ++r)
      squares[r - begin] = square_of(x + r * n, stats[r].mean, n);
    for (std::size_t r = begin; r < end; ++r)
      stats[r].rstd = 1 / __builtin_sqrt(squares[r - begin] / double(n) + epsilon);
    for (std::size_t r = begin; r < end; ++r) {
      const Centered<T> from_mean = centered_at<T>(stats[r].mean);
      const Batch<T> scale(static_cast<T>(stats[r].rstd));
      const auto scaled = [&](const auto& v, const auto& w) { return from_mean(v) * scale * w; };
      if (shift == nullptr)
        map<T>(scaled, y + r * n, n, x + r * n, gain);
      else
        map<T>([&](const auto& v, const auto& w, const auto& b) { return scaled(v, w) + b; },
               y + r * n, n, x + r * n, gain, shift);
    }
  });
}

// What the gradients of all entries of a row are computed from. The mean and the scale are shared
// by the row, so each entry's gradient loses its share of both: level, and along.
template <class T>
struct RowSlope {
  Centered<T> from_mean;
  T scale, along, level;

  Batch<T> normed(const Batch<T>& x) const { return from_mean(x) * Batch<T>(scale); }
};
template <class T>
RowSlope<T> slope_of(const T* x, const T* gain, const T* g, bool centered, RowStatistics stats,
                     std::size_t n) {
  RowSlope<T> row{centered_at<T>(stats.mean), static_cast<T>(stats.rstd), 0, 0};
  const double along = sum_lanes<T>(
      [&](const auto& v, const auto& w, const auto& u) { return u * w * row.normed(v); }, n, x,
      gain, g);
  row.along = static_cast<T>(along / double(n));
  if (!centered) return row;
  const double level = sum_lanes<T>([](const auto& w, const auto& u) { return u * w; }, n, gain, g);
  row.level = static_cast<T>(level / double(n));
  return row;
}

template <class T>
void normalize_backward(const T* x, const T* gain, const T* g, bool centered,
                        const RowStatistics* stats, T* gx, T* ggain, T* gshift, std::size_t rows,
                        std::size_t n) {
  using V = Batch<T>;
  for_row_groups<T>(rows, n, [=](std::size_t begin, std::size_t end) {
    RowSlope<T> slopes[most_rows];
    for (std::size_t r = begin; r < end; ++r)
      slopes[r - begin] = slope_of(x + r * n, gain, g + r * n, centered, stats[r], n);
    for_parts<T>(n, [=, &slopes](auto part) {
      const V w = part.load(gain);
      V gain_sum = part.load(ggain), shift_sum = gshift == nullptr ? V(T(0)) : part.load(gshift);
      for (std::size_t r = begin; r < end; ++r) {
        const RowSlope<T>& row = slopes[r - begin];
        const V u = part.load(g + r * n), normed = row.normed(part.load(x + r * n));
        part.store(V(row.scale) * (u * w - V(row.level) - normed * V(row.along)), gx + r * n);
        gain_sum = gain_sum + part.fresh(u * normed);
        shift_sum = shift_sum + part.fresh(u);
      }
      part.store(gain_sum, ggain);
      if (gshift != nullptr) part.store(shift_sum, gshift);
    });
  });
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

// The last columns of a row, fewer than a vector: what follows them in memory, up to the end of all
// rows, is read too and stands in the lanes behind.
template <class T>
Batch<T> load_rest(const T* from, const T* end, std::size_t count) {
  constexpr auto lanes = std::ptrdiff_t(Batch<T>::size);
  return end - from >= lanes ? Batch<T>::load_unaligned(from) : Tail<T>().load(from, count, T(0));
}

// The sum over the lanes of each of as many batches as there are lanes, alike for all of them. By
// way of 128-bit vectors, the widest whose halves interleave in the same way everywhere (xsimd 8's
// haddp puts the sums of 16 floats in a wrong order).
template <class T>
Batch<T> sums_over_lanes(const Batch<T>* x) {
  constexpr std::size_t lanes = Batch<T>::size, side = 16 / sizeof(T);
  using V = xsimd::make_sized_batch_t<T, side>;
  alignas(64) T numbers[lanes * lanes], sums[lanes];
  unrolled<lanes>([&](auto r) { x[r].store_aligned(numbers + r * lanes); });
  unrolled<lanes / side>([&](auto square) {
    V part[side];
    unrolled<side>([&](auto r) {
      const T* row = numbers + (square * side + r) * lanes;
      part[r] = V::load_aligned(row);
      for (std::size_t l = side; l < lanes; l += side) part[r] = part[r] + V::load_aligned(row + l);
    });
    for (std::size_t half = side / 2; half > 0; half /= 2)
      for (std::size_t r = 0; r < half; ++r)
        part[r] = xsimd::zip_lo(part[r], part[r + half]) + xsimd::zip_hi(part[r], part[r + half]);
    part[0].store_aligned(sums + square * side);
  });
  return Batch<T>::load_aligned(sums);
}

// As many rows as a vector has lanes share what is loaded of x, each with a sum of its own: enough
// are under way, and the sums over the lanes of all of them are taken at once. `row(r)` is row r.
template <class T, class Row>
Batch<T> dot_block(const T* x, Row row, std::size_t width, const T* end) {
  using V = Batch<T>;
  static constexpr LaneNumbers<T> lane_numbers;
  V sums[V::size];
  unrolled<V::size>([&](auto r) { sums[r] = V(T(0)); });
  std::size_t d = 0;
  for (; d + V::size <= width; d += V::size) {
    const V part = V::load_unaligned(x + d);
    unrolled<V::size>(
        [&](auto r) { sums[r] = multiply_add(part, V::load_unaligned(row(r) + d), sums[r]); });
  }
  if (d < width) {
    const std::size_t rest = width - d;
    const V part = Tail<T>().load(x + d, rest, T(0)), zero(T(0));
    const auto inside = V::load_aligned(lane_numbers.numbers) < V(T(rest));
    unrolled<V::size>([&](auto r) {
      sums[r] = multiply_add(part, xsimd::select(inside, load_rest(row(r) + d, end, rest), zero),
                             sums[r]);
    });
  }
  return sums_over_lanes<T>(sums);
}

template <class T>
void dots(const T* x, const T* rows, std::size_t stride, std::size_t count, std::size_t width,
          T factor, T* y) {
  using V = Batch<T>;
  const V f(factor);
  std::size_t j = 0;
  for (; j + V::size <= count; j += V::size) {
    const T* first = rows + j * stride;
    const T* end = rows + (count - 1) * stride + width;
    (f * dot_block(
             x, [=](std::size_t r) { return first + r * stride; }, width, end))
        .store_unaligned(y + j);
  }
  if (j == count) return;
  const std::size_t rest = count - j;  // the last row stands for those that are not there
  const auto row = [=](std::size_t r) { return rows + (j + (r < rest ? r : rest - 1)) * stride; };
  Tail<T>().store(f * dot_block(x, row, width, row(rest) + width), y + j, rest);
}

// The weighted sum of all rows, as many columns as `vectors` vectors hold: even and odd rows have
// sums of their own, so that enough are under way. load(row, v) is vector v of a row.
template <class T, std::size_t vectors, class Load>
auto sum_of_rows(const T* weights, const T* rows, std::size_t stride, std::size_t count,
                 Load load) {
  using V = Batch<T>;
  struct Sums {
    V of[vectors];
  } even, odd;
  unrolled<vectors>([&](auto v) { even.of[v] = odd.of[v] = V(T(0)); });
  std::size_t j = 0;
  for (; j + 2 <= count; j += 2) {
    const V first(weights[j]), second(weights[j + 1]);
    unrolled<vectors>([&](auto v) {
      even.of[v] = multiply_add(first, load(rows + j * stride, v), even.of[v]);
      odd.of[v] = multiply_add(second, load(rows + (j + 1) * stride, v), odd.of[v]);
    });
  }
  if (j < count)
    unrolled<vectors>([&](auto v) {
      even.of[v] = multiply_add(V(weights[j]), load(rows + j * stride, v), even.of[v]);
    });
  unrolled<vectors>([&](auto v) { even.of[v] = even.of[v] + odd.of[v]; });
  return even;
}

template <class T>
void add_rows(const T* weights, const T* rows, std::size_t stride, std::size_t count,
              std::size_t width, T* y) {
  using V = Batch<T>;
  std::size_t d = 0;
  const auto strip = [&](auto vectors) {
    const auto load = [](const T* row, std::size_t v) {
      return V::load_unaligned(row + v * V::size);
    };
    const auto sums = sum_of_rows<T, vectors>(weights, rows + d, stride, count, load);
    unrolled<vectors>([&](auto v) {
      T* to = y + d + v * V::size;
      (V::load_unaligned(to) + sums.of[v]).store_unaligned(to);
    });
    d += vectors * V::size;
  };
  while (d + 4 * V::size <= width) strip(std::integral_constant<std::size_t, 4>());
  while (d + V::size <= width) strip(std::integral_constant<std::size_t, 1>());
  if (d == width || count == 0) return;
  Tail<T> tail;
  const std::size_t rest = width - d;
  const auto load = [rest, end = rows + (count - 1) * stride + width](const T* row, std::size_t) {
    return load_rest(row, end, rest);
  };
  const V sum = sum_of_rows<T, 1>(weights, rows + d, stride, count, load).of[0];
  tail.store(tail.load(y + d, rest, T(0)) + sum, y + d, rest);
}

template <class T>
double powers(T* x, T top, std::size_t n) {
  const Batch<T> shift(top);
  map<T>([&](const auto& v) { return power_of(Batch<T>(v - shift)); }, x, n, x);
  return sum_lanes<T>([](const auto& v) { return v; }, n, x);
}

template <class T>
constexpr RowKernels<T> kernels{softmax<T>,
                                softmax_backward<T>,
                                log_sum_exp<T>,
                                dot<T>,
                                normalize<T>,
                                normalize_backward<T>,
                                cross_entropy_backward<T>,
                                dots<T>,
                                add_rows<T>,
                                powers<T>};

}  // namespace

template <class T>
const RowKernels<T>& rows() {
  return kernels<T>;
}
template const RowKernels<float>& rows();
template const RowKernels<double>& rows();

}  // namespace attngrad::kernels::ATTNGRAD_ARCH
