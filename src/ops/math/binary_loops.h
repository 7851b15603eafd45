/* How loops of two inputs are written: an expression in x and y becomes a function with three loops, for vectors on
 * both sides and for a scalar on either. Private to the files that hold such loops. */
#ifndef OPS_MATH_BINARY_LOOPS_H
#define OPS_MATH_BINARY_LOOPS_H

#include <math.h>

#include "ops/math/complex_math.h"
#include "ops/math/elementwise.h"
#include "ops/math/vector_math.h"

#define BINARY_LOOP(in_t, out_t, get_x, get_y, stmt) \
  LOOP_FREE for (int64_t i = 0; i < n; i++) {        \
    in_t x = get_x, y = get_y;                       \
    out_t z;                                         \
    stmt;                                            \
    o[i] = z;                                        \
  }

/* stmt sets z, and `bad` to 1 for an element that has no result. */
#define BINARY_STMT(op, tag, in_t, out_t, stmt)                                                  \
  VECTOR_CLONES static unsigned op##_##tag(void *out, const void *va, const void *vb, int64_t n, \
                                           enum binary_mode mode) {                              \
    const in_t *a = va, *b = vb;                                                                 \
    out_t *o = out;                                                                              \
    unsigned bad = 0;                                                                            \
    if (mode == VECTOR_VECTOR) {                                                                 \
      BINARY_LOOP(in_t, out_t, a[i], b[i], stmt)                                                 \
    } else if (mode == VECTOR_SCALAR) {                                                          \
      const in_t s = b[0];                                                                       \
      BINARY_LOOP(in_t, out_t, a[i], s, stmt)                                                    \
    } else {                                                                                     \
      const in_t s = a[0];                                                                       \
      BINARY_LOOP(in_t, out_t, s, b[i], stmt)                                                    \
    }                                                                                            \
    return bad;                                                                                  \
  }

/* The same with one loop and steps of 0 or 1: for types and ops where size counts more than speed. */
#define BINARY_SMALL(op, tag, in_t, out_t, stmt)                                                            \
  static unsigned op##_##tag(void *out, const void *va, const void *vb, int64_t n, enum binary_mode mode) { \
    const in_t *a = va, *b = vb;                                                                            \
    out_t *o = out;                                                                                         \
    unsigned bad = 0;                                                                                       \
    const int64_t sa = mode != SCALAR_VECTOR, sb = mode != VECTOR_SCALAR;                                   \
    for (int64_t i = 0; i < n; i++) {                                                                       \
      in_t x = a[i * sa], y = b[i * sb];                                                                    \
      out_t z;                                                                                              \
      stmt;                                                                                                 \
      o[i] = z;                                                                                             \
    }                                                                                                       \
    return bad;                                                                                             \
  }

#define BINARY(op, tag, in_t, out_t, expr) BINARY_STMT(op, tag, in_t, out_t, z = (out_t)(expr))
#define BINARY_CALL(op, tag, in_t, out_t, expr) BINARY_SMALL(op, tag, in_t, out_t, z = (out_t)(expr))

/* Over the types of a group. */
#define BINARY_REALS(op, f, d) BINARY(op, f32, float, float, f) BINARY(op, f64, double, double, d)
#define BINARY_COMPLEXES(op, f, d) BINARY_CALL(op, c64, c64, c64, f) BINARY_CALL(op, c128, c128, c128, d)
#define BINARY_SIGNED(M, op, body)   \
  M(op, i8, int8_t, int8_t, body)    \
  M(op, i16, int16_t, int16_t, body) \
  M(op, i32, int32_t, int32_t, body) \
  M(op, i64, int64_t, int64_t, body)
#define BINARY_UNSIGNED(M, op, body)   \
  M(op, u8, uint8_t, uint8_t, body)    \
  M(op, u16, uint16_t, uint16_t, body) \
  M(op, u32, uint32_t, uint32_t, body) \
  M(op, u64, uint64_t, uint64_t, body)

/* Arithmetic modulo 2^n is the same with and without sign: signed types take the unsigned loops. */
#define IN_INTS_UNSIGNED(op) \
  [SHOAL_INT8] = op##_u8, [SHOAL_INT16] = op##_u16, [SHOAL_INT32] = op##_u32, [SHOAL_INT64] = op##_u64, IN_UNSIGNED(op)

#endif
