/* LowerBound and UpperBound (tf.searchsorted), and EditDistance. */
#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"

/* ---- sorted search ---- */

/* How many of row[0..n) are < v (or <= v). */
#define SEARCH(name, type, TO)                                                                                \
  static int64_t name(const void *row, int64_t n, const void *value, bool upper) {                            \
    const type *x = row;                                                                                      \
    int64_t lo = 0, hi = n;                                                                                   \
    while (lo < hi) {                                                                                         \
      int64_t mid = lo + (hi - lo) / 2;                                                                       \
      bool before = upper ? !(TO(*(const type *)value) < TO(x[mid])) : TO(x[mid]) < TO(*(const type *)value); \
      if (before) lo = mid + 1;                                                                               \
      else hi = mid;                                                                                          \
    }                                                                                                         \
    return lo;                                                                                                \
  }
#define SAME(v) (v)
SEARCH(search_float, float, SAME)
SEARCH(search_double, double, SAME)
SEARCH(search_f16, f16, f16_to_float)
SEARCH(search_bf16, bf16, bf16_to_float)
SEARCH(search_i8, int8_t, SAME)
SEARCH(search_i16, int16_t, SAME)
SEARCH(search_i32, int32_t, SAME)
SEARCH(search_i64, int64_t, SAME)
SEARCH(search_u8, uint8_t, SAME)
SEARCH(search_u16, uint16_t, SAME)
SEARCH(search_u32, uint32_t, SAME)
SEARCH(search_u64, uint64_t, SAME)

typedef int64_t (*search_fn)(const void *row, int64_t n, const void *value, bool upper);

static search_fn find_search(shoal_dtype t) {
  switch (t) {
    case SHOAL_FLOAT32: return search_float;
    case SHOAL_FLOAT64: return search_double;
    case SHOAL_FLOAT16: return search_f16;
    case SHOAL_BFLOAT16: return search_bf16;
    case SHOAL_INT8: return search_i8;
    case SHOAL_INT16: return search_i16;
    case SHOAL_INT32: return search_i32;
    case SHOAL_INT64: return search_i64;
    case SHOAL_UINT8: return search_u8;
    case SHOAL_UINT16: return search_u16;
    case SHOAL_UINT32: return search_u32;
    default: return search_u64;
  }
}

static shoal_status search_run(struct kernel_ctx *ctx, bool upper) {
  const struct tensor *x = ctx_in(ctx, 0), *v = ctx_in(ctx, 1);
  if (x->rank != 2) return INVALID("sorted_inputs must be a matrix, but has shape %s", tensor_shape_str(x));
  if (v->rank != 2) return INVALID("values must be a matrix, but has shape %s", tensor_shape_str(v));
  if (x->dims[0] != v->dims[0]) return INVALID("Leading dim_size of both tensors must match.");
  struct shape s = tensor_shape(v);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (y->dtype == SHOAL_INT32 && x->dims[1] >= INT32_MAX) return INVALID("trailing dim_size must less than INT_MAX");
  search_fn fn = find_search((shoal_dtype)x->dtype);
  size_t size = dtype_size((shoal_dtype)x->dtype);
  for (int64_t i = 0; i < v->n; i++) {
    int64_t row = i / v->dims[1];
    int_put(y, i,
            fn((const char *)x->data + (size_t)(row * x->dims[1]) * size, x->dims[1],
               (const char *)v->data + (size_t)i * size, upper));
  }
  return NULL;
}

static shoal_status lower_run(struct kernel_ctx *ctx) { return search_run(ctx, false); }
static shoal_status upper_run(struct kernel_ctx *ctx) { return search_run(ctx, true); }

static shoal_status search_shape(struct shape_ctx *c) {
  struct shape sorted;
  TRY(shape_in_rank(c, 0, 2, &sorted));
  return shape_in_rank(c, 1, 2, &c->out[0]);
}

static const struct kernel_def lower_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT_REAL, .run = lower_run}, {0}};
static const struct kernel_def upper_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT_REAL, .run = upper_run}, {0}};

/* ---- EditDistance ---- */

struct edit_state {
  bool normalize;
};

static shoal_status edit_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "normalize", &((struct edit_state *)state)->normalize);
}

/* A sparse tensor's sequences: entries with the same leading indices, in order. */
struct sequences {
  const char *what;
  const struct tensor *indices, *values, *shape;
};

static shoal_status sequences_check(const struct sequences *q) {
  if (q->indices->rank != 2)
    return INVALID("%s_indices should be a matrix, but got shape: %s", q->what, tensor_shape_str(q->indices));
  if (q->values->rank != 1)
    return INVALID("%s_values should be a vector, but got shape: %s", q->what, tensor_shape_str(q->values));
  if (q->shape->rank != 1)
    return INVALID("%s_shape should be a vector, but got shape: %s", q->what, tensor_shape_str(q->shape));
  if (q->values->n != q->indices->dims[0])
    return INVALID("%s_values.shape = %s, but %s_indices.shape = %s", q->what, tensor_shape_str(q->values), q->what,
                   tensor_shape_str(q->indices));
  if (q->indices->dims[1] != q->shape->n)
    return INVALID("%s_shape has %" PRId64 " elements, but %s_indices.shape = %s", q->what, q->shape->n, q->what,
                   tensor_shape_str(q->indices));
  return NULL;
}

static bool same_element(shoal_dtype t, const void *a, const void *b) {
  switch (t) {
    case SHOAL_STRING: {
      const struct str *x = a, *y = b;
      return x->size == y->size && !memcmp(str_data(x), str_data(y), x->size);
    }
    case SHOAL_FLOAT32: return *(const float *)a == *(const float *)b;
    case SHOAL_FLOAT64: return *(const double *)a == *(const double *)b;
    case SHOAL_FLOAT16: return f16_to_float(*(const f16 *)a) == f16_to_float(*(const f16 *)b);
    case SHOAL_BFLOAT16: return bf16_to_float(*(const bf16 *)a) == bf16_to_float(*(const bf16 *)b);
    default: return memcmp(a, b, dtype_size(t)) == 0;
  }
}

static int64_t levenshtein(shoal_dtype t, const char *a, int64_t na, const char *b, int64_t nb, int64_t *row) {
  size_t size = dtype_size(t);
  for (int64_t j = 0; j <= nb; j++) row[j] = j;
  for (int64_t i = 1; i <= na; i++) {
    int64_t corner = row[0];
    row[0] = i;
    for (int64_t j = 1; j <= nb; j++) {
      int64_t above = row[j];
      bool same = same_element(t, a + (size_t)(i - 1) * size, b + (size_t)(j - 1) * size);
      row[j] = MIN(MIN(row[j - 1], above) + 1, corner + !same);
      corner = above;
    }
  }
  return row[nb];
}

/* The flat place of entry i's leading indices in the output; -1 when it is outside. */
static int64_t group_at(const struct sequences *q, int64_t i, const struct shape *out) {
  int64_t at = 0;
  for (int k = 0; k < out->rank; k++) {
    int64_t v = int_at(q->indices, i * q->indices->dims[1] + k);
    if (v < 0 || v >= out->dims[k]) return -1;
    at = at * out->dims[k] + v;
  }
  return at;
}

/* The end of the run of entries from `begin` on that belong to one group. */
static int64_t group_end(const struct sequences *q, int64_t begin, const struct shape *out) {
  int64_t g = group_at(q, begin, out), i = begin + 1;
  while (i < q->values->n && group_at(q, i, out) == g) i++;
  return i;
}

static shoal_status edit_run(struct kernel_ctx *ctx) {
  bool normalize = ((struct edit_state *)ctx->state)->normalize;
  struct sequences h = {"hypothesis", ctx_in(ctx, 0), ctx_in(ctx, 1), ctx_in(ctx, 2)};
  struct sequences t = {"truth", ctx_in(ctx, 3), ctx_in(ctx, 4), ctx_in(ctx, 5)};
  TRY(sequences_check(&h));
  TRY(sequences_check(&t));
  if (h.shape->n != t.shape->n)
    return INVALID("Expected hypothesis_shape and truth_shape to have the same number of elements: %" PRId64
                   " vs. %" PRId64,
                   h.shape->n, t.shape->n);
  if (h.shape->n < 2) return INVALID("Input SparseTensors must have rank at least 2, but got: %" PRId64, h.shape->n);
  if (h.shape->n > SHOAL_MAX_RANK) return INVALID("Too many dimensions: %" PRId64, h.shape->n);
  struct shape s = {.rank = (int)h.shape->n - 1};
  for (int i = 0; i < s.rank; i++) {
    s.dims[i] = MAX(int_at(h.shape, i), int_at(t.shape, i));
    if (s.dims[i] < 0) return INVALID("Shapes must not be negative");
  }
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  float *out = y->data;
  for (int64_t i = 0; i < y->n; i++) out[i] = 0;
  for (int64_t i = 0; i < h.values->n; i++)
    if (group_at(&h, i, &s) < 0) return INVALID("hypothesis_indices is out of the bounds of the output");
  for (int64_t i = 0; i < t.values->n; i++)
    if (group_at(&t, i, &s) < 0) return INVALID("truth_indices is out of the bounds of the output");
  int64_t *row = malloc(sizeof *row * (size_t)(t.values->n + 1));
  if (!row) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory for EditDistance");
  shoal_dtype dtype = (shoal_dtype)h.values->dtype;
  size_t size = dtype_size(dtype);
  int64_t a = 0, b = 0;
  while (a < h.values->n || b < t.values->n) {
    int64_t ga = a < h.values->n ? group_at(&h, a, &s) : INT64_MAX;
    int64_t gb = b < t.values->n ? group_at(&t, b, &s) : INT64_MAX;
    int64_t ea = ga <= gb ? group_end(&h, a, &s) : a, eb = gb <= ga ? group_end(&t, b, &s) : b;
    int64_t g = MIN(ga, gb), na = ea - a, nb = eb - b;
    if (nb == 0) out[g] = normalize ? (float)(1.0 / 0.0) : (float)na;
    else {
      int64_t d = levenshtein(dtype, (const char *)h.values->data + (size_t)a * size, na,
                              (const char *)t.values->data + (size_t)b * size, nb, row);
      out[g] = normalize ? (float)d / (float)nb : (float)d;
    }
    a = ea;
    b = eb;
  }
  free(row);
  return NULL;
}

static shoal_status edit_shape(struct shape_ctx *c) {
  const struct tensor *h = c->values[2], *t = c->values[5];
  if (!h || !t || h->n != t->n || h->n < 1 || h->n > SHOAL_MAX_RANK) return NULL;
  c->out[0].rank = (int)h->n - 1;
  for (int i = 0; i < c->out[0].rank; i++) c->out[0].dims[i] = MAX(int_at(h, i), int_at(t, i));
  return NULL;
}

static const struct kernel_def edit_kernels[] = {{.device = "CPU",
                                                  .type_attr = "T",
                                                  .types = DT_PLAIN | DT(STRING),
                                                  .state_size = sizeof(struct edit_state),
                                                  .init = edit_init,
                                                  .run = edit_run},
                                                 {0}};

static const struct op_row rows[] = {
    {.name = "LowerBound",
     .in = "sorted_inputs: T, values: T",
     .out = "output: out_type",
     .attrs = "T: type; out_type: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = search_shape,
     .kernels = lower_kernels},
    {.name = "UpperBound",
     .in = "sorted_inputs: T, values: T",
     .out = "output: out_type",
     .attrs = "T: type; out_type: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = search_shape,
     .kernels = upper_kernels},
    {.name = "EditDistance",
     .in = "hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64, truth_indices: int64, "
           "truth_values: T, truth_shape: int64",
     .out = "output: float",
     .attrs = "normalize: bool = true; T: type",
     .flags = OP_NO_GRADIENT,
     .shape = edit_shape,
     .kernels = edit_kernels},
};
OP_FAMILY(search, rows);
