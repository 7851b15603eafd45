/* Ragged tensors: rows of different length, as row splits (one more than there are rows, from 0 up to the number
 * of values) for each ragged dimension, and flat values. RaggedRange, RaggedGather, RaggedTensorToSparse and
 * RaggedTensorToTensor; variants of ragged tensors are in ragged_variant.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ops/array/array_util.h"

/* ---- RaggedRange ---- */

/* How many steps of delta fit in [start, limit), or -1 when that is too many to count. */
static int64_t range_size(double start, double limit, double delta) {
  if ((delta > 0 && limit < start) || (delta < 0 && limit > start)) return 0;
  double n = ceil(fabs((limit - start) / delta));
  return n < 9e18 ? (int64_t)n : -1;
}

static int64_t range_size_int(int64_t start, int64_t limit, int64_t delta) {
  if ((delta > 0 && limit <= start) || (delta < 0 && limit >= start)) return 0;
  uint64_t span = delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
  uint64_t step = delta > 0 ? (uint64_t)delta : -(uint64_t)delta;
  uint64_t n = (span + step - 1) / step;
  if (span + step - 1 < span) n = span / step + 1;
  return n <= INT64_MAX ? (int64_t)n : -1;
}

static shoal_status range_run(struct kernel_ctx *ctx) {
  static const char *const names[] = {"starts", "limits", "deltas"};
  int64_t rows = -1, total = 0;
  bool floating = dtype_floating(ctx_in_type(ctx, 0));
  for (int i = 0; i < 3; i++) {
    const struct tensor *t = ctx_in(ctx, i);
    if (t->rank > 1) return INVALID("%s must be a scalar or vector", names[i]);
    if (t->rank == 0) continue;
    if (rows >= 0 && t->n != rows) return INVALID("starts, limits, and deltas must have the same shape");
    rows = t->n;
  }
  if (rows < 0) rows = 1;
  struct shape vector = shape_vector(rows + 1);
  struct tensor *splits, *values;
  TRY(ctx_out(ctx, 0, &vector, &splits));
  int_put(splits, 0, 0);
#define AT(k, r) (ctx_in(ctx, k)->rank ? (r) : 0)
  for (int64_t r = 0; r < rows; r++) {
    int64_t n;
    if (floating) {
      double d = real_at(ctx_in(ctx, 2), AT(2, r));
      if (d == 0) return INVALID("Requires delta != 0");
      n = range_size(real_at(ctx_in(ctx, 0), AT(0, r)), real_at(ctx_in(ctx, 1), AT(1, r)), d);
    } else {
      int64_t d = int_at(ctx_in(ctx, 2), AT(2, r));
      if (d == 0) return INVALID("Requires delta != 0");
      n = range_size_int(int_at(ctx_in(ctx, 0), AT(0, r)), int_at(ctx_in(ctx, 1), AT(1, r)), d);
    }
    if (n < 0 || __builtin_add_overflow(total, n, &total) || (splits->dtype == SHOAL_INT32 && total > INT32_MAX))
      return INVALID("The total range size overflowed. Consider using int64 instead of int32 for row_splits_dtype.");
    int_put(splits, r + 1, total);
  }
  vector = shape_vector(total);
  TRY(ctx_out(ctx, 1, &vector, &values));
  for (int64_t r = 0, at = 0; r < rows; r++) {
    int64_t n = int_at(splits, r + 1) - int_at(splits, r);
    if (!floating) {
      uint64_t v = (uint64_t)int_at(ctx_in(ctx, 0), AT(0, r)), d = (uint64_t)int_at(ctx_in(ctx, 2), AT(2, r));
      for (int64_t i = 0; i < n; i++, v += d) int_put(values, at++, (int64_t)v);
    } else if (values->dtype == SHOAL_FLOAT64) {
      double v = real_at(ctx_in(ctx, 0), AT(0, r)), d = real_at(ctx_in(ctx, 2), AT(2, r));
      for (int64_t i = 0; i < n; i++, v += d) T_DATA(values, double)[at++] = v;
    } else if (values->dtype == SHOAL_FLOAT32) {
      float v = (float)real_at(ctx_in(ctx, 0), AT(0, r)), d = (float)real_at(ctx_in(ctx, 2), AT(2, r));
      for (int64_t i = 0; i < n; i++, v += d) T_DATA(values, float)[at++] = v;
    } else {
      bf16 v = bf16_from_float((float)real_at(ctx_in(ctx, 0), AT(0, r)));
      float d = (float)real_at(ctx_in(ctx, 2), AT(2, r));
      for (int64_t i = 0; i < n; i++, v = bf16_from_float(bf16_to_float(v) + d)) T_DATA(values, bf16)[at++] = v;
    }
  }
  return NULL;
}

static shoal_status range_shape(struct shape_ctx *c) {
  int64_t rows = 1;
  for (int i = 0; i < 3; i++) {
    if (c->in[i].rank > 1) return INVALID("Shape must be at most rank 1 but is rank %d", c->in[i].rank);
    if (c->in[i].rank == 1) rows = c->in[i].dims[0];
    else if (c->in[i].rank < 0) rows = -1;
  }
  bool known = true;
  for (int i = 0; i < 3; i++) known &= c->in[i].rank >= 0;
  c->out[0] = shape_vector(known && rows >= 0 ? rows + 1 : -1);
  c->out[1] = shape_vector(-1);
  return NULL;
}

static const struct kernel_def range_kernels[] = {
    {.device = "CPU",
     .type_attr = "T",
     .types = DT(FLOAT32) | DT(FLOAT64) | DT(BFLOAT16) | DT(INT32) | DT(INT64),
     .run = range_run},
    {0}};

/* ---- RaggedGather ---- */

/* Rows of values [begin, end) that go to the output, in order. */
struct value_range {
  int64_t begin, end;
};

struct ragged_gather {
  int ragged;            /* params' ragged rank */
  VEC(int64_t) * splits; /* [ragged] output splits for each of params' dimensions */
  VEC(struct value_range) pieces;
  int64_t n_values;
};

static shoal_status gather_check(struct kernel_ctx *ctx, int ragged) {
  const struct tensor *values = ctx_in(ctx, ragged);
  if (values->rank < 1) return INVALID("params.rank must be nonzero");
  for (int d = 0; d < ragged; d++) {
    const struct tensor *s = ctx_in(ctx, d);
    if (s->rank != 1) return INVALID("Splits must be vectors, but have shape %s", tensor_shape_str(s));
    if (s->n == 0) return INVALID("Splits may not be empty");
    int64_t last = d + 1 < ragged ? ctx_in(ctx, d + 1)->n - 1 : values->dims[0];
    if (int_at(s, 0) < 0) return INVALID("Ragged splits must be non-negative");
    for (int64_t i = 1; i < s->n; i++)
      if (int_at(s, i) < int_at(s, i - 1)) return INVALID("Ragged splits must be sorted");
    if (int_at(s, s->n - 1) > last) return INVALID("Ragged splits must not point past values");
  }
  return NULL;
}

static shoal_status gather_put(struct kernel_ctx *ctx, struct ragged_gather *g, int n_out) {
  const struct tensor *values = ctx_in(ctx, g->ragged), *indices = ctx_in(ctx, g->ragged + 1);
  struct tensor *y;
  int outer = indices->rank - 1; /* splits of the indices' own dimensions come first: uniform rows */
  for (int d = 0; d < n_out; d++) {
    int64_t n;
    if (d < outer) {
      n = dims_product(indices->dims, 0, d + 1);
      struct shape vector = shape_vector(n + 1);
      TRY(ctx_out(ctx, d, &vector, &y));
      for (int64_t i = 0; i <= n; i++) int_put(y, i, i * indices->dims[d + 1]);
      continue;
    }
    int k = indices->rank ? d - outer : d + 1; /* a scalar index takes the outermost dimension away */
    n = (int64_t)g->splits[k].n;
    struct shape vector = shape_vector(n);
    TRY(ctx_out(ctx, d, &vector, &y));
    for (int64_t i = 0; i < n; i++) int_put(y, i, g->splits[k].at[i]);
  }
  struct shape s = tensor_shape(values);
  s.dims[0] = g->n_values;
  TRY(ctx_out(ctx, n_out, &s, &y));
  shoal_dtype t = (shoal_dtype)values->dtype;
  int64_t width = dims_product(s.dims, 1, s.rank), at = 0;
  size_t bytes = (size_t)width * dtype_size(t);
  for (size_t i = 0; i < g->pieces.n && bytes; i++) {
    const struct value_range *p = &g->pieces.at[i];
    elements_copy(t, (char *)y->data + (size_t)at * bytes, (const char *)values->data + (size_t)p->begin * bytes,
                  (p->end - p->begin) * width);
    at += p->end - p->begin;
  }
  return NULL;
}

static shoal_status gather_run(struct kernel_ctx *ctx) {
  int n_out = ctx->kernel->n_out - 1;
  struct ragged_gather g = {.ragged = ctx->kernel->n_in - 2};
  const struct tensor *indices = ctx_in(ctx, g.ragged + 1);
  const struct tensor *outer = ctx_in(ctx, 0);
  if (outer->rank == 1 && outer->n >= 1)
    for (int64_t i = 0; i < indices->n; i++)
      if (int_at(indices, i) < 0 || int_at(indices, i) >= outer->n - 1)
        return INVALID("indices%s = %" PRId64 " is not in [0, %" PRId64 ")",
                       indices->rank ? place_str(indices->rank, indices->dims, i) : "", int_at(indices, i),
                       outer->n - 1);
  TRY(gather_check(ctx, g.ragged));
  if (n_out != indices->rank + g.ragged - 1)
    return INVALID("OUTPUT_RAGGED_RANK must be %d, not %d", indices->rank + g.ragged - 1, n_out);
  g.splits = mem_zalloc((size_t)g.ragged, sizeof *g.splits);
  for (int d = 0; d < g.ragged; d++) vec_push(&g.splits[d], 0);
  for (int64_t i = 0; i < indices->n; i++) {
    int64_t begin = int_at(indices, i), end = begin + 1;
    for (int d = 0; d < g.ragged; d++) {
      const struct tensor *s = ctx_in(ctx, d);
      int64_t shift = vec_last(&g.splits[d]) - int_at(s, begin);
      for (int64_t k = begin; k < end; k++) vec_push(&g.splits[d], int_at(s, k + 1) + shift);
      begin = int_at(s, begin);
      end = int_at(s, end);
    }
    if (begin != end) {
      vec_push(&g.pieces, (struct value_range){begin, end});
      g.n_values += end - begin;
    }
  }
  shoal_status s = gather_put(ctx, &g, n_out);
  for (int d = 0; d < g.ragged; d++) vec_release(&g.splits[d]);
  free(g.splits);
  vec_release(&g.pieces);
  return s;
}

static shoal_status gather_shape(struct shape_ctx *c) {
  int n_out = c->node->n_out - 1, ragged = c->node->n_in - 2;
  for (int i = 0; i < n_out; i++) c->out[i] = shape_vector(-1);
  struct shape v = c->in[ragged];
  if (v.rank > 0) {
    v.dims[0] = -1;
    c->out[n_out] = v;
  }
  return NULL;
}

/* Each value's gradient is added back where the value came from: the values' numbers are gathered along. */
static shoal_status gather_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  int n_out = c->node->n_out - 1, ragged = c->node->n_in - 2;
  shoal_out values = gin(c, ragged);
  shoal_out rows = array_at(g, array_shape(g, values, SHOAL_INT64), 0);
  shoal_out numbers =
      build_op3(g, "Range", build_const_int(g, SHOAL_INT64, 0), rows, build_const_int(g, SHOAL_INT64, 1));
  struct build b = build_begin(g, "RaggedGather", NULL);
  for (int i = 0; i < ragged; i++) build_in(&b, gin(c, i));
  build_in(&b, numbers);
  build_in(&b, gin(c, ragged + 1));
  build_attr_int(&b, "OUTPUT_RAGGED_RANK", n_out);
  struct shoal_node *n = build_end(&b);
  grad_set_slices(c, ragged, grad_dy(c, n_out), node_out(n, n_out), array_shape(g, values, SHOAL_INT64));
  return NULL;
}

static const struct kernel_def gather_kernels[] = {{.device = "CPU", .run = gather_run}, {0}};

/* ---- RaggedTensorToSparse ---- */

static shoal_status to_sparse_check(struct kernel_ctx *ctx, int ragged) {
  const struct tensor *values = ctx_in(ctx, ragged);
  if (values->rank < 1) return INVALID("rt_dense_values must have rank >= 1");
  for (int d = 0; d < ragged; d++) {
    const struct tensor *s = ctx_in(ctx, d);
    if (s->rank != 1) return INVALID("Splits must be vectors, but have shape %s", tensor_shape_str(s));
    if (s->n == 0) return INVALID("ragged splits may not be empty.");
    if (int_at(s, 0) != 0) return INVALID("First value of ragged splits must be 0.");
    for (int64_t i = 1; i < s->n; i++)
      if (int_at(s, i) < int_at(s, i - 1))
        return INVALID("Ragged splits should be non decreasing, but we got %" PRId64 " followed by %" PRId64,
                       int_at(s, i - 1), int_at(s, i));
    int64_t last = d + 1 < ragged ? ctx_in(ctx, d + 1)->n - 1 : values->dims[0];
    if (int_at(s, s->n - 1) != last)
      return INVALID("Final value of ragged splits must match the length the corresponding ragged values.");
  }
  return NULL;
}

static shoal_status to_sparse_run(struct kernel_ctx *ctx) {
  int ragged = ctx->kernel->n_in - 1;
  TRY(to_sparse_check(ctx, ragged));
  const struct tensor *values = ctx_in(ctx, ragged);
  int inner = values->rank - 1, rank = ragged + 1 + inner;
  if (rank > SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  struct shape matrix = shape_matrix(values->n, rank), vector = shape_vector(values->n), dims = shape_vector(rank);
  struct tensor *ix, *shape;
  TRY(ctx_out(ctx, 0, &matrix, &ix));
  TRY(ctx_forward(ctx, 1, ragged, &vector));
  TRY(ctx_out(ctx, 2, &dims, &shape));
  int_put(shape, 0, ctx_in(ctx, 0)->n - 1);
  for (int d = 0; d < ragged; d++) {
    const struct tensor *s = ctx_in(ctx, d);
    int64_t longest = 0;
    for (int64_t i = 1; i < s->n; i++) longest = MAX(longest, int_at(s, i) - int_at(s, i - 1));
    int_put(shape, d + 1, longest);
  }
  for (int k = 0; k < inner; k++) int_put(shape, ragged + 1 + k, values->dims[1 + k]);
  int64_t width = dims_product(values->dims, 1, values->rank), at[SHOAL_MAX_RANK] = {0}, *to = ix->data;
  /* at[d]: the row of splits d that holds the current value; rows only move forward. */
  for (int64_t v = 0; v < values->dims[0]; v++) {
    int64_t place[SHOAL_MAX_RANK], child = v;
    for (int d = ragged; d-- > 0;) {
      const struct tensor *s = ctx_in(ctx, d);
      while (int_at(s, at[d] + 1) <= child) at[d]++;
      place[d + 1] = child - int_at(s, at[d]);
      child = at[d];
    }
    place[0] = child;
    for (int64_t w = 0; w < width; w++, to += rank) {
      int64_t rest = w;
      for (int k = inner; k-- > 0; rest /= values->dims[1 + k]) to[ragged + 1 + k] = rest % values->dims[1 + k];
      for (int k = 0; k <= ragged; k++) to[k] = place[k];
    }
  }
  return NULL;
}

static shoal_status to_sparse_shape(struct shape_ctx *c) {
  int ragged = c->node->n_in - 1;
  int64_t n, rank = c->in[ragged].rank >= 0 ? ragged + c->in[ragged].rank : -1;
  if (shape_elements(&c->in[ragged], &n)) n = -1;
  c->out[0] = shape_matrix(n, rank);
  c->out[1] = shape_vector(n);
  c->out[2] = shape_vector(rank);
  return NULL;
}

static shoal_status to_sparse_grad(struct grad_ctx *c) {
  int ragged = c->node->n_in - 1;
  grad_set(c, ragged, array_reshape_like(c->g, grad_dy(c, 1), gin(c, ragged)));
  return NULL;
}

static const struct kernel_def to_sparse_kernels[] = {{.device = "CPU", .run = to_sparse_run}, {0}};

static const struct op_row rows[] = {
    {.name = "RaggedRange",
     .in = "starts: T, limits: T, deltas: T",
     .out = "rt_nested_splits: Tsplits, rt_dense_values: T",
     .attrs = "T: {bfloat16, float, double, int32, int64} = int32; Tsplits: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = range_shape,
     .kernels = range_kernels},
    {.name = "RaggedGather",
     .in = "params_nested_splits: PARAMS_RAGGED_RANK * Tsplits, params_dense_values: Tvalues, indices: Tindices",
     .out = "output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits, output_dense_values: Tvalues",
     .attrs = "Tvalues: type; Tindices: {int32, int64}; Tsplits: {int32, int64} = int64; PARAMS_RAGGED_RANK: int >= "
              "1; OUTPUT_RAGGED_RANK: int >= 0",
     .shape = gather_shape,
     .grad = gather_grad,
     .kernels = gather_kernels},
    {.name = "RaggedTensorToSparse",
     .in = "rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: T",
     .out = "sparse_indices: int64, sparse_values: T, sparse_dense_shape: int64",
     .attrs = "RAGGED_RANK: int >= 1; T: type; Tsplits: {int32, int64} = int64",
     .shape = to_sparse_shape,
     .grad = to_sparse_grad,
     .kernels = to_sparse_kernels},
};
OP_FAMILY(ragged, rows);
