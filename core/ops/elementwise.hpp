// Elementwise ops. Two operands broadcast by NumPy's rule; a derivative sums over what was
// stretched.
//
// Convention for all of them: where the gradient that arrives is exactly 0, exactly 0 is passed on,
// also where the slope is infinite or NaN. So the branch that a where() did not take cannot poison
// the one it took.
#pragma once

#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// ---- arithmetic: shapes broadcast; ShapeError names both shapes if they do not ----------------

Variable add(const Variable& a, const Variable& b);
Variable subtract(const Variable& a, const Variable& b);
Variable multiply(const Variable& a, const Variable& b);
Variable divide(const Variable& a, const Variable& b);
Variable add(const Variable& a, Real b);
Variable multiply(const Variable& a, Real b);
Variable negate(const Variable& x);

// a to the power of b. With respect to the base the slope is b a^(b-1), and 0 where b is 0. With
// respect to the exponent it is y log a, and 0 where a is 0. A negative base needs an integer
// exponent, else the result is NaN.
Variable pow(const Variable& a, const Variable& b);
Variable pow(const Variable& a, Real b);

// The larger (smaller) of both. A tie gives each half of the gradient. NaN stays.
Variable maximum(const Variable& a, const Variable& b);
Variable minimum(const Variable& a, const Variable& b);

// x limited to [low, high]. The slope is 1 inside and at both ends, 0 outside. Throws ArgumentError
// unless low <= high.
Variable clamp(const Variable& x, Real low, Real high);

// a where condition is true, else b; the three broadcast. The value not taken gets gradient 0.
// An object, not a function, so that an unqualified call with xtensor arguments does not find
// xtensor's lazy where.
struct Where {
  Variable operator()(const Bools& condition, const Variable& a, const Variable& b) const;
};
inline constexpr Where where{};
// x > threshold, elementwise, for where().
Bools greater(const Variable& x, Real threshold);

// ---- functions of one argument: y is shaped like x --------------------------------------------

Variable square(const Variable& x);
// 0 and infinity from a little before Real has to: below -87.4 and above 88.4 (708 in double).
Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable log1p(const Variable& x);  // log(1 + x), accurate for small x
Variable sqrt(const Variable& x);   // the slope at 0 is infinite, as for pow(x, 0.5)
Variable rsqrt(const Variable& x);  // 1 / sqrt(x)
Variable abs(const Variable& x);    // the slope at 0 is 0
Variable sin(const Variable& x);
Variable cos(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);  // 1 / (1 + exp(-x))
Variable erf(const Variable& x);
Variable relu(const Variable& x);  // the larger of x and 0; the slope at 0 is 0
// x Phi(x), Phi the normal distribution function, and the form with tanh; NaN at -infinity.
// Source: Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016, arXiv:1606.08415.
Variable gelu(const Variable& x);
Variable gelu_tanh(const Variable& x);
Variable silu(const Variable& x);      // x sigmoid(x); NaN at -infinity
Variable softplus(const Variable& x);  // log(1 + exp(x)), without overflow

// Constants that slopes are written with: 1 where x > 0 else 0; and the sign of x, 0 at 0.
Variable step(const Variable& x);
Variable sign(const Variable& x);

// g times slope, and exactly 0 where g is 0: how every elementwise derivative passes a gradient on.
// Broadcasts.
Variable chain(const Variable& g, const Variable& slope);

// x summed to a shape that broadcasts to that of x: undoes a broadcast. Its derivative is
// broadcast_to, and back.
Variable sum_to(const Variable& x, const Shape& shape);
Variable broadcast_to(const Variable& x, const Shape& shape);

inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return subtract(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return multiply(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return divide(a, b); }
inline Variable operator+(const Variable& a, Real b) { return add(a, b); }
inline Variable operator+(Real a, const Variable& b) { return add(b, a); }
inline Variable operator-(const Variable& a, Real b) { return add(a, -b); }
Variable operator-(Real a, const Variable& b);
inline Variable operator*(const Variable& a, Real b) { return multiply(a, b); }
inline Variable operator*(Real a, const Variable& b) { return multiply(b, a); }
inline Variable operator/(const Variable& a, Real b) { return divide(a, Variable(b)); }
Variable operator/(Real a, const Variable& b);
inline Variable operator-(const Variable& x) { return negate(x); }

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
