/* ops/sparse: tensors that are not rectangles of values: sparse, compressed rows, ragged, sets. */

/* Counting with sparse results: DenseCountSparseOutput, SparseCountSparseOutput, RaggedCountSparseOutput. What is
 * counted is a list of (row, value) with a weight each; the result has an entry for every pair that occurs, in order.
 *
 * TensorFlow keeps a hash map for every row, also for the empty ones, which a shape of 2^31 rows makes expensive. Here
 * the pairs are sorted, and rows that have nothing cost nothing. Equal pairs stay in the order of the input, so that
 * sums of floating weights are those of TensorFlow to the last bit. */
#include <stdlib.h>

#include "ops/sparse/sparse.h"

struct count_state {
  int64_t min_length, max_length;
  bool binary;
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct count_state *st = state;
  TRY(node_get_int(ki->node, "minlength", &st->min_length));
  TRY(node_get_int(ki->node, "maxlength", &st->max_length));
  return node_get_bool(ki->node, "binary_output", &st->binary);
}

struct counted_pair {
  int64_t row, value, at;
};

struct counting {
  const struct count_state *st;
  const struct tensor *values, *weights; /* weights of no elements: one each */
  bool vector;                           /* the result has no rows */
  int64_t rows;
  struct tensor memory;
  struct counted_pair *pairs; /* in memory */
  int64_t n, largest;
  bool negative; /* a value was */
};

static shoal_status begin(struct kernel_ctx *ctx, struct counting *c, const struct tensor *values,
                          const struct tensor *weights, const char *what) {
  c->st = ctx->state;
  c->values = values;
  c->weights = weights;
  if (weights->n && !tensor_same_shape(weights, values))
    return INVALID("Weights and %s must have the same shape. Weight shape: %s; %s shape: %s", what,
                   tensor_shape_str(weights), what, tensor_shape_str(values));
  struct shape s = shape_matrix(values->n, 3);
  TRY(ctx_temp(ctx, SHOAL_INT64, &s, &c->memory));
  c->pairs = c->memory.data;
  return NULL;
}

static void add(struct counting *c, int64_t row, int64_t at) {
  int64_t v = int_at(c->values, at);
  if (v < 0) c->negative = true;
  if (v < 0 || (c->st->max_length >= 0 && v >= c->st->max_length)) return;
  c->pairs[c->n++] = (struct counted_pair){row, v, at};
  c->largest = MAX(c->largest, v);
}

static int by_place(const void *a, const void *b) {
  const struct counted_pair *x = a, *y = b;
  if (x->row != y->row) return x->row < y->row ? -1 : 1;
  if (x->value != y->value) return x->value < y->value ? -1 : 1;
  return x->at < y->at ? -1 : x->at > y->at;
}

static bool same_place(const struct counted_pair *a, const struct counted_pair *b) {
  return a->row == b->row && a->value == b->value;
}

#define ADD_UP(type)                                                                       \
  do {                                                                                     \
    const type *w = c->weights->n ? T_DATA(c->weights, const type) : NULL;                 \
    type sum = 0;                                                                          \
    for (int64_t i = first; i < end; i++) sum = (type)(sum + (w ? w[c->pairs[i].at] : 1)); \
    T_DATA(out, type)[k] = c->st->binary ? 1 : sum;                                        \
  } while (0)

static void add_up(const struct counting *c, int64_t first, int64_t end, struct tensor *out, int64_t k) {
  switch (out->dtype) {
    case SHOAL_FLOAT32: ADD_UP(float); break;
    case SHOAL_FLOAT64: ADD_UP(double); break;
    case SHOAL_INT32: ADD_UP(uint32_t); break; /* wraps */
    default: ADD_UP(uint64_t); break;
  }
}

static shoal_status put(struct kernel_ctx *ctx, struct counting *c) {
  if (c->n) qsort(c->pairs, (size_t)c->n, sizeof *c->pairs, by_place);
  int64_t places = 0, k = 0;
  for (int64_t i = 0; i < c->n; i++) places += !i || !same_place(&c->pairs[i - 1], &c->pairs[i]);
  int rank = c->vector ? 1 : 2;
  struct tensor *indices, *values, *shape;
  TRY(sparse_out(ctx, 0, places, rank, &indices, &values, &shape));
  for (int64_t i = 0, end; i < c->n; i = end, k++) {
    for (end = i + 1; end < c->n && same_place(&c->pairs[i], &c->pairs[end]);) end++;
    if (rank == 2) T_DATA(indices, int64_t)[2 * k] = c->pairs[i].row;
    T_DATA(indices, int64_t)[rank * k + rank - 1] = c->pairs[i].value;
    add_up(c, i, end, values, k);
  }
  if (rank == 2) int_put(shape, 0, c->rows);
  int64_t width = c->largest < INT64_MAX ? c->largest + 1 : INT64_MAX;
  int_put(shape, rank - 1, c->st->max_length >= 0 ? c->st->max_length : MAX(width, c->st->min_length));
  return NULL;
}

static shoal_status finish(struct kernel_ctx *ctx, struct counting *c) {
  shoal_status s = c->negative ? INVALID("Input values must all be non-negative") : put(ctx, c);
  tensor_release(&c->memory);
  return s;
}

/* ---- the three ---- */

static shoal_status run_dense(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank != 1 && x->rank != 2)
    return INVALID("Input must be a 1 or 2-dimensional tensor. Got: %s", tensor_shape_str(x));
  if (x->rank == 2 && x->dims[0] == 0) return INVALID("Invalid input: Shapes dimension cannot be 0.");
  struct counting c = {.vector = x->rank == 1, .rows = x->rank == 2 ? x->dims[0] : 1};
  TRY(begin(ctx, &c, x, ctx_in(ctx, 1), "data"));
  int64_t width = x->n / c.rows;
  for (int64_t i = 0; i < x->n; i++) add(&c, i / width, i);
  return finish(ctx, &c);
}

static shoal_status check_sparse(const struct tensor *ix, const struct tensor *v, const struct tensor *shape) {
  if (ix->rank != 2) return INVALID("Input indices must be a 2-dimensional tensor. Got: %s", tensor_shape_str(ix));
  if (v->rank != 1) return INVALID("Input values must be a vector. Got: %s", tensor_shape_str(v));
  if (shape->rank != 1) return INVALID("Input shape must be a vector. Got: %s", tensor_shape_str(shape));
  if (v->n != ix->dims[0])
    return INVALID("Number of values must match first dimension of indices.Got %" PRId64 " values, indices shape: %s",
                   v->n, tensor_shape_str(ix));
  if (shape->n != ix->dims[1])
    return INVALID("Number of dimensions must match second dimension of indices.Got %" PRId64
                   " dimensions, indices shape: %s",
                   shape->n, tensor_shape_str(ix));
  if (shape->n == 0) return INVALID("The shape argument requires at least one element.");
  for (int64_t i = 0; i < v->n; i++)
    for (int64_t k = 0; k < shape->n; k++) {
      int64_t at = int_at(ix, i * shape->n + k), end = int_at(shape, k);
      if (at < 0 || at >= end)
        return INVALID("Invalid index value at %" PRId64 ": dimension %" PRId64 " has value %" PRId64
                       " which is not in [0, %" PRId64 ") (as given by dense shape %s",
                       i, k, at, end, ints_str(shape, 0, shape->n, ","));
    }
  return NULL;
}

static shoal_status run_sparse(struct kernel_ctx *ctx) {
  const struct tensor *ix = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *shape = ctx_in(ctx, 2);
  TRY(check_sparse(ix, v, shape));
  struct counting c = {.vector = shape->n == 1, .rows = shape->n == 1 ? 1 : int_at(shape, 0)};
  if (c.rows <= 0 || c.rows >= INT32_MAX)
    return INVALID("Cannot allocate %" PRId64 " batches, is the dense shape too wide?", c.rows);
  TRY(begin(ctx, &c, v, ctx_in(ctx, 3), "values"));
  for (int64_t i = 0; i < v->n; i++) add(&c, c.vector ? 0 : int_at(ix, i * shape->n), i);
  return finish(ctx, &c);
}

static shoal_status run_ragged(struct kernel_ctx *ctx) {
  const struct tensor *splits = ctx_in(ctx, 0), *v = ctx_in(ctx, 1);
  struct counting c = {.rows = splits->n - 1};
  if (c.rows <= 0) return INVALID("Must provide at least 2 elements for the splits argument");
  if (int_at(splits, 0) != 0) return INVALID("Splits must start with 0, not with %" PRId64, int_at(splits, 0));
  if (int_at(splits, c.rows) != v->n)
    return INVALID("Splits must end with the number of values, got %" PRId64 " instead of %" PRId64,
                   int_at(splits, c.rows), v->n);
  TRY(begin(ctx, &c, v, ctx_in(ctx, 2), "values"));
  /* As in TensorFlow a value is of the first row that ends after it: splits that fall are no error. */
  for (int64_t i = 0, row = 0; i < v->n; i++) {
    while (i >= int_at(splits, row)) row++;
    add(&c, row - 1, i);
  }
  return finish(ctx, &c);
}

static shoal_status shape_dense(struct shape_ctx *c) {
  sparse_out_shapes(c, 0, -1, c->in[0].rank);
  return NULL;
}

static shoal_status shape_sparse(struct shape_ctx *c) {
  int64_t dims = c->in[2].rank == 1 ? c->in[2].dims[0] : -1;
  sparse_out_shapes(c, 0, -1, dims < 0 ? -1 : MIN(dims, 2));
  return NULL;
}

static shoal_status shape_ragged(struct shape_ctx *c) {
  sparse_out_shapes(c, 0, -1, 2);
  return NULL;
}

#define KERNELS(run_)                                                                             \
  (const struct kernel_def[]) {                                                                   \
    {.device = "CPU", .state_size = sizeof(struct count_state), .init = init, .run = run_}, { 0 } \
  }
#define OUT "output_indices: int64, output_values: output_type, output_dense_shape: int64"
#define ATTRS                                                                                                   \
  "T: {int32, int64}; minlength: int >= -1 = -1; maxlength: int >= -1 = -1; binary_output: bool; output_type: " \
  "{int32, int64, float, double}"

static const struct op_row rows[] = {
    {.name = "DenseCountSparseOutput",
     .in = "values: T, weights: output_type",
     .out = OUT,
     .attrs = ATTRS,
     .flags = OP_NO_GRADIENT,
     .shape = shape_dense,
     .kernels = KERNELS(run_dense)},
    {.name = "SparseCountSparseOutput",
     .in = "indices: int64, values: T, dense_shape: int64, weights: output_type",
     .out = OUT,
     .attrs = ATTRS,
     .flags = OP_NO_GRADIENT,
     .shape = shape_sparse,
     .kernels = KERNELS(run_sparse)},
    {.name = "RaggedCountSparseOutput",
     .in = "splits: int64, values: T, weights: output_type",
     .out = OUT,
     .attrs = ATTRS,
     .flags = OP_NO_GRADIENT,
     .shape = shape_ragged,
     .kernels = KERNELS(run_ragged)},
};
OP_FAMILY(counts, rows);
