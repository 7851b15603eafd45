/* The loops of reductions: reduce_one.inc, compiled for each operation and type. */
#include "ops/math/reduce_loops.h"

#include <complex.h>
#include <math.h>

#include "base/mem.h"
#include "ops/math/vector_math.h"
#include "tensor/each_type.h"

enum { BLOCK = 512, LANES = 16, ROW_BLOCK = 32 };

/* Splits a length where both halves are whole blocks, but for the end. */
static int64_t half_of(int64_t n, int64_t block) { return (n / 2 + block - 1) / block * block; }

/* Functions, so that an argument is evaluated once. Sums and products of integers wrap: the arithmetic is done without
 * sign. NaN wins over numbers, and stays. */
#define INLINE static inline __attribute__((always_inline, const))
#define ARITHMETIC(type, tag, wrap)                                            \
  INLINE type plus_##tag(type a, type x) { return (type)((wrap)a + (wrap)x); } \
  INLINE type times_##tag(type a, type x) { return (type)((wrap)a * (wrap)x); }
#define ORDER(type, tag, wrap)                                                 \
  ARITHMETIC(type, tag, wrap)                                                  \
  INLINE type square_##tag(type x) { return (type)((wrap)x * (wrap)x); }       \
  INLINE type larger_##tag(type a, type x) { return x > a || x != x ? x : a; } \
  INLINE type smaller_##tag(type a, type x) { return x < a || x != x ? x : a; }
ORDER(float, float, float)
ORDER(double, double, double)
ORDER(int64_t, int64, uint64_t)
ORDER(uint64_t, uint64, uint64_t)
ARITHMETIC(c64, c64, c64)
ARITHMETIC(c128, c128, c128)
INLINE c64 square_c64(c64 x) { return crealf(x) * crealf(x) + cimagf(x) * cimagf(x); }
INLINE c128 square_c128(c128 x) { return creal(x) * creal(x) + cimag(x) * cimag(x); }
#define REAL_CASES(which) \
  float : which##_float, double : which##_double, int64_t : which##_int64, uint64_t : which##_uint64
#define OF_REAL(which, x) _Generic((x), REAL_CASES(which))
#define OF_NUMBER(which, x) _Generic((x), REAL_CASES(which), c64 : which##_c64, c128 : which##_c128)
#define PLUS(a, x) OF_NUMBER(plus, a)(a, x)
#define TIMES(a, x) OF_NUMBER(times, a)(a, x)
#define SQUARE(x) OF_NUMBER(square, x)(x)
#define LARGER(a, x) OF_REAL(larger, a)(a, x)
#define SMALLER(a, x) OF_REAL(smaller, a)(a, x)
#define SAME(x) (x)

/* A function's name: sum_run_SHOAL_FLOAT32 and so on. */
#define OF_OP(x) NAME(PASTE(OP, _##x))

#define OP sum
#define ELEMENT SAME
#define COMBINE PLUS
#define START 0
#define HAS_COMPLEX 1
#include "ops/math/reduce_types.inc"

#define OP prod
#define ELEMENT SAME
#define COMBINE TIMES
#define START 1
#define HAS_COMPLEX 1
#include "ops/math/reduce_types.inc"

#define OP max
#define ELEMENT SAME
#define COMBINE LARGER
#define START LEAST
#define HAS_COMPLEX 0
#include "ops/math/reduce_types.inc"

#define OP min
#define ELEMENT SAME
#define COMBINE SMALLER
#define START MOST
#define HAS_COMPLEX 0
#include "ops/math/reduce_types.inc"

#define OP squares
#define ELEMENT SQUARE
#define COMBINE PLUS
#define START 0
#define HAS_COMPLEX 1
#include "ops/math/reduce_types.inc"

#define AS(op, type, loops) [SHOAL_##type] = {op##_run_SHOAL_##loops, op##_rows_SHOAL_##loops}
#define OWN(op, type) AS(op, type, type)
#define REALS(op)                                                                                              \
  OWN(op, FLOAT32), OWN(op, FLOAT64), OWN(op, FLOAT16), OWN(op, BFLOAT16), OWN(op, INT8), OWN(op, INT16),      \
      OWN(op, INT32), OWN(op, INT64), OWN(op, UINT8), OWN(op, UINT16), OWN(op, UINT32), OWN(op, UINT64),       \
      OWN(op, BOOL), AS(op, QINT8, INT8), AS(op, QINT16, INT16), AS(op, QINT32, INT32), AS(op, QUINT8, UINT8), \
      AS(op, QUINT16, UINT16)
#define NUMBERS(op) REALS(op), OWN(op, COMPLEX64), OWN(op, COMPLEX128)

static const struct reduce_loops table[REDUCE_OPS][DTYPE_COUNT] = {[REDUCE_SUM] = {NUMBERS(sum)},
                                                                   [REDUCE_PROD] = {NUMBERS(prod)},
                                                                   [REDUCE_MAX] = {REALS(max)},
                                                                   [REDUCE_MIN] = {REALS(min)},
                                                                   [REDUCE_SQUARES] = {NUMBERS(squares)}};

const struct reduce_loops *reduce_loops_for(enum reduce_op op, shoal_dtype t) { return &table[op][t]; }

shoal_dtype reduce_accumulator(shoal_dtype t) {
  if (t == SHOAL_FLOAT16 || t == SHOAL_BFLOAT16) return SHOAL_FLOAT32;
  if (t == SHOAL_UINT64 || dtype_floating(t) || dtype_complex(t)) return t;
  return SHOAL_INT64;
}
