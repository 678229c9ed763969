// Tape, Pause, Gradients, record() and record_joint(): the whole engine.
//
// A thread has one list of recorded ops. Ops are appended as they run, so creation order is
// topological order: a gradient is one loop from the end of the list, without a sort, a recursion
// or a visited set, and freeing a step is cutting the list. An op hands the engine one derivative
// per input; the engine alone adds gradients up.
//
//   Tape tape;                                  // from here on this thread records
//   Variable loss = mean_square(model(x), y);
//   Gradients gradients = tape.gradients(loss); // uses the tape up
//   gradients.of(w)                             // the gradient of loss with respect to parameter w
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/variable.hpp"

namespace attngrad {

// Whether Tape::gradients may be asked again.
enum class After { consume, keep };
inline constexpr After keep = After::keep;

inline namespace ATTNGRAD_PRECISION {

class Recorder;

// What Tape::gradients returns: a gradient for each parameter the loss depends on.
class Gradients {
 public:
  // The gradient with respect to x, shaped like x; zeros if the loss does not depend on x. While an
  // outer tape records, the gradient can itself be differentiated. Inputs of one sum may share one
  // gradient, so change a copy of it only. Throws TapeError for an intermediate value that was not
  // watched.
  Variable of(const Variable& x) const;
  // Whether the loss depends on x through what was recorded.
  bool reached(const Variable& x) const;

  // Adds the gradients of another loss, as for a batch in several parts.
  Gradients& operator+=(const Gradients& other);
  // Multiplies every gradient by factor.
  Gradients& scale(Real factor);

 private:
  friend class Recorder;
  struct Entry {
    Variable input, gradient;
  };
  std::unordered_map<const void*, Entry> entries_;
  // the zeros handed out, so that a reference to their value lives as long as that of a gradient
  mutable std::unordered_map<const void*, Entry> zeros_;
  std::size_t recording_ = 0, begin_ = 0;  // of the tape it came from
};

// Records the ops of this thread until its scope ends. Without a tape nothing is recorded.
//
// Tapes nest: an inner tape's gradients walk back to where it began, and what they compute is
// recorded for the outer tape, which can differentiate it again.
class Tape {
 public:
  Tape();
  ~Tape();  // in the thread that opened it; in another the program is aborted
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Gradients of a loss with one element. Uses the tape up, freeing what ops saved on the way; with
  // `keep` it can be asked again. To differentiate a gradient, open an outer tape: this one does
  // not record its own walk. Throws ShapeError if loss has more than one element; TapeError if the
  // tape is used up, if loss was not computed under this tape, if a later tape of this thread still
  // records, or if a saved value has been edited since.
  Gradients gradients(const Variable& loss, After after = After::consume);
  // The same for y of any shape: gradients of sum(y * seed), a vector-Jacobian product. seed:
  // shaped like y.
  Gradients gradients(const Variable& y, const Variable& seed, After after = After::consume);

  // Asks that the gradient of an intermediate value be returned too.
  void watch(const Variable& x);

  // How many ops this tape has recorded.
  std::size_t size() const;

 private:
  friend class Recorder;
  std::size_t begin_;  // where in the thread's list it started
  std::size_t paused_outside_ = 0;
  bool consumed_ = false;
  std::vector<Variable> watched_;
};

// Stops recording in this thread until its scope ends, or until a tape is opened inside.
class Pause {
 public:
  Pause();
  ~Pause();
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
};

// Whether an op run now, in this thread, would be recorded.
bool recording();

// What a derivative keeps for later: nothing while no tape records. Reading it throws TapeError if
// the value has been edited since it was saved.
class Saved {
 public:
  explicit Saved(const Variable& x);
  const Variable& operator()() const;

 private:
  Variable variable_;
  std::size_t version_ = 0;
};
inline Saved saved(const Variable& x) { return Saved(x); }
// Tells a running MemoryTrace that the op about to be recorded keeps so many bytes besides what it
// saved().
void saves_bytes(std::size_t bytes);
// Indices or flags that derivatives keep: one copy for all of them; null unless a tape records.
template <class T>
std::shared_ptr<const ArrayOf<T>> saved(const ArrayOf<T>& integers) {
  static_assert(std::is_integral_v<T>, "numbers are saved as a Variable");
  if (!recording()) return nullptr;
  saves_bytes(integers.size() * sizeof(T));
  return std::make_shared<const ArrayOf<T>>(integers);
}

namespace detail {
// Tells a running MemoryTrace whose derivative keeps what was saved() since the last call.
void edge_saved(const Variable& input);
}  // namespace detail

// One input of an op with the derivative with respect to it: from the gradient of the output to
// that of the input. A derivative is written with differentiable ops, so gradients of gradients
// need nothing more. Made where record() is called and gone with that call: the input is not
// copied.
template <class Derivative>
struct Edge {
  const Variable& input;
  Derivative derivative;  // Variable(const Variable& gy)
  bool broadcast;
};
template <class Derivative>
Edge<Derivative> edge(const Variable& input, Derivative derivative) {
  detail::edge_saved(input);
  return {input, std::move(derivative), false};
}
// The same for an input that was broadcast: the derivative may be shaped like the output, and the
// engine sums it over what was repeated.
template <class Derivative>
Edge<Derivative> broadcast_edge(const Variable& input, Derivative derivative) {
  detail::edge_saved(input);
  return {input, std::move(derivative), true};
}

// Where the gradient of one input goes. A value computed under the innermost tape is found by its
// place in the list and not kept alive: what no derivative saved is freed as soon as the caller
// drops it.
class Target {
 public:
  explicit Target(const Variable& input, bool broadcast = false);

 private:
  friend class Recorder;
  Variable kept_;  // any other input
  std::size_t position_;
  Shape shape_;
  bool broadcast_;  // a gradient of a larger shape is summed to this one
};

// Takes one gradient to where it belongs.
class GradientSink {
 public:
  virtual void add(const Target& input, Variable gradient) = 0;
  // What has been added there, for who would add to it in place; null if that is nothing, or if it
  // may not be written to.
  virtual Array* sum_of(const Target& input) = 0;

 protected:
  ~GradientSink() = default;
};

// One recorded op.
class Node {
 public:
  explicit Node(const char* op) : op(op) {}
  virtual ~Node() = default;
  virtual void backward(const Variable& gy, GradientSink& sink) = 0;

  // Nodes come and go by the million: the pool has them at hand.
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* node, std::size_t size) { pool_deallocate(node, size); }

  const char* op;
};

// The thread's list of nodes and what is said about it; ops reach it through record() and
// record_joint().
class Recorder {
 public:
  static Recorder& current();
  static void mark_parameter(Variable& x);

  bool active() const { return !tapes_.empty() && paused_ == 0; }
  // Marks y as computed under the recording; true if one of the inputs needs a gradient, so that a
  // node is wanted.
  bool wants(const char* op, const Variable& y, std::initializer_list<const Variable*> inputs);
  bool wants(const char* op, const Variable& y, const std::vector<Variable>& inputs);
  void append(std::unique_ptr<Node> node);
  // Marks a value that depends on no parameter as computed under the recording, so that its
  // gradients are zero.
  void mark_constant(const Variable& y);
  // The result of body, run under a tape whose nodes are then dropped, and the variables
  // from before it that need a gradient and were read. (recompute.cpp)
  struct Forgotten {
    Variable result;
    std::vector<Variable> sources;
  };
  static Forgotten run_and_forget(const std::function<Variable(Tape&)>& body);
  // Whether x is the result of an op that the innermost tape recorded.
  static bool computed_here(const Variable& x);
  // Whether x needs a gradient and is the result of no op.
  static bool is_parameter(const Variable& x);
  // Whether x is the result of an op that this recording appended at or after place `begin`.
  static bool is_intermediate(const Variable& x, std::size_t recording, std::size_t begin);

 private:
  friend class Tape;
  friend class Target;
  friend class Pause;
  class Walk;

  std::size_t innermost_begin() const { return tapes_.back()->begin_; }
  bool check_input(const char* op, const Variable& input) const;
  static void check_fresh(const char* op, const Variable& y);
  bool mark_result(const char* op, const Variable& y, bool wanted);
  void mark(const Variable& y, bool needs_grad);
  void check_may_differentiate(const Tape& tape, const Variable& y, const Shape& seed) const;
  Gradients differentiate(Tape& tape, const Variable& y, const Variable& seed, After after);

  struct Sources {
    std::size_t begin;
    std::vector<Variable> found;
  };
  void note_source(const Variable& input) const;

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Tape*> tapes_;
  Sources* sources_ = nullptr;  // of the innermost run_and_forget
  std::size_t paused_ = 0;
  std::size_t recording_ = 0;  // unique over all threads; new with each outermost tape
};

namespace detail {

template <class... Derivatives>
class EdgesNode final : public Node {
 public:
  explicit EdgesNode(const char* op, Edge<Derivatives>... edges)
      : Node(op), routes_(wanted(std::move(edges))...) {}

  void backward(const Variable& gy, GradientSink& sink) override {
    std::apply([&](auto&... route) { (run(route, gy, sink), ...); }, routes_);
  }

 private:
  template <class Derivative>
  struct Route {
    Target input;
    Derivative derivative;
  };
  // An input without a gradient drops its derivative and all that this had saved.
  template <class Derivative>
  static std::optional<Route<Derivative>> wanted(Edge<Derivative>&& edge) {
    if (!edge.input.needs_grad()) return std::nullopt;
    return Route<Derivative>{Target(edge.input, edge.broadcast), std::move(edge.derivative)};
  }
  template <class Derivative>
  static void run(std::optional<Route<Derivative>>& route, const Variable& gy, GradientSink& sink) {
    if (route) sink.add(route->input, route->derivative(gy));
  }

  std::tuple<std::optional<Route<Derivatives>>...> routes_;
};

}  // namespace detail

// Registers y as the result of `op` with one edge for each input, if a tape records and an input
// needs a gradient. op: a string that outlives the tape. y: a fresh value, not an input itself
// (broadcast_to and sum_to return their argument where shapes agree). Returns y. Throws TapeError
// if an input was recorded on a tape that has ended, or if y is not fresh.
template <class... Derivatives>
Variable record(const char* op, Variable y, Edge<Derivatives>... edges) {
  Recorder& recorder = Recorder::current();
  if (recorder.active() &&
      recorder.wants(op, y, std::initializer_list<const Variable*>{&edges.input...}))
    recorder.append(std::make_unique<detail::EdgesNode<Derivatives...>>(op, std::move(edges)...));
  return y;
}

// The same for a list of inputs of any length: derivative(i, gy) is the gradient of inputs[i].
Variable record_list(const char* op, Variable y, std::vector<Variable> inputs,
                     std::function<Variable(std::size_t, const Variable&)> derivative);

// From the gradient of the output to the gradients of all inputs, in order. An input that needs
// none may get an empty (rank 1, size 0) array. list_of(gx, ...) makes the list.
using JointBackward = std::function<std::vector<Array>(const Array& gy)>;
// The same value from differentiable ops.
using Composed = std::function<Variable(const std::vector<Variable>& inputs)>;

// Registers a fused op: one analytic backward that gives the gradients of all inputs at once.
// `composed` computes the same value from differentiable ops; it is the op's second derivative
// (used when an outer tape records) and what the tests hold the backward against. Returns y. Throws
// ArgumentError if backward or composed is empty; TapeError as record().
Variable record_joint(const char* op, Variable y, std::vector<Variable> inputs,
                      JointBackward backward, Composed composed);

// Where a backward that adds in place takes the gradient of an input, shaped like it.
struct GradientPlace {
  Real* data = nullptr;  // null if the input needs none
  bool adds = false;     // to what is there; else every element must be set
};
// From the gradient of the output: sets or adds to the gradients of all inputs.
using InPlaceBackward =
    std::function<void(const Array& gy, const std::vector<GradientPlace>& places)>;

// The same for an op whose inputs go into many others: their gradients need no arrays of their own
// before they are added up.
Variable record_joint_in_place(const char* op, Variable y, std::vector<Variable> inputs,
                               InPlaceBackward backward, Composed composed);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
