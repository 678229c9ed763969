// The scalar type of everything that is differentiated, fixed when a library is built.
//
// The same sources are built twice: in float as attngrad::f32 and, with ATTNGRAD_DOUBLE defined, in
// double as attngrad::f64. The namespace is inline, so user code writes ag::Variable and cannot mix
// the two by accident, yet one program can link both.
#pragma once

#ifdef ATTNGRAD_DOUBLE
#define ATTNGRAD_PRECISION f64
#else
#define ATTNGRAD_PRECISION f32
#endif

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
#ifdef ATTNGRAD_DOUBLE
using Real = double;
#else
using Real = float;
#endif
}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
