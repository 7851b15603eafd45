/* ArgMax and ArgMin: where along one axis the largest or smallest element is; the first of equals.
 *
 * NaN is never chosen. Along a contiguous axis the extreme is found first, which vectorises, and then its place. */
#include <math.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/vector_math.h"
#include "tensor/each_type.h"

enum { COLUMNS = 128 };

typedef void (*arg_fn)(int64_t *out, const void *in, int64_t n, int64_t stride, int64_t columns);

/* A function's name: max_run_SHOAL_FLOAT32 and so on. */
#define OF_OP(x) NAME(PASTE(OP, _##x))
#define LOOPS "ops/math/arg_reduce_loops.inc"
#define OP max
#define BETTER >
#define START LEAST
#include "tensor/each_floating.inc"
#include "tensor/each_integer.inc"
#undef OP
#undef BETTER
#undef START
#define OP min
#define BETTER <
#define START MOST
#include "tensor/each_floating.inc"
#include "tensor/each_integer.inc"

#define AS(op, type, loops) [SHOAL_##type] = op##_all_SHOAL_##loops
#define OWN(op, type) AS(op, type, type)
#define TABLE(op)                                                                                                      \
  {                                                                                                                    \
    OWN(op, FLOAT32), OWN(op, FLOAT64), OWN(op, FLOAT16), OWN(op, BFLOAT16), OWN(op, INT8), OWN(op, INT16),            \
        OWN(op, INT32), OWN(op, INT64), OWN(op, UINT8), OWN(op, UINT16), OWN(op, UINT32), OWN(op, UINT64),             \
        AS(op, BOOL, UINT8), AS(op, QINT8, INT8), AS(op, QINT16, INT16), AS(op, QINT32, INT32), AS(op, QUINT8, UINT8), \
        AS(op, QUINT16, UINT16)                                                                                        \
  }
static const arg_fn max_fns[DTYPE_COUNT] = TABLE(max), min_fns[DTYPE_COUNT] = TABLE(min);

struct arg_state {
  arg_fn fn;
};

static shoal_status arg_init(struct kernel_init *ki, void *state) {
  shoal_dtype t = dtype_base(ki->kernel->in_types[0]);
  ((struct arg_state *)state)->fn = op_is(ki->kernel->op, "ArgMax") ? max_fns[t] : min_fns[t];
  return NULL;
}

struct arg_task {
  arg_fn fn;
  const char *in;
  struct tensor *out;
  int64_t size, length, inner, columns, chunks;
};

static void store(struct tensor *out, int64_t at, const int64_t *v, int64_t n) {
  switch (out->dtype) {
    case SHOAL_INT64: memcpy(T_DATA(out, int64_t) + at, v, (size_t)n * sizeof *v); break;
    case SHOAL_INT32:
      for (int64_t i = 0; i < n; i++) T_DATA(out, int32_t)[at + i] = (int32_t)v[i];
      break;
    default: /* int16, uint16 */
      for (int64_t i = 0; i < n; i++) T_DATA(out, uint16_t)[at + i] = (uint16_t)v[i];
  }
}

static void arg_range(void *arg, int64_t begin, int64_t end) {
  const struct arg_task *t = arg;
  int64_t found[COLUMNS];
  for (int64_t i = begin; i < end; i++) {
    int64_t o = i / t->chunks, column = i % t->chunks * t->columns, columns = MIN(t->columns, t->inner - column);
    t->fn(found, t->in + (o * t->length * t->inner + column) * t->size, t->length, t->inner, columns);
    store(t->out, o * t->inner + column, found, columns);
  }
}

static int64_t read_dimension(const struct tensor *t) {
  return t->dtype == SHOAL_INT16 ? *T_DATA(t, const int16_t) : int_at(t, 0);
}

static shoal_status arg_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *dim = ctx_in(ctx, 1);
  if (dim->rank != 0) return INVALID("dim must be a scalar, but received tensor of shape: %s", tensor_shape_str(dim));
  int64_t d = read_dimension(dim), axis = d < 0 ? d + x->rank : d;
  if (axis < 0 || axis >= x->rank)
    return INVALID("Expected dimension in the range [%d, %d), but got %" PRId64, -x->rank, x->rank, d);
  if (x->dims[axis] == 0) return INVALID("Reduction axis %" PRId64 " is empty in shape %s", d, tensor_shape_str(x));
  struct shape s = {.rank = x->rank - 1};
  for (int i = 0, k = 0; i < x->rank; i++)
    if (i != axis) s.dims[k++] = x->dims[i];
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (y->n == 0) return NULL;
  struct arg_task t = {.fn = ((struct arg_state *)ctx->state)->fn,
                       .in = x->data,
                       .out = y,
                       .size = (int64_t)dtype_size((shoal_dtype)x->dtype),
                       .length = x->dims[axis],
                       .inner = dims_product(x->dims, (int)axis + 1, x->rank)};
  t.columns = MIN(t.inner, COLUMNS);
  t.chunks = (t.inner + t.columns - 1) / t.columns;
  int64_t outer = dims_product(x->dims, 0, (int)axis);
  pool_for(ctx_pool(ctx), outer * t.chunks, MAX(16384 / MAX(t.length * t.columns, 1), 1), arg_range, &t);
  return NULL;
}

static shoal_status arg_shape(struct shape_ctx *c) {
  if (c->in[0].rank < 0) return NULL;
  if (c->in[0].rank == 0) { /* an error once it runs */
    c->out[0] = shape_scalar();
    return NULL;
  }
  int rank = c->in[0].rank;
  if (!c->values[1]) {
    c->out[0] = shape_unknown_of_rank(rank - 1);
    return NULL;
  }
  int64_t d = read_dimension(c->values[1]), axis = d < 0 ? d + rank : d;
  if (axis < 0 || axis >= rank)
    return INVALID("Dimension (%" PRId64
                   ") must be in the range [%d, %d), where %d is the number of dimensions in "
                   "the input.",
                   d, -rank, rank, rank);
  c->out[0].rank = rank - 1;
  for (int i = 0, k = 0; i < rank; i++)
    if (i != axis) c->out[0].dims[k++] = c->in[0].dims[i];
  return NULL;
}

static const struct kernel_def arg_kernels[] = {
    {"CPU", "T", DT_REAL | DT_QUANTIZED | DT(BOOL), .state_size = sizeof(struct arg_state), .init = arg_init,
     .run = arg_run, .host_in = 2},
    {0}};

static const struct op_row rows[] = {
    {.name = "ArgMax",
     .in = "input: T, dimension: Tidx",
     .out = "output: output_type",
     .attrs = "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
              "qint8, quint8, qint32, qint16, quint16, bool}; Tidx: {int16, int32, int64} = int32; output_type: "
              "{int16, uint16, int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = arg_shape,
     .kernels = arg_kernels},
    {.name = "ArgMin",
     .in = "input: T, dimension: Tidx",
     .out = "output: output_type",
     .attrs = "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
              "qint8, quint8, qint32, qint16, quint16, bool}; Tidx: {int32, int64} = int32; output_type: "
              "{int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = arg_shape,
     .kernels = arg_kernels},
};
OP_FAMILY(arg_reduce, rows);
