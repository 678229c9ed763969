#include "core/ops/elementwise.hpp"

#include <cmath>

#include "core/kernels/formulas.hpp"
#include "core/kernels/strided.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::broadcast_strides;
using kernels::task_size;
using kernels::vector_kernels;

// An array filled by run(begin, y, count), for pieces y of count elements from begin on.
template <class Run>
Array filled_in_pieces(const Shape& shape, const Run& run) {
  Array y = uninitialized(shape);
  parallel_chunks(y.size(), task_size, [&](std::size_t begin, std::size_t end) {
    run(begin, y.data() + begin, end - begin);
  });
  return y;
}

// y = f(x) by the loop of the formula.
template <class Formula>
Array unary_value(const Array& x) {
  const auto loop = vector_kernels<Real>().unary[formula::Unary::index_of<Formula>()];
  return filled_in_pieces(x.shape(), [&](std::size_t begin, Real* y, std::size_t count) {
    loop(x.data() + begin, y, count);
  });
}

template <class Formula>
Variable unary_gradient(const Variable& g, const Variable& of) {
  if (recording()) return chain(g, Formula::slope(of));
  const auto loop = vector_kernels<Real>().unary_slope[formula::Unary::index_of<Formula>()];
  return Variable(filled_in_pieces(g.shape(), [&](std::size_t begin, Real* gx, std::size_t count) {
    loop(g.value().data() + begin, of.value().data() + begin, gx, count);
  }));
}

template <class Formula>
Variable unary(const char* op, const Variable& x) {
  Variable y(unary_value<Formula>(x.value()));
  const Variable& of = Formula::slope_of == formula::SlopeOf::input ? x : y;
  return record(op, y, edge(x, [of = saved(of)](const Variable& g) {
                  return unary_gradient<Formula>(g, of());
                }));
}

Variable binary(kernels::Binary loop, const char* op, const Variable& a, const Variable& b) {
  if (a.shape() == b.shape()) {  // the usual case, without strides
    const auto run = vector_kernels<Real>().binary[std::size_t(loop)];
    return Variable(filled_in_pieces(a.shape(), [&](std::size_t begin, Real* y, std::size_t count) {
      run({a.value().data() + begin, 1}, {b.value().data() + begin, 1}, y, count);
    }));
  }
  const Shape shape = broadcast_shape(op, a.shape(), b.shape());
  Array y = uninitialized(shape);
  kernels::binary(loop, shape, a.value().data(), broadcast_strides(a.shape(), shape),
                  b.value().data(), broadcast_strides(b.shape(), shape), y.data());
  return Variable(std::move(y));
}

// y[i] = f(a[i], b[i]), broadcast, for functions that have no vectorised loop.
template <class F>
Array map_pairs(const Shape& shape, const Array& a, const Array& b, F f) {
  Array y = uninitialized(shape);
  kernels::StridedLoop<3>(shape, {broadcast_strides(a.shape(), shape),
                                  broadcast_strides(b.shape(), shape), kernels::row_major(shape)})
      .run([&](auto at, auto steps, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          y.data()[at[2] + std::ptrdiff_t(i)] = f(a.data()[at[0] + std::ptrdiff_t(i) * steps[0]],
                                                  b.data()[at[1] + std::ptrdiff_t(i) * steps[1]]);
      });
  return y;
}

template <class F>
Array map_one(const Array& x, F f) {
  return map_pairs(x.shape(), x, x, [f](Real v, Real) { return f(v); });
}

// scale * x + shift
Variable affine(const Variable& x, Real scale, Real shift) {
  return Variable(filled_in_pieces(x.shape(), [&](std::size_t begin, Real* y, std::size_t count) {
    vector_kernels<Real>().scale(x.value().data() + begin, scale, shift, y, count);
  }));
}

}  // namespace

// ---- arithmetic -------------------------------------------------------------------------------

Variable add(const Variable& a, const Variable& b) {
  Variable y = binary(kernels::Binary::add, "add", a, b);
  return record("add", std::move(y),  //
                broadcast_edge(a, [](const Variable& g) { return g; }),
                broadcast_edge(b, [](const Variable& g) { return g; }));
}

Variable subtract(const Variable& a, const Variable& b) {
  Variable y = binary(kernels::Binary::subtract, "subtract", a, b);
  return record("subtract", std::move(y),  //
                broadcast_edge(a, [](const Variable& g) { return g; }),
                broadcast_edge(b, [](const Variable& g) { return negate(g); }));
}

Variable multiply(const Variable& a, const Variable& b) {
  Variable y = binary(kernels::Binary::multiply, "multiply", a, b);
  // each factor sees the gradient scaled by the other
  return record("multiply", std::move(y),
                broadcast_edge(a, [b = saved(b)](const Variable& g) { return chain(g, b()); }),
                broadcast_edge(b, [a = saved(a)](const Variable& g) { return chain(g, a()); }));
}

Variable divide(const Variable& a, const Variable& b) {
  Variable y = binary(kernels::Binary::divide, "divide", a, b);
  return record("divide", y,  //
                broadcast_edge(a, [b = saved(b)](const Variable& g) { return chain(g, 1 / b()); }),
                broadcast_edge(b, [b = saved(b), y = saved(y)](const Variable& g) {
                  return chain(g, negate(y() / b()));
                }));
}

Variable add(const Variable& a, Real b) {
  return record("add", affine(a, 1, b), edge(a, [](const Variable& g) { return g; }));
}

Variable multiply(const Variable& a, Real b) {
  return record("multiply", affine(a, b, 0), edge(a, [b](const Variable& g) {
                  return std::isfinite(b) ? multiply(g, b) : chain(g, Variable(b));
                }));
}

Variable negate(const Variable& x) {
  return record("negate", affine(x, -1, 0), edge(x, [](const Variable& g) { return negate(g); }));
}

Variable operator-(Real a, const Variable& b) {
  return record("subtract", affine(b, -1, a), edge(b, [](const Variable& g) { return negate(g); }));
}

Variable operator/(Real a, const Variable& b) {
  // a reciprocal saves only its result; as a step to other quotients it would overflow early and
  // round twice
  return a == Real(1) ? unary<formula::Reciprocal>("divide", b) : divide(Variable(a), b);
}

namespace {

// y log a, and 0 where a is 0 (there the slope with respect to the exponent is taken as 0)
Variable power_times_log(const Variable& y, const Variable& a) {
  const Shape shape = broadcast_shape("pow", y.shape(), a.shape());
  Variable base = broadcast_to(a, shape);
  const Bools zero = xt::equal(base.value(), Real(0));
  return where(zero, Variable(Real(0)), y * log(where(zero, Variable(Real(1)), base)));
}

// b a^(b-1), and 0 where b is 0
Variable power_slope(const Variable& a, const Variable& b) {
  const Bools zero = xt::equal(b.value(), Real(0));
  return where(zero, Variable(Real(0)), b * pow(a, b - Real(1)));
}

}  // namespace

Variable pow(const Variable& a, const Variable& b) {
  const Shape shape = broadcast_shape("pow", a.shape(), b.shape());
  Variable y(map_pairs(shape, a.value(), b.value(), [](Real u, Real v) { return std::pow(u, v); }));
  return record(
      "pow", y,
      broadcast_edge(a, [a = saved(a), b = saved(b)](
                            const Variable& g) { return chain(g, power_slope(a(), b())); }),
      broadcast_edge(b, [a = saved(a), y = saved(y)](const Variable& g) {
        return chain(g, power_times_log(y(), a()));
      }));
}

Variable pow(const Variable& a, Real b) {
  Variable y(map_one(a.value(), [b](Real u) { return std::pow(u, b); }));
  return record("pow", y, edge(a, [a = saved(a), b](const Variable& g) {
                  return b == Real(0) ? multiply(g, 0) : chain(g, b * pow(a(), b - 1));
                }));
}

namespace {

// The share of the gradient that `a` gets of the larger of both: 1, 0, or half at a tie.
Variable share_of_larger(const Variable& a, const Variable& b) {
  const Shape shape = broadcast_shape("maximum", a.shape(), b.shape());
  return Variable(map_pairs(shape, a.value(), b.value(), [](Real u, Real v) {
    return u > v ? Real(1) : u == v ? Real(0.5) : Real(0);
  }));
}

}  // namespace

Variable maximum(const Variable& a, const Variable& b) {
  Variable y = binary(kernels::Binary::maximum, "maximum", a, b);
  return record(
      "maximum", std::move(y),
      broadcast_edge(a, [a = saved(a), b = saved(b)](
                            const Variable& g) { return chain(g, share_of_larger(a(), b())); }),
      broadcast_edge(b, [a = saved(a), b = saved(b)](const Variable& g) {
        return chain(g, share_of_larger(b(), a()));
      }));
}

Variable minimum(const Variable& a, const Variable& b) {
  Variable y = binary(kernels::Binary::minimum, "minimum", a, b);
  return record(
      "minimum", std::move(y),
      broadcast_edge(a, [a = saved(a), b = saved(b)](
                            const Variable& g) { return chain(g, share_of_larger(b(), a())); }),
      broadcast_edge(b, [a = saved(a), b = saved(b)](const Variable& g) {
        return chain(g, share_of_larger(a(), b()));
      }));
}

Variable clamp(const Variable& x, Real low, Real high) {
  check_argument(low <= high, "clamp: low must not exceed high, got ", low, " and ", high);
  Variable y(map_one(x.value(), [=](Real v) { return v < low ? low : v > high ? high : v; }));
  return record(
      "clamp", y, edge(x, [x = saved(x), low, high](const Variable& g) {
        return chain(
            g, Variable(map_one(x().value(), [=](Real v) { return Real(low <= v && v <= high); })));
      }));
}

Variable Where::operator()(const Bools& condition, const Variable& a, const Variable& b) const {
  const Shape both = broadcast_shape("where", a.shape(), b.shape());
  const Shape shape = broadcast_shape("where", condition.shape(), both);
  Array y = uninitialized(shape);
  kernels::StridedLoop<4>(shape,
                          {broadcast_strides(a.shape(), shape), broadcast_strides(b.shape(), shape),
                           broadcast_strides(condition.shape(), shape), kernels::row_major(shape)})
      .run([&](auto at, auto steps, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          const auto j = std::ptrdiff_t(i);
          y.data()[at[3] + j] = condition.data()[at[2] + j * steps[2]]
                                    ? a.value().data()[at[0] + j * steps[0]]
                                    : b.value().data()[at[1] + j * steps[1]];
        }
      });
  const auto kept = saved(condition);
  return record(
      "where", Variable(std::move(y)),
      broadcast_edge(a, [kept](const Variable& g) { return where(*kept, g, Variable(Real(0))); }),
      broadcast_edge(b, [kept](const Variable& g) { return where(*kept, Variable(Real(0)), g); }));
}

Bools greater(const Variable& x, Real threshold) { return xt::greater(x.value(), threshold); }

// ---- functions of one argument ----------------------------------------------------------------

Variable square(const Variable& x) { return unary<formula::Square>("square", x); }
Variable exp(const Variable& x) { return unary<formula::Exp>("exp", x); }
Variable log(const Variable& x) { return unary<formula::Log>("log", x); }
Variable log1p(const Variable& x) { return unary<formula::Log1p>("log1p", x); }
Variable sqrt(const Variable& x) { return unary<formula::Sqrt>("sqrt", x); }
Variable rsqrt(const Variable& x) { return unary<formula::Rsqrt>("rsqrt", x); }
Variable abs(const Variable& x) { return unary<formula::Abs>("abs", x); }
Variable sin(const Variable& x) { return unary<formula::Sin>("sin", x); }
Variable cos(const Variable& x) { return unary<formula::Cos>("cos", x); }
Variable tanh(const Variable& x) { return unary<formula::Tanh>("tanh", x); }
Variable sigmoid(const Variable& x) { return unary<formula::Sigmoid>("sigmoid", x); }
Variable erf(const Variable& x) { return unary<formula::Erf>("erf", x); }
Variable relu(const Variable& x) { return unary<formula::Relu>("relu", x); }
Variable gelu(const Variable& x) { return unary<formula::Gelu>("gelu", x); }
Variable gelu_tanh(const Variable& x) { return unary<formula::GeluTanh>("gelu_tanh", x); }
Variable silu(const Variable& x) { return unary<formula::Silu>("silu", x); }
Variable softplus(const Variable& x) { return unary<formula::Softplus>("softplus", x); }

Variable step(const Variable& x) {
  return record("step", Variable(map_one(x.value(), [](Real v) { return Real(v > 0); })));
}

Variable sign(const Variable& x) {
  return record("sign",
                Variable(map_one(x.value(), [](Real v) { return Real((v > 0) - (v < 0)); })));
}

// ---- how gradients travel ---------------------------------------------------------------------

Variable chain(const Variable& g, const Variable& slope) {
  Variable y = binary(kernels::Binary::chain, "chain", g, slope);
  return record(
      "chain", std::move(y),
      broadcast_edge(g, [slope = saved(slope)](const Variable& u) { return chain(u, slope()); }),
      broadcast_edge(slope, [g = saved(g)](const Variable& u) { return chain(u, g()); }));
}

Variable sum_to(const Variable& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  check_shape(broadcast_shape("sum_to", shape, x.shape()) == x.shape(), "sum_to: ", shape,
              " does not broadcast to ", x.shape());
  std::vector<bool> reduced(x.rank(), true);
  const std::size_t missing = x.rank() - shape.size();
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    reduced[missing + axis] = shape[axis] != x.shape()[missing + axis];
  Array y = uninitialized(shape);
  kernels::reduce(kernels::Reduction::sum, x.shape(), reduced, x.value().data(), y.data());
  return record("sum_to", Variable(std::move(y)),
                edge(x, [to = x.shape()](const Variable& g) { return broadcast_to(g, to); }));
}

Variable broadcast_to(const Variable& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  check_shape(broadcast_shape("broadcast_to", x.shape(), shape) == shape,
              "broadcast_to: ", x.shape(), " does not broadcast to ", shape);
  Array y = uninitialized(shape);
  kernels::copy(shape, x.value().data(), broadcast_strides(x.shape(), shape), y.data(),
                kernels::row_major(shape));
  return record("broadcast_to", Variable(std::move(y)),
                broadcast_edge(x, [](const Variable& g) { return g; }));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
