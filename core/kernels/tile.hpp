// What attention does inside its tiles: products of small matrices that stay in the cache, and the
// passes over one tile of scores. Compiled for several instruction sets and chosen at run time,
// like vector.hpp.
//
// A tile of scores is held transposed, (keys, queries): the queries of a tile lie side by side in
// a vector, so a row's maximum and sum need no work across lanes, and keys and values are read
// where they are. Padded queries, up to `stride`, hold numbers that nobody reads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attngrad::kernels {

// The left factor of a product: element (i, k) is data[i * row_stride + k * inner_stride].
template <class T>
struct LeftFactor {
  const T* data;
  std::size_t row_stride, inner_stride;
};

// The right factor: element (k, j) is data[k * stride + j].
template <class T>
struct RightFactor {
  const T* data;
  std::size_t stride;
};

struct TileSizes {
  std::size_t rows, columns, inner;
};

// The numbers of one tile of scores: (keys, queries), `stride` apart; stride is a multiple of
// tile_lanes and at least `queries`.
template <class T>
struct ScoreTile {
  T* data;
  std::size_t stride, keys, queries;
};
inline constexpr std::size_t tile_lanes =
    16;  // the widest vector of any instruction set, in floats

// The running maximum follows the largest score only when that has grown by this much: until then
// what was summed before needs no new factor. Source: FlashAttention-4,
// arXiv:2603.05451, 2026.
inline constexpr double largest_power = 8;

// What dropout keeps of a block of weights: that of query i and key j is dropped where word j % 4
// of block first + i * row_blocks + j / 4 of the sequence `seed` (random.hpp) is below the
// threshold, and multiplied by `scale` otherwise.
struct DropBlocks {
  std::uint64_t seed, first, row_blocks;
  std::uint32_t threshold;
  double scale;
};

template <class T>
struct TileKernels {
  // How many rows of the left factor one pass of multiply takes: pieces of a tile that are cut by a
  // mask are best a multiple of it.
  std::size_t rows;

  // c = a b, or c += a b with `add`; rows of c are c_stride apart. Each element is summed in the
  // order of k (of fewer columns than a vector has, in pieces of 128). Reads and writes nothing
  // outside of the factors and c.
  void (*multiply)(TileSizes sizes, LeftFactor<T> a, RightFactor<T> b, bool add, T* c,
                   std::size_t c_stride);
  // to[j * to_stride + i] = factor * from[i * from_stride + j]; columns i from `rows` up to the
  // next multiple of tile_lanes are set to 0. to_stride is a multiple of tile_lanes.
  void (*transpose)(const T* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
                    T factor, T* to, std::size_t to_stride);
  // Whether all of `rows` rows of `columns` numbers are finite.
  bool (*all_finite)(const T* from, std::size_t stride, std::size_t rows, std::size_t columns);
  // sums[j] += sum over i of a[i * stride + j] b[i * stride + j], in the order of i and rounded as
  // in multiply. columns is a multiple of tile_lanes.
  void (*add_column_dots)(const T* a, const T* b, std::size_t stride, std::size_t rows,
                          std::size_t columns, T* sums);
  // x(i, j) *= factors[i]
  void (*scale_rows)(T* x, std::size_t stride, std::size_t rows, std::size_t columns,
                     const T* factors);

  // One step of the running softmax. Per query, top is a score that none so far exceeds by more
  // than largest_power, and total the sum of exp(score - top) so far. Writes exp(score - top) over
  // the scores; updates top and total; what was accumulated before must be multiplied by factors.
  // Returns whether a factor is not 1. Where top is -infinity, the powers and total are 0.
  // A power below exp(-60) counts as 0, here and in softmax_gradient.
  bool (*softmax_step)(ScoreTile<T> scores, T* top, T* total, T* factors);
  // The scores' gradient. powers holds scores and becomes P = exp(score - top) * inverse_total;
  // gradient holds dP and becomes scale * P * (dP - delta), exactly 0 where P is. top is finite.
  void (*softmax_gradient)(ScoreTile<T> powers, const T* top, const T* inverse_total,
                           const T* delta, T scale, T* gradient);
  // Drops and scales the weights of a tile, in place; what is dropped becomes 0, whatever it was.
  void (*drop)(ScoreTile<T> weights, const DropBlocks& blocks);
};

// The kernels of the same instruction set as vector_kernels().
template <class T>
const TileKernels<T>& tile_kernels();

}  // namespace attngrad::kernels
