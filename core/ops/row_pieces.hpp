// How the backward passes of row-wise ops sum over rows: each piece of rows by itself, then the
// pieces in order, so that the result does not depend on threads.
#pragma once

#include <algorithm>

#include "core/kernels/strided.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// One piece of work: so many rows that the pieces' sums stay small beside the rows themselves, and
// so few that they lose no digits. Set by the shape alone.
inline std::size_t rows_per_piece(std::size_t width) {
  return std::clamp<std::size_t>(kernels::task_size / std::max<std::size_t>(1, width), 16, 64);
}

// About how many operations a norm or an activation takes for so many elements.
inline double row_operations(std::size_t elements) { return 25.0 * double(elements); }

// y = a + b, of rows of n.
inline void add_rows(const Real* a, const Real* b, Real* y, std::size_t n) {
  kernels::vector_kernels<Real>().binary[std::size_t(kernels::Binary::add)]({a, 1}, {b, 1}, y, n);
}

// The sums of the pieces (pieces, width), in their order.
inline Array sum_pieces(const Array& pieces, std::size_t width) {
  std::vector<double> total(width, 0.0);
  kernels::vector_kernels<Real>().accumulate_wide(pieces.data(), pieces.shape()[0], total.data(),
                                                  width);
  Array y = uninitialized({width});
  std::copy(total.begin(), total.end(), y.data());
  return y;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
