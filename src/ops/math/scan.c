/* Scans along an axis: Cumsum, Cumprod, CumulativeLogsumexp; inclusive or exclusive, forwards or in reverse.
 *
 * Each line of the axis is walked in order, halves in float; lines beside each other are walked together, a stretch of
 * columns at a time. */
#include <complex.h>
#include <math.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/grad_help.h"

enum { COLUMNS = 64 };

/* n rows of `columns` elements each, `stride` apart (negative: in reverse). */
typedef void (*scan_fn)(void *out, const void *in, int64_t n, int64_t stride, int64_t columns, bool exclusive);

#define SAME(x) (x)
#define DEFINE(op, tag, type, acc_t, load, save, combine, start)                                                  \
  static void op##_##tag(void *out, const void *in, int64_t n, int64_t stride, int64_t columns, bool exclusive) { \
    const type *p = in;                                                                                           \
    type *o = out;                                                                                                \
    acc_t acc[COLUMNS];                                                                                           \
    for (int64_t j = 0; j < columns; j++) acc[j] = start;                                                         \
    for (int64_t i = 0; i < n; i++, p += stride, o += stride)                                                     \
      for (int64_t j = 0; j < columns; j++) {                                                                     \
        acc_t x = load(p[j]), next = combine(acc[j], x);                                                          \
        o[j] = save(exclusive ? acc[j] : next);                                                                   \
        acc[j] = next;                                                                                            \
      }                                                                                                           \
  }
#define ADD(a, x) ((a) + (x))
#define MULTIPLY(a, x) ((a) * (x))

static double log_sum(double a, double x) {
  double high = fmax(a, x), low = fmin(a, x);
  if (isnan(a) || isnan(x)) return NAN;
  return low == -INFINITY ? high : high + log1p(exp(low - high));
}
static float log_sumf(float a, float x) {
  float high = fmaxf(a, x), low = fminf(a, x);
  if (isnan(a) || isnan(x)) return NAN;
  return low == -INFINITY ? high : high + log1pf(expf(low - high));
}

#define FLOATS(op, combine, combinef, start)                                 \
  DEFINE(op, f32, float, float, SAME, SAME, combinef, start)                 \
  DEFINE(op, f64, double, double, SAME, SAME, combine, start)                \
  DEFINE(op, f16, f16, float, f16_to_float, f16_from_float, combinef, start) \
  DEFINE(op, bf16, bf16, float, bf16_to_float, bf16_from_float, combinef, start)
/* Integers wrap: signed ones take the loops without sign. */
#define WRAP_MULTIPLY(a, x) ((uint64_t)(a) * (x))
#define INTEGERS(op, combine, start)                              \
  DEFINE(op, u8, uint8_t, uint8_t, SAME, SAME, combine, start)    \
  DEFINE(op, u16, uint16_t, uint16_t, SAME, SAME, combine, start) \
  DEFINE(op, u32, uint32_t, uint32_t, SAME, SAME, combine, start) \
  DEFINE(op, u64, uint64_t, uint64_t, SAME, SAME, combine, start)
#define COMPLEXES(op, combine, start)                   \
  DEFINE(op, c64, c64, c64, SAME, SAME, combine, start) \
  DEFINE(op, c128, c128, c128, SAME, SAME, combine, start)

FLOATS(sum, ADD, ADD, 0)
INTEGERS(sum, ADD, 0)
COMPLEXES(sum, ADD, 0)
FLOATS(prod, MULTIPLY, MULTIPLY, 1)
INTEGERS(prod, WRAP_MULTIPLY, 1)
COMPLEXES(prod, MULTIPLY, 1)
FLOATS(lse, log_sum, log_sumf, -INFINITY)

#define FLOAT_ENTRIES(op) \
  [SHOAL_FLOAT32] = op##_f32, [SHOAL_FLOAT64] = op##_f64, [SHOAL_FLOAT16] = op##_f16, [SHOAL_BFLOAT16] = op##_bf16
#define NUMBER_ENTRIES(op)                                                                              \
  FLOAT_ENTRIES(op), [SHOAL_INT8] = op##_u8, [SHOAL_UINT8] = op##_u8, [SHOAL_INT16] = op##_u16,         \
                     [SHOAL_UINT16] = op##_u16, [SHOAL_INT32] = op##_u32, [SHOAL_UINT32] = op##_u32,    \
                     [SHOAL_INT64] = op##_u64, [SHOAL_UINT64] = op##_u64, [SHOAL_COMPLEX64] = op##_c64, \
                     [SHOAL_COMPLEX128] = op##_c128
static const scan_fn sum_fns[DTYPE_COUNT] = {NUMBER_ENTRIES(sum)}, prod_fns[DTYPE_COUNT] = {NUMBER_ENTRIES(prod)},
                     lse_fns[DTYPE_COUNT] = {FLOAT_ENTRIES(lse)};

struct scan_state {
  scan_fn fn;
  bool exclusive, reverse;
};

static shoal_status scan_init(struct kernel_init *ki, void *state) {
  struct scan_state *s = state;
  const struct op *op = ki->kernel->op;
  TRY(node_get_bool(ki->node, "exclusive", &s->exclusive));
  TRY(node_get_bool(ki->node, "reverse", &s->reverse));
  const scan_fn *fns = op_is(op, "Cumsum") ? sum_fns : op_is(op, "Cumprod") ? prod_fns : lse_fns;
  s->fn = fns[dtype_base(ki->kernel->in_types[0])];
  return NULL;
}

struct scan_task {
  const struct scan_state *s;
  char *out;
  const char *in;
  int64_t size, length, inner, columns, chunks;
};

static void scan_range(void *arg, int64_t begin, int64_t end) {
  const struct scan_task *t = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t column = i % t->chunks * t->columns, columns = MIN(t->columns, t->inner - column);
    int64_t at = i / t->chunks * t->length * t->inner + column, stride = t->inner;
    if (t->s->reverse) {
      at += (t->length - 1) * t->inner;
      stride = -stride;
    }
    t->s->fn(t->out + at * t->size, t->in + at * t->size, t->length, stride, columns, t->s->exclusive);
  }
}

static shoal_status scan_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *a = ctx_in(ctx, 1);
  if (a->rank != 0) return INVALID("ScanOp: axis must be a scalar, not %s", tensor_shape_str(a));
  int64_t d = int_at(a, 0), axis = d < 0 ? d + x->rank : d;
  if (axis < 0 || axis >= x->rank)
    return INVALID("ScanOp: Expected scan axis in the range [%d, %d), but got %" PRId64, -x->rank, x->rank, d);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  if (x->n == 0) return NULL;
  struct scan_task t = {.s = ctx->state,
                        .out = y->data,
                        .in = x->data,
                        .size = (int64_t)dtype_size((shoal_dtype)x->dtype),
                        .length = x->dims[axis],
                        .inner = dims_product(x->dims, (int)axis + 1, x->rank)};
  t.columns = MIN(t.inner, COLUMNS);
  t.chunks = (t.inner + t.columns - 1) / t.columns;
  int64_t outer = dims_product(x->dims, 0, (int)axis);
  pool_for(ctx_pool(ctx), outer * t.chunks, MAX(8192 / (t.length * t.columns), 1), scan_range, &t);
  return NULL;
}

/* ---- gradients: scans the other way ---- */

static shoal_out scan_of(struct grad_ctx *c, const char *op, shoal_out x, bool exclusive, bool reverse) {
  struct build b = build_begin(c->g, op, NULL);
  build_in(&b, x);
  build_in(&b, gin(c, 1));
  build_attr_bool(&b, "exclusive", exclusive);
  build_attr_bool(&b, "reverse", reverse);
  return build_end_out(&b);
}

static shoal_status scan_attrs(struct grad_ctx *c, bool *exclusive, bool *reverse) {
  TRY(node_get_bool(c->node, "exclusive", exclusive));
  return node_get_bool(c->node, "reverse", reverse);
}

static shoal_status cumsum_grad(struct grad_ctx *c) {
  bool exclusive, reverse;
  TRY(scan_attrs(c, &exclusive, &reverse));
  grad_set(c, 0, scan_of(c, "Cumsum", grad_dy(c, 0), exclusive, !reverse));
  return NULL;
}

static shoal_status cumprod_grad(struct grad_ctx *c) {
  bool exclusive, reverse;
  TRY(scan_attrs(c, &exclusive, &reverse));
  shoal_out x = gin(c, 0), prod = scan_of(c, "Cumprod", x, exclusive, reverse);
  shoal_out sum = scan_of(c, "Cumsum", g_mul(c, prod, grad_dy(c, 0)), exclusive, !reverse);
  grad_set(c, 0, g_op2(c, "Div", sum, x));
  return NULL;
}

/* Positive and negative gradients apart, in logarithms: exp(x + lse(log |dy| - y)). */
static shoal_status cumulative_logsumexp_grad(struct grad_ctx *c) {
  bool exclusive, reverse;
  TRY(scan_attrs(c, &exclusive, &reverse));
  shoal_out x = gin(c, 0), y = gout(c, 0), dy = grad_dy(c, 0), zero = g_num(c, dy, 0);
  shoal_out lowest = g_num(c, dy, -INFINITY), parts[2];
  for (int k = 0; k < 2; k++) {
    shoal_out sign = g_op2(c, k ? "Less" : "Greater", dy, zero);
    shoal_out l = build_op3(c->g, "SelectV2", sign, g_op(c, "Log", k ? g_neg(c, dy) : dy), lowest);
    shoal_out s = scan_of(c, "CumulativeLogsumexp", g_sub(c, l, y), exclusive, !reverse);
    parts[k] = g_op(c, "Exp", g_add(c, s, x));
  }
  grad_set(c, 0, g_sub(c, parts[0], parts[1]));
  return NULL;
}

#define SCAN(types_) \
  { "CPU", "T", types_, .state_size = sizeof(struct scan_state), .init = scan_init, .run = scan_run, .host_in = 2 }
static const struct kernel_def number_kernels[] = {SCAN(DT_NUMBER), {0}};
static const struct kernel_def float_kernels[] = {SCAN(DT_FLOATING), {0}};

static const struct op_row rows[] = {
    {.name = "Cumsum",
     .in = "x: T, axis: Tidx",
     .out = "out: T",
     .attrs = "exclusive: bool = false; reverse: bool = false; T: {numbertype}; Tidx: {int32, int64} = int32",
     .shape = shape_unchanged,
     .grad = cumsum_grad,
     .kernels = number_kernels},
    {.name = "Cumprod",
     .in = "x: T, axis: Tidx",
     .out = "out: T",
     .attrs = "exclusive: bool = false; reverse: bool = false; T: {numbertype}; Tidx: {int32, int64} = int32",
     .shape = shape_unchanged,
     .grad = cumprod_grad,
     .kernels = number_kernels},
    {.name = "CumulativeLogsumexp",
     .in = "x: T, axis: Tidx",
     .out = "out: T",
     .attrs = "exclusive: bool = false; reverse: bool = false; T: {bfloat16, half, float, double}; Tidx: "
              "{int32, int64} = int32",
     .shape = shape_unchanged,
     .grad = cumulative_logsumexp_grad,
     .kernels = float_kernels},
};
OP_FAMILY(scan, rows);
