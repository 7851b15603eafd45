/* The largest elements of rows: TopK, InTopK, NthElement.
 *
 * Rows of any real type are first mapped to 64-bit keys that order as the values do, so that selecting and sorting
 * are written once. Equal values keep the order of their indices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/nn/nn_util.h"

struct top_entry {
  int64_t key;
  int64_t index;
};

/* a goes before b: larger first, then the lower index. */
static inline bool before(const struct top_entry *a, const struct top_entry *b) {
  return a->key != b->key ? a->key > b->key : a->index < b->index;
}
static int compare(const void *a, const void *b) { return before(a, b) ? -1 : 1; }

/* A double as an integer of the same order; -0 counts as 0, NaN as less than everything. */
static int64_t key_of_double(double v) {
  int64_t k;
  if (isnan(v)) return INT64_MIN;
  v += 0.0;
  memcpy(&k, &v, 8);
  return k < 0 ? (int64_t)((uint64_t)k ^ 0x7fffffffffffffffu) : k;
}

static int64_t key_at(shoal_dtype type, const void *row, int64_t i) {
  switch (type) {
    case SHOAL_FLOAT32: return key_of_double((double)((const float *)row)[i]);
    case SHOAL_FLOAT64: return key_of_double(((const double *)row)[i]);
    case SHOAL_FLOAT16: return key_of_double((double)f16_to_float(((const f16 *)row)[i]));
    case SHOAL_BFLOAT16: return key_of_double((double)bf16_to_float(((const bf16 *)row)[i]));
    case SHOAL_INT8: return ((const int8_t *)row)[i];
    case SHOAL_UINT8: return ((const uint8_t *)row)[i];
    case SHOAL_INT16: return ((const int16_t *)row)[i];
    case SHOAL_UINT16: return ((const uint16_t *)row)[i];
    case SHOAL_INT32: return ((const int32_t *)row)[i];
    case SHOAL_UINT32: return ((const uint32_t *)row)[i];
    case SHOAL_INT64: return ((const int64_t *)row)[i];
    default: return (int64_t)(((const uint64_t *)row)[i] ^ 0x8000000000000000u);
  }
}

/* Puts the k first entries of n in front, in no order: quickselect with the middle of three as pivot. */
static void select_first(struct top_entry *e, int64_t n, int64_t k) {
  int64_t low = 0, high = n - 1;
  while (low < high) {
    struct top_entry a = e[low], b = e[low + (high - low) / 2], c = e[high];
    struct top_entry pivot = before(&a, &b) ? (before(&b, &c)   ? b
                                               : before(&a, &c) ? c
                                                                : a)
                                            : (before(&a, &c)   ? a
                                               : before(&b, &c) ? c
                                                                : b);
    int64_t i = low, j = high;
    while (i <= j) {
      while (before(&e[i], &pivot)) i++;
      while (before(&pivot, &e[j])) j--;
      if (i > j) break;
      struct top_entry t = e[i];
      e[i++] = e[j];
      e[j--] = t;
    }
    if (k - 1 <= j) high = j;
    else if (k - 1 >= i) low = i;
    else return;
  }
}

/* ---- TopK ---- */

struct top {
  shoal_dtype type;
  const char *x;
  char *values, *indices;
  int64_t cols, k;
  size_t index_size;
};

static void put_index(const struct top *t, int64_t at, int64_t v) {
  if (t->index_size == 2) ((int16_t *)t->indices)[at] = (int16_t)v;
  else if (t->index_size == 4) ((int32_t *)t->indices)[at] = (int32_t)v;
  else ((int64_t *)t->indices)[at] = v;
}

static struct buffer *room_for_row(const struct top *t) {
  struct buffer *b;
  shoal_status s = buffer_new((size_t)t->cols * sizeof(struct top_entry), &b);
  MUST(!s); /* a small multiple of a row that is in memory */
  return b;
}

/* Row r's elements as entries; where the row is. */
static const char *read_row(const struct top *t, int64_t r, struct top_entry *e) {
  const char *row = t->x + (size_t)(r * t->cols) * dtype_size(t->type);
  for (int64_t i = 0; i < t->cols; i++) e[i] = (struct top_entry){key_at(t->type, row, i), i};
  return row;
}

static void top_rows(void *arg, int64_t begin, int64_t end) {
  const struct top *t = arg;
  size_t es = dtype_size(t->type);
  struct buffer *b = room_for_row(t);
  struct top_entry *e = b->data;
  for (int64_t r = begin; r < end; r++) {
    const char *row = read_row(t, r, e);
    if (t->k < t->cols) select_first(e, t->cols, t->k);
    if (t->k > 1) qsort(e, (size_t)t->k, sizeof *e, compare);
    for (int64_t i = 0; i < t->k; i++) {
      memcpy(t->values + (size_t)(r * t->k + i) * es, row + (size_t)e[i].index * es, es);
      put_index(t, r * t->k + i, e[i].index);
    }
  }
  buffer_unref(b);
}

/* ApproxTopK, too, finds the largest themselves: what is less is for other machines. As there, nothing else than the
 * largest of the last dimension is to be had here. */
static shoal_status top_init(struct kernel_init *ki, void *state) {
  *(int64_t *)state = -1;
  if (op_is(ki->node->op, "ApproxTopK")) {
    bool largest;
    int64_t dim;
    TRY(node_get_bool(ki->node, "is_max_k", &largest));
    TRY(node_get_int(ki->node, "reduction_dimension", &dim));
    if (!largest || dim != -1)
      return INVALID(
          "No OpKernel was registered to support Op 'ApproxTopK' with is_max_k=%s, reduction_dimension=%" PRId64
          " on the CPU: only the largest, of the last dimension",
          largest ? "true" : "false", dim);
  }
  return node_attr(ki->node, "k") ? node_get_int(ki->node, "k", state) : NULL;
}

static shoal_status top_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  int64_t k = *(const int64_t *)ctx->state;
  if (k < 0) {
    const struct tensor *given = ctx_in(ctx, 1);
    if (given->rank != 0) return INVALID("k must be scalar, got shape %s", tensor_shape_str(given));
    k = given->dtype == SHOAL_INT16 ? T_DATA(given, const int16_t)[0] : int_at(given, 0);
    if (k < 0) return INVALID("Need k >= 0, got %" PRId64, k);
  }
  if (x->rank < 1) return INVALID("input must be >= 1-D, got shape %s", tensor_shape_str(x));
  int64_t cols = x->dims[x->rank - 1];
  if (cols < k) return INVALID("input must have at least k columns. Had %" PRId64 ", needed %" PRId64, cols, k);
  struct shape s = tensor_shape(x);
  s.dims[s.rank - 1] = k;
  struct tensor *values, *indices;
  TRY(ctx_out(ctx, 0, &s, &values));
  TRY(ctx_out(ctx, 1, &s, &indices));
  if (!values->n) return NULL;
  struct top t = {.type = ctx_in_type(ctx, 0),
                  .x = x->data,
                  .values = values->data,
                  .indices = indices->data,
                  .cols = cols,
                  .k = k,
                  .index_size = dtype_size(ctx_out_type(ctx, 1))};
  pool_for(ctx_pool(ctx), values->n / k, nn_grain(cols * 8), top_rows, &t);
  return NULL;
}

static shoal_status top_shape(struct shape_ctx *c) {
  struct shape x;
  int64_t k = -1;
  TRY(shape_in_rank_at_least(c, 0, 1, &x));
  if (node_attr(c->node, "k")) TRY(node_get_int(c->node, "k", &k));
  else if (!shape_in_int(c, 1, &k)) k = -1;
  if (x.rank < 0) return NULL;
  if (k >= 0 && x.dims[x.rank - 1] >= 0 && x.dims[x.rank - 1] < k)
    return INVALID("input must have last dimension >= k = %" PRId64 " but is %" PRId64, k, x.dims[x.rank - 1]);
  x.dims[x.rank - 1] = k < 0 ? -1 : k;
  c->out[0] = c->out[1] = x;
  return NULL;
}

/* The gradient goes back to where each value came from: row offsets are added to the indices, and the values are
 * scattered into a flat tensor of the input's size. */
static shoal_status top_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out x = gin(c, 0), shape = array_shape(g, x, SHOAL_INT64), index = gout(c, 1);
  shoal_out last = array_at(g, shape, -1);
  shoal_out k = array_at(g, array_shape(g, index, SHOAL_INT64), -1);
  shoal_out minus = build_const_int(g, SHOAL_INT64, -1);
  struct build pack = build_begin(g, "Pack", NULL);
  shoal_out dims[2] = {minus, k};
  build_in_list(&pack, dims, 2);
  shoal_out index_2d = array_reshape(g, build_cast(g, index, SHOAL_INT64), build_end_out(&pack));
  shoal_out rows = array_at(g, array_shape(g, index_2d, SHOAL_INT64), 0);
  shoal_out offsets = build_op3(g, "Range", build_const_int(g, SHOAL_INT64, 0), build_op2(g, "Mul", rows, last), last);
  shoal_out flat = build_op2(g, "AddV2", index_2d, array_expand(g, offsets, -1));
  int64_t column[2] = {-1, 1}, all = -1;
  shoal_out where = array_reshape(g, flat, build_const_ints(g, SHOAL_INT64, column, 2));
  shoal_out values = array_reshape(g, grad_dy(c, 0), build_const_ints(g, SHOAL_INT64, &all, 1));
  shoal_out size = array_reshape(g, build_op2(g, "Prod", shape, build_const_int(g, SHOAL_INT32, 0)),
                                 build_const_ints(g, SHOAL_INT64, (const int64_t[]){1}, 1));
  grad_set(c, 0, array_reshape(g, build_op3(g, "ScatterNd", where, values, size), shape));
  return NULL;
}

/* ---- InTopK ---- */

static shoal_status in_init(struct kernel_init *ki, void *state) {
  *(int64_t *)state = -1;
  return op_is(ki->node->op, "InTopK") ? node_get_int(ki->node, "k", state) : NULL;
}

static shoal_status in_run(struct kernel_ctx *ctx) {
  const struct tensor *p = ctx_in(ctx, 0), *targets = ctx_in(ctx, 1);
  int64_t k = *(const int64_t *)ctx->state;
  if (p->rank != 2) return INVALID("predictions must be 2-dimensional");
  if (targets->rank != 1) return INVALID("targets must be 1-dimensional");
  if (p->dims[0] != targets->dims[0])
    return INVALID("First dimension of predictions %" PRId64 " must match length of targets %" PRId64, p->dims[0],
                   targets->dims[0]);
  if (ctx->kernel->n_in == 3) {
    if (ctx_in(ctx, 2)->rank != 0) return INVALID("k must be 0-D, got shape %s", tensor_shape_str(ctx_in(ctx, 2)));
    k = int_at(ctx_in(ctx, 2), 0);
  }
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, targets->dims, &out));
  for (int64_t r = 0; r < p->dims[0]; r++) {
    const float *row = T_DATA(p, const float) + r * p->dims[1];
    int64_t target = int_at(targets, r), more = 0;
    bool say = target >= 0 && target < p->dims[1] && isfinite(row[target]);
    for (int64_t i = 0; say && i < p->dims[1]; i++) {
      if (!isfinite(row[i])) say = false;
      else if (row[i] > row[target]) more++;
    }
    T_DATA(out, bool)[r] = say && more < k;
  }
  return NULL;
}

static shoal_status in_shape(struct shape_ctx *c) {
  struct shape p, t;
  TRY(shape_in_rank(c, 0, 2, &p));
  TRY(shape_in_rank(c, 1, 1, &t));
  TRY(nn_same_dim(c, p.dims[0], t.dims[0]));
  c->out[0] = shape_vector(p.dims[0] >= 0 ? p.dims[0] : t.dims[0]);
  return NULL;
}

/* ---- NthElement ---- */

static shoal_status nth_init(struct kernel_init *ki, void *state) { return node_get_bool(ki->node, "reverse", state); }

static void nth_rows(void *arg, int64_t begin, int64_t end) {
  const struct top *t = arg; /* k: how many from the largest */
  size_t es = dtype_size(t->type);
  struct buffer *b = room_for_row(t);
  struct top_entry *e = b->data;
  for (int64_t r = begin; r < end; r++) {
    const char *row = read_row(t, r, e);
    select_first(e, t->cols, t->k);
    int64_t last = 0; /* of the first k: the one that goes behind all others */
    for (int64_t i = 1; i < t->k; i++)
      if (before(&e[last], &e[i])) last = i;
    memcpy(t->values + (size_t)r * es, row + (size_t)e[last].index * es, es);
  }
  buffer_unref(b);
}

static shoal_status nth_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *which = ctx_in(ctx, 1);
  if (which->rank != 0) return INVALID("N must be scalar but has rank %d", which->rank);
  int64_t n = int_at(which, 0);
  if (n < 0) return INVALID("n must be non-negative but is %" PRId64, n);
  if (x->rank < 1) return INVALID("Input must be at least rank 1 but is rank %d", x->rank);
  int64_t cols = x->dims[x->rank - 1];
  if (cols <= n) return INVALID("Input must have last dimension > n = %" PRId64, n);
  struct shape s = tensor_shape(x);
  s.rank--;
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &s, &out));
  bool largest = *(const bool *)ctx->state;
  struct top t = {
      .type = ctx_in_type(ctx, 0), .x = x->data, .values = out->data, .cols = cols, .k = largest ? n + 1 : cols - n};
  pool_for(ctx_pool(ctx), out->n, nn_grain(cols * 8), nth_rows, &t);
  return NULL;
}

static shoal_status nth_shape(struct shape_ctx *c) {
  struct shape x;
  TRY(shape_in_rank_at_least(c, 0, 1, &x));
  if (x.rank < 0) return NULL;
  x.rank--;
  c->out[0] = x;
  return NULL;
}

/* Shared equally by all elements that have the value. */
static shoal_status nth_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out x = gin(c, 0), y = array_expand(g, gout(c, 0), -1), dy = array_expand(g, grad_dy(c, 0), -1);
  shoal_out same = build_cast(g, build_op2(g, "Equal", y, x), out_type(x));
  shoal_out count = array_sum(g, same, build_const_int(g, SHOAL_INT32, -1), true);
  grad_set(c, 0, build_op2(g, "Mul", build_op2(g, "RealDiv", same, count), dy));
  return NULL;
}

static const struct kernel_def top_kernels[] = {{.device = "CPU",
                                                 .type_attr = "T",
                                                 .types = DT_REAL,
                                                 .state_size = sizeof(int64_t),
                                                 .init = top_init,
                                                 .run = top_run},
                                                {0}};
static const struct kernel_def in_kernels[] = {{.device = "CPU",
                                                .type_attr = "T",
                                                .types = DT(INT32) | DT(INT64),
                                                .state_size = sizeof(int64_t),
                                                .init = in_init,
                                                .run = in_run},
                                               {0}};
static const struct kernel_def nth_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT_REAL, .state_size = sizeof(bool), .init = nth_init, .run = nth_run},
    {0}};

static const struct op_row rows[] = {
    {"TopK", .in = "input: T", .out = "values: T, indices: int32",
     .attrs = "k: int >= 0; sorted: bool = true; T: realnumbertype", .shape = top_shape, .grad = top_grad,
     .kernels = top_kernels},
    {"TopKV2", .in = "input: T, k: Tk", .out = "values: T, indices: index_type",
     .attrs = "sorted: bool = true; T: realnumbertype; Tk: {int16, int32, int64} = int32; index_type: {int16, int32, "
              "int64} = int32",
     .shape = top_shape, .grad = top_grad, .kernels = top_kernels},
    {"ApproxTopK", .in = "input: T", .out = "values: T, indices: int32",
     .attrs = "k: int >= 0; reduction_dimension: int = -1; recall_target: float = 0.95; is_max_k: bool = true; "
              "reduction_input_size_override: int = -1; aggregate_to_topk: bool = true; T: {half, bfloat16, float}",
     .shape = top_shape, .kernels = top_kernels},
    {"InTopK", .in = "predictions: float, targets: T", .out = "precision: bool",
     .attrs = "k: int; T: {int32, int64} = int32", .flags = OP_NO_GRADIENT, .shape = in_shape, .kernels = in_kernels},
    {"InTopKV2", .in = "predictions: float, targets: T, k: T", .out = "precision: bool",
     .attrs = "T: {int32, int64} = int32", .flags = OP_NO_GRADIENT, .shape = in_shape, .kernels = in_kernels},
    {"NthElement", .in = "input: T, n: int32", .out = "values: T", .attrs = "reverse: bool = false; T: realnumbertype",
     .shape = nth_shape, .grad = nth_grad, .kernels = nth_kernels},
};
OP_FAMILY(topk, rows);
