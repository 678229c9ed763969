// Linear systems, inverses and determinants of square matrices, over the last two axes; batches
// over the axes before.
//
// They run LAPACK's LU factorisation with pivoting. A matrix counts as singular if a pivot is
// exactly 0; one that is nearly so gives large numbers, as everywhere. NaN passes through.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// The x of a x = b. a: (..., n, n); b: (..., n, k), or (n), which is one column and comes back
// without that axis; the batch axes broadcast. Throws ShapeError if shapes do not fit,
// ArgumentError if a matrix is singular.
Variable solve(const Variable& a, const Variable& b);

// a: (..., n, n); y: shaped like a. Throws ShapeError unless square, ArgumentError if a matrix is
// singular. To multiply with an inverse, solve() is faster and more accurate.
Variable inverse(const Variable& a);

// log |det a|. a: (..., n, n); y: (...). The derivative is the inverse, transposed. Of a singular
// matrix the value is -infinity, and asking for its gradient throws ArgumentError. Throws
// ShapeError unless square.
Variable log_determinant(const Variable& a);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
