#include "core/kernels/gemm.hpp"

#if defined(ATTNGRAD_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

// xblas_config must come first, in a group of its own that no formatter sorts: it defines
// HAVE_CBLAS, without which xtensor-blas 0.21 to 0.23 multiply with generic loops of their own (38
// times slower) and never call BLAS.
#include <xtensor-blas/xblas_config.hpp>

#include <xtensor-blas/xblas.hpp>

#include "core/errors.hpp"
#include "core/kernels/tile.hpp"
#include "core/parallel.hpp"

extern "C" {
int openblas_get_num_threads();
void openblas_set_num_threads(int count);
int openblas_get_parallel();
char* openblas_get_corename();
}

namespace attngrad::kernels {
namespace {

struct BlasThreads {
  std::mutex mutex;
  std::size_t guards = 0;
  int before = 1;
};

BlasThreads& blas_threads() {
  static BlasThreads& state = *new BlasThreads;
  return state;
}

// Worth more than one tile, and the start of oneDNN's product, which takes longer than OpenBLAS's.
bool large(ProductSizes sizes) { return sizes.rows * sizes.columns * sizes.inner > 128 * 128 * 64; }

// Halves the larger side until there is enough to share out: one tile for each core that this
// machine has, however many threads are set. BLAS packs both factors anew for each tile, so few
// large ones are best: with two cores, a step of a small GPT is a tenth faster with 2 than with 4.
struct Tiling {
  std::size_t rows, columns;
};
Tiling tiling(ProductSizes sizes, std::size_t products) {
  constexpr std::size_t smallest = 64, largest = 1024;
  static const std::size_t wanted_tasks =
      std::max<std::size_t>(2, std::thread::hardware_concurrency());
  Tiling tile{std::max<std::size_t>(sizes.rows, 1), std::max<std::size_t>(sizes.columns, 1)};
  const auto tasks = [&] {
    return products * ((sizes.rows + tile.rows - 1) / tile.rows) *
           ((sizes.columns + tile.columns - 1) / tile.columns);
  };
  const auto half = [](std::size_t n) { return (n / 2 + 15) / 16 * 16; };
  while ((large(sizes) && tasks() < wanted_tasks && std::max(tile.rows, tile.columns) > smallest) ||
         std::max(tile.rows, tile.columns) > largest) {
    (tile.rows >= tile.columns ? tile.rows : tile.columns) =
        half(std::max(tile.rows, tile.columns));
  }
  return tile;
}

}  // namespace

std::string better_blas_core() {
#if defined(__x86_64__)
  const std::string chosen = openblas_get_corename();
  for (const char* outdated :
       {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Sandybridge"})
    if (chosen == outdated && __builtin_cpu_supports("avx2"))
      return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") ? "SkylakeX"
                                                                                      : "Haswell";
#endif
  return {};
}

namespace {

// Throws for a build that is wrong, and tells of one that is slow.
bool check_blas() {
  if (openblas_get_parallel() == 0)
    throw std::runtime_error(
        "the loaded OpenBLAS is a serial build, which is wrong under threads: install "
        "libopenblas0-pthread or "
        "libopenblas0-openmp");
  if (const std::string better = better_blas_core(); !better.empty())
    std::fprintf(stderr,
                 "attngrad: this OpenBLAS does not know the processor and uses its %s kernels; set "
                 "the environment "
                 "variable OPENBLAS_CORETYPE=%s, or install a newer one\n",
                 openblas_get_corename(), better.c_str());
  return true;
}

// oneDNN takes some 100 kB from malloc for each product, and glibc would give such blocks back to
// the system and get fresh pages for the next.
bool keep_scratch_memory() {
#if defined(ATTNGRAD_ONEDNN) && defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
  return true;
}

}  // namespace

// oneDNN asks OpenMP how many threads this one may open a region with; our own loops say their
// number themselves, and threads() must have read the default before it is hidden.
SingleThreadedBlas::SingleThreadedBlas()
    : openmp_before_((static_cast<void>(threads()), omp_get_max_threads())) {
  [[maybe_unused]] static const bool checked = check_blas() && keep_scratch_memory();
  omp_set_num_threads(1);
  BlasThreads& state = blas_threads();
  std::lock_guard lock(state.mutex);
  if (state.guards++ == 0) {
    state.before = openblas_get_num_threads();
    if (state.before != 1) openblas_set_num_threads(1);
  }
}

SingleThreadedBlas::~SingleThreadedBlas() {
  omp_set_num_threads(openmp_before_);
  BlasThreads& state = blas_threads();
  std::lock_guard lock(state.mutex);
  if (--state.guards == 0 && state.before != 1) openblas_set_num_threads(state.before);
}

#if defined(ATTNGRAD_ONEDNN)
namespace {

// 1.1 to 1.3 times as fast as OpenBLAS on the sizes of a transformer.
void multiply_large(ProductSizes sizes, float alpha, MatrixView<float> a, MatrixView<float> b,
                    float beta, float* c, std::size_t c_stride) {
  const auto length = [](std::size_t n) { return static_cast<dnnl_dim_t>(n); };
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', length(sizes.rows),
                 length(sizes.columns), length(sizes.inner), alpha, a.data, length(a.stride),
                 b.data, length(b.stride), beta, c, length(c_stride));
  if (status != dnnl_success)
    throw std::runtime_error(text("oneDNN could not multiply (", sizes.rows, ", ", sizes.inner,
                                  ") by (", sizes.inner, ", ", sizes.columns, "): status ",
                                  int(status)));
}

}  // namespace
#endif

namespace {

// Between a handful of rows or columns and a large product, the kernels of attention's tiles are
// the fastest: they need no packed copies, except of the transpose of b.
bool tile_sized(ProductSizes sizes) {
  return !large(sizes) && sizes.rows >= 16 && sizes.columns >= 16;
}

// c = a b, or c += a b.
template <class T>
void multiply_tile(ProductSizes sizes, MatrixView<T> a, MatrixView<T> b, bool add, T* c,
                   std::size_t c_stride) {
  const TileKernels<T>& kernels = tile_kernels<T>();
  const LeftFactor<T> left{a.data, a.transposed ? 1 : a.stride, a.transposed ? a.stride : 1};
  if (!b.transposed)
    return kernels.multiply({sizes.rows, sizes.columns, sizes.inner}, left, {b.data, b.stride}, add,
                            c, c_stride);
  constexpr std::size_t most_inner = 128, most_columns = 64;  // 32 KiB of the stack in float
  alignas(64) T packed[most_inner * most_columns];
  for (std::size_t k = 0; k < sizes.inner; k += most_inner)
    for (std::size_t j = 0; j < sizes.columns; j += most_columns) {
      const std::size_t inner = std::min(most_inner, sizes.inner - k);
      const std::size_t columns = std::min(most_columns, sizes.columns - j);
      const std::size_t stride = (columns + tile_lanes - 1) / tile_lanes * tile_lanes;
      kernels.transpose(b.data + j * b.stride + k, b.stride, columns, inner, T(1), packed, stride);
      kernels.multiply({sizes.rows, columns, inner},
                       {left.data + k * left.inner_stride, left.row_stride, left.inner_stride},
                       {packed, stride}, add || k > 0, c + j, c_stride);
    }
}

}  // namespace

template <class T>
void gemm(ProductSizes sizes, T alpha, MatrixView<T> a, MatrixView<T> b, T beta, T* c,
          std::size_t c_stride) {
  if (sizes.rows == 0 || sizes.columns == 0) return;
  if (sizes.inner == 0) {
    for (std::size_t i = 0; i < sizes.rows; ++i)
      for (std::size_t j = 0; j < sizes.columns; ++j) {
        T& entry = c[i * c_stride + j];
        entry = beta == T(0) ? T(0) : beta * entry;
      }
    return;
  }
  if (tile_sized(sizes) && alpha == T(1) && (beta == T(0) || beta == T(1)))
    return multiply_tile(sizes, a, b, beta == T(1), c, c_stride);
#if defined(ATTNGRAD_ONEDNN)
  if constexpr (std::is_same_v<T, float>)
    if (large(sizes)) return multiply_large(sizes, alpha, a, b, beta, c, c_stride);
#endif
  using cxxblas::NoTrans;
  using cxxblas::Trans;
  cxxblas::gemm<int>(cxxblas::RowMajor, a.transposed ? Trans : NoTrans,
                     b.transposed ? Trans : NoTrans, int(sizes.rows), int(sizes.columns),
                     int(sizes.inner), alpha, a.data, int(a.stride), b.data, int(b.stride), beta, c,
                     int(c_stride));
}

namespace {

// What a tile of c holds before its product is added.
enum class Start { nothing, row, itself };

template <class T>
void run_batch(ProductSizes sizes, MatrixView<T> a, MatrixView<T> b, Start start, const T* row,
               std::size_t c_stride, const std::vector<Product<T>>& products) {
  if (sizes.rows == 0 || sizes.columns == 0 || products.empty()) return;
  const Tiling tile = tiling(sizes, products.size());
  const std::size_t across = (sizes.columns + tile.columns - 1) / tile.columns;
  const std::size_t down = (sizes.rows + tile.rows - 1) / tile.rows;
  const double operations =
      2 * double(sizes.rows * products.size()) * double(sizes.columns * sizes.inner);
  std::optional<SingleThreadedBlas> guard;  // of products that BLAS computes
  if (!tile_sized(sizes) || down * across > 1) guard.emplace();
  parallel_for(
      products.size() * down * across,
      [&](std::size_t task) {
        const Product<T>& p = products[task / (down * across)];
        const std::size_t i = task / across % down * tile.rows, j = task % across * tile.columns;
        const ProductSizes piece{std::min(tile.rows, sizes.rows - i),
                                 std::min(tile.columns, sizes.columns - j), sizes.inner};
        T* c = p.c + i * c_stride + j;
        if (start == Start::row)
          for (std::size_t r = 0; r < piece.rows; ++r)
            std::copy_n(row + j, piece.columns, c + r * c_stride);
        gemm<T>(piece, 1, {p.a + (a.transposed ? i : i * a.stride), a.stride, a.transposed},
                {p.b + (b.transposed ? j * b.stride : j), b.stride, b.transposed},
                start == Start::nothing ? T(0) : T(1), c, c_stride);
      },
      operations);
}

}  // namespace

template <class T>
void gemm_batch(ProductSizes sizes, MatrixView<T> a, MatrixView<T> b, std::size_t c_stride,
                const std::vector<Product<T>>& products, const T* row) {
  run_batch(sizes, a, b, row == nullptr ? Start::nothing : Start::row, row, c_stride, products);
}

template <class T>
void gemm_batch_add(ProductSizes sizes, MatrixView<T> a, MatrixView<T> b, std::size_t c_stride,
                    const std::vector<Product<T>>& products) {
  run_batch<T>(sizes, a, b, Start::itself, nullptr, c_stride, products);
}

template void gemm(ProductSizes, float, MatrixView<float>, MatrixView<float>, float, float*,
                   std::size_t);
template void gemm(ProductSizes, double, MatrixView<double>, MatrixView<double>, double, double*,
                   std::size_t);
template void gemm_batch(ProductSizes, MatrixView<float>, MatrixView<float>, std::size_t,
                         const std::vector<Product<float>>&, const float*);
template void gemm_batch(ProductSizes, MatrixView<double>, MatrixView<double>, std::size_t,
                         const std::vector<Product<double>>&, const double*);
template void gemm_batch_add(ProductSizes, MatrixView<float>, MatrixView<float>, std::size_t,
                             const std::vector<Product<float>>&);
template void gemm_batch_add(ProductSizes, MatrixView<double>, MatrixView<double>, std::size_t,
                             const std::vector<Product<double>>&);

}  // namespace attngrad::kernels
