// Reductions and running sums.
#include "core/ops/reduce.hpp"

#include <limits>

#include "core/ops/elementwise.hpp"
#include "core/ops/shape.hpp"
#include "onnx_conformance/call.hpp"

namespace conformance {
namespace {

using Reduce = Variable (*)(const Variable&, const ag::Axes&, ag::Dims);

// max or min, which ONNX defines for nothing too.
template <Variable (*f)(const Variable&, const ag::Axes&, ag::Dims), int sign>
Variable extreme(const Variable& x, const ag::Axes& axes, ag::Dims dims) {
  if (x.size() > 0) return f(x, axes, dims);
  const Shape shape = ag::sum(x, axes, dims).shape();
  return Variable(ag::filled(shape, sign * std::numeric_limits<Real>::infinity()));
}

Variable product(const Variable& x, const ag::Axes& axes, ag::Dims dims) {
  const std::vector<bool> reduced = axes.flags("ReduceProd", x.rank());
  Variable y = x;
  for (std::ptrdiff_t axis = std::ptrdiff_t(x.rank()) - 1; axis >= 0; --axis) {
    if (!reduced[std::size_t(axis)]) continue;
    Shape rest = y.shape();
    rest.erase(rest.begin() + axis);
    Variable all(ag::ones(rest));
    for (std::size_t i = 0; i < y.size(axis); ++i)
      all = all * ag::select(y, axis, std::ptrdiff_t(i));
    y = dims == ag::keep_dims ? ag::expand_dims(all, axis) : all;
  }
  return y;
}

Variable absolute_sum(const Variable& x, const ag::Axes& axes, ag::Dims dims) {
  return ag::sum(ag::abs(x), axes, dims);
}
Variable sum_square(const Variable& x, const ag::Axes& axes, ag::Dims dims) {
  return ag::sum(ag::square(x), axes, dims);
}
Variable norm(const Variable& x, const ag::Axes& axes, ag::Dims dims) {
  return ag::sqrt(sum_square(x, axes, dims));
}
Variable log_sum(const Variable& x, const ag::Axes& axes, ag::Dims dims) {
  return ag::log(ag::sum(x, axes, dims));
}

// Over no axis the function of each element remains, such as its square: that is the reduction over
// an axis of size 1.
Variable of_each(Reduce f, const Variable& x) {
  return f(ag::expand_dims(x, 0), 0, ag::Dims::drop);
}

Mapping reduction(Reduce f) {
  return [f](const Call& call) -> std::vector<Value> {
    const Variable x = call[0];
    const ag::Dims dims = call.flag("keepdims", true) ? ag::Dims::keep : ag::Dims::drop;
    const bool nothing_if_empty = call.flag("noop_with_empty_axes");
    const auto axes = call.integers("axes", 1);
    if (call.value(0).integers() && f == Reduce(ag::mean))
      throw Skip("mean of integers, which rounds");
    if (axes && !axes->empty()) return {f(x, *axes, dims)};
    return {nothing_if_empty ? of_each(f, x) : f(x, {}, dims)};
  };
}

Variable reversed(const Variable& x, std::ptrdiff_t axis) {
  return ag::slice(x, axis, {.step = -1});
}

std::vector<Value> running_sum(const Call& call) {
  const std::ptrdiff_t axis = std::ptrdiff_t(call.scalar(1));
  const bool reverse = call.flag("reverse"), exclusive = call.flag("exclusive");
  Variable x = reverse ? reversed(call[0], axis) : call[0];
  if (exclusive && x.size(axis) > 0) {  // a 0 comes first, and the last element is not counted
    const Variable zero(ag::zeros(ag::slice(x, axis, {.stop = 1}).shape()));
    x = ag::concatenate({zero, ag::slice(x, axis, {.stop = -1})}, axis);
  }
  const Variable y = ag::cumsum(x, axis);
  return {reverse ? reversed(y, axis) : y};
}

}  // namespace

void add_reductions(Mappings& mappings) {
  for (const auto& [op, f] : std::map<std::string, Reduce>{{"ReduceL1", absolute_sum},
                                                           {"ReduceL2", norm},
                                                           {"ReduceLogSum", log_sum},
                                                           {"ReduceLogSumExp", ag::logsumexp},
                                                           {"ReduceMax", extreme<ag::max, -1>},
                                                           {"ReduceMean", ag::mean},
                                                           {"ReduceMin", extreme<ag::min, 1>},
                                                           {"ReduceProd", product},
                                                           {"ReduceSum", ag::sum},
                                                           {"ReduceSumSquare", sum_square}})
    mappings[op] = reduction(f);
  mappings["CumSum"] = running_sum;
}

}  // namespace conformance
