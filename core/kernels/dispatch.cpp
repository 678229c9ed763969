// Chooses among the compiled versions of vector.cpp, rows.cpp and tile.cpp by what the processor
// and the operating system offer.
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/errors.hpp"
#include "core/kernels/rows.hpp"
#include "core/kernels/tile.hpp"
#include "core/kernels/vector.hpp"

namespace attngrad::kernels {

// What each compiled version defines.
namespace baseline {
template <class T>
const VectorKernels<T>& vectors();
template <class T>
const RowKernels<T>& rows();
template <class T>
const TileKernels<T>& tiles();
}  // namespace baseline
#ifdef ATTNGRAD_X86
namespace avx2 {
template <class T>
const VectorKernels<T>& vectors();
template <class T>
const RowKernels<T>& rows();
template <class T>
const TileKernels<T>& tiles();
}  // namespace avx2
namespace avx512 {
template <class T>
const VectorKernels<T>& vectors();
template <class T>
const RowKernels<T>& rows();
template <class T>
const TileKernels<T>& tiles();
}  // namespace avx512
#endif

namespace {

struct InstructionSet {
  const char* name;
  bool (*runs_here)();
  const VectorKernels<float>& (*float_vectors)();
  const VectorKernels<double>& (*double_vectors)();
  const RowKernels<float>& (*float_rows)();
  const RowKernels<double>& (*double_rows)();
  const TileKernels<float>& (*float_tiles)();
  const TileKernels<double>& (*double_tiles)();
};

// From the worst to the best. The compiler's run-time checks ask the operating system too.
constexpr std::array instruction_sets{
    InstructionSet{"baseline", [] { return true; }, baseline::vectors<float>,
                   baseline::vectors<double>, baseline::rows<float>, baseline::rows<double>,
                   baseline::tiles<float>, baseline::tiles<double>},
#ifdef ATTNGRAD_X86
    InstructionSet{"avx2",
                   [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); },
                   avx2::vectors<float>, avx2::vectors<double>, avx2::rows<float>,
                   avx2::rows<double>, avx2::tiles<float>, avx2::tiles<double>},
    InstructionSet{"avx512",
                   [] {
                     return __builtin_cpu_supports("avx512f") &&
                            __builtin_cpu_supports("avx512cd") &&
                            __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
                   },
                   avx512::vectors<float>, avx512::vectors<double>, avx512::rows<float>,
                   avx512::rows<double>, avx512::tiles<float>, avx512::tiles<double>},
#endif
};

const InstructionSet& choose() {
  const char* variable = std::getenv("ATTNGRAD_ARCH");
  const std::string_view choice = variable == nullptr || *variable == '\0' ? "best" : variable;
  const InstructionSet* best = nullptr;
  std::string names;
  for (const InstructionSet& set : instruction_sets) {
    if (!set.runs_here()) continue;
    if (choice == "best" || choice == set.name) best = &set;
    names += std::string(set.name) + ", ";
  }
  check_argument(best != nullptr, "ATTNGRAD_ARCH: must be ", names, "or best on this machine, got ",
                 choice);
  return *best;
}

const InstructionSet& chosen() {
  static const InstructionSet& set = choose();
  return set;
}

}  // namespace

template <>
const VectorKernels<float>& vector_kernels<float>() {
  return chosen().float_vectors();
}
template <>
const VectorKernels<double>& vector_kernels<double>() {
  return chosen().double_vectors();
}
template <>
const RowKernels<float>& row_kernels<float>() {
  return chosen().float_rows();
}
template <>
const RowKernels<double>& row_kernels<double>() {
  return chosen().double_rows();
}
template <>
const TileKernels<float>& tile_kernels<float>() {
  return chosen().float_tiles();
}
template <>
const TileKernels<double>& tile_kernels<double>() {
  return chosen().double_tiles();
}

}  // namespace attngrad::kernels
