/* Reductions of rows by segment: SegmentSum and its kin over sorted ids, UnsortedSegmentSum and its kin over any.
 * Both start from the operation's neutral row and apply rows in order, so results do not depend on threads. */
#include "ops/math/segment.h"

#include <float.h>
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/state/state.h"

enum segment_kind { SUM, MEAN, PROD, MIN_OF, MAX_OF };
static const enum update step_of[] = {UPDATE_ADD, UPDATE_ADD, UPDATE_MUL, UPDATE_MIN, UPDATE_MAX};

/* ---- neutral elements ---- */

union element {
  float f;
  double d;
  uint64_t u;
  int64_t i;
  uint16_t h;
  c64 c;
  c128 z;
};

static union element one_of(shoal_dtype t) {
  union element e = {.u = 1};
  if (t == SHOAL_FLOAT32) e.f = 1;
  else if (t == SHOAL_FLOAT64) e.d = 1;
  else if (t == SHOAL_FLOAT16) e.h = f16_from_float(1).bits;
  else if (t == SHOAL_BFLOAT16) e.h = bf16_from_float(1).bits;
  else if (t == SHOAL_COMPLEX64) e.c = 1;
  else if (t == SHOAL_COMPLEX128) e.z = 1;
  return e;
}

/* The lowest (or highest) finite value. */
static union element extreme_of(shoal_dtype t, bool lowest) {
  union element e = {.u = 0};
  switch (t) {
    case SHOAL_FLOAT32: e.f = lowest ? -FLT_MAX : FLT_MAX; break;
    case SHOAL_FLOAT64: e.d = lowest ? -DBL_MAX : DBL_MAX; break;
    case SHOAL_FLOAT16: e.h = lowest ? 0xfbff : 0x7bff; break;
    case SHOAL_BFLOAT16: e.h = lowest ? 0xff7f : 0x7f7f; break;
    case SHOAL_INT8: e.i = lowest ? INT8_MIN : INT8_MAX; break;
    case SHOAL_INT16: e.i = lowest ? INT16_MIN : INT16_MAX; break;
    case SHOAL_INT32: e.i = lowest ? INT32_MIN : INT32_MAX; break;
    case SHOAL_INT64: e.i = lowest ? INT64_MIN : INT64_MAX; break;
    default: e.u = lowest ? 0 : UINT64_MAX;
  }
  return e;
}

static union element neutral(enum segment_kind k, shoal_dtype t) {
  if (k == PROD) return one_of(t);
  if (k == MIN_OF || k == MAX_OF) return extreme_of(t, k == MAX_OF);
  return (union element){.u = 0};
}

/* row /= count, as the type divides. */
static void divide_row(shoal_dtype t, void *row, int64_t n, int64_t count) {
#define DIVIDE(type, over)                                             \
  do {                                                                 \
    type *x = row;                                                     \
    for (int64_t i = 0; i < n; i++) x[i] = (type)(x[i] / (over)count); \
  } while (0)
  switch (t) {
    case SHOAL_FLOAT32: DIVIDE(float, float); break;
    case SHOAL_FLOAT64: DIVIDE(double, double); break;
    case SHOAL_COMPLEX64: DIVIDE(c64, float); break;
    case SHOAL_COMPLEX128: DIVIDE(c128, double); break;
    case SHOAL_INT8: DIVIDE(int8_t, int64_t); break;
    case SHOAL_INT16: DIVIDE(int16_t, int64_t); break;
    case SHOAL_INT32: DIVIDE(int32_t, int64_t); break;
    case SHOAL_INT64: DIVIDE(int64_t, int64_t); break;
    case SHOAL_UINT8: DIVIDE(uint8_t, uint64_t); break;
    case SHOAL_UINT16: DIVIDE(uint16_t, uint64_t); break;
    case SHOAL_UINT32: DIVIDE(uint32_t, uint64_t); break;
    case SHOAL_UINT64: DIVIDE(uint64_t, uint64_t); break;
    case SHOAL_FLOAT16:
      for (int64_t i = 0; i < n; i++) ((f16 *)row)[i] = f16_from_float(f16_to_float(((f16 *)row)[i]) / (float)count);
      break;
    default:
      for (int64_t i = 0; i < n; i++)
        ((bf16 *)row)[i] = bf16_from_float(bf16_to_float(((bf16 *)row)[i]) / (float)count);
  }
}

/* ---- sorted ---- */

shoal_status segment_end(const struct tensor *ids, int64_t i, int64_t rows, bool *is_end) {
  int64_t id = int_at(ids, i - 1);
  *is_end = i == ids->n || int_at(ids, i) != id;
  if (!*is_end) return NULL;
  if (i < ids->n && int_at(ids, i) < id) return INVALID("segment ids are not increasing");
  if (id < 0 || id >= rows)
    return INVALID("Segment id %" PRId64 " out of range [0, %" PRId64
                   "), possibly because 'segment_ids' input is not sorted.",
                   id, rows);
  return NULL;
}

static shoal_status check_sorted(const struct tensor *ids, int64_t rows) {
  bool is_end;
  for (int64_t i = 1; i <= ids->n; i++) TRY(segment_end(ids, i, rows, &is_end));
  return NULL;
}

static shoal_status segment(struct kernel_ctx *ctx, enum segment_kind kind) {
  const struct tensor *x = ctx_in(ctx, 0), *ids = ctx_in(ctx, 1);
  if (x->rank < 1) return INVALID("input must be at least rank 1");
  if (ids->rank != 1) return INVALID("segment_ids should be a vector.");
  if (ids->n != x->dims[0]) return INVALID("segment_ids should be the same size as dimension 0 of input.");
  struct shape s = tensor_shape(x);
  if (ids->n && int_at(ids, ids->n - 1) == INT64_MAX) return INVALID("segment ids are too large");
  s.dims[0] = ids->n ? int_at(ids, ids->n - 1) + 1 : 0;
  if (ids->n && s.dims[0] <= 0) return INVALID("segment ids must be >= 0");
  TRY(check_sorted(ids, s.dims[0]));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  shoal_dtype t = (shoal_dtype)x->dtype;
  int64_t width = dims_product(s.dims, 1, s.rank), next = 0;
  size_t bytes = (size_t)width * dtype_size(t);
  union element gap = kind == PROD ? one_of(t) : (union element){.u = 0};
  update_fn fn = update_find(step_of[kind], t);
  for (int64_t i = 0; i < ids->n;) {
    int64_t id = int_at(ids, i), first = i;
    elements_fill(NULL, t, (char *)y->data + (size_t)next * bytes, &gap, (id - next) * width);
    char *row = (char *)y->data + (size_t)id * bytes;
    memcpy(row, (const char *)x->data + (size_t)i * bytes, bytes);
    for (i++; i < ids->n && int_at(ids, i) == id; i++) fn(t, row, (const char *)x->data + (size_t)i * bytes, width);
    if (kind == MEAN) divide_row(t, row, width, i - first);
    next = id + 1;
  }
  return NULL;
}

static shoal_status sum_run(struct kernel_ctx *ctx) { return segment(ctx, SUM); }
static shoal_status mean_run(struct kernel_ctx *ctx) { return segment(ctx, MEAN); }
static shoal_status prod_run(struct kernel_ctx *ctx) { return segment(ctx, PROD); }
static shoal_status min_run(struct kernel_ctx *ctx) { return segment(ctx, MIN_OF); }
static shoal_status max_run(struct kernel_ctx *ctx) { return segment(ctx, MAX_OF); }

static shoal_status segment_shape(struct shape_ctx *c) {
  struct shape ids;
  TRY(shape_in_rank(c, 1, 1, &ids));
  TRY(shape_in_rank_at_least(c, 0, 1, &c->out[0]));
  if (c->out[0].rank > 0) c->out[0].dims[0] = -1;
  return NULL;
}

static shoal_status sum_grad(struct grad_ctx *c) {
  grad_set(c, 0, array_gather(c->g, grad_dy(c, 0), gin(c, 1), 0));
  return NULL;
}

static shoal_status mean_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out x = gin(c, 0), ids = gin(c, 1), dy = grad_dy(c, 0);
  shoal_out ones_shape[2] = {
      array_shape(g, ids, SHOAL_INT32),
      build_op2(g, "Fill",
                array_expand(g, build_op2(g, "Sub", array_rank(g, x), build_const_int(g, SHOAL_INT32, 1)), 0),
                build_const_int(g, SHOAL_INT32, 1))};
  shoal_out ones = build_op2(g, "Fill", array_concat(g, ones_shape, 2, 0), build_const_float(g, out_type(dy), 1));
  shoal_out scaled = build_op2(g, "RealDiv", dy, build_op2(g, "SegmentSum", ones, ids));
  grad_set(c, 0, array_gather(g, scaled, ids, 0));
  return NULL;
}

/* Shared evenly among the rows that equal the result. */
static shoal_status extreme_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out x = gin(c, 0), ids = gin(c, 1), dy = grad_dy(c, 0);
  shoal_out chosen = build_op2(g, "Equal", x, array_gather(g, gout(c, 0), ids, 0));
  shoal_out count = build_op2(g, "SegmentSum", build_cast(g, chosen, out_type(dy)), ids);
  shoal_out share = array_gather(g, build_op2(g, "RealDiv", dy, count), ids, 0);
  grad_set(c, 0, build_op3(g, "Select", chosen, share, array_zeros_like(g, share)));
  return NULL;
}

/* ---- unsorted ---- */

shoal_status unsorted_segment_shape(const struct tensor *x, const struct tensor *ids, const struct tensor *num,
                                    struct shape *out) {
  if (num->rank != 0) return INVALID("num_segments should be a scalar, not shape %s", tensor_shape_str(num));
  bool prefix = ids->rank <= x->rank;
  for (int i = 0; prefix && i < ids->rank; i++) prefix = ids->dims[i] == x->dims[i];
  if (!prefix)
    return INVALID("data.shape = %s does not start with segment_ids.shape = %s", tensor_shape_str(x),
                   tensor_shape_str(ids));
  int64_t rows = int_at(num, 0);
  if (rows < 0) return INVALID("Input num_segments == %" PRId64 " must not be negative.", rows);
  if (x->rank - ids->rank + 1 > SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  *out = (struct shape){.rank = 1, .dims = {rows}};
  for (int i = ids->rank; i < x->rank; i++) out->dims[out->rank++] = x->dims[i];
  return NULL;
}

static shoal_status unsorted(struct kernel_ctx *ctx, enum segment_kind kind) {
  const struct tensor *x = ctx_in(ctx, 0), *ids = ctx_in(ctx, 1);
  struct shape s;
  TRY(unsorted_segment_shape(x, ids, ctx_in(ctx, 2), &s));
  int64_t rows = s.dims[0];
  for (int64_t i = 0; i < ids->n; i++)
    if (int_at(ids, i) >= rows)
      return INVALID("segment_ids%s = %" PRId64 " is out of range [0, %" PRId64 ")",
                     ids->rank ? place_str(ids->rank, ids->dims, i) : "", int_at(ids, i), rows);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  shoal_dtype t = (shoal_dtype)x->dtype;
  if (kind == SUM) tensor_zero(y);
  else {
    union element start = neutral(kind, t);
    elements_fill(ctx_pool(ctx), t, y->data, &start, y->n);
  }
  if (!y->n || !x->n) return NULL;
  struct row_update u = {.dtype = t,
                         .fn = update_find(step_of[kind], t),
                         .to = y->data,
                         .by = x->data,
                         .ids = ids,
                         .n = ids->n,
                         .rows = rows,
                         .width = dims_product(s.dims, 1, s.rank)};
  rows_update(ctx_pool(ctx), &u);
  return NULL;
}

static shoal_status unsorted_sum_run(struct kernel_ctx *ctx) { return unsorted(ctx, SUM); }
static shoal_status unsorted_prod_run(struct kernel_ctx *ctx) { return unsorted(ctx, PROD); }
static shoal_status unsorted_min_run(struct kernel_ctx *ctx) { return unsorted(ctx, MIN_OF); }
static shoal_status unsorted_max_run(struct kernel_ctx *ctx) { return unsorted(ctx, MAX_OF); }

static shoal_status unsorted_shape(struct shape_ctx *c) {
  const struct shape *x = &c->in[0], *ids = &c->in[1];
  int64_t rows = -1;
  if (shape_in_int(c, 2, &rows) && rows < 0) return INVALID("Dimension size, given by scalar input 2 must be >= 0");
  if (x->rank < 0 || ids->rank < 0) return NULL;
  if (ids->rank > x->rank) return INVALID("Shape must be at least rank %d but is rank %d", ids->rank, x->rank);
  for (int i = 0; i < ids->rank; i++)
    if (x->dims[i] >= 0 && ids->dims[i] >= 0 && x->dims[i] != ids->dims[i])
      return INVALID("Dimensions must be equal, but are %" PRId64 " and %" PRId64, x->dims[i], ids->dims[i]);
  if (x->rank - ids->rank + 1 > SHOAL_MAX_RANK) return NULL;
  c->out[0] = (struct shape){.rank = 1, .dims = {rows}};
  for (int i = ids->rank; i < x->rank; i++) c->out[0].dims[c->out[0].rank++] = x->dims[i];
  return NULL;
}

/* Rows of params by id; zeros where the id is negative. *positive gets the mask, in the shape of the result. */
static shoal_out gather_positive(struct shoal_graph *g, shoal_out params, shoal_out ids, shoal_out *positive) {
  shoal_out clipped = build_op2(g, "Maximum", ids, array_zeros_like(g, ids));
  shoal_out rows = array_gather(g, params, clipped, 0);
  shoal_out mask = build_op2(g, "GreaterEqual", ids, build_const_int(g, out_type(ids), 0));
  shoal_out extra =
      build_op2(g, "Fill", array_expand(g, build_op2(g, "Sub", array_rank(g, rows), array_rank(g, ids)), 0),
                build_const_int(g, SHOAL_INT32, 1));
  shoal_out shape[2] = {array_shape(g, ids, SHOAL_INT32), extra};
  mask = array_reshape(g, mask, array_concat(g, shape, 2, 0));
  *positive = mask;
  return build_op3(g, "SelectV2", mask, rows, array_zeros_like(g, rows));
}

static shoal_status unsorted_sum_grad(struct grad_ctx *c) {
  shoal_out mask;
  grad_set(c, 0, gather_positive(c->g, grad_dy(c, 0), gin(c, 1), &mask));
  return NULL;
}

static shoal_status unsorted_extreme_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out x = gin(c, 0), ids = gin(c, 1), num = gin(c, 2), dy = grad_dy(c, 0), mask;
  shoal_out chosen = build_op2(g, "Equal", x, gather_positive(g, gout(c, 0), ids, &mask));
  chosen = build_op2(g, "LogicalAnd", chosen, mask);
  shoal_out count = build_op3(g, "UnsortedSegmentSum", build_cast(g, chosen, out_type(dy)), ids, num);
  shoal_out share = gather_positive(g, build_op2(g, "RealDiv", dy, count), ids, &mask);
  grad_set(c, 0, build_op3(g, "SelectV2", chosen, share, array_zeros_like(g, share)));
  return NULL;
}

/* The product divided by the element; where a segment has one zero only that element has a gradient, the product
 * of the others; where it has more, none has. */
static shoal_status unsorted_prod_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out x = gin(c, 0), ids = gin(c, 1), num = gin(c, 2), dy = grad_dy(c, 0), mask;
  shoal_out is_zero = build_op2(g, "Equal", x, array_zeros_like(g, x));
  shoal_out zeros = build_op3(g, "UnsortedSegmentSum", build_cast(g, is_zero, SHOAL_INT32), ids, num);
  dy = build_op3(g, "SelectV2", build_op2(g, "Greater", zeros, build_const_int(g, SHOAL_INT32, 1)),
                 array_zeros_like(g, dy), dy);
  shoal_out others =
      build_op3(g, "UnsortedSegmentProd", build_op3(g, "SelectV2", is_zero, build_op1(g, "OnesLike", x), x), ids, num);
  shoal_out clipped = build_op2(g, "Maximum", ids, array_zeros_like(g, ids));
  shoal_out part = build_op3(g, "SelectV2", is_zero, array_gather(g, others, clipped, 0),
                             build_op2(g, "RealDiv", array_gather(g, gout(c, 0), clipped, 0), x));
  grad_set(c, 0, build_op2(g, "Mul", gather_positive(g, dy, ids, &mask), part));
  return NULL;
}

/* The same for sorted ids, none of which is negative. */
static shoal_status prod_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out x = gin(c, 0), ids = gin(c, 1), dy = grad_dy(c, 0);
  shoal_out is_zero = build_op2(g, "Equal", x, array_zeros_like(g, x));
  shoal_out zeros = build_op2(g, "SegmentSum", build_cast(g, is_zero, SHOAL_INT32), ids);
  dy = build_op3(g, "SelectV2", build_op2(g, "Greater", zeros, build_const_int(g, SHOAL_INT32, 1)),
                 array_zeros_like(g, dy), dy);
  shoal_out filled = build_op3(g, "SelectV2", is_zero, build_op1(g, "OnesLike", x), x);
  shoal_out others = build_op2(g, "SegmentProd", filled, ids);
  shoal_out part = build_op3(g, "SelectV2", is_zero, array_gather(g, others, ids, 0),
                             build_op2(g, "RealDiv", array_gather(g, gout(c, 0), ids, 0), filled));
  grad_set(c, 0, build_op2(g, "Mul", array_gather(g, dy, ids, 0), part));
  return NULL;
}

#define KERNELS(name, mask)                           \
  static const struct kernel_def name##_kernels[] = { \
      {.device = "CPU", .type_attr = "T", .types = mask, .run = name##_run}, {0}}
KERNELS(sum, DT_NUMBER);
KERNELS(mean, DT_NUMBER);
KERNELS(prod, DT_NUMBER);
KERNELS(min, DT_REAL);
KERNELS(max, DT_REAL);
KERNELS(unsorted_sum, DT_NUMBER);
KERNELS(unsorted_prod, DT_NUMBER);
KERNELS(unsorted_min, DT_REAL);
KERNELS(unsorted_max, DT_REAL);

static const struct op_row rows[] = {
    {.name = "SegmentSum",
     .in = "data: T, segment_ids: Tindices",
     .out = "output: T",
     .attrs = "T: {numbertype}; Tindices: {int32, int64}",
     .shape = segment_shape,
     .grad = sum_grad,
     .kernels = sum_kernels},
    {.name = "SegmentMean",
     .in = "data: T, segment_ids: Tindices",
     .out = "output: T",
     .attrs = "T: {numbertype}; Tindices: {int32, int64}",
     .shape = segment_shape,
     .grad = mean_grad,
     .kernels = mean_kernels},
    {.name = "SegmentProd",
     .in = "data: T, segment_ids: Tindices",
     .out = "output: T",
     .attrs = "T: {numbertype}; Tindices: {int32, int64}",
     .shape = segment_shape,
     .grad = prod_grad,
     .kernels = prod_kernels},
    {.name = "SegmentMin",
     .in = "data: T, segment_ids: Tindices",
     .out = "output: T",
     .attrs = "T: {realnumbertype}; Tindices: {int32, int64}",
     .shape = segment_shape,
     .grad = extreme_grad,
     .kernels = min_kernels},
    {.name = "SegmentMax",
     .in = "data: T, segment_ids: Tindices",
     .out = "output: T",
     .attrs = "T: {realnumbertype}; Tindices: {int32, int64}",
     .shape = segment_shape,
     .grad = extreme_grad,
     .kernels = max_kernels},
    {.name = "UnsortedSegmentSum",
     .in = "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     .out = "output: T",
     .attrs = "T: {numbertype}; Tindices: {int16, int32, int64}; Tnumsegments: {int32, int64} = int32",
     .shape = unsorted_shape,
     .grad = unsorted_sum_grad,
     .kernels = unsorted_sum_kernels},
    {.name = "UnsortedSegmentProd",
     .in = "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     .out = "output: T",
     .attrs = "T: {numbertype}; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32",
     .shape = unsorted_shape,
     .grad = unsorted_prod_grad,
     .kernels = unsorted_prod_kernels},
    {.name = "UnsortedSegmentMin",
     .in = "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     .out = "output: T",
     .attrs = "T: {realnumbertype}; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32",
     .shape = unsorted_shape,
     .grad = unsorted_extreme_grad,
     .kernels = unsorted_min_kernels},
    {.name = "UnsortedSegmentMax",
     .in = "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     .out = "output: T",
     .attrs = "T: {realnumbertype}; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32",
     .shape = unsorted_shape,
     .grad = unsorted_extreme_grad,
     .kernels = unsorted_max_kernels},
};
OP_FAMILY(segment, rows);
