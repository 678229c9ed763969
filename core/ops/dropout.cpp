#include "core/ops/dropout.hpp"

#include "core/kernels/strided.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// Element i is kept where word i % 4 of block i / 4, counted from the first, is not below the
// threshold.
struct DropMask {
  std::uint64_t seed, first;
  std::uint64_t threshold;  // of 2^32
  Real scale;
};

Array masked(const Array& x, const DropMask& mask) {
  static_assert(kernels::task_size % 4 == 0, "a block must not be cut");
  Array y = uninitialized(x.shape());
  parallel_chunks(x.size(), kernels::task_size, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; i += 4) {
      const auto words = philox(mask.seed, mask.first + i / 4);
      for (std::size_t k = 0; k < std::min<std::size_t>(4, end - i); ++k)
        y.data()[i + k] = words[k] < mask.threshold ? Real(0) : x.data()[i + k] * mask.scale;
    }
  });
  return y;
}

// What was dropped passes nothing on, and what was kept is scaled alike: the derivative is the op
// itself.
Variable apply_mask(const Variable& x, const DropMask& mask) {
  return record("dropout", Variable(masked(x.value(), mask)),
                edge(x, [mask](const Variable& g) { return apply_mask(g, mask); }));
}

}  // namespace

Variable dropout(const Variable& x, double probability, Rng& rng) {
  check_argument(probability >= 0 && probability <= 1,
                 "dropout: probability must be in [0, 1], got ", probability);
  if (probability == 0) return x;
  const std::uint64_t first = rng.skip((x.size() + 3) / 4);
  const Real scale = probability == 1 ? Real(0) : Real(1 / (1 - probability));
  return apply_mask(x, {rng.seed(), first, std::uint64_t(probability * 0x1p32), scale});
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
