/* The loops of pooling. Max pooling is compiled once for each element type from pooling_max.inc; average pooling
 * is for floating types and sums in float or double. */
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

#define AVG_LOOPS(E, TYPE, ACC)                                                                                    \
  static void all_images_##E(void *arg, int64_t begin, int64_t end) {                                              \
    const struct pooling *p = arg;                                                                                 \
    for (int64_t n = begin; n < end; n++)                                                                          \
      for (int64_t a = 0; a < p->out[0]; a++)                                                                      \
        for (int64_t b = 0; b < p->out[1]; b++)                                                                    \
          for (int64_t c = 0; c < p->out[2]; c++) {                                                                \
            int64_t at = (((n * p->out[0] + a) * p->out[1] + b) * p->out[2] + c) * p->depth;                       \
            const TYPE *dy = (const TYPE *)p->dy + at, *y = (const TYPE *)p->y + at;                               \
            for (int64_t i = window_low(p, 0, a); i < window_high(p, 0, a); i++)                                   \
              for (int64_t j = window_low(p, 1, b); j < window_high(p, 1, b); j++)                                 \
                for (int64_t k = window_low(p, 2, c); k < window_high(p, 2, c); k++) {                             \
                  int64_t from = (((n * p->in[0] + i) * p->in[1] + j) * p->in[2] + k) * p->depth;                  \
                  const TYPE *x = (const TYPE *)p->x + from;                                                       \
                  TYPE *dx = (TYPE *)p->result + from;                                                             \
                  for (int64_t q = 0; q < p->depth; q++) {                                                         \
                    ACC far = LOAD_##TYPE(x[q]) - LOAD_##TYPE(y[q]);                                               \
                    if (far < (ACC)1e-5 && far > (ACC)-1e-5)                                                       \
                      dx[q] = STORE_##TYPE(LOAD_##TYPE(dx[q]) + LOAD_##TYPE(dy[q]));                               \
                  }                                                                                                \
                }                                                                                                  \
          }                                                                                                        \
  }                                                                                                                \
  static void avg_rows_##E(void *arg, int64_t begin, int64_t end) {                                                \
    const struct pooling *p = arg;                                                                                 \
    ACC sum[STRIP];                                                                                                \
    for (int64_t u = begin; u < end; u++) {                                                                        \
      int64_t b = u % p->out[1], a = u / p->out[1] % p->out[0], n = u / p->out[1] / p->out[0];                     \
      for (int64_t c = 0; c < p->out[2]; c++) {                                                                    \
        ACC count = (ACC)count_of(p, a, b, c);                                                                     \
        for (int64_t q0 = 0; q0 < p->depth; q0 += STRIP) {                                                         \
          int64_t w = MIN(STRIP, p->depth - q0);                                                                   \
          for (int64_t q = 0; q < w; q++) sum[q] = 0;                                                              \
          for (int64_t i = window_low(p, 0, a); i < window_high(p, 0, a); i++)                                     \
            for (int64_t j = window_low(p, 1, b); j < window_high(p, 1, b); j++)                                   \
              for (int64_t k = window_low(p, 2, c); k < window_high(p, 2, c); k++) {                               \
                const TYPE *x =                                                                                    \
                    (const TYPE *)p->x + (((n * p->in[0] + i) * p->in[1] + j) * p->in[2] + k) * p->depth + q0;     \
                for (int64_t q = 0; q < w; q++) sum[q] += LOAD_##TYPE(x[q]);                                       \
              }                                                                                                    \
          TYPE *y = (TYPE *)p->result + (u * p->out[2] + c) * p->depth + q0;                                       \
          for (int64_t q = 0; q < w; q++) y[q] = STORE_##TYPE(sum[q] / count);                                     \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
  }                                                                                                                \
  /* Rows of the image: what each pixel gets from the windows that hold it. */                                     \
  static void avg_grad_rows_##E(void *arg, int64_t begin, int64_t end) {                                           \
    const struct pooling *p = arg;                                                                                 \
    ACC sum[STRIP];                                                                                                \
    for (int64_t u = begin; u < end; u++) {                                                                        \
      int64_t j = u % p->in[1], i = u / p->in[1] % p->in[0], n = u / p->in[1] / p->in[0];                          \
      for (int64_t k = 0; k < p->in[2]; k++)                                                                       \
        for (int64_t q0 = 0; q0 < p->depth; q0 += STRIP) {                                                         \
          int64_t w = MIN(STRIP, p->depth - q0);                                                                   \
          for (int64_t q = 0; q < w; q++) sum[q] = 0;                                                              \
          for (int64_t a = first_holding(p, 0, i); a <= last_holding(p, 0, i); a++)                                \
            for (int64_t b = first_holding(p, 1, j); b <= last_holding(p, 1, j); b++)                              \
              for (int64_t c = first_holding(p, 2, k); c <= last_holding(p, 2, k); c++) {                          \
                ACC share = 1 / (ACC)count_of(p, a, b, c);                                                         \
                const TYPE *dy =                                                                                   \
                    (const TYPE *)p->dy + (((n * p->out[0] + a) * p->out[1] + b) * p->out[2] + c) * p->depth + q0; \
                for (int64_t q = 0; q < w; q++) sum[q] += LOAD_##TYPE(dy[q]) * share;                              \
              }                                                                                                    \
          TYPE *dx = (TYPE *)p->result + (u * p->in[2] + k) * p->depth + q0;                                       \
          for (int64_t q = 0; q < w; q++) dx[q] = STORE_##TYPE(sum[q]);                                            \
        }                                                                                                          \
    }                                                                                                              \
  }

/* The windows that hold coordinate i: [i + pad - size + 1, i + pad] over the stride. */
static int64_t first_holding(const struct pooling *p, int d, int64_t i) {
  int64_t low = i + p->pad[d] - p->size[d] + 1;
  return low <= 0 ? 0 : (low + p->stride[d] - 1) / p->stride[d];
}
static int64_t last_holding(const struct pooling *p, int d, int64_t i) {
  return MIN(p->out[d] - 1, (i + p->pad[d]) / p->stride[d]);
}

NN_FLOATING(AVG_LOOPS)

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
