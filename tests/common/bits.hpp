// For tests that compare bits, at any number of threads.
#pragma once

#include <cstring>

#include "common/test.hpp"
#include "core/parallel.hpp"

inline bool same_bits(const Array& a, const Array& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Real)) == 0;
}

// Restores the number of threads.
struct ThreadsScope {
  int before = ag::threads();
  ~ThreadsScope() { ag::set_threads(before); }
};
