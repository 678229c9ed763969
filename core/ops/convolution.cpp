#include "core/ops/convolution.hpp"

#include "core/kernels/vector.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/shape.hpp"
#include "core/parallel.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::vector_kernels;

void check_sizes(const Variable& x, const Variable& kernel) {
  check_shape(x.rank() == 4 && kernel.rank() == 3 && x.size(1) == kernel.size(0),
              "convolve_2d: needs x (batch, channels, height, width) and a kernel (channels, "
              "height, width), got ",
              x.shape(), " and ", kernel.shape());
  for (std::size_t axis = 1; axis < 3; ++axis)
    check_shape(kernel.size(axis) > 0 && kernel.size(axis) <= x.size(axis + 1),
                "convolve_2d: a kernel must fit into x, got ", kernel.shape(), " for x ",
                x.shape());
}

// y[j] += sum over b of taps[b] x[j + b]; of a few long rows of taps, as a kernel's gradient has
// them, each y is one dot product.
void add_row(const Real* x, const Real* taps, std::size_t count, Real* y, std::size_t n) {
  if (n >= count) return vector_kernels<Real>().convolve(x, taps, count, y, n);
  for (std::size_t j = 0; j < n; ++j) y[j] += Real(vector_kernels<Real>().dot(x + j, taps, count));
}

Array forward(const Array& x, const Array& kernel) {
  const std::size_t channels = x.shape()[1], height = x.shape()[2], width = x.shape()[3];
  const std::size_t rows = kernel.shape()[1], taps = kernel.shape()[2];
  const std::size_t out_height = height - rows + 1, out_width = width - taps + 1;
  Array y = zeros({x.shape()[0], channels, out_height, out_width});
  parallel_for(
      x.shape()[0] * channels,
      [&](std::size_t plane) {
        const Real* from = x.data() + plane * height * width;
        const Real* of_channel = kernel.data() + plane % channels * rows * taps;
        Real* to = y.data() + plane * out_height * out_width;
        for (std::size_t i = 0; i < out_height; ++i)
          for (std::size_t a = 0; a < rows; ++a)
            add_row(from + (i + a) * width, of_channel + a * taps, taps, to + i * out_width,
                    out_width);
      },
      2.0 * double(y.size() * rows * taps));
  return y;
}

// The kernel's gradient is a convolution again: of the channels of all of the batch side by side,
// with g as the kernel.
Variable kernel_gradient(const Variable& x, const Variable& g) {
  const auto planes = [](const Variable& v) {
    const Shape& s = v.shape();
    return Shape{s[0] * s[1], s[2], s[3]};
  };
  const Shape of_x = planes(x);
  const Variable each =
      convolve_2d(reshape(x, Shape{1, of_x[0], of_x[1], of_x[2]}), reshape(g, planes(g)));
  return sum(reshape(each, Shape{x.size(0), x.size(1), each.size(2), each.size(3)}), 0);
}

Variable turned_round(const Variable& kernel) {
  return slice(slice(kernel, 1, {.step = -1}), 2, {.step = -1});
}

}  // namespace

Variable convolve_2d(const Variable& x, const Variable& kernel) {
  check_sizes(x, kernel);
  const std::size_t rows = kernel.size(1), taps = kernel.size(2);
  return record(
      "convolve_2d", Variable(forward(x.value(), kernel.value())),
      edge(x,
           [kernel = saved(kernel), rows, taps](const Variable& g) {
             const Variable wide =
                 pad(g, {{0, 0}, {0, 0}, {rows - 1, rows - 1}, {taps - 1, taps - 1}});
             return convolve_2d(wide, turned_round(kernel()));
           }),
      edge(kernel, [x = saved(x)](const Variable& g) { return kernel_gradient(x(), g); }));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
