/* RaggedTensorToTensor: rows of different length put into a dense tensor, short rows filled up, long ones cut.
 *
 * Each ragged dimension comes as row splits, or as the row number of every value (after a first tensor that says
 * how many rows there are). Level by level every row, and at last every value, gets the place in the output where
 * it begins, or -1 where it was cut off. */
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ops/array/array_util.h"

enum partition { FIRST_DIM_SIZE, VALUE_ROWIDS, ROW_SPLITS };

struct dense_state {
  VEC(enum partition) types;
};

static shoal_status types_get(const struct shoal_node *n, struct dense_state *st) {
  const struct attr *list;
  TRY(node_get_list(n, "row_partition_types", ATTR_STRING, &list));
  for (size_t i = 0; i < list->list.n; i++) {
    const char *s = list->list.at[i].s.data;
    if (str_equal(s, "FIRST_DIM_SIZE")) vec_push(&st->types, FIRST_DIM_SIZE);
    else if (str_equal(s, "VALUE_ROWIDS")) vec_push(&st->types, VALUE_ROWIDS);
    else if (str_equal(s, "ROW_SPLITS")) vec_push(&st->types, ROW_SPLITS);
    else return INVALID("Unknown string for partition info type: %s", s);
  }
  if (!st->types.n) return INVALID("row_partition_types must not be empty");
  for (size_t i = 1; i < st->types.n; i++)
    if (st->types.at[i] == FIRST_DIM_SIZE) return INVALID("FIRST_DIM_SIZE can only be the first partition type");
  return NULL;
}

static void types_release(void *state) { vec_release(&((struct dense_state *)state)->types); }

static shoal_status types_init(struct kernel_init *ki, void *state) {
  shoal_status s = types_get(ki->node, state);
  if (s) types_release(state);
  return s;
}

/* One ragged dimension. */
struct ragged_level {
  enum partition type;
  const struct tensor *t;
};

/* The longest row. */
static int64_t level_width(const struct ragged_level *l) {
  int64_t best = 0, run = 0;
  for (int64_t i = 0; i < l->t->n; i++) {
    if (l->type == ROW_SPLITS) run = i ? (int64_t)((uint64_t)int_at(l->t, i) - (uint64_t)int_at(l->t, i - 1)) : 0;
    else run = i && int_at(l->t, i) == int_at(l->t, i - 1) ? run + 1 : 1;
    best = MAX(best, run);
  }
  return best;
}

/* How many entries there are, and that splits begin with 0 and rise: what lies between them are the values. */
static shoal_status level_count(const struct ragged_level *l, int64_t n_rows, int64_t limit, int64_t *n) {
  const struct tensor *t = l->t;
  *n = t->n;
  if (l->type != ROW_SPLITS)
    return t->n > limit ? INVALID("There are %" PRId64 " value_rowids, but %" PRId64 " values", t->n, limit) : NULL;
  if (!t->n) return NULL;
  if (n_rows < t->n - 1)
    return INVALID("Invalid row split size: %" PRId64 " rows for %" PRId64 " splits", n_rows, t->n);
  if (int_at(t, 0)) return INVALID("Invalid row split size: the first split is %" PRId64 ", not 0", int_at(t, 0));
  for (int64_t i = 1; i < t->n; i++)
    if (int_at(t, i) < int_at(t, i - 1))
      return INVALID("row_splits must be sorted: %" PRId64 " after %" PRId64, int_at(t, i), int_at(t, i - 1));
  *n = int_at(t, t->n - 1);
  return *n > limit ? INVALID("row_splits point past the values: %" PRId64, *n) : NULL;
}

/* Values say how many there are: counted as tensors are. */
static shoal_status places_new(int64_t n, struct buffer **out) {
  if (n > INT64_MAX / 8) n = INT64_MAX / 8;
  return buffer_new((size_t)n * sizeof(int64_t), out);
}

/* The places of this level's entries, from those of its rows: at most `size` a row, each `step` apart. */
static shoal_status level_places(const struct ragged_level *l, const int64_t *rows, int64_t n_rows, int64_t step,
                                 int64_t size, int64_t *at) {
  const struct tensor *t = l->t;
  if (l->type == ROW_SPLITS) {
    for (int64_t i = 0; i + 1 < t->n; i++)
      for (int64_t k = 0, n = int_at(t, i + 1) - int_at(t, i); k < n; k++)
        *at++ = rows[i] >= 0 && k < size ? rows[i] + k * step : -1;
    return NULL;
  }
  int64_t column = 0, place = -1;
  for (int64_t i = 0; i < t->n; i++) {
    int64_t r = int_at(t, i);
    if (r < 0 || r >= n_rows)
      return i ? INVALID("Got next_value_rowid=%" PRId64 " which is not less than %" PRId64, r, n_rows)
               : INVALID("Got current_value_rowid=%" PRId64 " which is not less than %" PRId64, r, n_rows);
    if (i && int_at(t, i - 1) == r) {
      column++;
      if (place >= 0) place = column < size ? place + step : -1;
    } else {
      column = 0;
      place = size > 0 ? rows[r] : -1;
    }
    *at++ = place;
  }
  return NULL;
}

/* The output's shape: what was asked for, and the rest from the partitions and the values. */
static shoal_status dense_dims(const struct shape *want, const struct ragged_level *levels, int n, int64_t first,
                               const struct tensor *values, struct shape *out) {
  out->rank = n + values->rank;
  if (out->rank > SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  if (want->rank >= 0 && want->rank != out->rank)
    return INVALID("rt_input.shape and shape=%s are incompatible: rt_input.rank = %d but shape.rank = %d",
                   shape_str(want), out->rank, want->rank);
  for (int i = 0; i < out->rank; i++) {
    int64_t d = want->rank >= 0 ? want->dims[i] : -1;
    if (i > n && d >= 0 && d != values->dims[i - n])
      return INVALID("rt_input.shape and shape=%s are incompatible: rt_input.shape[%d] = %" PRId64
                     " but shape[%d] = %" PRId64,
                     shape_str(want), i, values->dims[i - n], i, d);
    if (d < 0) d = i == 0 ? first : i <= n ? level_width(&levels[i - 1]) : values->dims[i - n];
    out->dims[i] = d;
  }
  return NULL;
}

/* The default broadcast to the shape of one value. */
static shoal_status spread_default(const struct tensor *d, const struct tensor *values, struct tensor *out) {
  bool fits = d->rank < values->rank;
  if (!fits)
    return INVALID(
        "default_value.shape=%s and rt_input.flat_values.shape=%s are incompatible: default_value.rank = %d  "
        "must be less than rt_input.flat_values.rank = %d",
        tensor_shape_str(d), tensor_shape_str(values), d->rank, values->rank);
  int inner = values->rank - 1;
  for (int i = 0; i < d->rank; i++) {
    int64_t have = d->dims[i], need = values->dims[1 + inner - d->rank + i];
    if (have != 1 && have != need)
      return INVALID(
          "default_value.shape=%s and rt_input.flat_values.shape=%s are incompatible: default_value.shape[%d] "
          "= %" PRId64 " but rt_input.flat_values.shape[%d] = %" PRId64,
          tensor_shape_str(d), tensor_shape_str(values), i - d->rank, have, i - d->rank, need);
  }
  TRY(tensor_new_dims(out, (shoal_dtype)values->dtype, inner, values->dims + 1));
  size_t size = dtype_size((shoal_dtype)values->dtype);
  for (int64_t i = 0; i < out->n; i++) {
    int64_t rest = i, from = 0, step = 1;
    for (int k = d->rank; k-- > 0;) {
      int64_t at = rest % out->dims[inner - d->rank + k];
      rest /= out->dims[inner - d->rank + k];
      if (d->dims[k] != 1) from += at * step;
      step *= d->dims[k];
    }
    elements_copy((shoal_dtype)values->dtype, (char *)out->data + (size_t)i * size,
                  (const char *)d->data + (size_t)from * size, 1);
  }
  return NULL;
}

static shoal_status fill(struct kernel_ctx *ctx, const struct ragged_level *levels, int n, int64_t first,
                         const struct tensor *dflt) {
  const struct tensor *values = ctx_in(ctx, 1);
  struct tensor *y = &ctx->out[0];
  shoal_dtype t = (shoal_dtype)values->dtype;
  int64_t width = dims_product(values->dims, 1, values->rank);
  size_t bytes = (size_t)width * dtype_size(t);
  for (int64_t i = 0; i * width < y->n; i++) elements_copy(t, (char *)y->data + (size_t)i * bytes, dflt->data, width);
  /* Places are counted in values; step is how far apart two entries of a level are. */
  int64_t step = dims_product(y->dims, 1, n + 1), n_rows = first;
  struct buffer *rows = NULL;
  TRY(places_new(first, &rows));
  for (int64_t i = 0; i < first; i++) ((int64_t *)rows->data)[i] = i < y->dims[0] ? i * step : -1;
  shoal_status s = NULL;
  for (int d = 0; d < n && !s; d++) {
    struct buffer *next = NULL;
    int64_t count = 0;
    /* A level's entries are the next one's rows. */
    int64_t limit = d + 1 == n                         ? values->dims[0]
                    : levels[d + 1].type == ROW_SPLITS ? levels[d + 1].t->n - 1
                                                       : INT64_MAX;
    step = dims_product(y->dims, d + 2, n + 1);
    s = level_count(&levels[d], n_rows, limit, &count);
    if (!s) s = places_new(count, &next);
    if (!s) s = level_places(&levels[d], rows->data, n_rows, step, y->dims[d + 1], next->data);
    buffer_unref(rows);
    rows = next;
    n_rows = count;
  }
  for (int64_t i = 0; !s && i < n_rows; i++) {
    int64_t place = ((const int64_t *)rows->data)[i];
    if (place < 0) continue;
    elements_copy(t, (char *)y->data + (size_t)place * bytes, (const char *)values->data + (size_t)i * bytes, width);
  }
  buffer_unref(rows);
  return s;
}

static shoal_status dense_run(struct kernel_ctx *ctx) {
  const struct dense_state *st = ctx->state;
  const struct tensor *values = ctx_in(ctx, 1);
  struct ragged_level levels[SHOAL_MAX_RANK];
  struct shape want, s;
  int n = 0, n_parts = ctx->kernel->n_in - 3;
  if ((int)st->types.n != n_parts)
    return INVALID("There are %zu row_partition_types, but %d row_partition_tensors", st->types.n, n_parts);
  if (values->rank < 1) return INVALID("values must be at least a vector");
  TRY(tensor_get_shape(ctx_in(ctx, 0), true, &want));
  bool sized = st->types.at[0] == FIRST_DIM_SIZE;
  for (int i = sized; i < n_parts; i++) {
    const struct tensor *t = ctx_in(ctx, 3 + i);
    if (n == SHOAL_MAX_RANK - 1) return INVALID("Too many ragged dimensions");
    if (t->rank != 1) return INVALID("Partitions must be vectors, but one has shape %s", tensor_shape_str(t));
    levels[n++] = (struct ragged_level){st->types.at[i], t};
  }
  if (!n) return INVALID("There is no ragged dimension");
  if (!sized && levels[0].type == VALUE_ROWIDS) return INVALID("Cannot handle VALUE_ROWIDS in first dimension.");
  int64_t first = sized ? -1 : levels[0].t->n - 1;
  if (sized) TRY(tensor_get_int(ctx_in(ctx, 3), "first_dim_size", &first));
  if (first < 0) return INVALID("The number of rows must not be negative: %" PRId64, first);
  if (first > values->dims[0] && first > (int64_t)1 << 40) return INVALID("There are too many rows: %" PRId64, first);
  TRY(dense_dims(&want, levels, n, first, values, &s));
  struct tensor *y, dflt;
  TRY(spread_default(ctx_in(ctx, 2), values, &dflt));
  shoal_status bad = ctx_out(ctx, 0, &s, &y);
  if (!bad && y->n) bad = fill(ctx, levels, n, first, &dflt);
  tensor_release(&dflt);
  return bad;
}

static shoal_status dense_shape(struct shape_ctx *c) {
  if (c->values[0] && c->values[0]->rank == 1) {
    struct shape s;
    TRY(tensor_get_shape(c->values[0], true, &s));
    c->out[0] = s;
  }
  const struct shape *v = &c->in[1];
  for (int i = 1; c->out[0].rank >= v->rank && i < v->rank; i++) {
    int64_t *d = &c->out[0].dims[c->out[0].rank - v->rank + i];
    if (*d < 0) *d = v->dims[i];
  }
  return NULL;
}

/* The values' numbers are put into a tensor of the same form: they say which value each place shows. */
static shoal_status dense_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = grad_dy(c, 0), values = gin(c, 1), dflt = gin(c, 2), shape = array_shape(g, gout(c, 0), SHOAL_INT64);
  const struct attr *types = node_attr(c->node, "row_partition_types");
  struct dense_state st = {0};
  shoal_status bad = types_get(c->node, &st);
  int lead = bad ? 0 : (int)st.types.n + (st.types.at[0] == FIRST_DIM_SIZE ? 0 : 1);
  types_release(&st);
  TRY(bad);
  shoal_out vshape = array_shape(g, values, SHOAL_INT64), one = build_const_int(g, SHOAL_INT64, 1);
  shoal_out numbers = build_op3(g, "Range", one, build_op2(g, "AddV2", array_at(g, vshape, 0), one), one);
  struct build b = build_begin(g, "RaggedTensorToTensor", NULL);
  build_in(&b, array_part(g, shape, 0, lead));
  build_in(&b, numbers);
  build_in(&b, build_const_int(g, SHOAL_INT64, 0));
  for (int i = 3; i < c->node->n_in; i++) build_in(&b, gin(c, i));
  build_attr(&b, "row_partition_types", attr_copy(types));
  shoal_out shown = build_end_out(&b), zero = build_const_int(g, SHOAL_INT64, 0);
  shoal_out places = build_op1(g, "Where", build_op2(g, "Greater", shown, zero));
  shoal_out which = build_op2(g, "Sub", build_op2(g, "GatherNd", shown, places), one);
  grad_set(c, 1, build_op3(g, "ScatterNd", array_expand(g, which, 1), build_op2(g, "GatherNd", dy, places), vshape));
  shoal_out unused = build_op1(g, "Where", build_op2(g, "Equal", shown, zero));
  shoal_out rest = build_op2(g, "GatherNd", dy, unused); /* [n, inner...] */
  shoal_out sum = array_sum(g, rest, build_const_int(g, SHOAL_INT32, 0), false);
  grad_set(c, 2, grad_unbroadcast(g, sum, dflt, sum, 0));
  return NULL;
}

static const struct kernel_def dense_kernels[] = {{.device = "CPU",
                                                   .state_size = sizeof(struct dense_state),
                                                   .init = types_init,
                                                   .release = types_release,
                                                   .run = dense_run},
                                                  {0}};

static const struct op_row rows[] = {
    {.name = "RaggedTensorToTensor",
     .in = "shape: Tshape, values: T, default_value: T, row_partition_tensors: num_row_partition_tensors * Tindex",
     .out = "result: T",
     .attrs = "T: type; Tindex: {int64, int32}; Tshape: {int64, int32}; num_row_partition_tensors: int >= 1; "
              "row_partition_types: list(string)",
     .shape = dense_shape,
     .grad = dense_grad,
     .kernels = dense_kernels},
};
OP_FAMILY(ragged_dense, rows);
