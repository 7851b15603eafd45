/* The loops of pooling. Max pooling is compiled once for each element type from pooling_max.inc; average pooling
 * is for floating types and sums in float or double (pooling_avg.inc). */
#include "ops/nn/pooling_loops.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/math/vector_math.h"

enum { STRIP = 64 }; /* channels at a time */

#define PLAIN(v) (v)

#define MAX_CLONES VECTOR_CLONES
#define T float
#define NAME(x) x##_float
#define LOAD PLAIN
#define PLUS(a, b) ((a) + (b))
#define LOWEST (-FLT_MAX)
#include "ops/nn/pooling_max.inc"
#define T double
#define NAME(x) x##_double
#define LOAD PLAIN
#define PLUS(a, b) ((a) + (b))
#define LOWEST (-DBL_MAX)
#include "ops/nn/pooling_max.inc"
#define T f16
#define NAME(x) x##_f16
#define LOAD f16_to_float
#define PLUS(a, b) f16_from_float(f16_to_float(a) + f16_to_float(b))
#define LOWEST ((f16){0xfbff})
#include "ops/nn/pooling_max.inc"
#define T bf16
#define NAME(x) x##_bf16
#define LOAD bf16_to_float
#define PLUS(a, b) bf16_from_float(bf16_to_float(a) + bf16_to_float(b))
#define LOWEST ((bf16){0xff7f})
#include "ops/nn/pooling_max.inc"
#undef MAX_CLONES
#define MAX_CLONES
#define T int8_t
#define NAME(x) x##_int8
#define LOAD PLAIN
#define PLUS(a, b) ((int8_t)(uint8_t)((a) + (b)))
#define LOWEST INT8_MIN
#include "ops/nn/pooling_max.inc"
#define T uint8_t
#define NAME(x) x##_uint8
#define LOAD PLAIN
#define PLUS(a, b) ((uint8_t)((a) + (b)))
#define LOWEST 0
#include "ops/nn/pooling_max.inc"
#define T int16_t
#define NAME(x) x##_int16
#define LOAD PLAIN
#define PLUS(a, b) ((int16_t)(uint16_t)((a) + (b)))
#define LOWEST INT16_MIN
#include "ops/nn/pooling_max.inc"
#define T uint16_t
#define NAME(x) x##_uint16
#define LOAD PLAIN
#define PLUS(a, b) ((uint16_t)((a) + (b)))
#define LOWEST 0
#include "ops/nn/pooling_max.inc"
#define T int32_t
#define NAME(x) x##_int32
#define LOAD PLAIN
#define PLUS(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define LOWEST INT32_MIN
#include "ops/nn/pooling_max.inc"
#define T uint32_t
#define NAME(x) x##_uint32
#define LOAD PLAIN
#define PLUS(a, b) ((a) + (b))
#define LOWEST 0
#include "ops/nn/pooling_max.inc"
#define T int64_t
#define NAME(x) x##_int64
#define LOAD PLAIN
#define PLUS(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define LOWEST INT64_MIN
#include "ops/nn/pooling_max.inc"
#define T uint64_t
#define NAME(x) x##_uint64
#define LOAD PLAIN
#define PLUS(a, b) ((a) + (b))
#define LOWEST 0
#include "ops/nn/pooling_max.inc"

typedef void (*loop_fn)(void *arg, int64_t begin, int64_t end);

/* fn's version for a type. */
#define FOR_TYPE(fn)                          \
  static loop_fn fn##_for(shoal_dtype t) {    \
    switch (t) {                              \
      case SHOAL_FLOAT32: return fn##_float;  \
      case SHOAL_FLOAT64: return fn##_double; \
      case SHOAL_FLOAT16: return fn##_f16;    \
      case SHOAL_BFLOAT16: return fn##_bf16;  \
      case SHOAL_INT8: return fn##_int8;      \
      case SHOAL_UINT8: return fn##_uint8;    \
      case SHOAL_INT16: return fn##_int16;    \
      case SHOAL_UINT16: return fn##_uint16;  \
      case SHOAL_INT32: return fn##_int32;    \
      case SHOAL_UINT32: return fn##_uint32;  \
      case SHOAL_INT64: return fn##_int64;    \
      default: return fn##_uint64;            \
    }                                         \
  }
FOR_TYPE(max_rows)
FOR_TYPE(grad_rows)
FOR_TYPE(grad_images)
FOR_TYPE(pick_rows)

static int64_t rows_of(const struct pooling *p) { return p->batch * p->out[0] * p->out[1]; }
static int64_t row_cost(const struct pooling *p) {
  return nn_grain(p->out[2] * p->depth * p->size[0] * p->size[1] * p->size[2]);
}
static size_t image_bytes(const struct pooling *p) {
  return (size_t)(p->batch * p->in[0] * p->in[1] * p->in[2] * p->depth) * dtype_size(p->type);
}

void pooling_max(struct pool *pool, const struct pooling *p) {
  pool_for(pool, rows_of(p), row_cost(p), max_rows_for(p->type), (void *)(uintptr_t)p);
}

void pooling_max_grad(struct pool *pool, const struct pooling *p) {
  bool apart = true, covered = true;
  for (int d = 0; d < 3; d++) {
    apart &= p->stride[d] >= p->size[d];
    covered &= p->stride[d] == p->size[d] && p->out[d] * p->stride[d] - p->pad[d] >= p->in[d];
  }
  if (!(apart && covered)) memset(p->result, 0, image_bytes(p));
  void *arg = (void *)(uintptr_t)p;
  if (apart) pool_for(pool, rows_of(p), row_cost(p), grad_rows_for(p->type), arg);
  else pool_for(pool, p->batch, 1, grad_images_for(p->type), arg);
}

void pooling_max_grad_grad(struct pool *pool, const struct pooling *p) {
  memset(p->result, 0, (size_t)(rows_of(p) * p->out[2] * p->depth) * dtype_size(p->type));
  pool_for(pool, rows_of(p), row_cost(p), pick_rows_for(p->type), (void *)(uintptr_t)p);
}

void pooling_argmax(struct pool *pool, const struct pooling *p) {
  pool_for(pool, rows_of(p), row_cost(p), pick_rows_for(p->type), (void *)(uintptr_t)p);
}

/* ---- floating types ---- */

static int64_t count_of(const struct pooling *p, int64_t a, int64_t b, int64_t c) {
  int64_t n = (window_high(p, 0, a) - window_low(p, 0, a)) * (window_high(p, 1, b) - window_low(p, 1, b));
  return n * (window_high(p, 2, c) - window_low(p, 2, c));
}

/* The windows that hold coordinate i: [i + pad - size + 1, i + pad] over the stride. */
static int64_t first_holding(const struct pooling *p, int d, int64_t i) {
  int64_t low = i + p->pad[d] - p->size[d] + 1;
  return low <= 0 ? 0 : (low + p->stride[d] - 1) / p->stride[d];
}
static int64_t last_holding(const struct pooling *p, int d, int64_t i) {
  return MIN(p->out[d] - 1, (i + p->pad[d]) / p->stride[d]);
}

#define LOOPS "ops/nn/pooling_avg.inc"
#include "tensor/each_floating.inc"
#undef LOOPS

#define FOR_FLOATING(fn)                             \
  static loop_fn fn##_for(shoal_dtype t) {           \
    switch (t) {                                     \
      case SHOAL_FLOAT32: return fn##_SHOAL_FLOAT32; \
      case SHOAL_FLOAT64: return fn##_SHOAL_FLOAT64; \
      case SHOAL_FLOAT16: return fn##_SHOAL_FLOAT16; \
      default: return fn##_SHOAL_BFLOAT16;           \
    }                                                \
  }
FOR_FLOATING(all_images)
FOR_FLOATING(avg_rows)
FOR_FLOATING(avg_grad_rows)

void pooling_max_grad_all(struct pool *pool, const struct pooling *p) {
  memset(p->result, 0, image_bytes(p));
  pool_for(pool, p->batch, 1, all_images_for(p->type), (void *)(uintptr_t)p);
}

void pooling_avg(struct pool *pool, const struct pooling *p) {
  pool_for(pool, rows_of(p), row_cost(p), avg_rows_for(p->type), (void *)(uintptr_t)p);
}

void pooling_avg_grad(struct pool *pool, const struct pooling *p) {
  pool_for(pool, p->batch * p->in[0] * p->in[1], nn_grain(p->in[2] * p->depth), avg_grad_rows_for(p->type),
           (void *)(uintptr_t)p);
}
