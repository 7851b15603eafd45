/* Unique in all its forms, and ListDiff: both keep a hash set of rows. A row is an element of a vector, or a slice
 * along an axis; slices are first brought next to each other. Floating-point elements are compared as numbers
 * (-0 is 0, NaN is never the same as NaN), all others as bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/array/strided.h"

/* ---- a set of rows ---- */

struct row_set {
  shoal_dtype dtype;
  size_t size;         /* of an element */
  int64_t width;       /* elements of a row */
  const char *data[2]; /* rows come from up to two tensors: number r is in [r & 1] at r >> 1 */
  int64_t *slots;      /* r + 1 of the first such row; 0: free */
  int64_t *values;     /* what was put with it */
  uint64_t mask;
};

static shoal_status set_init(struct row_set *s, shoal_dtype dtype, int64_t width, int64_t n) {
  s->dtype = dtype;
  s->size = dtype_size(dtype);
  s->width = width;
  uint64_t cap = 16;
  while (cap < (uint64_t)n * 2) cap *= 2;
  s->mask = cap - 1;
  s->slots = calloc(cap, 2 * sizeof *s->slots);
  if (!s->slots) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory for a table of %" PRIu64 " rows", cap);
  s->values = s->slots + cap;
  return NULL;
}

static void set_release(struct row_set *s) { free(s->slots); }

static const char *row_at(const struct row_set *s, int64_t r) {
  return s->data[r & 1] + (size_t)((r >> 1) * s->width) * s->size;
}

static double number(shoal_dtype t, const void *at) {
  switch (t) {
    case SHOAL_FLOAT32: return *(const float *)at;
    case SHOAL_FLOAT64: return *(const double *)at;
    case SHOAL_FLOAT16: return f16_to_float(*(const f16 *)at);
    default: return bf16_to_float(*(const bf16 *)at);
  }
}

static uint64_t mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93u;
  h ^= h >> 32;
  return h;
}

static uint64_t row_hash(const struct row_set *s, const char *row) {
  if (s->dtype == SHOAL_STRING) {
    uint64_t h = 0;
    for (int64_t i = 0; i < s->width; i++) {
      const struct str *x = (const struct str *)row + i;
      h = hash_bytes(str_data(x), x->size, h);
    }
    return h;
  }
  if (dtype_floating(s->dtype)) {
    uint64_t h = 0, bits;
    for (int64_t i = 0; i < s->width; i++) {
      double v = number(s->dtype, row + (size_t)i * s->size) + 0.0; /* -0 becomes 0 */
      memcpy(&bits, &v, 8);
      h = mix(h ^ bits);
    }
    return h;
  }
  if (s->width == 1 && s->size <= 8) {
    uint64_t bits = 0;
    memcpy(&bits, row, s->size);
    return mix(bits);
  }
  return hash_bytes(row, (size_t)s->width * s->size, 0);
}

static bool row_equal(const struct row_set *s, const char *a, const char *b) {
  if (s->dtype == SHOAL_STRING) {
    const struct str *x = (const struct str *)a, *y = (const struct str *)b;
    for (int64_t i = 0; i < s->width; i++)
      if (x[i].size != y[i].size || memcmp(str_data(&x[i]), str_data(&y[i]), x[i].size)) return false;
    return true;
  }
  if (dtype_floating(s->dtype)) {
    for (int64_t i = 0; i < s->width; i++)
      if (number(s->dtype, a + (size_t)i * s->size) != number(s->dtype, b + (size_t)i * s->size)) return false;
    return true;
  }
  return memcmp(a, b, (size_t)s->width * s->size) == 0;
}

/* The place of a row that is there, or where it would go. */
static uint64_t set_find(const struct row_set *s, const char *row) {
  uint64_t i = row_hash(s, row) & s->mask;
  while (s->slots[i] && !row_equal(s, row_at(s, s->slots[i] - 1), row)) i = (i + 1) & s->mask;
  return i;
}

/* ---- Unique ---- */

/* The slices along axis, one after the other: x itself, or a copy. */
static shoal_status slices(const struct tensor *x, int axis, bool back, struct tensor *out) {
  struct shape s = {.rank = x->rank};
  int64_t from[SHOAL_MAX_RANK], to[SHOAL_MAX_RANK];
  int perm[SHOAL_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    if (back) perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    else perm[i] = i == 0 ? axis : i <= axis ? i - 1 : i;
    s.dims[i] = x->dims[perm[i]];
  }
  TRY(tensor_new(out, (shoal_dtype)x->dtype, &s));
  strides_of(x->rank, x->dims, from);
  strides_of(x->rank, s.dims, to);
  struct strided v = {0};
  for (int i = 0; i < x->rank; i++) strided_add(&v, s.dims[i], to[i], from[perm[i]]);
  strided_copy(NULL, (shoal_dtype)x->dtype, &v, out->data, x->data);
  return NULL;
}

static shoal_status unique_axis(struct kernel_ctx *ctx, int *axis) {
  const struct tensor *x = ctx_in(ctx, 0);
  *axis = 0;
  bool has_axis = ctx->kernel->n_in == 2 && ctx_in(ctx, 1)->n > 0;
  if (!has_axis) {
    if (x->rank != 1) return INVALID("unique expects a 1D vector.");
    return NULL;
  }
  const struct tensor *a = ctx_in(ctx, 1);
  if (a->rank != 1) return INVALID("axis expects a 1D vector.");
  if (a->n > 1) return INVALID("axis does not support input tensors larger than 1 elements");
  int64_t v = int_at(a, 0);
  if (v < 0) v += x->rank;
  if (v < 0 || v >= x->rank) return INVALID("axis has to be between [0, %d)", x->rank);
  *axis = (int)v;
  return NULL;
}

/* Numbers every row of `in` by first appearance; which[k] is the first row that has number k. */
static shoal_status number_rows(const struct tensor *in, struct tensor *idx, int64_t **which, int64_t *found) {
  int64_t n = in->rank ? in->dims[0] : 0;
  struct row_set s = {.data = {in->data}};
  TRY(set_init(&s, (shoal_dtype)in->dtype, n ? in->n / n : 0, n));
  int64_t *first = malloc(sizeof *first * (size_t)MAX(n, 1)), count = 0;
  if (!first) {
    set_release(&s);
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory for %" PRId64 " rows", n);
  }
  for (int64_t r = 0; r < n; r++) {
    uint64_t at = set_find(&s, row_at(&s, 2 * r));
    if (!s.slots[at]) {
      s.slots[at] = 2 * r + 1;
      s.values[at] = count;
      first[count++] = r;
    }
    int_put(idx, r, s.values[at]);
  }
  set_release(&s);
  *which = first;
  *found = count;
  return NULL;
}

static shoal_status unique_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  int axis;
  TRY(unique_axis(ctx, &axis));
  int64_t n = x->dims[axis], found;
  struct shape vector = shape_vector(n);
  struct tensor *idx, in, *y;
  TRY(ctx_out(ctx, 1, &vector, &idx));
  if (idx->dtype == SHOAL_INT32 && n > INT32_MAX)
    return INVALID("unique does not support input tensors larger than %d elements", INT32_MAX);
  if (axis == 0) tensor_ref(&in, x);
  else TRY(slices(x, axis, false, &in));
  int64_t *which;
  shoal_status s = number_rows(&in, idx, &which, &found);
  if (s) {
    tensor_release(&in);
    return s;
  }
  struct shape ys = tensor_shape(&in);
  ys.dims[0] = found;
  struct tensor rows = tensor_none();
  s = axis == 0 ? ctx_out(ctx, 0, &ys, &y) : tensor_new(&rows, (shoal_dtype)x->dtype, &ys);
  if (!s) {
    struct tensor *to = axis == 0 ? y : &rows;
    int64_t width = n ? in.n / n : 0;
    size_t bytes = (size_t)width * dtype_size((shoal_dtype)x->dtype);
    for (int64_t k = 0; k < found && bytes; k++)
      elements_copy((shoal_dtype)x->dtype, (char *)to->data + (size_t)k * bytes,
                    (const char *)in.data + (size_t)which[k] * bytes, width);
    struct tensor turned;
    if (axis) s = slices(&rows, axis, true, &turned);
    if (axis && !s) ctx_set(ctx, 0, &turned);
  }
  tensor_release(&rows);
  tensor_release(&in);
  free(which);
  if (s || ctx->kernel->n_out < 3) return s;
  struct tensor *counts;
  vector = shape_vector(found);
  TRY(ctx_out(ctx, 2, &vector, &counts));
  tensor_zero(counts);
  for (int64_t i = 0; i < n; i++) {
    int64_t k = int_at(idx, i);
    int_put(counts, k, int_at(counts, k) + 1);
  }
  return NULL;
}

static shoal_status unique_shape(struct shape_ctx *c) {
  const struct shape *x = &c->in[0];
  bool v2 = c->node->n_in == 2;
  c->out[1] = shape_vector(-1);
  if (!v2) {
    struct shape vector;
    TRY(shape_in_rank(c, 0, 1, &vector));
    c->out[0] = shape_vector(-1);
    if (vector.rank == 1) c->out[1] = vector;
  } else if (x->rank >= 0) {
    c->out[0] = shape_unknown_of_rank(x->rank);
    const struct tensor *a = c->values[1];
    if (a && a->n == 0 && x->rank == 1) c->out[1] = *x;
    if (a && a->n == 1) {
      int64_t axis = int_at(a, 0) < 0 ? int_at(a, 0) + x->rank : int_at(a, 0);
      if (axis < 0 || axis >= x->rank) return INVALID("axis expects to be in the range [0, %d)", x->rank);
      c->out[0] = *x;
      c->out[0].dims[axis] = -1;
      c->out[1] = shape_vector(x->dims[axis]);
    }
  }
  if (c->node->n_out > 2) c->out[2] = shape_vector(-1);
  return NULL;
}

/* ---- ListDiff ---- */

static shoal_status diff_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *y = ctx_in(ctx, 1);
  if (x->rank != 1) return INVALID("x should be a 1D vector.");
  if (y->rank != 1) return INVALID("y should be a 1D vector.");
  struct row_set s = {.data = {x->data, y->data}};
  TRY(set_init(&s, (shoal_dtype)x->dtype, 1, y->n));
  for (int64_t i = 0; i < y->n; i++) {
    uint64_t at = set_find(&s, row_at(&s, 2 * i + 1));
    if (!s.slots[at]) s.slots[at] = 2 * i + 2;
  }
  int64_t n = 0;
  for (int64_t i = 0; i < x->n; i++) n += !s.slots[set_find(&s, row_at(&s, 2 * i))];
  struct shape vector = shape_vector(n);
  struct tensor *out, *idx;
  shoal_status bad = ctx_out(ctx, 0, &vector, &out);
  if (!bad) bad = ctx_out(ctx, 1, &vector, &idx);
  for (int64_t i = 0, k = 0; !bad && i < x->n; i++) {
    if (s.slots[set_find(&s, row_at(&s, 2 * i))]) continue;
    elements_copy(s.dtype, (char *)out->data + (size_t)k * s.size, row_at(&s, 2 * i), 1);
    int_put(idx, k++, i);
  }
  set_release(&s);
  return bad;
}

static shoal_status diff_shape(struct shape_ctx *c) {
  struct shape vector;
  TRY(shape_in_rank(c, 0, 1, &vector));
  TRY(shape_in_rank(c, 1, 1, &vector));
  c->out[0] = c->out[1] = shape_vector(-1);
  return NULL;
}

#define SET_TYPES (DT_PLAIN | DT(STRING))
static const struct kernel_def unique_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = SET_TYPES, .run = unique_run}, {0}};
static const struct kernel_def diff_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = SET_TYPES, .run = diff_run}, {0}};

static const struct op_row rows[] = {
    {.name = "Unique",
     .in = "x: T",
     .out = "y: T, idx: out_idx",
     .attrs = "T: type; out_idx: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = unique_shape,
     .kernels = unique_kernels},
    {.name = "UniqueV2",
     .in = "x: T, axis: Taxis",
     .out = "y: T, idx: out_idx",
     .attrs = "T: type; Taxis: {int32, int64} = int64; out_idx: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = unique_shape,
     .kernels = unique_kernels},
    {.name = "UniqueWithCounts",
     .in = "x: T",
     .out = "y: T, idx: out_idx, count: out_idx",
     .attrs = "T: type; out_idx: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = unique_shape,
     .kernels = unique_kernels},
    {.name = "UniqueWithCountsV2",
     .in = "x: T, axis: Taxis",
     .out = "y: T, idx: out_idx, count: out_idx",
     .attrs = "T: type; Taxis: {int32, int64} = int64; out_idx: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = unique_shape,
     .kernels = unique_kernels},
    {.name = "ListDiff",
     .in = "x: T, y: T",
     .out = "out: T, idx: out_idx",
     .attrs = "T: type; out_idx: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = diff_shape,
     .kernels = diff_kernels},
};
OP_FAMILY(unique, rows);
