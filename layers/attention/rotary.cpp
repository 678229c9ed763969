#include "layers/attention/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/kernels/strided.hpp"
#include "core/parallel.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

struct Rotation {
  std::size_t heads, head_width;
  std::shared_ptr<const RotaryTable> table;
  RotaryPairs pairs;
  Indices positions;
};

// Turns one head by the angles of a row of the table, times direction (1 or -1).
void turn(const Rotation& r, std::size_t position, Real direction, const Real* x, Real* y) {
  const std::size_t half = r.table->cosine.shape()[1];
  const Real* cosine = r.table->cosine.data() + position * half;
  const Real* sine = r.table->sine.data() + position * half;
  const std::size_t step = r.pairs == RotaryPairs::halves ? 1 : 2;
  const std::size_t apart = r.pairs == RotaryPairs::halves ? half : 1;
  for (std::size_t k = 0; k < half; ++k) {
    const Real a = x[k * step], b = x[k * step + apart], s = direction * sine[k];
    y[k * step] = a * cosine[k] - b * s;
    y[k * step + apart] = a * s + b * cosine[k];
  }
  std::copy(x + 2 * half, x + r.head_width, y + 2 * half);
}

Array turned(const Array& x, const Rotation& r, Real direction) {
  Array y = uninitialized(x.shape());
  const std::size_t time = x.shape()[1], columns = x.shape()[2], turning = r.heads * r.head_width;
  const bool by_batch = r.positions.dimension() == 2;
  parallel_chunks(
      x.shape()[0] * time, kernels::rows_per_task(columns),
      [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row) {
          const auto position = std::size_t(r.positions.data()[by_batch ? row : row % time]);
          const Real* from = x.data() + row * columns;
          Real* to = y.data() + row * columns;
          for (std::size_t at = 0; at < turning; at += r.head_width)
            turn(r, position, direction, from + at, to + at);
          std::copy(from + turning, from + columns, to + turning);
        }
      },
      4 * double(x.size()));
  return y;
}

// The derivative turns back.
Variable apply(const Variable& x, const std::shared_ptr<const Rotation>& r, Real direction) {
  return record("rotary", Variable(turned(x.value(), *r, direction)),
                edge(x, [r, direction](const Variable& g) { return apply(g, r, -direction); }));
}

}  // namespace

std::shared_ptr<const RotaryTable> rotary_table(std::size_t positions, std::size_t width,
                                                double base, double position_scale) {
  check_argument(width > 0 && width % 2 == 0, "rotary_table: width must be even and positive, got ",
                 width);
  check_argument(std::isfinite(base) && base > 0 && std::isfinite(position_scale),
                 "rotary_table: base must be positive and finite, position_scale finite, got ",
                 base, " and ", position_scale);
  const std::size_t half = width / 2;
  auto table = std::make_shared<RotaryTable>(
      RotaryTable{uninitialized({positions, half}), uninitialized({positions, half})});
  for (std::size_t i = 0; i < positions; ++i)
    for (std::size_t k = 0; k < half; ++k) {
      const double speed = std::pow(base, -2 * double(k) / double(width));
      const double angle = double(i) * position_scale * speed;
      table->cosine.data()[i * half + k] = Real(std::cos(angle));
      table->sine.data()[i * half + k] = Real(std::sin(angle));
    }
  return table;
}

Variable rotary(const Variable& x, std::size_t heads, std::size_t head_width,
                const std::shared_ptr<const RotaryTable>& table, RotaryPairs pairs,
                const Indices& positions) {
  check_argument(table != nullptr, "rotary: needs a table");
  const Shape& angles = table->cosine.shape();
  check_shape(angles.size() == 2 && table->sine.shape() == angles,
              "rotary: the table's cosines and sines must be (positions, width / 2), got ", angles,
              " and ", table->sine.shape());
  check_shape(x.rank() == 3 && x.size(2) >= heads * head_width, "rotary: x must be (batch, time, ",
              "at least ", heads, " heads of ", head_width, "), got ", x.shape());
  check_shape(2 * angles[1] <= head_width, "rotary: a table of ", angles[1],
              " angles turns heads of at least ", 2 * angles[1], " numbers, got ", head_width);
  const Shape time{x.size(1)}, both{x.size(0), x.size(1)};
  check_shape(positions.shape() == time || positions.shape() == both, "rotary: positions must be ",
              time, " or ", both, ", got ", positions.shape());
  for (const std::int64_t position : positions)
    check_argument(position >= 0 && std::size_t(position) < angles[0],
                   "rotary: positions must be in [0, ", angles[0], "), got ", position);
  return apply(x, std::make_shared<Rotation>(Rotation{heads, head_width, table, pairs, positions}),
               1);
}

Indices positions_from(std::size_t first, std::size_t count) {
  Indices positions = Indices::from_shape({count});
  std::iota(positions.begin(), positions.end(), std::int64_t(first));
  return positions;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
