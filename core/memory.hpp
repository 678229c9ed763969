// Where memory goes: what is alive, the most there was, and what each op of each layer keeps for
// the backward pass.
//
//   MemoryTrace trace;
//   Tape tape;
//   const Variable loss = ...;
//   std::cout << memory_report();     // here the tape holds most
#pragma once

#include <iosfwd>
#include <memory>

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// What the ops of one name in one layer keep.
struct SavedMemory {
  std::string layer;  // dotted path; empty outside of layers
  std::string op;
  std::size_t calls, bytes;
};

struct MemoryReport {
  std::size_t bytes_alive;       // in arrays, variables and recorded ops, of all threads
  std::size_t most_bytes_alive;  // at any time since the start, or since pool_reset_peak()
  std::size_t bytes_held;        // taken from the system: alive, or kept for reuse
  // of this thread since its MemoryTrace began, largest first; empty without one
  std::vector<SavedMemory> saved;
};

// While it lives, ops recorded in this thread are noted with their layer and what their derivatives
// save: values and statistics, without parameters, which are there anyway. A value that several ops
// save counts once, for the first. Traces do not nest (TapeError), and
// end in the thread that began them.
class MemoryTrace {
 public:
  MemoryTrace();
  ~MemoryTrace();
  MemoryTrace(const MemoryTrace&) = delete;
  MemoryTrace& operator=(const MemoryTrace&) = delete;

  // For the engine: a value, or so many bytes of something else, that the op about to be recorded
  // saves; that the values since the last call belong to the derivative of this input, which is
  // dropped if it needs no gradient; that the op has been recorded, or not; and that the values are
  // gone, so that others may lie where they were.
  static void note(const Variable& value);
  static void note(std::size_t bytes);
  static void close_edge(const Variable& input);
  static void close(const char* op, bool recorded);
  static void forget_values();
  // While it lives, nothing is noted: what is recorded will be dropped at once.
  struct Suspended {
    Suspended();
    ~Suspended();
    Suspended(const Suspended&) = delete;
    Suspended& operator=(const Suspended&) = delete;
    MemoryTrace* before;
  };

 private:
  friend MemoryReport memory_report();
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

MemoryReport memory_report();
// As a table of MiB.
std::ostream& operator<<(std::ostream& out, const MemoryReport& report);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
