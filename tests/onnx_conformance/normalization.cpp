// Softmax and its logarithm, layer norm and RMS norm.
#include <algorithm>

#include "core/ops/elementwise.hpp"
#include "core/ops/normalize.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/shape.hpp"
#include "core/ops/softmax.hpp"
#include "onnx_conformance/call.hpp"

namespace conformance {
namespace {

// x as a matrix, whose rows are the axes from `axis` on.
Variable rows_from(const Variable& x, std::size_t axis) {
  const Shape tail(x.shape().begin() + std::ptrdiff_t(axis), x.shape().end());
  const std::size_t width = ag::element_count(tail);
  return ag::reshape_to(x, {width == 0 ? 0 : x.size() / width, width});
}

Mapping softmax_mapping(Variable (*f)(const Variable&, std::ptrdiff_t)) {
  return [f](const Call& call) -> std::vector<Value> {
    const Variable x = call[0];
    if (call.opset() >= 13) return {f(x, call.integer("axis", -1))};
    const std::size_t axis = ag::check_axis("softmax", call.integer("axis", 1), x.rank());
    return {ag::reshape_to(f(rows_from(x, axis), -1), x.shape())};
  };
}

// Both norms run over all axes from `axis` on.
struct Norm {
  Variable x, rows;
  std::size_t axis;
  Shape normalized;  // the sizes of those axes
  Real epsilon;

  explicit Norm(const Call& call)
      : x(call[0]),
        axis(ag::check_axis("norm", call.integer("axis", -1), x.rank())),
        normalized(x.shape().begin() + std::ptrdiff_t(axis), x.shape().end()),
        epsilon(Real(call.number("epsilon", 1e-5))) {
    call.integer("stash_type", 1);  // all sums of the library run in double
    rows = rows_from(x, axis);
  }
  std::size_t width() const { return rows.shape()[1]; }

  // Whether the scale serves each row, as the library's gain does; else it is multiplied
  // afterwards.
  bool is_row(const Variable& scale) const { return scale.rank() <= normalized.size(); }
  Variable row(const Variable& scale) const {
    return ag::reshape_to(ag::broadcast_to(scale, normalized), {width()});
  }
  Variable ones() const { return Variable(ag::ones({width()})); }
  // A number for each row, with the reduced axes of size 1.
  Variable statistic(const Variable& each) const {
    Shape shape = x.shape();
    std::fill(shape.begin() + std::ptrdiff_t(axis), shape.end(), 1);
    return ag::reshape_to(each, shape);
  }
};

std::vector<Value> layer_normalization(const Call& call) {
  const Norm norm(call);
  const Variable scale = call[1], shift = call.has(2) ? call[2] : Variable();
  const bool fused = norm.is_row(scale) && (!call.has(2) || norm.is_row(shift));
  Variable y = ag::layer_norm(norm.rows, fused ? norm.row(scale) : norm.ones(),
                              fused && call.has(2) ? norm.row(shift) : Variable(), norm.epsilon);
  y = ag::reshape_to(y, norm.x.shape());
  if (!fused) y = y * scale;
  if (!fused && call.has(2)) y = y + shift;
  const Variable deviation = ag::rsqrt(ag::variance(norm.rows, -1) + norm.epsilon);
  return {y, norm.statistic(ag::mean(norm.rows, -1)), norm.statistic(deviation)};
}

std::vector<Value> rms_normalization(const Call& call) {
  const Norm norm(call);
  const Variable scale = call[1];
  const bool fused = norm.is_row(scale);
  const Variable y = ag::rms_norm(norm.rows, fused ? norm.row(scale) : norm.ones(), norm.epsilon);
  const Variable shaped = ag::reshape_to(y, norm.x.shape());
  return {fused ? shaped : shaped * scale};
}

}  // namespace

void add_normalization(Mappings& mappings) {
  mappings["Softmax"] = softmax_mapping(ag::softmax);
  mappings["LogSoftmax"] = softmax_mapping(ag::log_softmax);
  mappings["LayerNormalization"] = layer_normalization;
  mappings["RMSNormalization"] = rms_normalization;
}

}  // namespace conformance
