// Does the built program really reach OpenBLAS, or oneDNN? Some releases of xtensor-blas multiply
// with loops of their own unless they are included in the right order, and give the right numbers
// slowly.
//
// The functions below stand in front of those of the same name in the shared library: they count,
// and pass the call on. They are a program of their own, because they would be in the way of every
// other test.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "common/test.hpp"
#include "core/ops/linalg.hpp"
#include "core/ops/matmul.hpp"

namespace {

std::atomic<int> products{0}, solutions{0}, factorisations{0};

// Calls the function that would have been found if this program had none of that name.
template <class Result, class... Parameters>
Result pass_on(const char* name, Result (*)(Parameters...),
               std::type_identity_t<Parameters>... arguments) {
  void* next = dlsym(RTLD_NEXT, name);
  if (next == nullptr) throw std::runtime_error(ag::text("no shared library has ", name));
  return reinterpret_cast<Result (*)(Parameters...)>(next)(arguments...);
}

// How many calls `counter` saw while body ran.
template <class Body>
int calls(std::atomic<int>& counter, Body body) {
  const int before = counter;
  body();
  return counter - before;
}

}  // namespace

extern "C" {

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a,
                 int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  ++products;
  pass_on("cblas_sgemm", &cblas_sgemm, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double* a,
                 int lda, const double* b, int ldb, double beta, double* c, int ldc) {
  ++products;
  pass_on("cblas_dgemm", &cblas_dgemm, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// where the library was built with oneDNN; the numbers of dimensions are 64 bits wide
int dnnl_sgemm(char ta, char tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
               const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
               float* c, std::int64_t ldc) {
  ++products;
  return pass_on("dnnl_sgemm", &dnnl_sgemm, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void sgesv_(const int* n, const int* k, float* a, const int* lda, int* pivots, float* b,
            const int* ldb, int* info) {
  ++solutions;
  pass_on("sgesv_", &sgesv_, n, k, a, lda, pivots, b, ldb, info);
}

void dgesv_(const int* n, const int* k, double* a, const int* lda, int* pivots, double* b,
            const int* ldb, int* info) {
  ++solutions;
  pass_on("dgesv_", &dgesv_, n, k, a, lda, pivots, b, ldb, info);
}

void sgetrf_(const int* m, const int* n, float* a, const int* lda, int* pivots, int* info) {
  ++factorisations;
  pass_on("sgetrf_", &sgetrf_, m, n, a, lda, pivots, info);
}

void dgetrf_(const int* m, const int* n, double* a, const int* lda, int* pivots, int* info) {
  ++factorisations;
  pass_on("dgetrf_", &dgetrf_, m, n, a, lda, pivots, info);
}
}

TEST_CASE("a matrix product calls BLAS, once for each tile") {
  const Variable a = ag::constant(ag::array_of({1, 2, 3, 4}, {2, 2}));
  REQUIRE(calls(products, [&] { require_close(ag::matmul(a, a).value(), {7, 10, 15, 22}); }) == 1);
  const Variable large = ag::constant(random_array({400, 300}));
  REQUIRE(calls(products, [&] { ag::linear(large, large); }) > 1);
}

TEST_CASE("the gradient of a matrix product calls BLAS twice") {
  const Variable a = ag::parameter(ag::array_of({1, 2, 3, 4}, {2, 2})),
                 b = ag::parameter(a.value());
  Tape tape;
  const Variable y = ag::matmul(a, b);
  REQUIRE(calls(products, [&] { tape.gradients(y, ag::constant(ag::ones({2, 2}))); }) == 2);
}

TEST_CASE("solve, inverse and log_determinant call LAPACK, once for each matrix") {
  const Variable a = ag::constant(ag::array_of({4, 1, 2, 3, 0, 1, 1, 0}, {2, 2, 2}));
  const Variable b = ag::constant(ag::array_of({1, 2}, {2}));
  REQUIRE(calls(solutions, [&] { require_close(ag::solve(a, b).value(), {0.1, 0.6, 2, 1}); }) == 2);
  REQUIRE(calls(factorisations, [&] { ag::inverse(a); }) == 2);
  REQUIRE(calls(factorisations, [&] { ag::log_determinant(a); }) == 2);
}
