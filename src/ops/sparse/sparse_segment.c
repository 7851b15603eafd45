/* SparseSegmentSum, Mean and SqrtN: rows of a table, chosen by indices, reduced by sorted segment ids, without
 * gathering them first. What embedding lookups with several ids an example come down to. Half types are added up
 * in float. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/math/segment.h"
#include "ops/state/state.h"

enum sparse_segment_kind { SUM, MEAN, SQRT_N };

struct kind_state {
  enum sparse_segment_kind kind;
};

static enum sparse_segment_kind kind_of(const struct shoal_node *n) {
  return strstr(n->op->name, "SqrtN") ? SQRT_N : strstr(n->op->name, "Mean") ? MEAN : SUM;
}

static shoal_status kind_init(struct kernel_init *ki, void *state) {
  ((struct kind_state *)state)->kind = kind_of(ki->node);
  return NULL;
}

static double scale_of(enum sparse_segment_kind k, int64_t count) {
  return k == SUM ? 1 : k == MEAN ? 1.0 / (double)count : 1.0 / sqrt((double)count);
}

/* ---- forward ---- */

struct segment_reduce {
  shoal_dtype dtype;
  enum sparse_segment_kind kind;
  update_fn add;
  const struct tensor *x, *indices;
  struct tensor *y;
  const int64_t *first; /* [rows + 1] where each segment's entries begin */
  int64_t width;
};

#define SCALE(type) \
  for (int64_t i = 0; i < n; i++) ((type *)row)[i] = (type)(((type *)row)[i] * (type)by)

static void scale_row(shoal_dtype t, void *row, int64_t n, double by) {
  if (t == SHOAL_FLOAT32) SCALE(float);
  else if (t == SHOAL_FLOAT64) SCALE(double);
}

static void load_row(shoal_dtype t, float *acc, const void *from, int64_t n, bool first) {
  for (int64_t i = 0; i < n; i++) {
    float v = t == SHOAL_FLOAT16 ? f16_to_float(((const f16 *)from)[i]) : bf16_to_float(((const bf16 *)from)[i]);
    acc[i] = first ? v : acc[i] + v;
  }
}

static void reduce_piece(void *arg, int64_t begin, int64_t end) {
  const struct segment_reduce *r = arg;
  bool half = r->dtype == SHOAL_FLOAT16 || r->dtype == SHOAL_BFLOAT16;
  size_t bytes = (size_t)r->width * dtype_size(r->dtype);
  float *acc = half ? mem_alloc(sizeof *acc * (size_t)MAX(r->width, 1)) : NULL;
  for (int64_t s = begin; s < end; s++) {
    char *row = (char *)r->y->data + (size_t)s * bytes;
    int64_t from = r->first[s], to = r->first[s + 1];
    if (from == to) {
      if (bytes) memset(row, 0, bytes);
      continue;
    }
    for (int64_t i = from; i < to; i++) {
      const char *x = (const char *)r->x->data + (size_t)int_at(r->indices, i) * bytes;
      if (half) load_row(r->dtype, acc, x, r->width, i == from);
      else if (i == from) memcpy(row, x, bytes);
      else r->add(r->dtype, row, x, r->width);
    }
    double by = scale_of(r->kind, to - from);
    if (!half) {
      if (r->kind != SUM) scale_row(r->dtype, row, r->width, by);
      continue;
    }
    for (int64_t i = 0; i < r->width; i++) {
      float v = acc[i] * (float)by;
      if (r->dtype == SHOAL_FLOAT16) ((f16 *)row)[i] = f16_from_float(v);
      else ((bf16 *)row)[i] = bf16_from_float(v);
    }
  }
  free(acc);
}

static shoal_status check_ids(const struct tensor *indices, const struct tensor *ids, int64_t dim, int64_t rows) {
  for (int64_t i = 1, first = 0; i <= ids->n; i++) {
    bool is_end;
    TRY(segment_end(ids, i, rows, &is_end));
    for (; is_end && first < i; first++) {
      int64_t ix = int_at(indices, first);
      if (ix < 0 || ix >= dim)
        return INVALID("Bad: indices[%" PRId64 "] == %" PRId64 " out of range [0, %" PRId64 ")", first, ix, dim);
    }
  }
  return NULL;
}

static shoal_status reduce_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *indices = ctx_in(ctx, 1), *ids = ctx_in(ctx, 2);
  bool fixed = ctx->kernel->n_in == 4;
  if (x->rank < 1) return INVALID("input must be at least rank 1");
  if (indices->rank != 1) return INVALID("indices should be a vector.");
  if (ids->rank != 1) return INVALID("segment_ids should be a vector.");
  if (indices->n != ids->n) return INVALID("segment_ids and indices should have same size.");
  int64_t rows = ids->n ? int_at(ids, ids->n - 1) : -1;
  if (rows == INT64_MAX) return INVALID("segment ids are too large");
  rows++;
  if (ids->n && rows <= 0) return INVALID("segment ids must be >= 0");
  if (fixed) {
    const struct tensor *num = ctx_in(ctx, 3);
    if (num->rank != 0) return INVALID("num_segments should be a scalar, not shape %s", tensor_shape_str(num));
    if (int_at(num, 0) < 0) return INVALID("segment ids must be >= 0");
    if (rows > int_at(num, 0)) return INVALID("segment ids must be < num_segments");
    rows = int_at(num, 0);
  }
  TRY(check_ids(indices, ids, x->dims[0], rows));
  struct shape s = tensor_shape(x);
  s.dims[0] = rows;
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  struct tensor first;
  int64_t n = rows + 1;
  TRY(tensor_new_dims(&first, SHOAL_INT64, 1, &n));
  for (int64_t row = 0, i = 0; row <= rows; row++) {
    while (i < ids->n && int_at(ids, i) < row) i++;
    T_DATA(&first, int64_t)[row] = i;
  }
  shoal_dtype t = (shoal_dtype)x->dtype;
  struct segment_reduce r = {.dtype = t,
                             .kind = ((struct kind_state *)ctx->state)->kind,
                             .add = update_find(UPDATE_ADD, t),
                             .x = x,
                             .indices = indices,
                             .y = y,
                             .first = first.data,
                             .width = dims_product(s.dims, 1, s.rank)};
  int64_t work = (ids->n / rows + 1) * r.width * (int64_t)dtype_size(t);
  pool_for(ctx_pool(ctx), rows, copy_grain(work), reduce_piece, &r);
  tensor_release(&first);
  return NULL;
}

static shoal_status reduce_shape(struct shape_ctx *c) {
  struct shape v;
  int64_t rows = -1;
  TRY(shape_in_rank(c, 1, 1, &v));
  TRY(shape_in_rank(c, 2, 1, &v));
  TRY(shape_in_rank_at_least(c, 0, 1, &c->out[0]));
  if (c->node->n_in == 4 && shape_in_int(c, 3, &rows) && rows < 0)
    return INVALID("Cannot specify a negative value for num_segments");
  if (c->out[0].rank > 0) c->out[0].dims[0] = rows;
  return NULL;
}

static shoal_status reduce_grad(struct grad_ctx *c) {
  static const char *const names[] = {"SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad"};
  static const char *const sparse[] = {"SparseSegmentSumGradV2", "SparseSegmentMeanGradV2", "SparseSegmentSqrtNGradV2"};
  bool slices = false;
  if (node_attr(c->node, "sparse_gradient")) TRY(node_get_bool(c->node, "sparse_gradient", &slices));
  enum sparse_segment_kind k = kind_of(c->node);
  shoal_out shape = array_shape(c->g, gin(c, 0), SHOAL_INT32);
  struct build b = build_begin(c->g, slices ? sparse[k] : names[k], NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, gin(c, 1));
  build_in(&b, gin(c, 2));
  build_in(&b, array_at(c->g, shape, 0));
  struct shoal_node *n = build_end(&b);
  if (slices) grad_set_slices(c, 0, node_out(n, 0), node_out(n, 1), shape);
  else grad_set(c, 0, node_out(n, 0));
  return NULL;
}

static const struct kernel_def reduce_kernels[] = {{.device = "CPU",
                                                    .type_attr = "T",
                                                    .types = DT_REAL,
                                                    .state_size = sizeof(struct kind_state),
                                                    .init = kind_init,
                                                    .run = reduce_run},
                                                   {0}};

/* ---- backward ---- */

/* to += from * by */
static void add_scaled(shoal_dtype t, void *to, const void *from, int64_t n, double by) {
#define ADD_SCALED(type) \
  for (int64_t i = 0; i < n; i++) ((type *)to)[i] += ((const type *)from)[i] * (type)by
#define ADD_SCALED_HALF(type)     \
  for (int64_t i = 0; i < n; i++) \
  ((type *)to)[i] =               \
      type##_from_float(type##_to_float(((type *)to)[i]) + type##_to_float(((const type *)from)[i]) * (float)by)
  if (t == SHOAL_FLOAT32) ADD_SCALED(float);
  else if (t == SHOAL_FLOAT64) ADD_SCALED(double);
  else if (t == SHOAL_FLOAT16) ADD_SCALED_HALF(f16);
  else ADD_SCALED_HALF(bf16);
}

static int compare_int64(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* Where each index is among the sorted different ones. */
static shoal_status sort_unique(const struct tensor *indices, struct tensor *unique, int64_t *n) {
  TRY(tensor_new_dims(unique, SHOAL_INT64, 1, &indices->n));
  int64_t *u = unique->data;
  for (int64_t i = 0; i < indices->n; i++) u[i] = int_at(indices, i);
  qsort(u, (size_t)indices->n, sizeof *u, compare_int64);
  *n = 0;
  for (int64_t i = 0; i < indices->n; i++)
    if (!*n || u[*n - 1] != u[i]) u[(*n)++] = u[i];
  return NULL;
}

static int64_t place_of(const struct tensor *unique, int64_t n, int64_t v) {
  const int64_t *u = unique->data, *at = bsearch(&v, u, (size_t)n, sizeof *u, compare_int64);
  return at - u;
}

static shoal_status back_run(struct kernel_ctx *ctx) {
  const struct tensor *dy = ctx_in(ctx, 0), *indices = ctx_in(ctx, 1), *ids = ctx_in(ctx, 2), *dim0 = ctx_in(ctx, 3);
  bool v2 = ctx->kernel->n_out == 2;
  enum sparse_segment_kind kind = ((struct kind_state *)ctx->state)->kind;
  if (dy->rank < 1) return INVALID("grad must be at least rank 1");
  if (indices->rank != 1) return INVALID("indices should be a vector.");
  if (ids->rank != 1) return INVALID("segment_ids should be a vector.");
  if (indices->n != ids->n) return INVALID("segment_ids and indices should have same size.");
  if (dim0->rank != 0) return INVALID("output_dim0 should be a scalar.");
  int64_t rows = int_at(dim0, 0), segments = dy->dims[0];
  if (rows < 0) return INVALID("output_dim0 must be >= 0, not %" PRId64, rows);
  for (int64_t i = 0; i < ids->n; i++) {
    int64_t id = int_at(ids, i), ix = int_at(indices, i);
    if (id < 0 || id >= segments) {
      if (id >= segments && i == ids->n - 1) return INVALID("Invalid number of segments");
      return INVALID("Segment id %" PRId64 " out of range [0, %" PRId64 ").", id, segments);
    }
    if (ix < 0 || ix >= rows) return INVALID("Index %" PRId64 " out of range [0, %" PRId64 ").", ix, rows);
  }
  struct shape s = tensor_shape(dy);
  struct tensor unique = tensor_none(), counts, *dx, *which;
  int64_t found = rows;
  if (v2) {
    TRY(sort_unique(indices, &unique, &found));
    struct shape vector = shape_vector(found);
    shoal_status bad = ctx_out(ctx, 1, &vector, &which);
    for (int64_t i = 0; !bad && i < found; i++) int_put(which, i, T_DATA(&unique, int64_t)[i]);
    if (bad) {
      tensor_release(&unique);
      return bad;
    }
  }
  s.dims[0] = found;
  shoal_status bad = ctx_out(ctx, 0, &s, &dx);
  if (!bad) bad = tensor_new_dims(&counts, SHOAL_INT64, 1, &segments);
  if (bad) {
    tensor_release(&unique);
    return bad;
  }
  tensor_zero(dx);
  tensor_zero(&counts);
  for (int64_t i = 0; i < ids->n; i++) T_DATA(&counts, int64_t)[int_at(ids, i)]++;
  shoal_dtype t = (shoal_dtype)dy->dtype;
  int64_t width = dims_product(s.dims, 1, s.rank);
  size_t bytes = (size_t)width * dtype_size(t);
  for (int64_t i = 0; i < ids->n; i++) {
    int64_t id = int_at(ids, i), row = int_at(indices, i);
    if (v2) row = place_of(&unique, found, row);
    add_scaled(t, (char *)dx->data + (size_t)row * bytes, (const char *)dy->data + (size_t)id * bytes, width,
               scale_of(kind, T_DATA(&counts, int64_t)[id]));
  }
  tensor_release(&counts);
  tensor_release(&unique);
  return NULL;
}

static shoal_status back_shape(struct shape_ctx *c) {
  int64_t rows = -1;
  TRY(shape_in_rank_at_least(c, 0, 1, &c->out[0]));
  bool v2 = c->node->n_out == 2;
  if (!v2) shape_in_int(c, 3, &rows);
  if (c->out[0].rank > 0) c->out[0].dims[0] = rows;
  if (v2) c->out[1] = shape_vector(-1);
  return NULL;
}

static const struct kernel_def back_kernels[] = {{.device = "CPU",
                                                  .type_attr = "T",
                                                  .types = DT_FLOATING,
                                                  .state_size = sizeof(struct kind_state),
                                                  .init = kind_init,
                                                  .run = back_run},
                                                 {0}};

static const struct op_row rows[] = {
    {.name = "SparseSegmentSum",
     .in = "data: T, indices: Tidx, segment_ids: Tsegmentids",
     .out = "output: T",
     .attrs = "T: {realnumbertype}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32; "
              "sparse_gradient: bool = false",
     .shape = reduce_shape,
     .grad = reduce_grad,
     .kernels = reduce_kernels},
    {.name = "SparseSegmentMean",
     .in = "data: T, indices: Tidx, segment_ids: Tsegmentids",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32; "
              "sparse_gradient: bool = false",
     .shape = reduce_shape,
     .grad = reduce_grad,
     .kernels = reduce_kernels},
    {.name = "SparseSegmentSqrtN",
     .in = "data: T, indices: Tidx, segment_ids: Tsegmentids",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32; "
              "sparse_gradient: bool = false",
     .shape = reduce_shape,
     .grad = reduce_grad,
     .kernels = reduce_kernels},
    {.name = "SparseSegmentSumWithNumSegments",
     .in = "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments",
     .out = "output: T",
     .attrs = "T: {realnumbertype}; Tidx: {int32, int64} = int32; Tnumsegments: {int32, int64} = int32; Tsegmentids: "
              "{int32, int64} = int32; sparse_gradient: bool = false",
     .shape = reduce_shape,
     .grad = reduce_grad,
     .kernels = reduce_kernels},
    {.name = "SparseSegmentMeanWithNumSegments",
     .in = "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tnumsegments: {int32, int64} = "
              "int32; Tsegmentids: {int32, int64} = int32; sparse_gradient: bool = false",
     .shape = reduce_shape,
     .grad = reduce_grad,
     .kernels = reduce_kernels},
    {.name = "SparseSegmentSqrtNWithNumSegments",
     .in = "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tnumsegments: {int32, int64} = "
              "int32; Tsegmentids: {int32, int64} = int32; sparse_gradient: bool = false",
     .shape = reduce_shape,
     .grad = reduce_grad,
     .kernels = reduce_kernels},
    {.name = "SparseSegmentSumGrad",
     .in = "grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32",
     .shape = back_shape,
     .kernels = back_kernels},
    {.name = "SparseSegmentMeanGrad",
     .in = "grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32",
     .shape = back_shape,
     .kernels = back_kernels},
    {.name = "SparseSegmentSqrtNGrad",
     .in = "grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32",
     .shape = back_shape,
     .kernels = back_kernels},
    {.name = "SparseSegmentSumGradV2",
     .in = "grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32",
     .out = "output: T, sorted_unique_indices: Tidx",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32",
     .shape = back_shape,
     .kernels = back_kernels},
    {.name = "SparseSegmentMeanGradV2",
     .in = "grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32",
     .out = "output: T, sorted_unique_indices: Tidx",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32",
     .shape = back_shape,
     .kernels = back_kernels},
    {.name = "SparseSegmentSqrtNGradV2",
     .in = "grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32",
     .out = "output: T, sorted_unique_indices: Tidx",
     .attrs = "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32",
     .shape = back_shape,
     .kernels = back_kernels},
};
OP_FAMILY(sparse_segment, rows);
