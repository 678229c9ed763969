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
  std::atomic<std::size_t> alive{0}, most_alive{0}, held{0}, system_allocations{0};
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

// A few small blocks that a thread keeps to itself, so that taking one needs no lock.
struct LocalBlocks {
  static constexpr std::size_t classes = 4 * 6 + 1, largest = 64;  // up to 4 KiB; blocks of each
  std::array<FreeBlock*, classes> free{};
  std::array<std::size_t, classes> count{};

  // Gives all blocks of a class back to everybody.
  void release(std::size_t index) {
    SizeClass& c = pool().classes[index];
    std::lock_guard lock(c.mutex);
    while (FreeBlock* block = free[index]) {
      free[index] = block->next;
      c.free = new (block) FreeBlock{c.free};
    }
    count[index] = 0;
  }
  ~LocalBlocks();
};

// Statics and other thread_local objects may free after a thread's blocks are gone.
thread_local bool local_blocks_gone = false;
thread_local LocalBlocks local_blocks;

LocalBlocks::~LocalBlocks() {
  for (std::size_t index = 0; index < classes; ++index) release(index);
  local_blocks_gone = true;
}

// A free block of the class, or null.
FreeBlock* take(std::size_t index) {
  if (index < LocalBlocks::classes && !local_blocks_gone) {
    LocalBlocks& local = local_blocks;
    if (FreeBlock* block = local.free[index]) {
      local.free[index] = block->next;
      --local.count[index];
      return block;
    }
  }
  SizeClass& c = pool().classes[index];
  std::lock_guard lock(c.mutex);
  FreeBlock* block = c.free;
  if (block != nullptr) c.free = block->next;
  return block;
}

void give_back(void* memory, std::size_t index) {
  if (index < LocalBlocks::classes && !local_blocks_gone) {
    LocalBlocks& local = local_blocks;
    if (local.count[index] == LocalBlocks::largest) local.release(index);
    local.free[index] = new (memory) FreeBlock{local.free[index]};
    ++local.count[index];
    return;
  }
  SizeClass& c = pool().classes[index];
  std::lock_guard lock(c.mutex);
  c.free = new (memory) FreeBlock{c.free};
}

void count_alive(std::size_t size) {
  Pool& p = pool();
  const std::size_t now = p.alive.fetch_add(size, std::memory_order_relaxed) + size;
  std::size_t most = p.most_alive.load(std::memory_order_relaxed);
  while (now > most && !p.most_alive.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

}  // namespace

void* pool_allocate(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 50)) throw std::bad_alloc();
  const auto [index, size] = class_of(bytes);
  void* block = take(index);
  if (block == nullptr) {
    block = ::operator new(size, std::align_val_t(alignment));
    pool().held += size;
    ++pool().system_allocations;
  }
  mark_used(block, bytes, size);
  count_alive(size);
  return block;
}

void pool_deallocate(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const auto [index, size] = class_of(bytes);
  pool().alive.fetch_sub(size, std::memory_order_relaxed);
  mark_used(block, sizeof(FreeBlock), size);
  give_back(block, index);
}

PoolStatistics pool_statistics() {
  const Pool& p = pool();
  return {p.alive, p.most_alive, p.held, p.system_allocations};
}

void pool_reset_peak() { pool().most_alive = pool().alive.load(); }

void pool_release() {
  Pool& p = pool();
  for (std::size_t index = 0; index < LocalBlocks::classes && !local_blocks_gone; ++index)
    local_blocks.release(index);
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
