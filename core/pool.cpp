#include "core/pool.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <new>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace attngrad {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t class_count = 4 * 48;

struct FreeBlock {
  FreeBlock* next;
};

struct SizeClass {
  std::mutex mutex;
  FreeBlock* free = nullptr;
};

struct Pool {
  std::array<SizeClass, class_count> classes;
  std::atomic<std::size_t> alive{0}, held{0}, system_allocations{0};
};

Pool& pool() {
  static Pool& instance = *new Pool;  // never destroyed: statics of other units may free later
  return instance;
}

// Four sizes per power of two, so at most a fifth of a block is wasted: 64, 80, 96, 112, 128, 160,
// ... bytes.
struct ClassOf {
  std::size_t index, bytes;
};
ClassOf class_of(std::size_t bytes) {
  if (bytes <= alignment) return {0, alignment};
  const std::size_t power = std::bit_width(bytes - 1) - 1;  // 2^power < bytes <= 2^(power + 1)
  const std::size_t quarter = std::size_t{1} << (power - 2);
  const std::size_t steps = (bytes - (std::size_t{1} << power) + quarter - 1) / quarter;
  return {4 * (power - 6) + steps, (std::size_t{1} << power) + steps * quarter};
}

// Tells the address sanitizer which bytes of a block are in use, so that it sees faults in pooled
// memory too. Of a free block it is the link, or the leak sanitizer would not follow it.
void mark_used([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes,
               [[maybe_unused]] std::size_t size) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(block, size);
  __asan_unpoison_memory_region(block, bytes);
#endif
}

}  // namespace

void* pool_allocate(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 50)) throw std::bad_alloc();
  const auto [index, size] = class_of(bytes);
  Pool& p = pool();
  SizeClass& c = p.classes[index];
  {
    std::lock_guard lock(c.mutex);
    if (FreeBlock* block = c.free) {
      c.free = block->next;
      mark_used(block, bytes, size);
      p.alive += size;
      return block;
    }
  }
  void* block = ::operator new(size, std::align_val_t(alignment));
  mark_used(block, bytes, size);
  p.alive += size;
  p.held += size;
  ++p.system_allocations;
  return block;
}

void pool_deallocate(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const auto [index, size] = class_of(bytes);
  Pool& p = pool();
  SizeClass& c = p.classes[index];
  p.alive -= size;
  mark_used(block, sizeof(FreeBlock), size);
  std::lock_guard lock(c.mutex);
  c.free = new (block) FreeBlock{c.free};
}

PoolStatistics pool_statistics() {
  const Pool& p = pool();
  return {p.alive, p.held, p.system_allocations};
}

void pool_release() {
  Pool& p = pool();
  for (SizeClass& c : p.classes) {
    FreeBlock* block;
    {
      std::lock_guard lock(c.mutex);
      block = c.free;
      c.free = nullptr;
    }
    const std::size_t index = static_cast<std::size_t>(&c - p.classes.data());
    const std::size_t power = 6 + index / 4;
    const std::size_t size =
        (std::size_t{1} << power) + (index % 4) * (std::size_t{1} << (power - 2));
    while (block != nullptr) {
      FreeBlock* next = block->next;
      ::operator delete(block, std::align_val_t(alignment));
      p.held -= size;
      block = next;
    }
  }
}

}  // namespace attngrad
