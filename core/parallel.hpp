// How many threads the kernels use, and the one parallel loop they all use.
//
// Work is cut by the shape of the data and the cores of the machine, never by the number of
// threads, so results have the same bits at any thread count. BLAS itself always runs on one thread
// inside such a loop (kernels/gemm.hpp).
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace attngrad {

// Threads used by kernels called from now on, from any thread; 1 to 1024 (else ArgumentError). The
// default is OMP_NUM_THREADS where it is set, else the number of cores.
void set_threads(int count);
int threads();

namespace parallel {
void run_parallel(std::size_t count, void (*body)(void*, std::size_t), void* state);
}

// Fewer elementary operations than this are done before other threads would have woken.
inline constexpr double worth_threads = 2e6;

// Calls body(i) for every i in [0, count), on several threads; the order is not defined. If body
// throws, what is not yet begun is left out and one of the exceptions is passed on. `operations` is
// about how many multiplications and additions all of it takes: little work stays on this thread.
template <class Body>
void parallel_for(std::size_t count, Body&& body, double operations = worth_threads) {
  using B = std::remove_reference_t<Body>;
  if (count == 1 || operations < worth_threads) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  parallel::run_parallel(
      count, [](void* state, std::size_t i) { (*static_cast<B*>(state))(i); },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

// Calls body(begin, end) for consecutive pieces of [0, count) of `grain` elements (the last may be
// shorter).
template <class Body>
void parallel_chunks(std::size_t count, std::size_t grain, Body&& body,
                     double operations = worth_threads) {
  if (count == 0) return;
  parallel_for((count + grain - 1) / grain,
               [&](std::size_t i) {
                 const std::size_t begin = i * grain;
                 body(begin, begin + grain < count ? begin + grain : count);
               },
               operations);
}

}  // namespace attngrad
