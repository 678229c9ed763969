#include "core/pool.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdio>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
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

// What the system gave in one piece, and how much of it was cut into blocks.
struct Chunk {
  std::size_t bytes, cut;
};

struct Pool {
  std::array<SizeClass, class_count> classes;
  std::mutex chunks_mutex;
  std::map<std::byte*, Chunk> chunks;  // by where they begin
  std::byte* open = nullptr;           // the chunk that new blocks are cut from
  std::atomic<std::ptrdiff_t> alive{0}, most_alive{0};
  std::atomic<std::size_t> held{0}, system_allocations{0};
};

Pool& pool() {
  static Pool& instance = *new Pool;  // never destroyed: statics of other units may free later
  return instance;
}

// Four sizes per power of two, so at most a fifth of a block is wasted: 64, 80, 96, 112, 128, 160,
// ... bytes (of which those up to 128 still take whole units of 64 of their chunk).
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

std::size_t bytes_of_class(std::size_t index) {
  const std::size_t power = std::size_t{1} << (6 + index / 4);
  return power + index % 4 * (power / 4);
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

// Blocks of one size, linked; first to last.
struct Run {
  FreeBlock* first;
  FreeBlock* last;
};

// Free blocks for everybody.
void share(Run run, std::size_t index) {
  SizeClass& c = pool().classes[index];
  std::lock_guard lock(c.mutex);
  run.last->next = c.free;
  c.free = run.first;
}
void share(void* memory, std::size_t index) {
  FreeBlock* const block = new (memory) FreeBlock{nullptr};
  share({block, block}, index);
}

// The first `most` blocks of a list or, where it is shorter, all of it; the list goes on behind.
std::size_t split(FreeBlock*& list, std::size_t most, Run& run) {
  if (list == nullptr) return 0;
  run = {list, list};
  std::size_t count = 1;
  for (; count < most && run.last->next != nullptr; ++count) run.last = run.last->next;
  list = std::exchange(run.last->next, nullptr);
  return count;
}

// So many bytes more are alive, and at some time there were `most` more.
void count_alive(std::ptrdiff_t bytes, std::ptrdiff_t most) {
  Pool& p = pool();
  const std::ptrdiff_t before = p.alive.fetch_add(bytes, std::memory_order_relaxed);
  std::ptrdiff_t known = p.most_alive.load(std::memory_order_relaxed);
  while (before + most > known &&
         !p.most_alive.compare_exchange_weak(known, before + most, std::memory_order_relaxed)) {
  }
}

// What a thread keeps to itself so that small blocks need neither a lock nor an atomic count: some
// free ones of each class, which come and go by the batch, and the bytes that it took and has not
// counted yet, with the most there were of them.
struct LocalBlocks {
  static constexpr std::size_t classes = 4 * 6 + 1;  // up to 4 KiB
  static constexpr std::size_t batch = 32;           // of up to two for each class
  static constexpr std::ptrdiff_t most_uncounted = std::ptrdiff_t{64} << 10;
  std::array<FreeBlock*, classes> free{};
  std::array<std::size_t, classes> count{};
  std::ptrdiff_t uncounted = 0, most = 0;

  FreeBlock* take(std::size_t index) {
    if (free[index] == nullptr) fetch(index);
    FreeBlock* const block = free[index];
    if (block == nullptr) return nullptr;
    free[index] = block->next;
    --count[index];
    return block;
  }
  void give_back(void* memory, std::size_t index) {
    if (count[index] == 2 * batch) release(index, batch);
    free[index] = new (memory) FreeBlock{free[index]};
    ++count[index];
  }
  // Gives blocks of a class back to everybody.
  void release(std::size_t index, std::size_t most) {
    Run run;
    const std::size_t released = split(free[index], most, run);
    if (released > 0) share(run, index);
    count[index] -= released;
  }
  void count_bytes(std::ptrdiff_t bytes) {
    uncounted += bytes;
    if (uncounted > most) most = uncounted;
    if (uncounted > most_uncounted || uncounted < -most_uncounted) count_all();
  }
  void count_all() { count_alive(std::exchange(uncounted, 0), std::exchange(most, 0)); }
  void leave() {
    for (std::size_t index = 0; index < classes; ++index) release(index, count[index]);
    count_all();
  }
  ~LocalBlocks();

 private:
  void fetch(std::size_t index) {
    SizeClass& c = pool().classes[index];
    std::lock_guard lock(c.mutex);
    Run run;
    count[index] = split(c.free, batch, run);
    if (count[index] > 0) free[index] = run.first;
  }
};

// Statics and other thread_local objects may free after a thread's blocks are gone.
thread_local bool local_blocks_gone = false;
thread_local LocalBlocks local_blocks;

LocalBlocks::~LocalBlocks() {
  leave();
  local_blocks_gone = true;
}

bool is_local(std::size_t index) { return index < LocalBlocks::classes && !local_blocks_gone; }

// A free block of the class, or null.
FreeBlock* take(std::size_t index) {
  if (is_local(index)) return local_blocks.take(index);
  SizeClass& c = pool().classes[index];
  std::lock_guard lock(c.mutex);
  FreeBlock* const block = c.free;
  if (block != nullptr) c.free = block->next;
  return block;
}

void give_back(void* memory, std::size_t index) {
  if (is_local(index))
    local_blocks.give_back(memory, index);
  else
    share(memory, index);
}

void count_bytes(std::ptrdiff_t bytes, std::size_t index) {
  if (is_local(index)) return local_blocks.count_bytes(bytes);
  if (!local_blocks_gone) local_blocks.count_all();  // or the most there were would miss it
  count_alive(bytes, bytes);
}

// What a block takes of its chunk.
std::size_t cut_of(std::size_t size) { return (size + alignment - 1) / alignment * alignment; }

// Chunks are made of huge pages, where the system has them: a kernel that walks down the columns of
// a matrix touches a page for each row, and of small ones the processor remembers too few.
constexpr std::size_t huge_page = std::size_t{2} << 20;
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t shared_chunk = 0;  // each block by itself, so that a fault is seen at its end
#else
constexpr std::size_t shared_chunk = 4 * huge_page;
#endif

std::align_val_t alignment_of(std::size_t bytes) {
  return std::align_val_t(bytes < huge_page ? alignment : huge_page);
}

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::size_t bytes) {
    std::snprintf(message_, sizeof message_, "out of memory: %zu bytes were asked for", bytes);
  }
  const char* what() const noexcept override { return message_; }

 private:
  char message_[64];
};

std::byte* new_chunk(std::size_t bytes) {
  void* memory = nullptr;
  try {
    memory = ::operator new(bytes, alignment_of(bytes));
  } catch (const std::bad_alloc&) {  // what is held unused may be enough
    pool_release();
    memory = ::operator new(bytes, alignment_of(bytes), std::nothrow);
    if (memory == nullptr) throw OutOfMemory(bytes);
  }
#ifdef MADV_HUGEPAGE
  if (bytes >= huge_page)
    madvise(memory, bytes, MADV_HUGEPAGE);  // may be refused, and then costs time only
#endif
  pool().held += bytes;
  ++pool().system_allocations;
  return static_cast<std::byte*>(memory);
}

// The next bytes of the open chunk, or null where they do not fit.
void* cut_open_chunk(std::size_t size) {
  Pool& p = pool();
  if (p.open == nullptr || p.chunks[p.open].cut + cut_of(size) > shared_chunk) return nullptr;
  std::size_t& cut = p.chunks[p.open].cut;
  cut += cut_of(size);
  return p.open + cut - cut_of(size);
}

// A block that was never used. Large ones have a chunk each. The system is asked without the lock,
// for a handler of its failure may want to release the pool.
void* cut_block(std::size_t size) {
  Pool& p = pool();
  const bool alone = size > shared_chunk / 4;
  if (!alone) {
    std::lock_guard lock(p.chunks_mutex);
    if (void* block = cut_open_chunk(size)) return block;
  }
  std::byte* const chunk = new_chunk(alone ? size : shared_chunk);
  std::lock_guard lock(p.chunks_mutex);
  p.chunks[chunk] = alone ? Chunk{size, cut_of(size)} : Chunk{shared_chunk, 0};
  if (alone) return chunk;
  p.open = chunk;
  return cut_open_chunk(size);
}

}  // namespace

void* pool_allocate(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 50)) throw OutOfMemory(bytes);
  const auto [index, size] = class_of(bytes);
  void* block = take(index);
  if (block == nullptr) block = cut_block(size);
  mark_used(block, bytes, size);
  count_bytes(std::ptrdiff_t(size), index);
  return block;
}

void pool_deallocate(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const auto [index, size] = class_of(bytes);
  count_bytes(-std::ptrdiff_t(size), index);
  mark_used(block, sizeof(FreeBlock), size);
  give_back(block, index);
}

PoolStatistics pool_statistics() {
  if (!local_blocks_gone) local_blocks.count_all();
  const Pool& p = pool();
  const auto bytes = [](std::ptrdiff_t counted) {
    return std::size_t(std::max<std::ptrdiff_t>(counted, 0));  // others may have counted half
  };
  return {bytes(p.alive), bytes(p.most_alive), p.held, p.system_allocations};
}

void pool_reset_peak() {
  if (!local_blocks_gone) local_blocks.count_all();
  pool().most_alive = pool().alive.load();
}

void pool_release() {
  Pool& p = pool();
  if (!local_blocks_gone) local_blocks.leave();
  std::lock_guard lock(p.chunks_mutex);
  // a chunk of which all that was cut is free goes back whole
  std::array<FreeBlock*, class_count> lists{};
  std::map<std::byte*, std::size_t> unused;
  const auto chunk_of = [&](FreeBlock* block) {
    return std::prev(p.chunks.upper_bound(reinterpret_cast<std::byte*>(block)))->first;
  };
  for (std::size_t index = 0; index < class_count; ++index) {
    {
      std::lock_guard class_lock(p.classes[index].mutex);
      lists[index] = std::exchange(p.classes[index].free, nullptr);
    }
    for (FreeBlock* block = lists[index]; block != nullptr; block = block->next)
      unused[chunk_of(block)] += cut_of(bytes_of_class(index));
  }
  for (std::size_t index = 0; index < class_count; ++index)
    for (FreeBlock* block = lists[index]; block != nullptr;) {
      FreeBlock* const next = block->next;
      std::byte* const chunk = chunk_of(block);
      if (unused[chunk] != p.chunks[chunk].cut) share(block, index);
      block = next;
    }
  for (const auto& [chunk, bytes] : unused) {
    if (bytes != p.chunks[chunk].cut) continue;
    const std::align_val_t alignment = alignment_of(p.chunks[chunk].bytes);
    p.held -= p.chunks[chunk].bytes;
    p.chunks.erase(chunk);
    if (chunk == p.open) p.open = nullptr;
    ::operator delete(chunk, alignment);
  }
}

}  // namespace attngrad
