/* Range and LinSpace. */
#include <inttypes.h>
#include <math.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"

/* ---- Range ---- */

/* A scalar, or (of old) a vector of one. */
static shoal_status check_scalar(const struct tensor *t, const char *name) {
  if (t->n == 1 && t->rank <= 1) return NULL;
  return INVALID("%s must be a scalar, not shape %s", name, tensor_shape_str(t));
}

static shoal_status integer_range_size(int64_t start, int64_t limit, int64_t delta, int64_t *size) {
  if (delta == 0) return INVALID("Requires delta != 0: %" PRId64, delta);
  if (delta > 0 && start > limit)
    return INVALID("Requires start <= limit when delta > 0: %" PRId64 "/%" PRId64, start, limit);
  if (delta < 0 && start < limit)
    return INVALID("Requires start >= limit when delta < 0: %" PRId64 "/%" PRId64, start, limit);
  /* The distance may need all 64 bits. */
  uint64_t span = start < limit ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
  uint64_t step = delta < 0 ? 0 - (uint64_t)delta : (uint64_t)delta;
  uint64_t n = span / step + (span % step != 0);
  if (n > INT64_MAX) return INVALID("Requires ((limit - start) / delta) <= %" PRId64, INT64_MAX);
  *size = (int64_t)n;
  return NULL;
}

static shoal_status floating_range_size(double start, double limit, double delta, int64_t *size) {
  if (delta == 0) return INVALID("Requires delta != 0: %g", delta);
  if (delta > 0 && !(start <= limit)) return INVALID("Requires start <= limit when delta > 0: %g/%g", start, limit);
  if (!(delta > 0) && !(start >= limit)) return INVALID("Requires start >= limit when delta < 0: %g/%g", start, limit);
  double n = ceil(fabs((limit - start) / delta));
  if (!(n < 0x1p63)) return INVALID("Requires ((limit - start) / delta) <= %" PRId64, INT64_MAX);
  *size = (int64_t)n;
  return NULL;
}

static bool is_floating(const struct tensor *t) { return dtype_floating((shoal_dtype)t->dtype); }

static double floating_at(const struct tensor *t) {
  switch (t->dtype) {
    case SHOAL_FLOAT32: return *T_DATA(t, const float);
    case SHOAL_FLOAT16: return f16_to_float(*T_DATA(t, const f16));
    case SHOAL_BFLOAT16: return bf16_to_float(*T_DATA(t, const bf16));
    default: return *T_DATA(t, const double);
  }
}

static int64_t integer_at(const struct tensor *t) {
  switch (t->dtype) {
    case SHOAL_INT8: return *T_DATA(t, const int8_t);
    case SHOAL_INT16: return *T_DATA(t, const int16_t);
    case SHOAL_UINT16: return *T_DATA(t, const uint16_t);
    case SHOAL_UINT32: return *T_DATA(t, const uint32_t);
    default: return int_at(t, 0);
  }
}

static shoal_status range_size(const struct tensor *const *in, int64_t *size) {
  TRY(check_scalar(in[0], "start"));
  TRY(check_scalar(in[1], "limit"));
  TRY(check_scalar(in[2], "delta"));
  if (!is_floating(in[0])) return integer_range_size(integer_at(in[0]), integer_at(in[1]), integer_at(in[2]), size);
  double start = floating_at(in[0]), limit = floating_at(in[1]), delta = floating_at(in[2]);
  if (in[0]->dtype == SHOAL_FLOAT32) { /* the quotient is rounded in the type itself */
    TRY(floating_range_size(start, limit, delta, size));
    float n = ceilf(fabsf(((float)limit - (float)start) / (float)delta));
    if (n < 0x1p63f) *size = (int64_t)n;
    return NULL;
  }
  return floating_range_size(start, limit, delta, size);
}

#define FILL(type, number, save)                                                         \
  {                                                                                      \
    number first = (number)start, step = (number)delta;                                  \
    for (int64_t i = 0; i < n; i++) T_DATA(y, type)[i] = save(first + (number)i * step); \
    break;                                                                               \
  }
#define AS_IS(v) (v)

static shoal_status range_run(struct kernel_ctx *ctx) {
  int64_t n;
  TRY(range_size(ctx->in, &n));
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 1, &n, &y));
  if (is_floating(y)) {
    double start = floating_at(ctx_in(ctx, 0)), delta = floating_at(ctx_in(ctx, 2));
    switch (y->dtype) {
      case SHOAL_FLOAT32: FILL(float, float, AS_IS)
      case SHOAL_FLOAT16: FILL(f16, float, f16_from_float)
      case SHOAL_BFLOAT16: FILL(bf16, float, bf16_from_float)
      default: FILL(double, double, AS_IS)
    }
    return NULL;
  }
  int64_t start = integer_at(ctx_in(ctx, 0)), delta = integer_at(ctx_in(ctx, 2));
  switch (y->dtype) { /* no element passes the limit; without sign, so that stepping over it cannot overflow */
    case SHOAL_INT8: FILL(uint8_t, uint64_t, (uint8_t))
    case SHOAL_INT16:
    case SHOAL_UINT16: FILL(uint16_t, uint64_t, (uint16_t))
    case SHOAL_INT32:
    case SHOAL_UINT32: FILL(uint32_t, uint64_t, (uint32_t))
    default: FILL(uint64_t, uint64_t, AS_IS)
  }
  return NULL;
}

static shoal_status range_shape(struct shape_ctx *c) {
  struct shape s;
  for (int i = 0; i < 3; i++)
    if (c->in[i].rank > 1) TRY(shape_in_rank(c, i, 0, &s));
  int64_t n = -1;
  if (c->values[0] && c->values[1] && c->values[2]) TRY(range_size(c->values, &n));
  c->out[0] = shape_vector(n);
  return NULL;
}

/* ---- LinSpace ---- */

static shoal_status linspace_run(struct kernel_ctx *ctx) {
  static const char *const names[] = {"start", "stop", "num"};
  for (int i = 0; i < 3; i++)
    if (ctx_in(ctx, i)->rank != 0)
      return INVALID("%s must be a scalar, not shape %s", names[i], tensor_shape_str(ctx_in(ctx, i)));
  double start = floating_at(ctx_in(ctx, 0)), stop = floating_at(ctx_in(ctx, 1));
  int64_t n = int_at(ctx_in(ctx, 2), 0);
  if (n <= 0) return INVALID("Requires num > 0: %" PRId64, n);
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 1, &n, &y));
  for (int64_t i = 0; i < n; i++) {
    /* The last one is stop itself; the others are rounded once. */
    double v = n > 1 && i == n - 1 ? stop : n > 1 ? start + (stop - start) / (double)(n - 1) * (double)i : start;
    switch (y->dtype) {
      case SHOAL_FLOAT32: T_DATA(y, float)[i] = (float)v; break;
      case SHOAL_FLOAT16: T_DATA(y, f16)[i] = f16_from_float((float)v); break;
      case SHOAL_BFLOAT16: T_DATA(y, bf16)[i] = bf16_from_float((float)v); break;
      default: T_DATA(y, double)[i] = v;
    }
  }
  return NULL;
}

static shoal_status linspace_shape(struct shape_ctx *c) {
  struct shape s;
  for (int i = 0; i < 3; i++) TRY(shape_in_rank(c, i, 0, &s));
  int64_t n = -1;
  if (shape_in_int(c, 2, &n) && n <= 0) return INVALID("Requires num > 0: %" PRId64, n);
  c->out[0] = shape_vector(n);
  return NULL;
}

#define RANGE_TYPES (DT_FLOATING | DT_SIGNED | DT(UINT16) | DT(UINT32))
static const struct kernel_def range_kernels[] = {
    {"CPU", "Tidx", RANGE_TYPES, .run = range_run, .host_in = 7, .host_out = 1}, {0}};
static const struct kernel_def linspace_kernels[] = {{"CPU", "T", DT_FLOATING, .run = linspace_run, .host_in = 7}, {0}};

static const struct op_row rows[] = {
    {.name = "Range",
     .in = "start: Tidx, limit: Tidx, delta: Tidx",
     .out = "output: Tidx",
     .attrs = "Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = range_shape,
     .kernels = range_kernels},
    {.name = "LinSpace",
     .in = "start: T, stop: T, num: Tidx",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = linspace_shape,
     .kernels = linspace_kernels},
};
OP_FAMILY(sequence, rows);
