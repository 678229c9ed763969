#include "core/tape.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "core/kernels/strided.hpp"
#include "core/memory.hpp"
#include "core/ops/elementwise.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

thread_local const char* running_backward_of = nullptr;

// While it lives, messages name this op.
class RunningBackward {
 public:
  explicit RunningBackward(const char* op) : before_(std::exchange(running_backward_of, op)) {}
  ~RunningBackward() { running_backward_of = before_; }
  RunningBackward(const RunningBackward&) = delete;
  RunningBackward& operator=(const RunningBackward&) = delete;

 private:
  const char* before_;
};

std::size_t next_recording() {
  static std::atomic<std::size_t> last{0};
  return ++last;
}

}  // namespace

// ---- the list ---------------------------------------------------------------------------------

Recorder& Recorder::current() {
  thread_local Recorder recorder;
  return recorder;
}

void Recorder::mark_parameter(Variable& x) { x.state().needs_grad = true; }

bool Recorder::check_input(const char* op, const Variable& input) const {
  const Variable::State& state = input.state();
  if (!state.needs_grad) return false;
  if (state.recording != 0 && state.recording != recording_)
    throw TapeError(text(op, ": an input of shape ", input.shape(),
                         " was recorded on a tape that has ended, or of another thread; "
                         "use its value (item, detach) or compute it again"));
  if (sources_ != nullptr) note_source(input);
  return true;
}

// Recording a value again would move it to another place in the list and lose its gradient.
void Recorder::check_fresh(const char* op, const Variable& y) {
  if (y.state().needs_grad || y.state().recording != 0)
    throw TapeError(text(op, ": the result of shape ", y.shape(),
                         " is an input or was recorded before; record() needs a value of its own"));
}

void Recorder::mark(const Variable& y, bool needs_grad) {
  Variable::State& state = y.state();
  state.recording = recording_;
  state.position = nodes_.size();
  state.needs_grad = needs_grad;
}

void Recorder::mark_constant(const Variable& y) {
  if (active()) mark(y, false);
}

bool Recorder::computed_here(const Variable& x) {
  const Recorder& recorder = current();
  return is_intermediate(x, recorder.recording_, recorder.innermost_begin());
}

bool Recorder::is_parameter(const Variable& x) {
  return x.state().needs_grad && x.state().recording == 0;
}

bool Recorder::is_intermediate(const Variable& x, std::size_t recording, std::size_t begin) {
  const Variable::State& state = x.state();
  return state.needs_grad && state.recording != 0 && state.recording == recording &&
         state.position >= begin;
}

bool Recorder::wants(const char* op, const Variable& y,
                     std::initializer_list<const Variable*> inputs) {
  bool wanted = false;
  for (const Variable* input : inputs) wanted |= check_input(op, *input);
  return mark_result(op, y, wanted);
}

bool Recorder::wants(const char* op, const Variable& y, const std::vector<Variable>& inputs) {
  bool wanted = false;
  for (const Variable& input : inputs) wanted |= check_input(op, input);
  return mark_result(op, y, wanted);
}

bool Recorder::mark_result(const char* op, const Variable& y, bool wanted) {
  check_fresh(op, y);
  mark(y, wanted);
  if (!wanted) MemoryTrace::close(op, false);
  return wanted;
}

void Recorder::append(std::unique_ptr<Node> node) {
  MemoryTrace::close(node->op, true);
  nodes_.push_back(std::move(node));
}

Target::Target(const Variable& input, bool broadcast)
    : position_(input.state().position), shape_(input.shape()), broadcast_(broadcast) {
  const Recorder& recorder = Recorder::current();
  if (!Recorder::is_intermediate(input, recorder.recording_, recorder.innermost_begin()))
    kept_ = input;
}

// ---- the walk back ----------------------------------------------------------------------------

// One run from y to the start of a tape. Gradients of recorded values wait in a slot per node;
// those of parameters, and of values recorded before the tape, collect in the result.
class Recorder::Walk final : public GradientSink {
 public:
  Walk(Recorder& recorder, Tape& tape, bool record_backward, After after)
      : recorder_(recorder),
        begin_(tape.begin_),
        end_(recorder.nodes_.size()),
        record_backward_(record_backward),
        free_nodes_(after == After::consume && recorder.tapes_.size() == 1),
        pending_(end_ - begin_) {
    result_.recording_ = recorder.recording_;
    result_.begin_ = begin_;
    for (const Variable& x : tape.watched_) {
      Gradients::Entry& entry = result_.entries_[x.id()] = {x, Variable()};
      if (is_intermediate(x, recorder.recording_, begin_))
        watched_[x.state().position] = &entry.gradient;
    }
  }

  Gradients run(const Variable& y, Variable seed) {
    const RunningBackward none(nullptr);
    add(Target(y), std::move(seed));
    for (std::size_t i = end_; i-- > begin_;) {
      const Variable gy = std::exchange(pending_[i - begin_], Variable());
      if (gy.holds_value()) run_node(i, gy);
      if (free_nodes_) recorder_.nodes_[i].reset();
    }
    return std::move(result_);
  }

  void add(const Target& input, Variable gradient) override {
    if (!gradient.holds_value())
      throw TapeError(text(running_backward_of ? running_backward_of : "gradients",
                           ": a derivative returned no value"));
    if (input.broadcast_) gradient = sum_to(gradient, input.shape_);
    check_shape(gradient.shape() == input.shape_,
                running_backward_of ? running_backward_of : "gradients",
                ": the derivative returned shape ", gradient.shape(), " for an input of shape ",
                input.shape_);
    accumulate(place_of(input), std::move(gradient));
  }

  Array* sum_of(const Target& input) override {
    Variable& sum = place_of(input);
    return may_write_to(sum) ? &sum.state_->value : nullptr;
  }

 private:
  // Where the gradient of an input collects.
  Variable& place_of(const Target& input) {
    const Variable& kept = input.kept_;
    check_unchanged(input);
    if (!kept.holds_value() || is_intermediate(kept, recorder_.recording_, begin_))
      return pending_[input.position_ - begin_];
    return result_.entries_.try_emplace(kept.id(), Gradients::Entry{kept, {}})
        .first->second.gradient;
  }

  static void check_unchanged(const Target& input) {
    if (input.kept_.holds_value() && input.kept_.shape() != input.shape_)
      throw ShapeError(text(running_backward_of ? running_backward_of : "gradients",
                            ": an input's shape was changed after the call: it was ", input.shape_,
                            " and is ", input.kept_.shape()));
  }

  // Whether a sum belongs to this walk alone.
  bool may_write_to(const Variable& sum) const {
    return !record_backward_ && sum.holds_value() && sum.state_.use_count() == 1;
  }

  void run_node(std::size_t position, const Variable& gy) {
    if (const auto watched = watched_.find(position); watched != watched_.end())
      *watched->second = gy;
    if (recorder_.nodes_[position] == nullptr)
      throw TapeError(
          "gradients: a value from inside checkpoint() was used outside of it; return it instead");
    Node& node = *recorder_.nodes_[position];
    const RunningBackward named(node.op);
    node.backward(gy, *this);
  }

  // The one place where gradients are added up.
  void accumulate(Variable& sum, Variable gradient) {
    if (!sum.holds_value()) {
      sum = std::move(gradient);
    } else if (may_write_to(sum)) {
      kernels::add_into(gradient.value().data(), sum.state_->value.data(), gradient.size());
    } else {
      sum = attngrad::add(sum, gradient);
    }
  }

  Recorder& recorder_;
  std::size_t begin_, end_;
  bool record_backward_, free_nodes_;
  std::vector<Variable> pending_;
  Gradients result_;
  // by position: where the result wants the gradient of that value
  std::unordered_map<std::size_t, Variable*> watched_;
};

void Recorder::check_may_differentiate(const Tape& tape, const Variable& y,
                                       const Shape& seed) const {
  if (std::find(tapes_.begin(), tapes_.end(), &tape) == tapes_.end())
    throw TapeError("gradients: this tape belongs to another thread");
  if (tapes_.back() != &tape)
    throw TapeError("gradients: a tape opened later in this thread still records");
  if (tape.consumed_)
    throw TapeError("gradients: this tape is used up; pass `keep` to the first call to ask again");
  const Variable::State& state = y.state();
  const bool here =
      state.recording == recording_ && (!state.needs_grad || state.position >= tape.begin_);
  if (!here && !is_parameter(y))
    throw TapeError("gradients: the loss was not computed under this tape");
  check_shape(seed == y.shape(), "gradients: seed must be ", y.shape(), " like y, got ", seed);
}

Gradients Recorder::differentiate(Tape& tape, const Variable& y, const Variable& seed,
                                  After after) {
  check_may_differentiate(tape, y, seed.shape());
  tape.consumed_ = after == After::consume;
  if (!y.needs_grad()) return {};
  Walk walk(*this, tape, tapes_.size() > 1 && paused_ == 0, after);
  if (tapes_.size() > 1) return walk.run(y, seed);
  Pause no_recording;
  return walk.run(y, seed);
}

// ---- what a user sees -------------------------------------------------------------------------

Tape::Tape() : begin_(0) {
  Recorder& recorder = Recorder::current();
  paused_outside_ = std::exchange(recorder.paused_, 0);
  if (recorder.tapes_.empty()) recorder.recording_ = next_recording();
  begin_ = recorder.nodes_.size();
  recorder.tapes_.push_back(this);
}

Tape::~Tape() {
  Recorder& recorder = Recorder::current();
  if (std::erase(recorder.tapes_, this) == 0) {  // the list that names it cannot be reached
    std::fputs("attngrad: a tape was destroyed in a thread other than its own\n", stderr);
    std::abort();
  }
  recorder.paused_ = paused_outside_;
  if (!recorder.tapes_.empty()) return;  // an outer tape may still need what was recorded here
  while (!recorder.nodes_.empty()) recorder.nodes_.pop_back();
  recorder.recording_ = 0;
  MemoryTrace::forget_values();
}

Gradients Tape::gradients(const Variable& loss, After after) {
  check_shape(loss.size() == 1, "gradients: the loss must have one element, got shape ",
              loss.shape());
  Variable seed(ones(loss.shape()));
  Recorder::current().mark_constant(seed);
  return Recorder::current().differentiate(*this, loss, seed, after);
}

Gradients Tape::gradients(const Variable& y, const Variable& seed, After after) {
  return Recorder::current().differentiate(*this, y, seed, after);
}

void Tape::watch(const Variable& x) { watched_.push_back(x); }

std::size_t Tape::size() const { return Recorder::current().nodes_.size() - begin_; }

Pause::Pause() { ++Recorder::current().paused_; }
Pause::~Pause() { --Recorder::current().paused_; }

bool recording() { return Recorder::current().active(); }

Saved::Saved(const Variable& x) {
  if (!recording()) return;
  variable_ = x;
  version_ = x.version();
  MemoryTrace::note(x);
}

void detail::edge_saved(const Variable& input) { MemoryTrace::close_edge(input); }

void saves_bytes(std::size_t bytes) {
  if (recording()) MemoryTrace::note(bytes);
}

const Variable& Saved::operator()() const {
  if (variable_.version() != version_)
    throw TapeError(text(running_backward_of ? running_backward_of : "saved", ": a value of shape ",
                         variable_.shape(),
                         " that the derivative needs was changed after it was recorded"));
  return variable_;
}

Variable Gradients::of(const Variable& x) const {
  const auto found = entries_.find(x.id());
  if (found != entries_.end() && found->second.gradient.holds_value())
    return found->second.gradient;
  if (found == entries_.end() && Recorder::is_intermediate(x, recording_, begin_))
    throw TapeError(text("of: the gradient of an intermediate value of shape ", x.shape(),
                         " was not kept; name it to Tape::watch before asking for gradients"));
  const Entry fresh{x, Variable(zeros(x.shape()))};
  const Variable& zero = zeros_.try_emplace(x.id(), fresh).first->second.gradient;
  Recorder::current().mark_constant(zero);
  return zero;
}

bool Gradients::reached(const Variable& x) const {
  const auto found = entries_.find(x.id());
  return found != entries_.end() && found->second.gradient.holds_value();
}

Gradients& Gradients::operator+=(const Gradients& other) {
  if (recording_ == 0) std::tie(recording_, begin_) = std::tie(other.recording_, other.begin_);
  for (const auto& [id, entry] : other.entries_) {
    if (!entry.gradient.holds_value()) continue;  // watched, but not reached
    Entry& mine = entries_.try_emplace(id, Entry{entry.input, {}}).first->second;
    mine.gradient =
        mine.gradient.holds_value() ? add(mine.gradient, entry.gradient) : entry.gradient;
  }
  return *this;
}

Gradients& Gradients::scale(Real factor) {
  for (auto& [id, entry] : entries_)
    if (entry.gradient.holds_value()) entry.gradient = multiply(entry.gradient, factor);
  return *this;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
