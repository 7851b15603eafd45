/* The loops of reductions, by macros over operation and type. */
#include "ops/math/reduce_loops.h"

#include <complex.h>
#include <math.h>

#include "base/mem.h"
#include "ops/math/vector_math.h"

enum { BLOCK = 512, LANES = 16, ROW_BLOCK = 32 };

/* Splits a length where both halves are whole blocks, but for the end. */
static int64_t half_of(int64_t n, int64_t block) { return (n / 2 + block - 1) / block * block; }

#define ADD(a, x) ((a) + (x))
#define MULTIPLY(a, x) ((a) * (x))
#define SAME(x) (x)

/* What needs an argument more than once is a function; NaN wins over numbers, and stays. */
#define INLINE static inline __attribute__((always_inline, const))
#define OF_TYPE(type, tag)                                                      \
  INLINE type larger_##tag(type a, type x) { return x > a || x != x ? x : a; }  \
  INLINE type smaller_##tag(type a, type x) { return x < a || x != x ? x : a; } \
  INLINE type square_##tag(type x) { return x * x; }
OF_TYPE(float, float)
OF_TYPE(double, double)
OF_TYPE(int64_t, int64)
OF_TYPE(uint64_t, uint64)
INLINE c64 square_c64(c64 x) { return crealf(x) * crealf(x) + cimagf(x) * cimagf(x); }
INLINE c128 square_c128(c128 x) { return creal(x) * creal(x) + cimag(x) * cimag(x); }
#define NUMBER(which, x) \
  _Generic((x), float : which##_float, double : which##_double, int64_t : which##_int64, uint64_t : which##_uint64)
#define LARGER(a, x) NUMBER(larger, a)(a, x)
#define SMALLER(a, x) NUMBER(smaller, a)(a, x)
#define SQUARE(x) NUMBER(square, x)(x)

/* A block of at most BLOCK elements in LANES interleaved parts, folded at the end. */
#define DEFINE(op, tag, type, acc, load, element, combine, identity)                                                   \
  VECTOR_CLONES static acc op##_block_##tag(const type *p, int64_t n) {                                                \
    acc lane[LANES];                                                                                                   \
    for (int l = 0; l < LANES; l++) lane[l] = identity;                                                                \
    int64_t i = 0;                                                                                                     \
    for (; i + LANES <= n; i += LANES)                                                                                 \
      for (int l = 0; l < LANES; l++) {                                                                                \
        acc x = (acc)load(p[i + l]);                                                                                   \
        lane[l] = combine(lane[l], (acc)element(x));                                                                   \
      }                                                                                                                \
    for (int l = 0; i < n; i++, l++) {                                                                                 \
      acc x = (acc)load(p[i]);                                                                                         \
      lane[l] = combine(lane[l], (acc)element(x));                                                                     \
    }                                                                                                                  \
    for (int w = LANES / 2; w; w /= 2)                                                                                 \
      for (int l = 0; l < w; l++) lane[l] = combine(lane[l], lane[l + w]);                                             \
    return lane[0];                                                                                                    \
  }                                                                                                                    \
  static acc op##_pairwise_##tag(const type *p, int64_t n) {                                                           \
    if (n <= BLOCK) return op##_block_##tag(p, n);                                                                     \
    int64_t h = half_of(n, BLOCK);                                                                                     \
    acc a = op##_pairwise_##tag(p, h), b = op##_pairwise_##tag(p + h, n - h);                                          \
    return combine(a, b);                                                                                              \
  }                                                                                                                    \
  static void op##_run_##tag(void *out, const void *in, int64_t n) { *(acc *)out = op##_pairwise_##tag(in, n); }       \
  VECTOR_CLONES static void op##_rows_block_##tag(acc *o, const type *p, int64_t n, int64_t stride, int64_t columns) { \
    for (int64_t j = 0; j < columns; j++) o[j] = identity;                                                             \
    for (int64_t i = 0; i < n; i++, p += stride) LOOP_FREE for (int64_t j = 0; j < columns; j++) {                     \
        acc x = (acc)load(p[j]);                                                                                       \
        o[j] = combine(o[j], (acc)element(x));                                                                         \
      }                                                                                                                \
  }                                                                                                                    \
  static void op##_rows_##tag(void *out, const void *in, int64_t n, int64_t stride, int64_t columns) {                 \
    acc *o = out;                                                                                                      \
    if (n <= ROW_BLOCK) {                                                                                              \
      op##_rows_block_##tag(o, in, n, stride, columns);                                                                \
      return;                                                                                                          \
    }                                                                                                                  \
    int64_t h = half_of(n, ROW_BLOCK);                                                                                 \
    acc other[REDUCE_COLUMNS];                                                                                         \
    op##_rows_##tag(o, in, h, stride, columns);                                                                        \
    op##_rows_##tag(other, (const type *)in + h * stride, n - h, stride, columns);                                     \
    for (int64_t j = 0; j < columns; j++) o[j] = combine(o[j], other[j]);                                              \
  }

/* X(tag, element type, accumulator, load, lowest, highest) */
#define REAL_TYPES(X, op, element, combine, which)                                      \
  X(op, f32, float, float, SAME, element, combine, which(-INFINITY, INFINITY))          \
  X(op, f64, double, double, SAME, element, combine, which(-INFINITY, INFINITY))        \
  X(op, f16, f16, float, f16_to_float, element, combine, which(-INFINITY, INFINITY))    \
  X(op, bf16, bf16, float, bf16_to_float, element, combine, which(-INFINITY, INFINITY)) \
  INTEGER_TYPES(X, op, element, combine, which)
#define INTEGER_TYPES(X, op, element, combine, which)                               \
  X(op, i8, int8_t, int64_t, SAME, element, combine, which(INT8_MIN, INT8_MAX))     \
  X(op, i16, int16_t, int64_t, SAME, element, combine, which(INT16_MIN, INT16_MAX)) \
  X(op, i32, int32_t, int64_t, SAME, element, combine, which(INT32_MIN, INT32_MAX)) \
  X(op, i64, int64_t, int64_t, SAME, element, combine, which(INT64_MIN, INT64_MAX)) \
  X(op, u8, uint8_t, int64_t, SAME, element, combine, which(0, UINT8_MAX))          \
  X(op, flag, uint8_t, int64_t, SAME, element, combine, which(0, 1))                \
  X(op, u16, uint16_t, int64_t, SAME, element, combine, which(0, UINT16_MAX))       \
  X(op, u32, uint32_t, int64_t, SAME, element, combine, which(0, UINT32_MAX))       \
  X(op, u64, uint64_t, uint64_t, SAME, element, combine, which(0, UINT64_MAX))
#define LOWEST(low, high) low
#define HIGHEST(low, high) high

REAL_TYPES(DEFINE, max, SAME, LARGER, LOWEST)
REAL_TYPES(DEFINE, min, SAME, SMALLER, HIGHEST)

/* Sums and products of integers wrap: the arithmetic is done without sign. */
#define WRAP_ADD(a, x) ((__typeof__(a))((uint64_t)(a) + (uint64_t)(x)))
#define WRAP_MULTIPLY(a, x) ((__typeof__(a))((uint64_t)(a) * (uint64_t)(x)))
#define WRAP_SQUARE(x) square_uint64((uint64_t)(x))
#define ZERO(low, high) 0
#define UNIT(low, high) 1
#define FLOAT_TYPES(op, element, combine, identity)                     \
  DEFINE(op, f32, float, float, SAME, element, combine, identity)       \
  DEFINE(op, f64, double, double, SAME, element, combine, identity)     \
  DEFINE(op, f16, f16, float, f16_to_float, element, combine, identity) \
  DEFINE(op, bf16, bf16, float, bf16_to_float, element, combine, identity)
#define COMPLEX_TYPES(op, e64, e128, combine, identity)   \
  DEFINE(op, c64, c64, c64, SAME, e64, combine, identity) \
  DEFINE(op, c128, c128, c128, SAME, e128, combine, identity)

FLOAT_TYPES(sum, SAME, ADD, 0)
INTEGER_TYPES(DEFINE, sum, SAME, WRAP_ADD, ZERO)
COMPLEX_TYPES(sum, SAME, SAME, ADD, 0)
FLOAT_TYPES(prod, SAME, MULTIPLY, 1)
INTEGER_TYPES(DEFINE, prod, SAME, WRAP_MULTIPLY, UNIT)
COMPLEX_TYPES(prod, SAME, SAME, MULTIPLY, 1)
FLOAT_TYPES(squares, SQUARE, ADD, 0)
INTEGER_TYPES(DEFINE, squares, WRAP_SQUARE, WRAP_ADD, ZERO)
COMPLEX_TYPES(squares, square_c64, square_c128, ADD, 0)

#define ENTRY(op, tag) \
  { op##_run_##tag, op##_rows_##tag }
#define REALS(op)                                                                                       \
  [SHOAL_FLOAT32] = ENTRY(op, f32), [SHOAL_FLOAT64] = ENTRY(op, f64), [SHOAL_FLOAT16] = ENTRY(op, f16), \
  [SHOAL_BFLOAT16] = ENTRY(op, bf16), [SHOAL_INT8] = ENTRY(op, i8), [SHOAL_INT16] = ENTRY(op, i16),     \
  [SHOAL_INT32] = ENTRY(op, i32), [SHOAL_INT64] = ENTRY(op, i64), [SHOAL_UINT8] = ENTRY(op, u8),        \
  [SHOAL_UINT16] = ENTRY(op, u16), [SHOAL_UINT32] = ENTRY(op, u32), [SHOAL_UINT64] = ENTRY(op, u64),    \
  [SHOAL_BOOL] = ENTRY(op, flag), [SHOAL_QINT8] = ENTRY(op, i8), [SHOAL_QINT16] = ENTRY(op, i16),       \
  [SHOAL_QINT32] = ENTRY(op, i32), [SHOAL_QUINT8] = ENTRY(op, u8), [SHOAL_QUINT16] = ENTRY(op, u16)
#define NUMBERS(op) REALS(op), [SHOAL_COMPLEX64] = ENTRY(op, c64), [SHOAL_COMPLEX128] = ENTRY(op, c128)

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
