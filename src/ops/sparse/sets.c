/* Set operations on the last dimension: intersection, union and differences of two tensors, dense or sparse, and
 * SetSize. Each side is a list of runs, the elements of one group (all dimensions but the last); the result of a
 * group is sorted and has no repeats. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/vec.h"
#include "ops/sparse/sparse.h"

enum set_op { A_MINUS_B, B_MINUS_A, INTERSECTION, UNION };

struct set_state {
  enum set_op op;
  bool validate;
};

static shoal_status set_init(struct kernel_init *ki, void *state) {
  static const char *const names[] = {"a-b", "b-a", "intersection", "union"};
  struct set_state *st = state;
  TRY(node_get_bool(ki->node, "validate_indices", &st->validate));
  if (!node_attr(ki->node, "set_operation")) return NULL; /* SetSize */
  const char *op;
  TRY(node_get_string(ki->node, "set_operation", &op));
  for (int i = 0; i < 4; i++)
    if (!strcasecmp(op, names[i])) {
      st->op = (enum set_op)i;
      return NULL;
    }
  return INVALID("Invalid set_operation %s.", op);
}

/* ---- elements ---- */

static int compare(shoal_dtype t, const void *a, const void *b) {
#define BY(type) (*(const type *)a > *(const type *)b) - (*(const type *)a < *(const type *)b)
  switch (t) {
    case SHOAL_INT8: return BY(int8_t);
    case SHOAL_INT16: return BY(int16_t);
    case SHOAL_INT32: return BY(int32_t);
    case SHOAL_INT64: return BY(int64_t);
    case SHOAL_UINT8: return BY(uint8_t);
    case SHOAL_UINT16: return BY(uint16_t);
    default: {
      const struct str *x = a, *y = b;
      int order = memcmp(str_data(x), str_data(y), MIN(x->size, y->size));
      return order ? order : (x->size > y->size) - (x->size < y->size);
    }
  }
}

/* qsort has no argument for the type; glibc's qsort_r has. */
static int compare_at(const void *a, const void *b, void *type) {
  return compare(*(const shoal_dtype *)type, *(const void *const *)a, *(const void *const *)b);
}

/* Sorts pointers to elements and drops repeats; returns how many are left. */
static int64_t sort_unique(shoal_dtype t, const void **at, int64_t n) {
  int64_t k = 0;
  qsort_r(at, (size_t)n, sizeof *at, compare_at, &t);
  for (int64_t i = 0; i < n; i++)
    if (!k || compare(t, at[k - 1], at[i])) at[k++] = at[i];
  return k;
}

/* ---- one side ---- */

struct row_run {
  int64_t group, begin, end;
};

struct set_side {
  const struct tensor *values;
  struct shape groups; /* all dimensions but the last */
  VEC(struct row_run) runs;
};

static const void *element(const struct set_side *s, int64_t i) {
  return (const char *)s->values->data + (size_t)i * dtype_size((shoal_dtype)s->values->dtype);
}

static shoal_status side_dense(struct set_side *s, const struct tensor *x) {
  if (x->rank < 2) return INVALID("Shape %s has rank %d < 2", tensor_shape_str(x), x->rank);
  s->values = x;
  s->groups = tensor_shape(x);
  int64_t last = s->groups.dims[--s->groups.rank], n = dims_product(s->groups.dims, 0, s->groups.rank);
  for (int64_t g = 0; g < n; g++) vec_push(&s->runs, (struct row_run){g, g * last, (g + 1) * last});
  return NULL;
}

static shoal_status side_sparse(struct set_side *s, const struct sparse *x, bool validate) {
  if (x->rank < 2) return INVALID("Shape %s has rank %d < 2", ints_str(x->shape, 0, x->rank, ","), x->rank);
  s->values = x->values;
  s->groups.rank = x->rank - 1;
  int64_t dims[SHOAL_MAX_RANK], dense;
  TRY(sparse_dims(x->shape, dims, &dense));
  for (int k = 0; k < x->rank - 1; k++) s->groups.dims[k] = dims[k];
  const int64_t *ix = x->indices->data;
  for (int64_t i = 0; i < x->n; i++) {
    int64_t group = 0;
    for (int k = 0; k < x->rank; k++) {
      int64_t v = ix[i * x->rank + k];
      if (v < 0 || v >= dims[k])
        return INVALID("indices[%" PRId64 ", %d] expected < %" PRId64 ", got %" PRId64 ".", i, k, dims[k], v);
      if (k < x->rank - 1) group = group * dims[k] + v;
    }
    int order = i ? sparse_compare(ix + (i - 1) * x->rank, ix + i * x->rank, x->rank) : -1;
    if (validate && order >= 0)
      return order
                 ? INVALID("indices[%" PRId64
                           "] = %s is out of order. Many sparse ops require sorted indices.\n    Use "
                           "`tf.sparse.reorder` to create a correctly ordered copy.\n\n",
                           i, ints_str(x->indices, i * x->rank, x->rank, ","))
                 : INVALID("indices[%" PRId64 "] = %s is repeated", i, ints_str(x->indices, i * x->rank, x->rank, ","));
    if (s->runs.n && vec_last(&s->runs).group == group) vec_last(&s->runs).end++;
    else vec_push(&s->runs, (struct row_run){group, i, i + 1});
  }
  return NULL;
}

static shoal_status side_get(struct kernel_ctx *ctx, int *input, bool sparse, bool validate, struct set_side *s) {
  if (!sparse) return side_dense(s, ctx_in(ctx, (*input)++));
  struct sparse x;
  TRY(sparse_get(ctx, *input, &x));
  *input += 3;
  return side_sparse(s, &x, validate);
}

/* ---- the operation ---- */

struct result {
  int64_t group;
  const void *element;
};

struct set_work {
  shoal_dtype type;
  enum set_op op;
  VEC(struct result) out;
  VEC(const void *) a, b;
  int64_t longest;
};

static void load(const struct set_side *s, const struct row_run *r, struct set_work *w, bool first) {
  w->b.n = 0;
  if (first) w->a.n = 0;
  for (int64_t i = r ? r->begin : 0; r && i < r->end; i++) {
    if (first) vec_push(&w->a, element(s, i));
    else vec_push(&w->b, element(s, i));
  }
  if (first && w->a.n) w->a.n = (size_t)sort_unique(w->type, w->a.at, (int64_t)w->a.n);
  if (!first && w->b.n) w->b.n = (size_t)sort_unique(w->type, w->b.at, (int64_t)w->b.n);
}

static void combine(struct set_work *w, int64_t group) {
  size_t i = 0, j = 0, before = w->out.n;
  while (i < w->a.n || j < w->b.n) {
    int order = i >= w->a.n ? 1 : j >= w->b.n ? -1 : compare(w->type, w->a.at[i], w->b.at[j]);
    bool in_a = order <= 0, in_b = order >= 0;
    const void *e = in_a ? w->a.at[i] : w->b.at[j];
    bool take = w->op == UNION          ? true
                : w->op == INTERSECTION ? in_a && in_b
                : w->op == A_MINUS_B    ? in_a && !in_b
                                        : in_b && !in_a;
    if (take) vec_push(&w->out, (struct result){group, e});
    i += in_a;
    j += in_b;
  }
  w->longest = MAX(w->longest, (int64_t)(w->out.n - before));
}

static shoal_status put_result(struct kernel_ctx *ctx, const struct set_work *w, const struct shape *groups) {
  struct tensor *ix, *v, *shape;
  int rank = groups->rank + 1;
  int64_t n = (int64_t)w->out.n;
  TRY(sparse_out(ctx, 0, n, rank, &ix, &v, &shape));
  for (int k = 0; k < groups->rank; k++) int_put(shape, k, groups->dims[k]);
  int_put(shape, rank - 1, w->longest);
  for (int64_t i = 0, at = 0; i < n; i++) {
    int64_t group = w->out.at[i].group, rest = group, *to = T_DATA(ix, int64_t) + i * rank;
    at = i && w->out.at[i - 1].group == group ? at + 1 : 0;
    to[rank - 1] = at;
    for (int k = groups->rank; k-- > 0;) {
      to[k] = rest % groups->dims[k];
      rest /= groups->dims[k];
    }
    elements_copy(w->type, (char *)v->data + (size_t)i * dtype_size(w->type), w->out.at[i].element, 1);
  }
  return NULL;
}

static shoal_status operate(struct kernel_ctx *ctx, bool sparse_a, bool sparse_b) {
  const struct set_state *st = ctx->state;
  struct set_side a = {0}, b = {0};
  struct set_work w = {.op = st->op};
  int input = 0;
  shoal_status s = side_get(ctx, &input, sparse_a, st->validate, &a);
  if (!s) s = side_get(ctx, &input, sparse_b, st->validate, &b);
  if (!s && !shape_equal(&a.groups, &b.groups))
    s = INVALID("Mismatched shapes %s vs %s", shape_str(&a.groups), shape_str(&b.groups));
  if (!s) {
    w.type = (shoal_dtype)a.values->dtype;
    size_t i = 0, j = 0;
    while (i < a.runs.n || j < b.runs.n) {
      int64_t ga = i < a.runs.n ? a.runs.at[i].group : INT64_MAX, gb = j < b.runs.n ? b.runs.at[j].group : INT64_MAX;
      load(&a, ga <= gb ? &a.runs.at[i] : NULL, &w, true);
      load(&b, gb <= ga ? &b.runs.at[j] : NULL, &w, false);
      combine(&w, MIN(ga, gb));
      i += ga <= gb;
      j += gb <= ga;
    }
    s = put_result(ctx, &w, &a.groups);
  }
  vec_release(&a.runs);
  vec_release(&b.runs);
  vec_release(&w.out);
  vec_release(&w.a);
  vec_release(&w.b);
  return s;
}

static shoal_status dense_dense_run(struct kernel_ctx *ctx) { return operate(ctx, false, false); }
static shoal_status dense_sparse_run(struct kernel_ctx *ctx) { return operate(ctx, false, true); }
static shoal_status sparse_sparse_run(struct kernel_ctx *ctx) { return operate(ctx, true, true); }

static shoal_status operate_shape(struct shape_ctx *c) {
  int64_t rank = -1;
  bool sparse_a = c->node->n_in == 6;
  if (sparse_a) rank = sparse_in_rank(c, 0);
  else if (c->in[0].rank >= 0) rank = c->in[0].rank;
  if (!sparse_a && c->in[0].rank >= 0 && c->in[0].rank < 2)
    return INVALID("Input 0 has rank %d, but sets need at least 2 dimensions", c->in[0].rank);
  sparse_out_shapes(c, 0, -1, rank);
  return NULL;
}

/* ---- SetSize ---- */

static shoal_status size_run(struct kernel_ctx *ctx) {
  const struct set_state *st = ctx->state;
  struct set_side a = {0};
  struct set_work w = {0};
  int input = 0;
  struct tensor *y;
  shoal_status s = side_get(ctx, &input, true, st->validate, &a);
  if (!s) s = ctx_out(ctx, 0, &a.groups, &y);
  if (!s) {
    tensor_zero(y);
    w.type = (shoal_dtype)a.values->dtype;
    for (size_t i = 0; i < a.runs.n; i++) {
      load(&a, &a.runs.at[i], &w, true);
      T_DATA(y, int32_t)[a.runs.at[i].group] = (int32_t)w.a.n;
    }
  }
  vec_release(&a.runs);
  vec_release(&w.a);
  vec_release(&w.b);
  return s;
}

#define SET_TYPES (DT_SIGNED | DT(UINT8) | DT(UINT16) | DT(STRING))
#define SET_KERNELS(name)                                                                     \
  static const struct kernel_def name##_kernels[] = {{.device = "CPU",                        \
                                                      .type_attr = "T",                       \
                                                      .types = SET_TYPES,                     \
                                                      .state_size = sizeof(struct set_state), \
                                                      .init = set_init,                       \
                                                      .run = name##_run},                     \
                                                     {0}}
SET_KERNELS(dense_dense);
SET_KERNELS(dense_sparse);
SET_KERNELS(sparse_sparse);
SET_KERNELS(size);

static const struct op_row rows[] = {
    {.name = "DenseToDenseSetOperation",
     .in = "set1: T, set2: T",
     .out = "result_indices: int64, result_values: T, result_shape: int64",
     .attrs = "set_operation: string; validate_indices: bool = true; T: {int8, int16, int32, int64, uint8, uint16, "
              "string}",
     .flags = OP_NO_GRADIENT,
     .shape = operate_shape,
     .kernels = dense_dense_kernels},
    {.name = "DenseToSparseSetOperation",
     .in = "set1: T, set2_indices: int64, set2_values: T, set2_shape: int64",
     .out = "result_indices: int64, result_values: T, result_shape: int64",
     .attrs = "set_operation: string; validate_indices: bool = true; T: {int8, int16, int32, int64, uint8, uint16, "
              "string}",
     .flags = OP_NO_GRADIENT,
     .shape = operate_shape,
     .kernels = dense_sparse_kernels},
    {.name = "SparseToSparseSetOperation",
     .in = "set1_indices: int64, set1_values: T, set1_shape: int64, set2_indices: int64, set2_values: T, "
           "set2_shape: int64",
     .out = "result_indices: int64, result_values: T, result_shape: int64",
     .attrs = "set_operation: string; validate_indices: bool = true; T: {int8, int16, int32, int64, uint8, uint16, "
              "string}",
     .flags = OP_NO_GRADIENT,
     .shape = operate_shape,
     .kernels = sparse_sparse_kernels},
    {.name = "SetSize",
     .in = "set_indices: int64, set_values: T, set_shape: int64",
     .out = "size: int32",
     .attrs = "validate_indices: bool = true; T: {int8, int16, int32, int64, uint8, uint16, string}",
     .flags = OP_NO_GRADIENT,
     .kernels = size_kernels},
};
OP_FAMILY(sets, rows);
