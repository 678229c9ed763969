// A caching allocator for array storage: a freed block is kept and given to the next request of its
// size.
//
// Training allocates the same sizes every step, and a fresh page from the system costs about ten
// times a used one, so after the first step a loop takes nothing from the system any more. Blocks
// are aligned to 64 bytes and may be freed on another thread than the one that took them. They are
// cut from chunks of some megabytes, of huge pages where the system has them. The pool is never
// destroyed, so statics may free into it.
#pragma once

#include <cstddef>
#include <new>

namespace attngrad {

void* pool_allocate(std::size_t bytes);
void pool_deallocate(void* block, std::size_t bytes) noexcept;

// Of other threads than the caller's, the last 64 KiB of small blocks may not be counted yet.
struct PoolStatistics {
  std::size_t bytes_alive;         // in blocks that are in use
  std::size_t most_bytes_alive;    // at any time since the start, or since pool_reset_peak()
  std::size_t bytes_held;          // taken from the system, in chunks
  std::size_t system_allocations;  // how often the system was asked
};
PoolStatistics pool_statistics();

// From now on, most_bytes_alive counts from what is alive now.
void pool_reset_peak();

// Gives back to the system every chunk of which no block is in use (a few small ones that other
// threads keep to themselves count as used). Large blocks are a chunk each.
void pool_release();

// The allocator of Array, Indices and Bools. It has no state, so arrays move freely between owners.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) noexcept {}

  T* allocate(std::size_t count) {
    constexpr std::size_t most = std::size_t(-1);  // more than pool_allocate gives
    return static_cast<T*>(pool_allocate(count > most / sizeof(T) ? most : count * sizeof(T)));
  }
  void deallocate(T* block, std::size_t count) noexcept {
    pool_deallocate(block, count * sizeof(T));
  }
  friend bool operator==(const PoolAllocator&, const PoolAllocator&) { return true; }
};

}  // namespace attngrad
