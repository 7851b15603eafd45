/* Counting into bins: Bincount and its forms for dense, sparse and ragged tensors, HistogramFixedWidth. */
#include <inttypes.h>
#include <math.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/sparse/sparse.h"

/* ---- Bincount, DenseBincount ---- */

/* Adds the weights (or 1) of n values to `size` bins; binary only notes that a value was there. False: a negative
 * one. */
#define COUNT(type)                                                                                      \
  static bool count_##type(type *bins, int64_t size, const struct tensor *arr, int64_t first, int64_t n, \
                           const type *weights, bool binary) {                                           \
    for (int64_t i = 0; i < n; i++) {                                                                    \
      int64_t v = int_at(arr, first + i);                                                                \
      if (v < 0) return false;                                                                           \
      if (v >= size) continue;                                                                           \
      if (binary) bins[v] = 1;                                                                           \
      else bins[v] += weights ? weights[i] : 1;                                                          \
    }                                                                                                    \
    return true;                                                                                         \
  }
COUNT(float)
COUNT(double)
COUNT(uint32_t) /* int32 and int64 wrap */
COUNT(uint64_t)

static bool count(struct tensor *bins, int64_t row, int64_t size, const struct tensor *arr, int64_t first, int64_t n,
                  const struct tensor *weights, bool binary) {
  size_t at = (size_t)(row * size);
  bool has = weights->n > 0;
  switch (bins->dtype) {
    case SHOAL_FLOAT32:
      return count_float(T_DATA(bins, float) + at, size, arr, first, n,
                         has ? T_DATA(weights, const float) + first : NULL, binary);
    case SHOAL_FLOAT64:
      return count_double(T_DATA(bins, double) + at, size, arr, first, n,
                          has ? T_DATA(weights, const double) + first : NULL, binary);
    case SHOAL_INT32:
      return count_uint32_t(T_DATA(bins, uint32_t) + at, size, arr, first, n,
                            has ? T_DATA(weights, const uint32_t) + first : NULL, binary);
    default:
      return count_uint64_t(T_DATA(bins, uint64_t) + at, size, arr, first, n,
                            has ? T_DATA(weights, const uint64_t) + first : NULL, binary);
  }
}

static shoal_status read_size(const struct tensor *t, int64_t *size) {
  if (t->n != 1 || t->rank > 1) return INVALID("Shape must be rank 0 but is rank %d", t->rank);
  *size = int_at(t, 0);
  if (*size < 0) return INVALID("size (%" PRId64 ") must be non-negative", *size);
  return NULL;
}

static shoal_status bincount_run(struct kernel_ctx *ctx) {
  const struct tensor *arr = ctx_in(ctx, 0), *weights = ctx_in(ctx, 2);
  int64_t size;
  if (ctx_in(ctx, 1)->rank) return INVALID("Shape must be rank 0 but is rank %d", ctx_in(ctx, 1)->rank);
  TRY(read_size(ctx_in(ctx, 1), &size));
  if (weights->n && weights->n != arr->n) return INVALID("Input indices and weights must have the same size.");
  struct tensor *bins;
  TRY(ctx_out_dims(ctx, 0, 1, &size, &bins));
  tensor_zero(bins);
  if (!count(bins, 0, size, arr, 0, arr->n, weights, false)) return INVALID("Input arr must be non-negative!");
  return NULL;
}

struct bincount_state {
  bool binary;
};

static shoal_status dense_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "binary_output", &((struct bincount_state *)state)->binary);
}

static shoal_status dense_run(struct kernel_ctx *ctx) {
  const struct tensor *arr = ctx_in(ctx, 0), *weights = ctx_in(ctx, 2);
  int64_t size;
  if (arr->rank > 2) return INVALID("Shape must be at most rank 2 but is rank %d", arr->rank);
  TRY(read_size(ctx_in(ctx, 1), &size));
  if (weights->n && !tensor_same_shape(weights, arr))
    return INVALID(
        "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it acts as all "
        "weights equal to 1. Received %s",
        tensor_shape_str(weights));
  bool matrix = arr->rank == 2;
  int64_t n_rows = matrix ? arr->dims[0] : 1, n = matrix ? arr->dims[1] : arr->n;
  struct tensor *bins;
  TRY(ctx_out_dims(ctx, 0, matrix ? 2 : 1, matrix ? (int64_t[]){n_rows, size} : &size, &bins));
  tensor_zero(bins);
  bool binary = ((struct bincount_state *)ctx->state)->binary;
  for (int64_t r = 0; r < n_rows; r++)
    if (!count(bins, r, size, arr, r * n, n, weights, binary)) return INVALID("Input arr must be non-negative!");
  return NULL;
}

/* ---- SparseBincount, RaggedBincount ---- */

static shoal_status sparse_bins(struct kernel_ctx *ctx, int64_t size, struct tensor *bins) {
  const struct tensor *ix = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *w = ctx_in(ctx, 4);
  bool binary = ((struct bincount_state *)ctx->state)->binary;
  if (bins->rank == 1)
    return count(bins, 0, size, v, 0, v->n, w, binary) ? NULL : INVALID("Input arr must be non-negative!");
  for (int64_t i = 0; i < v->n; i++) {
    int64_t row = int_at(ix, i * ix->dims[1]), bin = int_at(v, i);
    if (row < 0 || row >= bins->dims[0])
      return INVALID("Index out of bound. `batch` (%" PRId64 ") must be less than the dimension size (%" PRId64 ").",
                     row, bins->dims[0]);
    if (bin >= size)
      return INVALID("Index out ouf bound. `bin` (%" PRId64 ") must be less then the dimension size (%" PRId64 ").",
                     bin, size);
    if (!count(bins, row, size, v, i, 1, w, binary)) return INVALID("Input must be non-negative");
  }
  return NULL;
}

static shoal_status sparse_run(struct kernel_ctx *ctx) {
  struct sparse s;
  int64_t size, dims[SHOAL_MAX_RANK], dense;
  TRY(sparse_get(ctx, 0, &s));
  TRY(sparse_dims(s.shape, dims, &dense));
  TRY(read_size(ctx_in(ctx, 3), &size));
  if (ctx_in(ctx, 4)->n && ctx_in(ctx, 4)->n != s.n)
    return INVALID("Input indices and weights must have the same size.");
  struct tensor *bins;
  if (s.rank == 1) TRY(ctx_out_dims(ctx, 0, 1, &size, &bins));
  else TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){s.rank ? dims[0] : 0, size}, &bins));
  tensor_zero(bins);
  return sparse_bins(ctx, size, bins);
}

static shoal_status ragged_run(struct kernel_ctx *ctx) {
  const struct tensor *splits = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *w = ctx_in(ctx, 3);
  int64_t size, rows = splits->n - 1;
  TRY(read_size(ctx_in(ctx, 2), &size));
  if (rows < 0) return INVALID("Splits must be non-empty");
  if (int_at(splits, 0) != 0) return INVALID("Splits must start with 0, not with %" PRId64, int_at(splits, 0));
  if (int_at(splits, rows) != v->n)
    return INVALID("Splits must end with the number of values, got %" PRId64 " instead of %" PRId64,
                   int_at(splits, rows), v->n);
  if (w->n && w->n != v->n) return INVALID("Input values and weights must have the same size.");
  struct tensor *bins;
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){rows, size}, &bins));
  tensor_zero(bins);
  bool binary = ((struct bincount_state *)ctx->state)->binary;
  for (int64_t i = 0, row = 0; i < v->n; i++) { /* a value is of the first row that ends after it */
    while (i >= int_at(splits, row)) row++;
    if (!count(bins, row - 1, size, v, i, 1, w, binary)) return INVALID("Input must be non-negative");
  }
  return NULL;
}

static shoal_status rows_shape(struct shape_ctx *c, int at, int64_t rows, bool vector) {
  int64_t size = -1;
  if (shape_in_int(c, at, &size) && size < 0) return INVALID("size (%" PRId64 ") must be non-negative", size);
  c->out[0] = vector ? shape_vector(size) : shape_matrix(rows, size);
  return NULL;
}

static shoal_status sparse_shape(struct shape_ctx *c) {
  const struct shape *dims = &c->in[2];
  const struct tensor *known = c->values[2];
  if (dims->rank != 1 || dims->dims[0] < 0) return NULL;
  int64_t rows = known && known->n ? int_at(known, 0) : -1;
  return rows_shape(c, 3, rows < 0 ? -1 : rows, dims->dims[0] == 1);
}

static shoal_status ragged_shape(struct shape_ctx *c) {
  int64_t rows = c->in[0].rank == 1 && c->in[0].dims[0] > 0 ? c->in[0].dims[0] - 1 : -1;
  return rows_shape(c, 2, rows, false);
}

static shoal_status bincount_shape(struct shape_ctx *c) {
  int64_t size = -1;
  if (shape_in_int(c, 1, &size) && size < 0) return INVALID("size (%" PRId64 ") must be non-negative", size);
  c->out[0] = shape_vector(size);
  return NULL;
}

static shoal_status dense_shape(struct shape_ctx *c) {
  if (c->in[0].rank < 0) return NULL;
  if (c->in[0].rank < 2) return bincount_shape(c);
  if (c->in[0].rank > 2) return INVALID("Shape must be at most rank 2 but is rank %d", c->in[0].rank);
  int64_t size = -1;
  if (shape_in_int(c, 1, &size) && size < 0) return INVALID("size (%" PRId64 ") must be non-negative", size);
  c->out[0] = shape_matrix(c->in[0].dims[0], size);
  return NULL;
}

/* ---- HistogramFixedWidth ---- */

static shoal_status histogram_run(struct kernel_ctx *ctx) {
  const struct tensor *values = ctx_in(ctx, 0), *range = ctx_in(ctx, 1), *bins = ctx_in(ctx, 2);
  if (range->rank != 1) return INVALID("value_range should be a vector.");
  if (range->n != 2) return INVALID("value_range should be a vector of 2 elements.");
  if (bins->rank != 0) return INVALID("nbins should be a scalar.");
  int64_t n = int_at(bins, 0);
  double low = real_at(range, 0), high = real_at(range, 1);
  if (!(low < high))
    return INVALID("value_range should satisfy value_range[0] < value_range[1], but got '[%g, %g]'", low, high);
  if (n <= 0) return INVALID("nbins should be a positive number, but got '%" PRId64 "'", n);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, &n, &out));
  tensor_zero(out);
  /* The width in the values' own type, as the values' distance from low is. */
  double span = values->dtype == SHOAL_FLOAT32 ? (double)((float)high - (float)low) : high - low;
  double step = span / (double)n, last = (double)(n - 1);
  for (int64_t i = 0; i < values->n; i++) {
    double v = real_at(values, i);
    if (isnan(v)) return INVALID("Histogram values must not contain NaN");
    double d = v <= low ? 0 : values->dtype == SHOAL_FLOAT32 ? (double)((float)v - (float)low) : v - low;
    int64_t at = (int64_t)fmin(d / step, last);
    int_put(out, at, int_at(out, at) + 1);
  }
  return NULL;
}

static shoal_status histogram_shape(struct shape_ctx *c) {
  int64_t n = -1;
  struct shape s;
  TRY(shape_in_rank(c, 1, 1, &s));
  TRY(shape_in_rank(c, 2, 0, &s));
  if (shape_in_int(c, 2, &n) && n <= 0) return INVALID("Requires nbins > 0: %" PRId64, n);
  c->out[0] = shape_vector(n);
  return NULL;
}

/* ---- rows ---- */

#define WEIGHTS (DT(INT32) | DT(INT64) | DT(FLOAT32) | DT(FLOAT64))
static const struct kernel_def bincount_kernels[] = {{"CPU", "T", WEIGHTS, .run = bincount_run, .host_in = 2}, {0}};
static const struct kernel_def dense_kernels[] = {{"CPU", "T", WEIGHTS, .state_size = sizeof(struct bincount_state),
                                                   .init = dense_init, .run = dense_run, .host_in = 2},
                                                  {0}};
static const struct kernel_def sparse_kernels[] = {{"CPU", "T", WEIGHTS, .state_size = sizeof(struct bincount_state),
                                                    .init = dense_init, .run = sparse_run, .host_in = 8},
                                                   {0}};
static const struct kernel_def ragged_kernels[] = {{"CPU", "T", WEIGHTS, .state_size = sizeof(struct bincount_state),
                                                    .init = dense_init, .run = ragged_run, .host_in = 4},
                                                   {0}};
static const struct kernel_def histogram_kernels[] = {{"CPU", "T", WEIGHTS, .run = histogram_run, .host_in = 6}, {0}};

static const struct op_row rows[] = {
    {.name = "Bincount",
     .in = "arr: int32, size: int32, weights: T",
     .out = "bins: T",
     .attrs = "T: {int32, int64, float, double}",
     .flags = OP_NO_GRADIENT,
     .shape = bincount_shape,
     .kernels = bincount_kernels},
    {.name = "DenseBincount",
     .in = "input: Tidx, size: Tidx, weights: T",
     .out = "output: T",
     .attrs = "Tidx: {int32, int64}; T: {int32, int64, float, double}; binary_output: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = dense_shape,
     .kernels = dense_kernels},
    {.name = "SparseBincount",
     .in = "indices: int64, values: Tidx, dense_shape: int64, size: Tidx, weights: T",
     .out = "output: T",
     .attrs = "Tidx: {int32, int64}; T: {int32, int64, float, double}; binary_output: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = sparse_shape,
     .kernels = sparse_kernels},
    {.name = "RaggedBincount",
     .in = "splits: int64, values: Tidx, size: Tidx, weights: T",
     .out = "output: T",
     .attrs = "Tidx: {int32, int64}; T: {int32, int64, float, double}; binary_output: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = ragged_shape,
     .kernels = ragged_kernels},
    {.name = "HistogramFixedWidth",
     .in = "values: T, value_range: T, nbins: int32",
     .out = "out: dtype",
     .attrs = "T: {int32, int64, float, double}; dtype: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = histogram_shape,
     .kernels = histogram_kernels},
};
OP_FAMILY(histogram, rows);
