// Matrix products on raw pointers: the only file that calls BLAS (LAPACK serves ops/linalg.cpp).
// Large products of floats are oneDNN's where the build found it (x86-64); small ones, of 16 rows
// and columns or more, the tile kernels' of attention (tile.hpp); all others OpenBLAS's.
//
// BLAS runs on one thread, inside tiles whose bounds depend on the sizes and the machine's cores
// alone, and the tiles run in parallel: so results have the same bits at any thread count. (Letting
// BLAS thread, or splitting elsewhere, may change bits.)
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace attngrad::kernels {

// A row-major matrix in memory, or its transpose: `stride` elements lie between the starts of
// consecutive stored rows.
template <class T>
struct MatrixView {
  const T* data;
  std::size_t stride;
  bool transposed = false;
};

struct ProductSizes {
  std::size_t rows, columns, inner;
};

// c = alpha a b + beta c on the calling thread; a is (rows, inner), b is (inner, columns) after
// their transposes, c has rows `c_stride` apart. With beta 0, c is never read. A product over an
// empty inner axis is zero.
template <class T>
void gemm(ProductSizes sizes, T alpha, MatrixView<T> a, MatrixView<T> b, T beta, T* c,
          std::size_t c_stride);

// While it lives, OpenBLAS runs on one thread, and so do OpenMP regions that a library opens on the
// calling thread, whatever the caller had chosen; that is restored when the last guard ends. Every
// call of gemm() or of xt::linalg needs one around it, outside of parallel regions. Throws
// std::runtime_error if the BLAS that was loaded is a serial build, which gives wrong results under
// threads.
class SingleThreadedBlas {
 public:
  SingleThreadedBlas();
  ~SingleThreadedBlas();
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  int openmp_before_;
};

// An OpenBLAS older than the processor may not know it and fall back to instructions of twenty
// years ago, several times slower. Then this is the value that the environment variable
// OPENBLAS_CORETYPE should have had when the program began; else it is empty. The library says so
// once on stderr; it cannot mend it, because OpenBLAS chooses as it is loaded.
std::string better_blas_core();

// One product of a batch.
template <class T>
struct Product {
  const T* a;
  const T* b;
  T* c;
};

// c_i = a_i b_i for each product of the list, or c_i = a_i b_i + row, in parallel over products and
// tiles; no two products may share a c. `a`, `b` give stride and transposition (their data is taken
// from the list); row: null, or as many numbers as c has columns, added to each of its rows.
template <class T>
void gemm_batch(ProductSizes sizes, MatrixView<T> a, MatrixView<T> b, std::size_t c_stride,
                const std::vector<Product<T>>& products, const T* row = nullptr);
// c_i += a_i b_i
template <class T>
void gemm_batch_add(ProductSizes sizes, MatrixView<T> a, MatrixView<T> b, std::size_t c_stride,
                    const std::vector<Product<T>>& products);

}  // namespace attngrad::kernels
