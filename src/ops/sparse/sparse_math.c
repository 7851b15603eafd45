/* Arithmetic on sparse tensors alone: SparseAdd, the reductions, SparseSoftmax, SparseSparseMaximum and Minimum. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/sparse/sparse.h"
#include "ops/state/state.h"
#include "tensor/summarize.h"

static const int64_t *row_of(const struct tensor *ix, int64_t i) { return T_DATA(ix, const int64_t) + i * ix->dims[1]; }

static void *element(const struct tensor *t, int64_t i) {
  return (char *)t->data + (size_t)i * dtype_size((shoal_dtype)t->dtype);
}

/* ---- SparseAdd ---- */

/* |v| >= thresh, in the real type that belongs to v's. */
static bool large_enough(shoal_dtype t, const void *v, const struct tensor *thresh) {
  const void *th = thresh->data;
  switch (t) {
    case SHOAL_FLOAT32: return fabsf(*(const float *)v) >= *(const float *)th;
    case SHOAL_FLOAT64: return fabs(*(const double *)v) >= *(const double *)th;
    case SHOAL_COMPLEX64: return cabsf(*(const c64 *)v) >= *(const float *)th;
    case SHOAL_COMPLEX128: return cabs(*(const c128 *)v) >= *(const double *)th;
    case SHOAL_FLOAT16: return fabsf(f16_to_float(*(const f16 *)v)) >= f16_to_float(*(const f16 *)th);
    case SHOAL_BFLOAT16: return fabsf(bf16_to_float(*(const bf16 *)v)) >= bf16_to_float(*(const bf16 *)th);
    case SHOAL_UINT8: return *(const uint8_t *)v >= *(const uint8_t *)th;
    case SHOAL_UINT16: return *(const uint16_t *)v >= *(const uint16_t *)th;
    case SHOAL_UINT32: return *(const uint32_t *)v >= *(const uint32_t *)th;
    case SHOAL_UINT64: return *(const uint64_t *)v >= *(const uint64_t *)th;
    case SHOAL_INT8: return abs(*(const int8_t *)v) >= *(const int8_t *)th;
    case SHOAL_INT16: return abs(*(const int16_t *)v) >= *(const int16_t *)th;
    case SHOAL_INT32: return llabs(*(const int32_t *)v) >= *(const int32_t *)th;
    default: {
      int64_t x = *(const int64_t *)v;
      return (x < 0 ? -(uint64_t)x : (uint64_t)x) >= (uint64_t)MAX(0, *(const int64_t *)th);
    }
  }
}

static shoal_status pair_check(struct kernel_ctx *ctx, struct sparse *a, struct sparse *b) {
  *a = (struct sparse){ctx_in(ctx, 0), ctx_in(ctx, 1), ctx_in(ctx, 2)};
  *b = (struct sparse){ctx_in(ctx, 3), ctx_in(ctx, 4), ctx_in(ctx, 5)};
  if (a->indices->rank != 2 || b->indices->rank != 2)
    return INVALID("Input indices should be matrices but received shapes: %s and %s", tensor_shape_str(a->indices),
                   tensor_shape_str(b->indices));
  bool ranks = a->shape->rank == 1 && b->shape->rank == 1 && a->shape->n != b->shape->n;
  if (a->indices->dims[1] != b->indices->dims[1] && !ranks)
    return INVALID("Input indices must have the same dimension, got %" PRId64 " and %" PRId64, a->indices->dims[1],
                   b->indices->dims[1]);
  if (a->values->rank != 1 || b->values->rank != 1)
    return INVALID("Input values should be vectors but received shapes: %s and %s", tensor_shape_str(a->values),
                   tensor_shape_str(b->values));
  if (a->values->n != a->indices->dims[0] || b->values->n != b->indices->dims[0])
    return INVALID("Expected %" PRId64 " and %" PRId64 " non-empty input values, got %" PRId64 " and %" PRId64,
                   a->indices->dims[0], b->indices->dims[0], a->values->n, b->values->n);
  if (a->shape->rank != 1 || b->shape->rank != 1)
    return INVALID("Input shapes should be a vector but received shapes %s and %s", tensor_shape_str(a->shape),
                   tensor_shape_str(b->shape));
  if (ranks) {
    struct text ta = {0}, tb = {0};
    tensor_summarize(a->shape, 10, false, &ta);
    tensor_summarize(b->shape, 10, false, &tb);
    shoal_status bad =
        INVALID("Operands do not have the same ranks; got shapes: %s and %s", text_cstr(&ta), text_cstr(&tb));
    text_release(&ta);
    text_release(&tb);
    return bad;
  }
  for (int64_t k = 0; k < a->shape->n; k++)
    if (int_at(a->shape, k) != int_at(b->shape, k))
      return INVALID("Operands' shapes do not match: got %" PRId64 " and %" PRId64 " for dimension %" PRId64,
                     int_at(a->shape, k), int_at(b->shape, k), k);
  TRY(sparse_check(a));
  return sparse_check(b);
}

/* Walks the union of two sorted lists of entries; *from says which of them has the next one (1: a, 2: b, 3: both). */
static bool union_next(const struct sparse *a, const struct sparse *b, int64_t *i, int64_t *j, int *from) {
  if (*i >= a->n && *j >= b->n) return false;
  int order = *i >= a->n   ? 1
              : *j >= b->n ? -1
                           : sparse_compare(row_of(a->indices, *i), row_of(b->indices, *j), a->rank);
  *from = order < 0 ? 1 : order > 0 ? 2 : 3;
  return true;
}

/* The entries of a and b joined: fn combines values of a place that both have, `alone` those that one has. */
struct joined {
  struct tensor indices, values;
  int64_t n;
};

static shoal_status join(const struct sparse *a, const struct sparse *b, update_fn fn, bool with_zero,
                         const struct tensor *thresh, struct joined *out) {
  int64_t most = a->n + b->n, i = 0, j = 0;
  shoal_dtype t = (shoal_dtype)a->values->dtype;
  size_t size = dtype_size(t);
  char zero[16] = {0};
  TRY(tensor_new_dims(&out->indices, SHOAL_INT64, 2, (int64_t[]){most, a->rank}));
  shoal_status s = tensor_new_dims(&out->values, t, 1, &most);
  if (s) {
    tensor_release(&out->indices);
    return s;
  }
  out->n = 0;
  for (int from; union_next(a, b, &i, &j, &from);) {
    char *v = element(&out->values, out->n);
    memcpy(v, from & 1 ? sparse_value(a, i) : sparse_value(b, j), size);
    if (from == 3) fn(t, v, sparse_value(b, j), 1);
    else if (with_zero) fn(t, v, zero, 1);
    if (from != 3 || !thresh || large_enough(t, v, thresh)) /* what stands alone is kept, however small */
      memcpy(T_DATA(&out->indices, int64_t) + out->n++ * a->rank,
             from & 1 ? row_of(a->indices, i) : row_of(b->indices, j), (size_t)a->rank * sizeof(int64_t));
    if (from & 1) i++;
    if (from & 2) j++;
  }
  return NULL;
}

static shoal_status put_joined(struct kernel_ctx *ctx, struct joined *x, int rank, struct tensor **shape) {
  struct tensor *ix, *v;
  shoal_status s = sparse_out(ctx, 0, x->n, rank, &ix, &v, shape);
  if (!s && x->n) {
    memcpy(ix->data, x->indices.data, (size_t)(x->n * rank) * sizeof(int64_t));
    memcpy(v->data, x->values.data, (size_t)x->n * dtype_size((shoal_dtype)v->dtype));
  }
  tensor_release(&x->indices);
  tensor_release(&x->values);
  return s;
}

static shoal_status add_run(struct kernel_ctx *ctx) {
  struct sparse a, b;
  const struct tensor *thresh = ctx_in(ctx, 6);
  TRY(pair_check(ctx, &a, &b));
  if (thresh->rank) return INVALID("The magnitude threshold must be a scalar: got shape %s", tensor_shape_str(thresh));
  struct joined x;
  struct tensor *shape;
  shoal_dtype t = (shoal_dtype)a.values->dtype;
  TRY(join(&a, &b, update_find(UPDATE_ADD, t), false, thresh, &x));
  TRY(put_joined(ctx, &x, a.rank, &shape));
  for (int k = 0; k < a.rank; k++) int_put(shape, k, int_at(a.shape, k));
  return NULL;
}

static shoal_status add_shape(struct shape_ctx *c) {
  sparse_out_shapes(c, 0, -1, sparse_in_rank(c, 0));
  return NULL;
}

static shoal_status add_grad(struct grad_ctx *c) {
  struct build b = build_begin(c->g, "SparseAddGrad", NULL);
  build_in(&b, grad_dy(c, 1));
  build_in(&b, gin(c, 0));
  build_in(&b, gin(c, 3));
  build_in(&b, gout(c, 0));
  struct shoal_node *n = build_end(&b);
  grad_set(c, 1, node_out(n, 0));
  grad_set(c, 4, node_out(n, 1));
  return NULL;
}

/* Both sides walk along the sum's entries; those that fell under the threshold get nothing. */
static void add_grad_side(const struct tensor *dy, const struct tensor *in, const struct tensor *sum,
                          struct tensor *dx) {
  int rank = (int)in->dims[1];
  size_t size = dtype_size((shoal_dtype)dy->dtype);
  int64_t i = 0, k = 0;
  while (i < in->dims[0] && k < sum->dims[0]) {
    int order = sparse_compare(row_of(in, i), row_of(sum, k), rank);
    if (order == 0) memcpy(element(dx, i), element(dy, k), size);
    if (order <= 0) i++;
    if (order >= 0) k++;
  }
}

static shoal_status add_grad_run(struct kernel_ctx *ctx) {
  const struct tensor *dy = ctx_in(ctx, 0), *a = ctx_in(ctx, 1), *b = ctx_in(ctx, 2), *sum = ctx_in(ctx, 3);
  if (a->rank != 2 || b->rank != 2 || sum->rank != 2)
    return INVALID("Inputs a_indices, b_indices, and sum_indices should be matrices, got shapes: %s, %s and %s",
                   tensor_shape_str(a), tensor_shape_str(b), tensor_shape_str(sum));
  if (dy->rank != 1) return INVALID("Input backprop_val_grad should be a vector, got shape: %s", tensor_shape_str(dy));
  if (a->dims[1] != b->dims[1] || b->dims[1] != sum->dims[1])
    return INVALID("The densified operands should have the same ndims; for A, B, sum got: %" PRId64 "%" PRId64
                   "%" PRId64,
                   a->dims[1], b->dims[1], sum->dims[1]);
  if (dy->n != sum->dims[0])
    return INVALID("# elements of backprop_val_grad and # rows of sum_indices should match (#nnz of sum): got %" PRId64
                   " and %" PRId64,
                   dy->n, sum->dims[0]);
  struct shape va = shape_vector(a->dims[0]), vb = shape_vector(b->dims[0]);
  struct tensor *da, *db;
  TRY(ctx_out(ctx, 0, &va, &da));
  TRY(ctx_out(ctx, 1, &vb, &db));
  tensor_zero(da);
  tensor_zero(db);
  add_grad_side(dy, a, sum, da);
  add_grad_side(dy, b, sum, db);
  return NULL;
}

static shoal_status add_grad_shape(struct shape_ctx *c) {
  for (int i = 0; i < 2; i++) c->out[i] = shape_vector(c->in[1 + i].rank == 2 ? c->in[1 + i].dims[0] : -1);
  return NULL;
}

/* ---- SparseSparseMaximum, Minimum ---- */

static shoal_status extreme(struct kernel_ctx *ctx, enum update op) {
  struct sparse a, b;
  TRY(sparse_get(ctx, 0, &a));
  TRY(sparse_get(ctx, 3, &b));
  TRY(pair_check(ctx, &a, &b));
  TRY(sparse_in_bounds(&a));
  TRY(sparse_in_bounds(&b));
  struct joined x;
  TRY(join(&a, &b, update_find(op, (shoal_dtype)a.values->dtype), true, NULL, &x));
  return put_joined(ctx, &x, a.rank, NULL);
}

static shoal_status max_run(struct kernel_ctx *ctx) { return extreme(ctx, UPDATE_MAX); }
static shoal_status min_run(struct kernel_ctx *ctx) { return extreme(ctx, UPDATE_MIN); }

/* ---- reductions ---- */

struct reduce_state {
  bool keep;
};

static shoal_status reduce_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "keep_dims", &((struct reduce_state *)state)->keep);
}

struct sparse_reduce {
  struct sparse s;
  bool gone[SHOAL_MAX_RANK];
  int kept[SHOAL_MAX_RANK], n_kept;
  struct shape out;
};

static shoal_status reduce_get(struct kernel_ctx *ctx, struct sparse_reduce *r) {
  const struct tensor *ix = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *axes = ctx_in(ctx, 3);
  bool keep = ((struct reduce_state *)ctx->state)->keep;
  if (ix->rank == 2 && v->rank == 1 && ix->dims[0] != v->n)
    return INVALID("indices and values rows (indexing dimension) must match. (indices = %" PRId64 ", values = %" PRId64
                   ")",
                   ix->dims[0], v->n);
  TRY(sparse_get(ctx, 0, &r->s));
  int64_t dims[SHOAL_MAX_RANK], dense;
  TRY(sparse_dims(r->s.shape, dims, &dense));
  if (axes->rank > 1)
    return INVALID("reduction_axes must be a scalar or a vector, got shape %s", tensor_shape_str(axes));
  memset(r->gone, 0, sizeof r->gone);
  for (int64_t i = 0; i < axes->n; i++) {
    int64_t a = int_at(axes, i);
    if (a < -r->s.rank || a >= r->s.rank)
      return INVALID("Invalid reduction dimension %" PRId64 ", for input with %d dimensions.", a, r->s.rank);
    r->gone[a < 0 ? a + r->s.rank : a] = true;
  }
  r->n_kept = r->out.rank = 0;
  for (int k = 0; k < r->s.rank; k++) {
    if (!r->gone[k]) r->kept[r->n_kept++] = k;
    if (!r->gone[k] || keep) r->out.dims[r->out.rank++] = r->gone[k] ? 1 : dims[k];
  }
  for (int64_t i = 0; i < r->s.n; i++)
    for (int k = 0; k < r->n_kept; k++) {
      int64_t p = sparse_index(&r->s, i, r->kept[k]);
      if (p < 0 || p >= dims[r->kept[k]])
        return INVALID("Obtained a write index of %" PRId64 " which is outside of bounds of [0, %" PRId64 ")", p,
                       dims[r->kept[k]]);
    }
  return NULL;
}

static shoal_status reduce(struct kernel_ctx *ctx, enum update op) {
  struct sparse_reduce r;
  TRY(reduce_get(ctx, &r));
  struct tensor *y, seen;
  TRY(ctx_out(ctx, 0, &r.out, &y));
  tensor_zero(y);
  TRY(tensor_new_dims(&seen, SHOAL_BOOL, 1, &y->n));
  tensor_zero(&seen);
  shoal_dtype t = (shoal_dtype)y->dtype;
  update_fn fn = update_find(op, t);
  for (int64_t i = 0; y->n && i < r.s.n; i++) {
    int64_t at = 0;
    for (int k = 0; k < r.n_kept; k++) at = at * int_at(r.s.shape, r.kept[k]) + sparse_index(&r.s, i, r.kept[k]);
    bool *first = &T_DATA(&seen, bool)[at];
    if (*first) fn(t, element(y, at), sparse_value(&r.s, i), 1);
    else memcpy(element(y, at), sparse_value(&r.s, i), dtype_size(t));
    *first = true;
  }
  tensor_release(&seen);
  return NULL;
}

static shoal_status reduce_sum_run(struct kernel_ctx *ctx) { return reduce(ctx, UPDATE_ADD); }
static shoal_status reduce_max_run(struct kernel_ctx *ctx) { return reduce(ctx, UPDATE_MAX); }

/* The same with a sparse result: entries sorted by what is kept, then each run reduced. */
static shoal_status reduce_sparse(struct kernel_ctx *ctx, enum update op) {
  struct sparse_reduce r;
  TRY(reduce_get(ctx, &r));
  struct tensor keys, *ix, *v, *shape;
  TRY(tensor_new_dims(&keys, SHOAL_INT64, 2, (int64_t[]){r.s.n, r.n_kept}));
  int64_t *key = keys.data, groups = 0;
  int w = r.n_kept;
  for (int64_t i = 0; i < r.s.n; i++)
    for (int k = 0; k < w; k++) key[i * w + k] = sparse_index(&r.s, i, r.kept[k]);
  int64_t *order = sparse_order(key, r.s.n, w);
  if (!order) {
    tensor_release(&keys);
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory to sort %" PRId64 " entries", r.s.n);
  }
  for (int64_t i = 0; i < r.s.n; i++)
    groups += i == 0 || sparse_compare(key + order[i] * w, key + order[i - 1] * w, w) != 0;
  shoal_status s = sparse_out(ctx, 0, groups, r.out.rank, &ix, &v, &shape);
  if (!s) {
    shoal_dtype t = (shoal_dtype)v->dtype;
    update_fn fn = update_find(op, t);
    for (int k = 0; k < r.out.rank; k++) int_put(shape, k, r.out.dims[k]);
    for (int64_t i = 0, g = -1; i < r.s.n; i++) {
      bool first = i == 0 || sparse_compare(key + order[i] * w, key + order[i - 1] * w, w) != 0;
      if (!first) {
        fn(t, element(v, g), sparse_value(&r.s, order[i]), 1);
        continue;
      }
      g++;
      memcpy(element(v, g), sparse_value(&r.s, order[i]), dtype_size(t));
      int64_t *to = T_DATA(ix, int64_t) + g * r.out.rank;
      bool keep = r.out.rank == r.s.rank;
      for (int k = 0, at = 0; k < r.s.rank; k++) {
        if (!r.gone[k]) *to++ = key[order[i] * w + at++];
        else if (keep) *to++ = 0;
      }
    }
  }
  free(order);
  tensor_release(&keys);
  return s;
}

static shoal_status reduce_sum_sparse_run(struct kernel_ctx *ctx) { return reduce_sparse(ctx, UPDATE_ADD); }
static shoal_status reduce_max_sparse_run(struct kernel_ctx *ctx) { return reduce_sparse(ctx, UPDATE_MAX); }

static shoal_status reduce_shape(struct shape_ctx *c) {
  const struct tensor *shape = c->values[2], *axes = c->values[3];
  bool keep, gone[SHOAL_MAX_RANK] = {false};
  TRY(node_get_bool(c->node, "keep_dims", &keep));
  if (c->node->n_out == 3) {
    sparse_out_shapes(c, 0, -1, -1);
    return NULL;
  }
  if (!shape || !axes || shape->n > SHOAL_MAX_RANK) return NULL;
  int rank = (int)shape->n;
  for (int64_t i = 0; i < axes->n; i++) {
    int64_t a = int_at(axes, i);
    if (a < -rank || a >= rank)
      return INVALID("Invalid reduction dimension %" PRId64 ", for input with %d dimensions.", a, rank);
    gone[a < 0 ? a + rank : a] = true;
  }
  c->out[0].rank = 0;
  for (int k = 0; k < rank; k++)
    if (!gone[k] || keep) c->out[0].dims[c->out[0].rank++] = gone[k] ? 1 : int_at(shape, k);
  return NULL;
}

/* Every value gets the gradient of the place it was added to. */
static shoal_status reduce_sum_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out ix = gin(c, 0), shape = gin(c, 2), axes = gin(c, 3), dy = grad_dy(c, 0);
  shoal_out rank = build_op1(g, "Size", shape);
  shoal_out one = build_const_int(g, SHOAL_INT32, 1), zero = build_const_int(g, SHOAL_INT32, 0);
  /* The shape with 1 where a dimension was reduced. */
  int64_t flat = -1;
  shoal_out ax = array_reshape(g, axes, build_const_ints(g, SHOAL_INT32, &flat, 1));
  ax = build_op2(g, "FloorMod", build_op2(g, "AddV2", ax, rank), rank);
  struct build b = build_begin(g, "DynamicStitch", NULL);
  build_in(&b, build_op3(g, "Range", zero, rank, one));
  build_in(&b, ax);
  build_in(&b, build_cast(g, shape, SHOAL_INT64));
  build_in(&b, build_op2(g, "Fill", array_shape(g, ax, SHOAL_INT32), build_const_int(g, SHOAL_INT64, 1)));
  build_attr_int(&b, "N", 2);
  shoal_out kept = build_end_out(&b);
  shoal_out scale = build_op2(g, "FloorDiv", build_cast(g, shape, SHOAL_INT64),
                              build_op2(g, "Maximum", kept, build_const_int(g, SHOAL_INT64, 1)));
  scale = build_op2(g, "Maximum", scale, build_const_int(g, SHOAL_INT64, 1));
  grad_set(c, 1, build_op2(g, "GatherNd", array_reshape(g, dy, kept), build_op2(g, "FloorDiv", ix, scale)));
  return NULL;
}

/* ---- SparseSoftmax: over the last dimension, of the entries that are there ---- */

static double read_at(const struct tensor *v, int64_t k) {
  switch (v->dtype) {
    case SHOAL_FLOAT32: return T_DATA(v, const float)[k];
    case SHOAL_FLOAT64: return T_DATA(v, const double)[k];
    default: return f16_to_float(T_DATA(v, const f16)[k]);
  }
}

static shoal_status softmax_run(struct kernel_ctx *ctx) {
  const struct tensor *ix = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *shape = ctx_in(ctx, 2);
  if (shape->rank == 1 && shape->n < 2)
    return INVALID("Input should have rank >= 2, but received shape: %s", tensor_shape_str(shape));
  if (ix->rank == 2 && v->rank == 1 && ix->dims[0] != v->n)
    return INVALID("indices and values rows (indexing dimension) must match. (indices = %" PRId64 ", values = %" PRId64
                   ")",
                   ix->dims[0], v->n);
  struct sparse s;
  TRY(sparse_get(ctx, 0, &s));
  int64_t dims[SHOAL_MAX_RANK], dense;
  TRY(sparse_dims(s.shape, dims, &dense));
  struct shape vector = shape_vector(s.n);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &vector, &y));
  for (int64_t i = 0, end; i < s.n; i = end) {
    end = i + 1;
    while (end < s.n && sparse_compare(row_of(ix, i), row_of(ix, end), s.rank - 1) == 0) end++;
    double top = -INFINITY, sum = 0;
    for (int64_t k = i; k < end; k++) top = fmax(top, read_at(v, k));
    for (int64_t k = i; k < end; k++) sum += exp(read_at(v, k) - top);
    for (int64_t k = i; k < end; k++) {
      double p = exp(read_at(v, k) - top) / sum;
      if (v->dtype == SHOAL_FLOAT32) T_DATA(y, float)[k] = (float)p;
      else if (v->dtype == SHOAL_FLOAT64) T_DATA(y, double)[k] = p;
      else T_DATA(y, f16)[k] = f16_from_float((float)p);
    }
  }
  return NULL;
}

static shoal_status softmax_shape(struct shape_ctx *c) {
  c->out[0] = c->in[1];
  return NULL;
}

static shoal_status softmax_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out ix = gin(c, 0), shape = gin(c, 2), y = gout(c, 0), dy = grad_dy(c, 0);
  struct build b = build_begin(g, "SparseReduceSum", NULL);
  build_in(&b, ix);
  build_in(&b, build_op2(g, "Mul", y, dy));
  build_in(&b, shape);
  int64_t last = -1;
  build_in(&b, build_const_ints(g, SHOAL_INT32, &last, 1));
  build_attr_bool(&b, "keep_dims", true);
  shoal_out sums = build_op1(g, "Neg", build_end_out(&b));
  b = build_begin(g, "SparseDenseCwiseAdd", NULL);
  build_in(&b, ix);
  build_in(&b, dy);
  build_in(&b, shape);
  build_in(&b, sums);
  grad_set(c, 1, build_op2(g, "Mul", build_end_out(&b), y));
  return NULL;
}

#define KERNELS(name, mask)                           \
  static const struct kernel_def name##_kernels[] = { \
      {.device = "CPU", .type_attr = "T", .types = mask, .run = name##_run}, {0}}
#define REDUCE_KERNELS(name, mask)                                                               \
  static const struct kernel_def name##_kernels[] = {{.device = "CPU",                           \
                                                      .type_attr = "T",                          \
                                                      .types = mask,                             \
                                                      .state_size = sizeof(struct reduce_state), \
                                                      .init = reduce_init,                       \
                                                      .run = name##_run},                        \
                                                     {0}}
KERNELS(add, DT_NUMBER);
KERNELS(add_grad, DT_NUMBER);
KERNELS(max, DT_REAL);
KERNELS(min, DT_REAL);
KERNELS(softmax, DT(FLOAT32) | DT(FLOAT64) | DT(FLOAT16));
REDUCE_KERNELS(reduce_sum, DT_NUMBER);
REDUCE_KERNELS(reduce_sum_sparse, DT_NUMBER);
REDUCE_KERNELS(reduce_max, DT_REAL);
REDUCE_KERNELS(reduce_max_sparse, DT_REAL);

static const struct op_row rows[] = {
    {.name = "SparseAdd",
     .in = "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64, thresh: "
           "Treal",
     .out = "sum_indices: int64, sum_values: T, sum_shape: int64",
     .attrs = "T: {numbertype}; Treal: {realnumbertype}",
     .shape = add_shape,
     .grad = add_grad,
     .kernels = add_kernels},
    {.name = "SparseAddGrad",
     .in = "backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64",
     .out = "a_val_grad: T, b_val_grad: T",
     .attrs = "T: {numbertype}",
     .flags = OP_NO_GRADIENT,
     .shape = add_grad_shape,
     .kernels = add_grad_kernels},
    {.name = "SparseSparseMaximum",
     .in = "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64",
     .out = "output_indices: int64, output_values: T",
     .attrs = "T: {realnumbertype}",
     .shape = add_shape,
     .kernels = max_kernels},
    {.name = "SparseSparseMinimum",
     .in = "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64",
     .out = "output_indices: int64, output_values: T",
     .attrs = "T: {numbertype}",
     .shape = add_shape,
     .kernels = min_kernels},
    {.name = "SparseReduceSum",
     .in = "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32",
     .out = "output: T",
     .attrs = "keep_dims: bool = false; T: {numbertype}",
     .shape = reduce_shape,
     .grad = reduce_sum_grad,
     .kernels = reduce_sum_kernels},
    {.name = "SparseReduceSumSparse",
     .in = "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32",
     .out = "output_indices: int64, output_values: T, output_shape: int64",
     .attrs = "keep_dims: bool = false; T: {numbertype}",
     .flags = OP_NO_GRADIENT,
     .shape = reduce_shape,
     .kernels = reduce_sum_sparse_kernels},
    {.name = "SparseReduceMax",
     .in = "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32",
     .out = "output: T",
     .attrs = "keep_dims: bool = false; T: {realnumbertype}",
     .shape = reduce_shape,
     .kernels = reduce_max_kernels},
    {.name = "SparseReduceMaxSparse",
     .in = "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32",
     .out = "output_indices: int64, output_values: T, output_shape: int64",
     .attrs = "keep_dims: bool = false; T: {realnumbertype}",
     .shape = reduce_shape,
     .kernels = reduce_max_sparse_kernels},
    {.name = "SparseSoftmax",
     .in = "sp_indices: int64, sp_values: T, sp_shape: int64",
     .out = "output: T",
     .attrs = "T: {half, float, double}",
     .shape = softmax_shape,
     .grad = softmax_grad,
     .kernels = softmax_kernels},
};
OP_FAMILY(sparse_math, rows);
