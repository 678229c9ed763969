// The kernels of tile.hpp, compiled once per instruction set like vector.cpp.
#include "core/kernels/tile.hpp"

#include <algorithm>

#include "core/kernels/lanes.hpp"

namespace attngrad::kernels::ATTNGRAD_ARCH {
namespace {

// ---- products ---------------------------------------------------------------------------------

// The block of c that stays in registers. A multiply-add takes four cycles and two begin in each,
// so eight sums or more must be under way; the more rows share a loaded vector of b, and the more
// vectors a loaded number of a, the better, until the registers are full (32 with AVX-512 and NEON,
// else 16).
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr std::size_t block_sums = 24, block_rows = 12, block_vectors = 4;
#else
constexpr std::size_t block_sums = 12, block_rows = 6, block_vectors = 2;
#endif

template <class T, std::size_t rows, std::size_t vectors, bool add>
[[gnu::always_inline]] inline void multiply_block(std::size_t inner, LeftFactor<T> a,
                                                  RightFactor<T> b, T* c, std::size_t c_stride) {
  using V = Batch<T>;
  V sum[rows * vectors];
  unrolled<rows * vectors>([&](auto i) { sum[i] = V(T(0)); });
  for (std::size_t k = 0; k < inner; ++k) {
    V right[vectors];
    unrolled<vectors>(
        [&](auto v) { right[v] = V::load_unaligned(b.data + k * b.stride + v * V::size); });
    unrolled<rows>([&](auto r) {
      const V left(a.data[r * a.row_stride + k * a.inner_stride]);
      unrolled<vectors>([&](auto v) {
        constexpr std::size_t i = r * vectors + v;
        sum[i] = multiply_add(left, right[v], sum[i]);
      });
    });
  }
  unrolled<rows * vectors>([&](auto i) {
    T* to = c + i / vectors * c_stride + i % vectors * V::size;
    if constexpr (add) {
      (V::load_unaligned(to) + sum[i]).store_unaligned(to);
    } else {
      sum[i].store_unaligned(to);
    }
  });
}

// All rows of a strip of `vectors` vectors of columns.
template <class T, std::size_t vectors, bool add,
          std::size_t rows = std::min(block_rows, block_sums / vectors)>
void multiply_strip(TileSizes sizes, LeftFactor<T> a, RightFactor<T> b, T* c,
                    std::size_t c_stride) {
  std::size_t i = 0;
  for (; i + rows <= sizes.rows; i += rows)
    multiply_block<T, rows, vectors, add>(sizes.inner,
                                          {a.data + i * a.row_stride, a.row_stride, a.inner_stride},
                                          b, c + i * c_stride, c_stride);
  if constexpr (rows > 1) {  // what is left, in blocks of fewer rows
    if (i < sizes.rows)
      multiply_strip<T, vectors, add,
                     (rows > 8   ? 8
                      : rows > 4 ? 4
                                 : rows / 2)>(
          {sizes.rows - i, sizes.columns, sizes.inner},
          {a.data + i * a.row_stride, a.row_stride, a.inner_stride}, b, c + i * c_stride, c_stride);
  }
}

// Columns from j on in strips of `vectors` vectors, then of half as many. Returns where it ended.
template <class T, std::size_t vectors, bool add>
std::size_t multiply_strips(std::size_t j, TileSizes sizes, LeftFactor<T> a, RightFactor<T> b, T* c,
                            std::size_t c_stride) {
  constexpr std::size_t width = vectors * Batch<T>::size;
  for (; j + width <= sizes.columns; j += width)
    multiply_strip<T, vectors, add>(sizes, a, {b.data + j, b.stride}, c + j, c_stride);
  if constexpr (vectors > 1)
    return multiply_strips<T, vectors / 2, add>(j, sizes, a, b, c, c_stride);
  return j;
}

// The last `left` columns, fewer than a vector. The vector that ends with them reaches back into
// columns that are done already: it is computed beside c, and what is new is taken over.
template <class T>
void multiply_overlapping(TileSizes sizes, std::size_t left, LeftFactor<T> a, RightFactor<T> b,
                          bool add, T* c, std::size_t c_stride) {
  constexpr std::size_t width = Batch<T>::size;
  alignas(64) T block[block_rows * width];
  b.data += sizes.columns - width;
  c += sizes.columns - left;
  for (std::size_t i = 0; i < sizes.rows; i += block_rows) {
    const std::size_t rows = std::min(block_rows, sizes.rows - i);
    multiply_strip<T, 1, false>({rows, width, sizes.inner},
                                {a.data + i * a.row_stride, a.row_stride, a.inner_stride}, b, block,
                                width);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t j = 0; j < left; ++j) {
        T& to = c[(i + r) * c_stride + j];
        to = (add ? to : T(0)) + block[(r + 1) * width - left + j];
      }
  }
}

// A product of fewer columns than a vector has, by way of padded copies of b and c.
template <class T>
void multiply_narrow(TileSizes sizes, LeftFactor<T> a, RightFactor<T> b, bool add, T* c,
                     std::size_t c_stride) {
  constexpr std::size_t width = Batch<T>::size, piece = 128;
  alignas(64) T right[piece * width] = {}, block[block_rows * width] = {};
  for (std::size_t k = 0; k < sizes.inner || k == 0; k += piece) {
    const std::size_t inner = std::min(piece, sizes.inner - k);
    const bool adding = add || k > 0;
    for (std::size_t l = 0; l < inner; ++l)
      for (std::size_t j = 0; j < sizes.columns; ++j)
        right[l * width + j] = b.data[(k + l) * b.stride + j];
    for (std::size_t i = 0; i < sizes.rows; i += block_rows) {
      const std::size_t rows = std::min(block_rows, sizes.rows - i);
      T* to = c + i * c_stride;
      for (std::size_t r = 0; r < rows && adding; ++r)
        for (std::size_t j = 0; j < sizes.columns; ++j) block[r * width + j] = to[r * c_stride + j];
      (adding ? multiply_strip<T, 1, true>
              : multiply_strip<T, 1, false>)({rows, width, inner},
                                             {a.data + i * a.row_stride + k * a.inner_stride,
                                              a.row_stride, a.inner_stride},
                                             {right, width}, block, width);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t j = 0; j < sizes.columns; ++j) to[r * c_stride + j] = block[r * width + j];
    }
  }
}

template <class T>
void multiply(TileSizes sizes, LeftFactor<T> a, RightFactor<T> b, bool add, T* c,
              std::size_t c_stride) {
  if (sizes.columns < Batch<T>::size) return multiply_narrow(sizes, a, b, add, c, c_stride);
  const std::size_t done =
      (add ? multiply_strips<T, block_vectors, true>
           : multiply_strips<T, block_vectors, false>)(0, sizes, a, b, c, c_stride);
  if (done < sizes.columns)
    multiply_overlapping(sizes, sizes.columns - done, a, b, add, c, c_stride);
}

// ---- rows -------------------------------------------------------------------------------------

// A square of 128-bit vectors, the widest whose halves interleave in the same way everywhere.
template <class T>
void transpose_square(const T* from, std::size_t from_stride, T factor, T* to,
                      std::size_t to_stride) {
  constexpr std::size_t side = 16 / sizeof(T);
  using V = xsimd::make_sized_batch_t<T, side>;
  V x[side], y[side];
  for (std::size_t i = 0; i < side; ++i) x[i] = V::load_unaligned(from + i * from_stride);
  for (std::size_t step = side; step > 1; step /= 2) {
    for (std::size_t i = 0; i < side / 2; ++i) {
      y[2 * i] = xsimd::zip_lo(x[i], x[i + side / 2]);
      y[2 * i + 1] = xsimd::zip_hi(x[i], x[i + side / 2]);
    }
    for (std::size_t i = 0; i < side; ++i) x[i] = y[i];
  }
  for (std::size_t i = 0; i < side; ++i) (V(factor) * x[i]).store_unaligned(to + i * to_stride);
}

template <class T>
void transpose(const T* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
               T factor, T* to, std::size_t to_stride) {
  constexpr std::size_t side = 16 / sizeof(T);
  const std::size_t whole_rows = rows / side * side, whole_columns = columns / side * side;
  for (std::size_t i = 0; i < whole_rows; i += side)
    for (std::size_t j = 0; j < whole_columns; j += side)
      transpose_square(from + i * from_stride + j, from_stride, factor, to + j * to_stride + i,
                       to_stride);
  for (std::size_t j = 0; j < columns; ++j) {
    T* row = to + j * to_stride;
    for (std::size_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i)
      row[i] = factor * from[i * from_stride + j];
    for (std::size_t i = rows; i % tile_lanes != 0; ++i) row[i] = 0;
  }
}

template <class T>
bool all_finite(const T* from, std::size_t stride, std::size_t rows, std::size_t columns) {
  using V = Batch<T>;
  V odd(T(0));  // all bits of x - x, which is 0, or NaN where x is not finite
  T odd_tail = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    const T* x = from + i * stride;
    std::size_t j = 0;
    for (; j + V::size <= columns; j += V::size) {
      const V v = V::load_unaligned(x + j);
      odd = odd | (v - v);
    }
    for (; j < columns; ++j) odd_tail += x[j] - x[j];
  }
  return odd_tail == T(0) && xsimd::all(odd == V(T(0)));
}

template <class T>
void add_column_dots(const T* a, const T* b, std::size_t stride, std::size_t rows,
                     std::size_t columns, T* sums) {
  using V = Batch<T>;
  for (std::size_t j = 0; j < columns; j += V::size) {
    V sum = V::load_unaligned(sums + j);
    for (std::size_t i = 0; i < rows; ++i)
      sum = multiply_add(V::load_unaligned(a + i * stride + j),
                         V::load_unaligned(b + i * stride + j), sum);
    sum.store_unaligned(sums + j);
  }
}

template <class T>
void scale_rows(T* x, std::size_t stride, std::size_t rows, std::size_t columns, const T* factors) {
  using V = Batch<T>;
  for (std::size_t i = 0; i < rows; ++i) {
    T* row = x + i * stride;
    const V factor(factors[i]);
    std::size_t j = 0;
    for (; j + V::size <= columns; j += V::size)
      (factor * V::load_unaligned(row + j)).store_unaligned(row + j);
    for (; j < columns; ++j) row[j] *= factors[i];
  }
}

// ---- scores -----------------------------------------------------------------------------------

// `vectors` vectors of queries at a time: their maxima and sums are chains of their own.
template <class T, std::size_t vectors>
bool softmax_columns(ScoreTile<T> s, T* top, T* total, T* factors) {
  using V = Batch<T>;
  V now[vectors], shift[vectors], sum[vectors];
  const auto at = [&](std::size_t j, std::size_t v) { return s.data + j * s.stride + v * V::size; };
  unrolled<vectors>([&](auto v) { now[v] = V::load_unaligned(top + v * V::size); });
  for (std::size_t j = 0; j < s.keys; ++j)
    unrolled<vectors>([&](auto v) { now[v] = xsimd::max(now[v], V::load_unaligned(at(j, v))); });
  const V lowest(-infinity<T>), zero(T(0)), one(T(1)), slack(static_cast<T>(largest_power));
  unrolled<vectors>([&](auto v) {
    const V before = V::load_unaligned(top + v * V::size);
    now[v] = xsimd::select(now[v] > before + slack, now[v], before);
    shift[v] = xsimd::select(now[v] == lowest, zero, now[v]);
    sum[v] = zero;
  });
  for (std::size_t j = 0; j < s.keys; ++j)
    unrolled<vectors>([&](auto v) {
      const V power = power_of(V::load_unaligned(at(j, v)) - shift[v]);
      power.store_unaligned(at(j, v));
      sum[v] = sum[v] + power;
    });
  bool rescale = false;
  unrolled<vectors>([&](auto v) {
    const std::size_t i = v * V::size;
    const V factor = exp_bounded(V::load_unaligned(top + i) - shift[v]);
    const V before = V::load_unaligned(total + i);
    // what was 0 stays so, even beside a shift of +infinity or NaN
    const V kept = xsimd::select(before == zero, zero, before * factor);
    (kept + sum[v]).store_unaligned(total + i);
    now[v].store_unaligned(top + i);
    factor.store_unaligned(factors + i);
    rescale = rescale || !xsimd::all(factor == one);
  });
  return rescale;
}

template <class T>
bool softmax_step(ScoreTile<T> s, T* top, T* total, T* factors) {
  constexpr std::size_t width = Batch<T>::size, many = 3;  // three divides a whole tile
  bool rescale = false;
  std::size_t i = 0;
  for (; i + many * width <= s.queries; i += many * width)
    rescale |= softmax_columns<T, many>({s.data + i, s.stride, s.keys, many * width}, top + i,
                                        total + i, factors + i);
  for (; i < s.queries; i += width)
    rescale |= softmax_columns<T, 1>({s.data + i, s.stride, s.keys, width}, top + i, total + i,
                                     factors + i);
  return rescale;
}

template <class T>
void softmax_gradient(ScoreTile<T> s, const T* top, const T* inverse_total, const T* delta, T scale,
                      T* gradient) {
  using V = Batch<T>;
  const V zero(T(0)), lowest(-infinity<T>), factor(scale);
  for (std::size_t i = 0; i < s.queries; i += V::size) {
    const V shift = V::load_unaligned(top + i), inverse = V::load_unaligned(inverse_total + i),
            level = V::load_unaligned(delta + i);
    for (std::size_t j = 0; j < s.keys; ++j) {
      T* power = s.data + j * s.stride + i;
      T* slope = gradient + j * s.stride + i;
      const V score = V::load_unaligned(power);
      // a hidden score has no probability, not even beside a visible NaN
      const V p = xsimd::select(score == lowest, zero, power_of(V(score - shift)) * inverse);
      p.store_unaligned(power);
      xsimd::select(p == zero, zero, factor * p * (V::load_unaligned(slope) - level))
          .store_unaligned(slope);
    }
  }
}

// ---- dropout ----------------------------------------------------------------------------------

// Blocks first, first + step, ... of philox(seed) (random.cpp has one at a time), one in each lane.
void philox_lanes(std::uint64_t seed, std::uint64_t first, std::uint64_t step,
                  std::uint32_t (&words)[4][tile_lanes]) {
  constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  for (std::size_t lane = 0; lane < tile_lanes; ++lane) {
    const std::uint64_t offset = first + lane * step;
    words[0][lane] = static_cast<std::uint32_t>(offset);
    words[1][lane] = static_cast<std::uint32_t>(offset >> 32);
    words[2][lane] = words[3][lane] = 0;
  }
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t lane = 0; lane < tile_lanes; ++lane) {
      const std::uint64_t product0 = multiplier0 * words[0][lane],
                          product1 = multiplier1 * words[2][lane];
      words[0][lane] = static_cast<std::uint32_t>(product1 >> 32) ^ words[1][lane] ^ key0;
      words[1][lane] = static_cast<std::uint32_t>(product1);
      words[2][lane] = static_cast<std::uint32_t>(product0 >> 32) ^ words[3][lane] ^ key1;
      words[3][lane] = static_cast<std::uint32_t>(product0);
    }
    key0 += weyl0;
    key1 += weyl1;
  }
}

template <class T>
void drop(ScoreTile<T> s, const DropBlocks& d) {
  const T scale = static_cast<T>(d.scale);
  for (std::size_t i = 0; i < s.queries; i += tile_lanes)
    for (std::size_t j = 0; j < s.keys; j += 4) {
      std::uint32_t words[4][tile_lanes];
      philox_lanes(d.seed, d.first + i * d.row_blocks + j / 4, d.row_blocks, words);
      for (std::size_t k = 0; k < 4 && j + k < s.keys; ++k) {
        T* row = s.data + (j + k) * s.stride + i;
        for (std::size_t lane = 0; lane < tile_lanes; ++lane)
          row[lane] = words[k][lane] < d.threshold ? T(0) : row[lane] * scale;
      }
    }
}

template <class T>
constexpr TileKernels<T> kernels{block_rows,      multiply<T>,         transpose<T>,
                                 all_finite<T>,   add_column_dots<T>,  scale_rows<T>,
                                 softmax_step<T>, softmax_gradient<T>, drop<T>};

}  // namespace

template <class T>
const TileKernels<T>& tiles() {
  return kernels<T>;
}
template const TileKernels<float>& tiles();
template const TileKernels<double>& tiles();

}  // namespace attngrad::kernels::ATTNGRAD_ARCH
