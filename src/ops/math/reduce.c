/* Reductions over axes: Sum, Mean, Prod, Max, Min, All, Any, EuclideanNorm, and L2Loss.
 *
 * Axes that lie together are taken as one, and dimensions of size 1 vanish. What is left is reduced one group at a
 * time, the innermost first; each of these passes sees a block [outer, length, inner] and leaves [outer, inner]. A
 * long pass is cut into pieces of a size that depends on the shape alone, whose results are reduced in turn: the
 * result is the same to the last bit for any number of threads. */
#include "ops/math/reduce.h"

#include <complex.h>
#include <math.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/reduce_loops.h"
#include "ops/math/to_integer.h"

/* What becomes of an accumulator in the end. */
enum reduce_finish { FINISH_NONE, FINISH_MEAN, FINISH_ROOT };

struct reduce {
  shoal_dtype dtype, acc;
  const struct reduce_loops *loops, *merge;
  enum reduce_finish finish;
};

/* ---- one pass ---- */

/* Elements of a piece, and the number of independent results from which on a pass is not cut along its length. */
enum { PIECE = 32768, ENOUGH = 8 };

struct reduce_pass {
  const struct reduce_loops *loops, *merge; /* over elements; over accumulators */
  int64_t in_size, out_size;
  const char *in;
  char *out; /* accumulators [outer, pieces, inner] */
  int64_t outer, length, inner;
  int64_t piece, pieces;   /* of length */
  int64_t columns, chunks; /* of inner */
};

/* Rows of few columns: several of them are taken as one wide row, and the wide result is folded. */
static void reduce_narrow(const struct reduce_pass *s, char *out, const char *in, int64_t n) {
  int64_t group = REDUCE_COLUMNS / 2 / s->inner, wide = group > 1 ? n / group : 0;
  if (wide < 4) {
    s->loops->rows(out, in, n, s->inner, s->inner);
    return;
  }
  _Alignas(16) char sums[REDUCE_COLUMNS * sizeof(c128)];
  int64_t left = n - wide * group;
  s->loops->rows(sums, in, wide, group * s->inner, group * s->inner);
  if (left)
    s->loops->rows(sums + group * s->inner * s->out_size, in + wide * group * s->inner * s->in_size, left, s->inner,
                   s->inner);
  s->merge->rows(out, sums, group + (left > 0), s->inner, s->inner);
}

/* Work item i: a result (or a chunk of columns of one), and a piece of its length. */
static void pass_item(const struct reduce_pass *s, int64_t i) {
  int64_t chunk = i % s->chunks, piece = i / s->chunks % s->pieces, o = i / s->chunks / s->pieces;
  int64_t first = piece * s->piece, n = MIN(s->piece, s->length - first);
  int64_t column = chunk * s->columns, columns = MIN(s->columns, s->inner - column);
  const char *in = s->in + ((o * s->length + first) * s->inner + column) * s->in_size;
  char *out = s->out + ((o * s->pieces + piece) * s->inner + column) * s->out_size;
  if (s->inner == 1) s->loops->run(out, in, n);
  else if (s->chunks == 1 && s->inner <= REDUCE_COLUMNS / 4) reduce_narrow(s, out, in, n);
  else s->loops->rows(out, in, n, s->inner, columns);
}

static void pass_range(void *arg, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) pass_item(arg, i);
}

/* [outer, length, inner] of elements to [outer, inner] of accumulators. */
static shoal_status reduce_pass(struct kernel_ctx *ctx, const struct reduce *r, bool elements, const void *in,
                                int64_t outer, int64_t length, int64_t inner, void *out) {
  if (outer == 0 || inner == 0) return NULL;
  struct reduce_pass s = {.loops = elements ? r->loops : r->merge,
                          .merge = r->merge,
                          .in_size = (int64_t)dtype_size(elements ? r->dtype : r->acc),
                          .out_size = (int64_t)dtype_size(r->acc),
                          .in = in,
                          .outer = outer,
                          .length = length,
                          .inner = inner,
                          .piece = MAX(length, 1),
                          .pieces = 1};
  s.columns = MIN(inner, REDUCE_COLUMNS);
  s.chunks = (inner + s.columns - 1) / s.columns;
  if (outer * s.chunks < ENOUGH && length > 2 * MAX(PIECE / inner, 64)) {
    s.piece = MAX(PIECE / inner, 64);
    s.pieces = (length + s.piece - 1) / s.piece;
  }
  struct tensor parts = tensor_none();
  if (s.pieces > 1) {
    struct shape shape = {.rank = 3, .dims = {outer, s.pieces, inner}};
    TRY(ctx_temp(ctx, r->acc, &shape, &parts));
  }
  s.out = s.pieces > 1 ? parts.data : out;
  int64_t work = MAX(s.piece * s.columns, 1);
  pool_for(ctx_pool(ctx), outer * s.pieces * s.chunks, MAX(PIECE / work, 1), pass_range, &s);
  shoal_status status = NULL;
  if (s.pieces > 1) {
    status = reduce_pass(ctx, r, false, parts.data, outer, s.pieces, inner, out);
    tensor_release(&parts);
  }
  return status;
}

/* ---- axes ---- */

shoal_status reduce_axes(const struct tensor *axes, int rank, bool *reduced) {
  for (int i = 0; i < rank; i++) reduced[i] = false;
  for (int64_t i = 0; i < axes->n; i++) {
    int64_t a = int_at(axes, i), at = a < 0 ? a + rank : a;
    if (at < 0 || at >= rank)
      return INVALID("Invalid reduction dimension (%" PRId64 " for input with %d dimension(s)", a, rank);
    if (reduced[at]) return INVALID("Invalid reduction arguments: Axes contains duplicate dimension: %" PRId64, at);
    reduced[at] = true;
  }
  return NULL;
}

/* Groups of neighbouring dimensions with one fate, sizes of 1 left out. */
struct groups {
  int n;
  int64_t size[SHOAL_MAX_RANK];
  bool reduced[SHOAL_MAX_RANK];
};

static void group(struct groups *g, const struct tensor *x, const bool *reduced) {
  g->n = 0;
  for (int i = 0; i < x->rank; i++) {
    if (x->dims[i] == 1) continue;
    if (g->n && g->reduced[g->n - 1] == reduced[i]) g->size[g->n - 1] *= x->dims[i];
    else {
      g->size[g->n] = x->dims[i];
      g->reduced[g->n++] = reduced[i];
    }
  }
}

/* Reduces x over the dimensions marked, into out: accumulators (r->acc), one for each kept element. */
static shoal_status reduce_tensor(struct kernel_ctx *ctx, const struct reduce *r, const struct tensor *x,
                                  const bool *reduced, void *out) {
  struct groups g;
  group(&g, x, reduced);
  const void *in = x->data;
  bool elements = true, any = false;
  struct tensor held = tensor_none(); /* the last pass's result */
  int64_t total = 1;
  for (int i = 0; i < g.n; i++) {
    total *= g.size[i];
    any |= g.reduced[i];
  }
  if (!any) return reduce_pass(ctx, r, true, in, total, 1, 1, out);
  for (int i = g.n - 1; i >= 0; i--) {
    if (!g.reduced[i]) continue;
    int64_t outer = 1, inner = 1;
    bool last = true;
    for (int k = 0; k < i; k++) {
      outer *= g.size[k];
      if (g.reduced[k]) last = false;
    }
    for (int k = i + 1; k < g.n; k++)
      if (!g.reduced[k]) inner *= g.size[k];
    struct tensor next = tensor_none();
    if (!last) {
      struct shape s = shape_matrix(outer, inner);
      shoal_status status = ctx_temp(ctx, r->acc, &s, &next);
      if (status) {
        tensor_release(&held);
        return status;
      }
    }
    shoal_status status = reduce_pass(ctx, r, elements, in, outer, g.size[i], inner, last ? out : next.data);
    tensor_release(&held);
    held = next;
    if (status || last) {
      tensor_release(&held);
      return status;
    }
    in = held.data;
    elements = false;
  }
  return NULL;
}

/* ---- the end: from accumulators to elements ---- */

#define FINISH_INTS(type, acc_t)                                                           \
  for (int64_t i = 0; i < n; i++) {                                                        \
    acc_t v = ((const acc_t *)acc)[i];                                                     \
    if (finish == FINISH_MEAN) v = count ? v / (acc_t)count : 0;                           \
    else if (finish == FINISH_ROOT)                                                        \
      v = _Generic(v, int64_t : double_to_i64, uint64_t : double_to_u64)(sqrt((double)v)); \
    ((type *)out)[i] = (type)v;                                                            \
  }
#define FINISH_FLOATS(type, acc_t, store, divisor, root) \
  for (int64_t i = 0; i < n; i++) {                      \
    acc_t v = ((const acc_t *)acc)[i];                   \
    if (finish == FINISH_MEAN) v = v / (divisor);        \
    else if (finish == FINISH_ROOT) v = root(v);         \
    ((type *)out)[i] = store(v);                         \
  }
#define AS_IS(v) (v)

/* n accumulators to elements of type t; out may be acc when the types are the same. count is what a mean divides by. */
static void reduce_finish(shoal_dtype t, enum reduce_finish finish, int64_t count, void *out, const void *acc,
                          int64_t n) {
  switch (t) {
    case SHOAL_FLOAT32: FINISH_FLOATS(float, float, AS_IS, (float)count, sqrtf) break;
    case SHOAL_FLOAT64: FINISH_FLOATS(double, double, AS_IS, (double)count, sqrt) break;
    case SHOAL_FLOAT16: FINISH_FLOATS(f16, float, f16_from_float, (float)count, sqrtf) break;
    case SHOAL_BFLOAT16: FINISH_FLOATS(bf16, float, bf16_from_float, (float)count, sqrtf) break;
    /* The mean of no complex numbers is 0, as TensorFlow has it; that of no real ones is NaN. */
    case SHOAL_COMPLEX64: FINISH_FLOATS(c64, c64, AS_IS, (float)MAX(count, 1), csqrtf) break;
    case SHOAL_COMPLEX128: FINISH_FLOATS(c128, c128, AS_IS, (double)MAX(count, 1), csqrt) break;
    case SHOAL_INT8:
    case SHOAL_QINT8: FINISH_INTS(int8_t, int64_t) break;
    case SHOAL_INT16:
    case SHOAL_QINT16: FINISH_INTS(int16_t, int64_t) break;
    case SHOAL_INT32:
    case SHOAL_QINT32: FINISH_INTS(int32_t, int64_t) break;
    case SHOAL_INT64: FINISH_INTS(int64_t, int64_t) break;
    case SHOAL_BOOL:
    case SHOAL_QUINT8:
    case SHOAL_UINT8: FINISH_INTS(uint8_t, int64_t) break;
    case SHOAL_QUINT16:
    case SHOAL_UINT16: FINISH_INTS(uint16_t, int64_t) break;
    case SHOAL_UINT32: FINISH_INTS(uint32_t, int64_t) break;
    default: FINISH_INTS(uint64_t, uint64_t) break;
  }
}

/* ---- kernels ---- */

static shoal_status reduce_init(struct reduce *r, enum reduce_op op, shoal_dtype dtype, enum reduce_finish finish) {
  r->dtype = dtype;
  r->acc = reduce_accumulator(dtype);
  r->loops = reduce_loops_for(op, dtype);
  r->merge = reduce_loops_for(op == REDUCE_SQUARES ? REDUCE_SUM : op, r->acc);
  r->finish = finish;
  if (!r->loops->run) return UNIMPLEMENTED("Reduction of %s is not supported", dtype_tf_name(dtype));
  return NULL;
}

static const struct {
  const char *op;
  enum reduce_op reduce;
  enum reduce_finish finish;
} kinds[] = {{"Sum", REDUCE_SUM, FINISH_NONE},   {"Mean", REDUCE_SUM, FINISH_MEAN},
             {"Prod", REDUCE_PROD, FINISH_NONE}, {"Max", REDUCE_MAX, FINISH_NONE},
             {"Min", REDUCE_MIN, FINISH_NONE},   {"All", REDUCE_MIN, FINISH_NONE},
             {"Any", REDUCE_MAX, FINISH_NONE},   {"EuclideanNorm", REDUCE_SQUARES, FINISH_ROOT}};

struct reduction_state {
  struct reduce r;
  bool keep_dims;
};

static shoal_status reduction_init(struct kernel_init *ki, void *state) {
  struct reduction_state *k = state;
  TRY(node_get_bool(ki->node, "keep_dims", &k->keep_dims));
  for (size_t i = 0; i < COUNT_OF(kinds); i++)
    if (op_is(ki->kernel->op, kinds[i].op))
      return reduce_init(&k->r, kinds[i].reduce, dtype_base(ki->kernel->in_types[0]), kinds[i].finish);
  return INTERNAL("%s is no reduction", ki->kernel->op->name);
}

static shoal_status reduction_run(struct kernel_ctx *ctx) {
  const struct reduction_state *k = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  bool reduced[SHOAL_MAX_RANK];
  TRY(reduce_axes(ctx_in(ctx, 1), x->rank, reduced));
  struct shape shape = {.rank = 0};
  int64_t count = 1, n = 1;
  for (int i = 0; i < x->rank; i++) {
    if (reduced[i]) count *= x->dims[i];
    else n *= x->dims[i];
    if (!reduced[i]) shape.dims[shape.rank++] = x->dims[i];
    else if (k->keep_dims) shape.dims[shape.rank++] = 1;
  }
  if (count == 1 && k->r.finish != FINISH_ROOT) return ctx_forward(ctx, 0, 0, &shape);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &shape, &y));
  if (k->r.acc == k->r.dtype) {
    TRY(reduce_tensor(ctx, &k->r, x, reduced, y->data));
    if (k->r.finish != FINISH_NONE) reduce_finish(k->r.dtype, k->r.finish, count, y->data, y->data, n);
    return NULL;
  }
  struct tensor acc;
  struct shape flat = shape_vector(n);
  TRY(ctx_temp(ctx, k->r.acc, &flat, &acc));
  shoal_status s = reduce_tensor(ctx, &k->r, x, reduced, acc.data);
  if (!s) reduce_finish(k->r.dtype, k->r.finish, count, y->data, acc.data, n);
  tensor_release(&acc);
  return s;
}

/* ---- L2Loss: half the sum of squares ---- */

static shoal_status l2_loss_init(struct kernel_init *ki, void *state) {
  return reduce_init(state, REDUCE_SQUARES, dtype_base(ki->kernel->in_types[0]), FINISH_NONE);
}

union sum {
  float f; /* of half precision too */
  double d;
};

static shoal_status sum_squares(struct kernel_ctx *ctx, const struct reduce *r, const struct tensor *x,
                                union sum *out) {
  bool all[SHOAL_MAX_RANK];
  for (int i = 0; i < x->rank; i++) all[i] = true;
  return reduce_tensor(ctx, r, x, all, out);
}

static shoal_status l2_loss_run(struct kernel_ctx *ctx) {
  const struct reduce *r = ctx->state;
  union sum sum;
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  TRY(sum_squares(ctx, r, ctx_in(ctx, 0), &sum));
  switch (r->dtype) {
    case SHOAL_FLOAT64: *T_DATA(y, double) = sum.d / 2; break;
    case SHOAL_FLOAT16: *T_DATA(y, f16) = f16_from_float(sum.f / 2); break;
    case SHOAL_BFLOAT16: *T_DATA(y, bf16) = bf16_from_float(sum.f / 2); break;
    default: *T_DATA(y, float) = sum.f / 2; break;
  }
  return NULL;
}

shoal_status reduce_l2_loss(struct kernel_ctx *ctx, const struct tensor *x, float *out) {
  struct reduce r;
  union sum sum;
  TRY(reduce_init(&r, REDUCE_SQUARES, (shoal_dtype)x->dtype, FINISH_NONE));
  TRY(sum_squares(ctx, &r, x, &sum));
  *out = sum.f / 2;
  return NULL;
}

/* ---- rows ---- */

#define REDUCTION(types_)                                                                                           \
  {                                                                                                                 \
    "CPU", "T", types_, .state_size = sizeof(struct reduction_state), .init = reduction_init, .run = reduction_run, \
                        .host_in = 2                                                                                \
  }
static const struct kernel_def number_kernels[] = {REDUCTION(DT_NUMBER), {0}};
static const struct kernel_def real_kernels[] = {REDUCTION(DT_REAL | DT_QUANTIZED), {0}};
static const struct kernel_def bool_kernels[] = {
    {"CPU", .state_size = sizeof(struct reduction_state), .init = reduction_init, .run = reduction_run, .host_in = 2},
    {0}};
static const struct kernel_def l2_loss_kernels[] = {
    {"CPU", "T", DT_FLOATING, .state_size = sizeof(struct reduce), .init = l2_loss_init, .run = l2_loss_run}, {0}};

static const struct op_row rows[] = {
    {.name = "Sum",
     .in = "input: T, reduction_indices: Tidx",
     .out = "output: T",
     .attrs = "keep_dims: bool = false; T: {numbertype}; Tidx: {int32, int64} = int32",
     .shape = shape_reduction,
     .grad = reduce_sum_grad,
     .kernels = number_kernels},
    {.name = "Mean",
     .in = "input: T, reduction_indices: Tidx",
     .out = "output: T",
     .attrs = "keep_dims: bool = false; T: {numbertype}; Tidx: {int32, int64} = int32",
     .shape = shape_reduction,
     .grad = reduce_mean_grad,
     .kernels = number_kernels},
    {.name = "Prod",
     .in = "input: T, reduction_indices: Tidx",
     .out = "output: T",
     .attrs = "keep_dims: bool = false; T: {numbertype}; Tidx: {int32, int64} = int32",
     .shape = shape_reduction,
     .grad = reduce_prod_grad,
     .kernels = number_kernels},
    {.name = "Max",
     .in = "input: T, reduction_indices: Tidx",
     .out = "output: T",
     .attrs = "keep_dims: bool = false; T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, "
              "half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: {int32, int64} = int32",
     .shape = shape_reduction,
     .grad = reduce_extreme_grad,
     .kernels = real_kernels},
    {.name = "Min",
     .in = "input: T, reduction_indices: Tidx",
     .out = "output: T",
     .attrs = "keep_dims: bool = false; T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, "
              "half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: {int32, int64} = int32",
     .shape = shape_reduction,
     .grad = reduce_extreme_grad,
     .kernels = real_kernels},
    {.name = "All",
     .in = "input: bool, reduction_indices: Tidx",
     .out = "output: bool",
     .attrs = "keep_dims: bool = false; Tidx: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_reduction,
     .kernels = bool_kernels},
    {.name = "Any",
     .in = "input: bool, reduction_indices: Tidx",
     .out = "output: bool",
     .attrs = "keep_dims: bool = false; Tidx: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_reduction,
     .kernels = bool_kernels},
    {.name = "EuclideanNorm",
     .in = "input: T, reduction_indices: Tidx",
     .out = "output: T",
     .attrs = "keep_dims: bool = false; T: {numbertype}; Tidx: {int32, int64} = int32",
     .shape = shape_reduction,
     .grad = reduce_norm_grad,
     .kernels = number_kernels},
    {.name = "L2Loss",
     .in = "t: T",
     .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double}",
     .shape = shape_scalar_out,
     .grad = reduce_l2_loss_grad,
     .kernels = l2_loss_kernels},
};
OP_FAMILY(reduce, rows);
