#include "core/recompute.hpp"

#include <algorithm>

#include "core/capture.hpp"
#include "core/memory.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

// While it lives, the generator stands where it stood at `then`; afterwards it stands where it was.
class RandomRestored {
 public:
  RandomRestored(Rng* rng, const Rng& then) : rng_(rng), now_(then) {
    if (rng_ != nullptr) std::swap(*rng_, now_);
  }
  ~RandomRestored() {
    if (rng_ != nullptr) std::swap(*rng_, now_);
  }
  RandomRestored(const RandomRestored&) = delete;
  RandomRestored& operator=(const RandomRestored&) = delete;

 private:
  Rng* rng_;
  Rng now_;
};

// y as the result of an op of this tape, also where f returned an input or what it had captured.
Variable computed_here(const Variable& y) {
  if (Recorder::computed_here(y)) return y;
  return record("checkpoint", Variable(y.value()), edge(y, [](const Variable& g) { return g; }));
}

}  // namespace

Variable checkpoint_list(std::function<Variable(const std::vector<Variable>&)> f,
                         std::vector<Variable> inputs, Rng* rng) {
  check_argument(f != nullptr, "checkpoint: needs a function");
  if (!recording()) return f(inputs);
  const Rng then = rng != nullptr ? *rng : Rng(0);
  auto [y, sources] = Recorder::run_and_forget([&](Tape&) { return computed_here(f(inputs)); });

  const auto again = [f = std::move(f), inputs = std::move(inputs), rng, then] {
    const RandomRestored restored(rng, then);
    const Capture::Suspended seen_before;
    return computed_here(f(inputs));
  };
  const auto backward = [again, sources = sources](const Array& gy) {
    std::vector<Array> gradients;
    Recorder::run_and_forget([&](Tape& tape) {
      const Variable result = again();
      const Pause arrays_only;
      const Gradients g = tape.gradients(result, Variable(gy));
      for (const Variable& source : sources) gradients.push_back(g.of(source).value());
      return result;
    });
    return gradients;
  };
  return record_joint("checkpoint", std::move(y), std::move(sources), backward,
                      [again](const std::vector<Variable>&) { return again(); });
}

Recorder::Forgotten Recorder::run_and_forget(const std::function<Variable(Tape&)>& body) {
  Recorder& recorder = current();
  // Forgets in any case. The places in the list stay taken, so that a value that escapes from the
  // body never stands for another.
  struct Forget {
    Recorder& recorder;
    std::size_t begin = recorder.nodes_.size();
    Sources sources{begin, {}};
    Sources* outer = std::exchange(recorder.sources_, &sources);
    ~Forget() {
      recorder.sources_ = outer;
      for (std::size_t i = begin; i < recorder.nodes_.size(); ++i) recorder.nodes_[i].reset();
    }
  };
  Variable y;
  std::vector<Variable> sources;
  {
    const MemoryTrace::Suspended nothing_stays;
    Forget forget{recorder};
    Tape tape;
    y = body(tape);
    sources = std::move(forget.sources.found);
  }
  const bool ours_alone = y.state_.use_count() == 1;
  return {Variable(ours_alone ? std::move(y.state().value) : y.value()), std::move(sources)};
}

void Recorder::note_source(const Variable& input) const {
  if (is_intermediate(input, recording_, sources_->begin)) return;
  const bool known = std::any_of(sources_->found.begin(), sources_->found.end(),
                                 [&](const Variable& x) { return x.same_as(input); });
  if (!known) sources_->found.push_back(input);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
