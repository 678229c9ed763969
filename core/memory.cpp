#include "core/memory.hpp"

#include <algorithm>
#include <iomanip>
#include <map>
#include <ostream>
#include <unordered_set>
#include <utility>

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

struct MemoryTrace::Contents {
  std::map<std::pair<std::string, std::string>, SavedMemory> saved;
  std::unordered_set<const void*> counted;
  // of the op about to be recorded, and of the edge about to be made
  std::vector<const void*> op_values, edge_values;
  std::size_t op_bytes = 0, edge_bytes = 0;

  void drop_edge() {
    for (const void* value : edge_values) counted.erase(value);
    edge_values.clear();
    edge_bytes = 0;
  }
  void keep_edge() {
    op_values.insert(op_values.end(), edge_values.begin(), edge_values.end());
    op_bytes += edge_bytes;
    edge_values.clear();
    edge_bytes = 0;
  }
};

namespace {

thread_local MemoryTrace* active = nullptr;

}  // namespace

MemoryTrace::MemoryTrace() : contents_(std::make_unique<Contents>()) {
  if (active != nullptr) throw TapeError("MemoryTrace: one is already running in this thread");
  active = this;
}
MemoryTrace::~MemoryTrace() { active = nullptr; }

MemoryTrace::Suspended::Suspended() : before(std::exchange(active, nullptr)) {}
MemoryTrace::Suspended::~Suspended() { active = before; }

void MemoryTrace::note(const Variable& value) {
  if (active == nullptr || Recorder::is_parameter(value)) return;
  Contents& c = *active->contents_;
  if (!c.counted.insert(value.id()).second) return;
  c.edge_values.push_back(value.id());
  c.edge_bytes += value.size() * sizeof(Real);
}

void MemoryTrace::note(std::size_t bytes) {
  if (active != nullptr) active->contents_->op_bytes += bytes;
}

void MemoryTrace::close_edge(const Variable& input) {
  if (active == nullptr) return;
  if (input.needs_grad()) {
    active->contents_->keep_edge();
  } else {
    active->contents_->drop_edge();
  }
}

void MemoryTrace::close(const char* op, bool recorded) {
  if (active == nullptr) return;
  Contents& c = *active->contents_;
  c.keep_edge();  // of an op with one backward for all inputs
  if (recorded) {
    const std::string layer = layer_path();
    SavedMemory& entry =
        c.saved.try_emplace({layer, op}, SavedMemory{layer, op, 0, 0}).first->second;
    ++entry.calls;
    entry.bytes += c.op_bytes;
  } else {  // it kept nothing after all
    for (const void* value : c.op_values) c.counted.erase(value);
  }
  c.op_values.clear();
  c.op_bytes = 0;
}

void MemoryTrace::forget_values() {
  if (active != nullptr) active->contents_->counted.clear();
}

MemoryReport memory_report() {
  const PoolStatistics pool = pool_statistics();
  MemoryReport report{pool.bytes_alive, pool.most_bytes_alive, pool.bytes_held, {}};
  if (active == nullptr) return report;
  for (const auto& [key, entry] : active->contents_->saved) report.saved.push_back(entry);
  std::stable_sort(report.saved.begin(), report.saved.end(),
                   [](const SavedMemory& a, const SavedMemory& b) { return a.bytes > b.bytes; });
  return report;
}

std::ostream& operator<<(std::ostream& out, const MemoryReport& report) {
  const auto mib = [](std::size_t bytes) {
    std::ostringstream number;
    number << std::fixed << std::setprecision(3) << double(bytes) / (1024 * 1024);
    return number.str();
  };
  out << "alive " << mib(report.bytes_alive) << " MiB, at most " << mib(report.most_bytes_alive)
      << " MiB, held " << mib(report.bytes_held) << " MiB\n";
  for (const SavedMemory& entry : report.saved)
    out << std::setw(12) << mib(entry.bytes) << " MiB  " << entry.calls << " x " << entry.op
        << (entry.layer.empty() ? "" : " in ") << entry.layer << '\n';
  return out;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
