// Chooses among the compiled versions of vector.cpp by what the processor and the operating system
// offer.
#include <cstdlib>
#include <string_view>

#include "core/errors.hpp"
#include "core/kernels/vector.hpp"

namespace attngrad::kernels {

namespace baseline {
const VectorKernels<float>& float_kernels();
const VectorKernels<double>& double_kernels();
}  // namespace baseline
#ifdef ATTNGRAD_HAS_AVX2
namespace avx2 {
const VectorKernels<float>& float_kernels();
const VectorKernels<double>& double_kernels();
}  // namespace avx2
#endif

namespace {

bool use_best() {
  const char* choice = std::getenv("ATTNGRAD_ARCH");
  if (choice == nullptr || *choice == '\0' || choice == std::string_view("best")) return true;
  check_argument(choice == std::string_view("baseline"),
                 "ATTNGRAD_ARCH: must be baseline or best, got ", choice);
  return false;
}

bool use_avx2() {
#ifdef ATTNGRAD_HAS_AVX2
  // the compiler's run-time check asks the operating system too
  static const bool answer =
      use_best() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return answer;
#else
  use_best();
  return false;
#endif
}

}  // namespace

template <>
const VectorKernels<float>& vector_kernels<float>() {
#ifdef ATTNGRAD_HAS_AVX2
  if (use_avx2()) return avx2::float_kernels();
#endif
  use_avx2();
  return baseline::float_kernels();
}

template <>
const VectorKernels<double>& vector_kernels<double>() {
#ifdef ATTNGRAD_HAS_AVX2
  if (use_avx2()) return avx2::double_kernels();
#endif
  use_avx2();
  return baseline::double_kernels();
}

}  // namespace attngrad::kernels
