#include "core/pool.hpp"

#include <cstdint>
#include <cstring>
#include <new>
#include <thread>

#include "common/test.hpp"

namespace {

std::size_t alive() { return ag::pool_statistics().bytes_alive; }

}  // namespace

TEST_CASE("blocks of any size are aligned, apart, and wholly usable", "[pool]") {
  std::vector<std::pair<char*, std::size_t>> blocks;
  for (std::size_t bytes : {0, 1, 63, 64, 65, 80, 81, 127, 128, 129, 1000, 4096, 4097, 100000})
    for (int i = 0; i < 2; ++i) {
      char* block = static_cast<char*>(ag::pool_allocate(bytes));
      REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
      std::memset(block, int(blocks.size()), bytes);
      blocks.emplace_back(block, bytes);
    }
  for (std::size_t k = 0; k < blocks.size(); ++k)
    for (std::size_t i = 0; i < blocks[k].second; ++i) REQUIRE(blocks[k].first[i] == char(k));
  for (const auto& [block, bytes] : blocks) ag::pool_deallocate(block, bytes);
}

TEST_CASE("a freed block is given to the next request of its size", "[pool]") {
  void* block = ag::pool_allocate(5000);
  const auto before = ag::pool_statistics();
  ag::pool_deallocate(block, 5000);
  void* again = ag::pool_allocate(5100);  // the same size class
  REQUIRE(again == block);
  REQUIRE(ag::pool_statistics().system_allocations == before.system_allocations);
  REQUIRE(ag::pool_statistics().bytes_held == before.bytes_held);
  ag::pool_deallocate(again, 5100);
}

TEST_CASE("at most a fifth of a block is wasted", "[pool]") {
  for (std::size_t bytes = 64; bytes < 10000; bytes += 7) {
    const std::size_t before = alive();
    void* block = ag::pool_allocate(bytes);
    const std::size_t size = alive() - before;
    REQUIRE(size >= bytes);
    REQUIRE(size - bytes <= size / 5);
    ag::pool_deallocate(block, bytes);
    REQUIRE(alive() == before);
  }
}

TEST_CASE("a block may be freed on another thread, and reused on a third", "[pool]") {
  const std::size_t before = alive();
  void* block = nullptr;
  void* again = nullptr;
  std::thread([&] { block = ag::pool_allocate(77777); }).join();
  std::thread([&] { ag::pool_deallocate(block, 77777); }).join();
  std::thread([&] { again = ag::pool_allocate(77777); }).join();
  REQUIRE(again == block);
  ag::pool_deallocate(again, 77777);
  REQUIRE(alive() == before);
}

TEST_CASE("threads allocate and free at the same time", "[pool]") {
  const std::size_t before = alive();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 2000; ++i) {
        const std::size_t bytes = std::size_t(64 * (1 + i % 7));
        auto* block = static_cast<unsigned char*>(ag::pool_allocate(bytes));
        std::memset(block, t, bytes);
        for (std::size_t k = 0; k < bytes; ++k)
          if (block[k] != t) std::abort();  // someone else has this block
        ag::pool_deallocate(block, bytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(alive() == before);
}

TEST_CASE("release gives back the chunks that are unused and nothing else", "[pool]") {
  ag::pool_release();
  const auto held = [] { return ag::pool_statistics().bytes_held; };
  const std::size_t before = held(), large = std::size_t{40} << 20;
  // many small blocks, of which one stays in use, and a large one
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(ag::pool_allocate(1000000));
  void* used = blocks.front();
  std::memset(used, 1, 1000000);
  ag::pool_deallocate(ag::pool_allocate(large), large);
  for (std::size_t i = 1; i < blocks.size(); ++i) ag::pool_deallocate(blocks[i], 1000000);
  REQUIRE(held() >= before + large + 100 * 1000000);
  ag::pool_release();
  REQUIRE(held() <= before + 8 * (std::size_t{1} << 20));  // the chunk of the block in use
  for (std::size_t i = 0; i < 1000000; ++i) REQUIRE(static_cast<char*>(used)[i] == 1);
  // what stayed on the lists can be used again
  void* again = ag::pool_allocate(1000000);
  std::memset(again, 2, 1000000);
  REQUIRE(static_cast<char*>(used)[999999] == 1);
  ag::pool_deallocate(again, 1000000);
  ag::pool_deallocate(used, 1000000);
  ag::pool_release();
  REQUIRE(held() == before);
}

TEST_CASE("a request that cannot be met throws and counts nothing", "[pool][errors]") {
  ag::pool_release();  // as the failure will
  const auto before = ag::pool_statistics();
  REQUIRE_THROWS_AS(ag::pool_allocate(~std::size_t{0}), std::bad_alloc);
#ifndef __SANITIZE_ADDRESS__  // whose operator new stops the program instead
  REQUIRE_THROWS_AS(ag::pool_allocate(std::size_t{1} << 50), std::bad_alloc);  // a pebibyte
  REQUIRE_THROWS_WITH(ag::zeros({1 << 20, 1 << 20, 1 << 10}),
                      ContainsSubstring("out of memory") && ContainsSubstring("bytes"));
#endif
  REQUIRE(ag::pool_statistics().bytes_alive == before.bytes_alive);
  REQUIRE(ag::pool_statistics().bytes_held == before.bytes_held);
}

TEST_CASE("arrays take their storage from the pool and give it back", "[pool]") {
  const std::size_t before = alive();
  {
    const Array x = ag::zeros({1000});
    REQUIRE(alive() >= before + 1000 * sizeof(Real));
    const Variable v(x);
    const Variable copy = v;
    REQUIRE(alive() < before + 3 * 1000 * sizeof(Real));
  }
  REQUIRE(alive() == before);
}

TEST_CASE("the peak counts every block, however small and however it alternates with large ones",
          "[pool]") {
  const std::size_t before = alive();
  ag::pool_reset_peak();
  void* small = ag::pool_allocate(64);
  void* large = ag::pool_allocate(std::size_t{1} << 20);
  void* other = ag::pool_allocate(128);
  ag::pool_deallocate(large, std::size_t{1} << 20);
  ag::pool_deallocate(other, 128);
  ag::pool_deallocate(small, 64);
  REQUIRE(alive() == before);
  REQUIRE(ag::pool_statistics().most_bytes_alive == before + 64 + (std::size_t{1} << 20) + 128);
}

TEST_CASE("a short row of small blocks shows in the peak after they are gone", "[pool]") {
  const std::size_t before = alive();
  ag::pool_reset_peak();
  ag::pool_deallocate(ag::pool_allocate(64), 64);
  REQUIRE(alive() == before);
  REQUIRE(ag::pool_statistics().most_bytes_alive == before + 64);
}
