#include "core/random.hpp"

#include <cmath>
#include <numbers>

namespace attngrad {
namespace {

double to_unit(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits =
      (std::uint64_t(high) << 32 | low) >> 11;  // 53 bits, as many as a double holds
  return double(bits) * 0x1p-53;
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t offset) {
  constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  std::array<std::uint32_t, 4> x{std::uint32_t(offset), std::uint32_t(offset >> 32), 0, 0};
  std::uint32_t key0 = std::uint32_t(seed), key1 = std::uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = multiplier0 * x[0], product1 = multiplier1 * x[2];
    x = {std::uint32_t(product1 >> 32) ^ x[1] ^ key0, std::uint32_t(product1),
         std::uint32_t(product0 >> 32) ^ x[3] ^ key1, std::uint32_t(product0)};
    key0 += weyl0;
    key1 += weyl1;
  }
  return x;
}

std::uint64_t Rng::skip(std::uint64_t blocks) {
  const std::uint64_t first = offset_;
  offset_ += blocks;
  return first;
}

Rng Rng::split() {
  const auto block = philox(seed_, skip(1));
  return Rng(std::uint64_t(block[0]) << 32 | block[1]);
}

double Rng::uniform() {
  const auto block = philox(seed_, skip(1));
  return to_unit(block[0], block[1]);
}

// Box and Muller, "A note on the generation of random normal deviates", 1958
double Rng::normal() {
  const auto block = philox(seed_, skip(1));
  const double radius = std::sqrt(-2 * std::log(1 - to_unit(block[0], block[1])));
  return radius * std::cos(2 * std::numbers::pi * to_unit(block[2], block[3]));
}

std::int64_t Rng::integer(std::int64_t low, std::int64_t high) {
  check_argument(low < high, "integer: needs low < high, got ", low, " and ", high);
  // unsigned, because the width of a range can be larger than any int64
  const std::uint64_t width = std::uint64_t(high) - std::uint64_t(low);
  return std::int64_t(std::uint64_t(low) + std::uint64_t(uniform() * double(width)));
}

Indices Rng::integers(std::int64_t low, std::int64_t high, const Shape& shape) {
  Indices numbers = Indices::from_shape(shape);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers.data()[i] = integer(low, high);
  return numbers;
}

}  // namespace attngrad
