// Convolution in two dimensions, each channel with a kernel of its own.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// y[n, c, i, j] = sum over a, b of kernel[c, a, b] x[n, c, i + a, j + b]
// x: (batch, channels, height, width); kernel: (channels, kernel height, kernel width), not turned
// round; y: (batch, channels, height - kernel height + 1, width - kernel width + 1): only where the
// kernel lies inside, so pad() x first where more is wanted. Throws ShapeError for other shapes, an
// empty kernel, or one that is larger than x.
Variable convolve_2d(const Variable& x, const Variable& kernel);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
