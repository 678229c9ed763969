// Random numbers from a counter: the same seed and offset give the same bits at any thread count
// and, but for normal(), whose logarithm and cosine are the system's, on any machine.
//
// The generator is Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", 2011): a block of four 32-bit numbers is a function of (seed, offset), so any part of a
// sequence can be made again.
#pragma once

#include <array>
#include <cstdint>

#include "core/array.hpp"

namespace attngrad {

// The block at `offset` of the sequence `seed`.
std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t offset);

// A position in a sequence. Drawing moves it on; copying it and drawing again repeats.
class Rng {
 public:
  explicit Rng(std::uint64_t seed, std::uint64_t offset = 0) : seed_(seed), offset_(offset) {}

  std::uint64_t seed() const { return seed_; }
  std::uint64_t offset() const { return offset_; }
  // Reserves `blocks` blocks and returns the offset of the first.
  std::uint64_t skip(std::uint64_t blocks);
  // An independent generator, for a part of a program that may draw as often as it likes.
  Rng split();

  double uniform();  // in [0, 1)
  double normal();   // mean 0, standard deviation 1
  // In [low, high). Throws ArgumentError if that is empty.
  std::int64_t integer(std::int64_t low, std::int64_t high);
  Indices integers(std::int64_t low, std::int64_t high, const Shape& shape);

 private:
  std::uint64_t seed_, offset_;
};

inline namespace ATTNGRAD_PRECISION {

// Arrays drawn element by element in double and then rounded, so both precisions start from the
// same numbers. Throw ArgumentError unless low <= high and deviation >= 0.
Array uniform(Rng& rng, const Shape& shape, double low = 0, double high = 1);
Array normal(Rng& rng, const Shape& shape, double mean = 0, double deviation = 1);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
