#include "timer.hpp"

#include <sys/resource.h>

#include <vector>

extern "C" {
void openblas_set_num_threads(int count);
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
}

namespace {

rusage usage() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return u;
}

}  // namespace

std::size_t minor_page_faults() { return static_cast<std::size_t>(usage().ru_minflt); }
double peak_resident_mib() { return double(usage().ru_maxrss) / 1024; }

double sgemm_gflops(int threads) {
  constexpr int n = 1024, row_major = 101, no_trans = 111;
  const std::size_t size = std::size_t{n} * n;
  std::vector<float> a(size, 0.5f), b(size, 0.25f), c(size);
  openblas_set_num_threads(threads);
  const Timing t = time_of(
      [&] {
        cblas_sgemm(row_major, no_trans, no_trans, n, n, n, 1, a.data(), n, b.data(), n, 0,
                    c.data(), n);
      },
      0.5, 10);
  return 2.0 * n * n * n / t.median_ms / 1e6;
}
