// Chooses among the compiled versions of vector.cpp, rows.cpp and tile.cpp by what the processor
// and the operating system offer.
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

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

template <class T>
struct Tables {
  const VectorKernels<T>& (*vectors)();
  const RowKernels<T>& (*rows)();
  const TileKernels<T>& (*tiles)();
};

struct Compiled {
  InstructionSet which;
  const char* name;
  bool (*runs_here)();
  Tables<float> in_float;
  Tables<double> in_double;
};

// From the worst to the best. The compiler's run-time checks ask the operating system too.
constexpr std::array compiled{
    Compiled{InstructionSet::baseline,
             "baseline",
             [] { return true; },
             {baseline::vectors, baseline::rows, baseline::tiles},
             {baseline::vectors, baseline::rows, baseline::tiles}},
#ifdef ATTNGRAD_X86
    Compiled{InstructionSet::avx2,
             "avx2",
             [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); },
             {avx2::vectors, avx2::rows, avx2::tiles},
             {avx2::vectors, avx2::rows, avx2::tiles}},
    Compiled{InstructionSet::avx512,
             "avx512",
             [] {
               return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
             },
             {avx512::vectors, avx512::rows, avx512::tiles},
             {avx512::vectors, avx512::rows, avx512::tiles}},
#endif
};

const Compiled& choose() {
  const char* variable = std::getenv("ATTNGRAD_ARCH");
  const std::string_view choice = variable == nullptr || *variable == '\0' ? "best" : variable;
  const Compiled* best = nullptr;
  std::string names;
  for (const Compiled& set : compiled) {
    if (!set.runs_here()) continue;
    if (choice == "best" || choice == set.name) best = &set;
    names += std::string(set.name) + ", ";
  }
  check_argument(best != nullptr, "ATTNGRAD_ARCH: must be ", names, "or best on this machine, got ",
                 choice);
  return *best;
}

const Compiled& chosen() {
  static const Compiled& set = choose();
  return set;
}

template <class T>
const Tables<T>& tables() {
  const Compiled& set = chosen();
  if constexpr (std::is_same_v<T, float>)
    return set.in_float;
  else
    return set.in_double;
}

}  // namespace

InstructionSet instruction_set() { return chosen().which; }

template <class T>
const VectorKernels<T>& vector_kernels() {
  return tables<T>().vectors();
}
template <class T>
const RowKernels<T>& row_kernels() {
  return tables<T>().rows();
}
template <class T>
const TileKernels<T>& tile_kernels() {
  return tables<T>().tiles();
}

template const VectorKernels<float>& vector_kernels();
template const VectorKernels<double>& vector_kernels();
template const RowKernels<float>& row_kernels();
template const RowKernels<double>& row_kernels();
template const TileKernels<float>& tile_kernels();
template const TileKernels<double>& tile_kernels();

}  // namespace attngrad::kernels
