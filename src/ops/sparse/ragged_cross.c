/* RaggedCross: for each row of a batch every combination of one feature from each column, where columns are ragged,
 * sparse or dense in any order. The hashes are TensorFlow's. (SparseCross has its own rules of hashing, checks and
 * results; what they share is the idea.) */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "ops/array/array_util.h"

struct ragged_cross_state {
  char *order; /* 'R', 'S' or 'D' for each column */
  int n, n_ragged, n_sparse, n_dense;
  int64_t buckets;
  uint64_t key;
};

static shoal_status list_size(const struct kernel_init *ki, const char *name, int *n) {
  const struct attr *list;
  TRY(node_get_list(ki->node, name, ATTR_TYPE, &list));
  *n = (int)list->list.n;
  return NULL;
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct ragged_cross_state *st = state;
  const char *order;
  int n_splits, n_values;
  int64_t sparse, key;
  TRY(node_get_string(ki->node, "input_order", &order));
  TRY(node_get_int(ki->node, "num_buckets", &st->buckets));
  TRY(node_get_int(ki->node, "hash_key", &key));
  TRY(node_get_int(ki->node, "Nsparse", &sparse));
  TRY(list_size(ki, "ragged_values_types", &st->n_ragged));
  TRY(list_size(ki, "ragged_splits_types", &n_splits));
  TRY(list_size(ki, "sparse_values_types", &n_values));
  TRY(list_size(ki, "dense_types", &st->n_dense));
  if (st->n_ragged != n_splits) return INVALID("ragged values and splits must have the same length");
  if (sparse != n_values) return INVALID("sparse indices and values must have the same length");
  st->n_sparse = n_values;
  st->n = st->n_ragged + st->n_sparse + st->n_dense;
  if (strlen(order) != (size_t)st->n) return INVALID("Invalid length for input_order");
  st->key = (uint64_t)key;
  st->order = mem_strdup(order);
  return NULL;
}

static void release(void *state) { free(((struct ragged_cross_state *)state)->order); }

/* One column: the features of row b are values[start, start + count). */
struct ragged_column {
  const struct tensor *values;
  const struct tensor *splits, *indices; /* ragged has the one, sparse the other, dense neither */
  int64_t start, count;
};

static void column_begin(struct ragged_column *c, int64_t b) {
  if (c->splits) {
    c->start = int_at(c->splits, b);
    c->count = int_at(c->splits, b + 1) - c->start;
  } else if (c->indices) { /* as many as come before the next row, in whatever order they are */
    c->start += c->count;
    c->count = 0;
    while (c->start + c->count < c->values->n && int_at(c->indices, c->indices->dims[1] * (c->start + c->count)) <= b)
      c->count++;
  } else {
    c->count = c->values->dims[1];
    c->start = b * c->count;
  }
}

static shoal_status rank_error(void) { return INVALID("tf.ragged.cross only supports inputs with rank=2."); }

static shoal_status check_ragged(const struct tensor *v, const struct tensor *splits) {
  if (v->rank != 1 || splits->rank != 1) return rank_error();
  if (splits->n < 1) return INVALID("Invalid RaggedTensor");
  if (int_at(splits, 0) != 0) return INVALID("Ragged splits must start from 0.");
  for (int64_t i = 1; i < splits->n; i++)
    if (int_at(splits, i) < int_at(splits, i - 1)) return INVALID("Ragged splits should be non decreasing");
  if (int_at(splits, splits->n - 1) != v->n) return INVALID("Ragged splits must end with the number of values");
  return NULL;
}

/* The columns in the order of the inputs: ragged, sparse, dense. */
static shoal_status read_columns(struct kernel_ctx *ctx, struct ragged_column *columns, int64_t *batch) {
  const struct ragged_cross_state *st = ctx->state;
  int r = st->n_ragged, s = st->n_sparse, first_sparse = 2 * r, first_dense = 2 * r + 3 * s;
  *batch = -1;
  for (int i = 0; i < st->n; i++) {
    struct ragged_column *c = &columns[i];
    int64_t rows;
    if (i < r) {
      *c = (struct ragged_column){.values = ctx_in(ctx, i), .splits = ctx_in(ctx, r + i)};
      TRY(check_ragged(c->values, c->splits));
      rows = c->splits->n - 1;
    } else if (i < r + s) {
      int k = first_sparse + i - r;
      const struct tensor *shape = ctx_in(ctx, k + 2 * s);
      *c = (struct ragged_column){.values = ctx_in(ctx, k + s), .indices = ctx_in(ctx, k)};
      if (c->indices->rank != 2 || c->values->rank != 1 || shape->rank != 1)
        return INVALID("Invalid SparseTensor %d", i - r);
      if (shape->n != 2) return rank_error();
      if (c->indices->dims[0] != c->values->n || c->indices->dims[1] < 1)
        return INVALID("Invalid SparseTensor %d", i - r);
      rows = int_at(shape, 0);
    } else {
      *c = (struct ragged_column){.values = ctx_in(ctx, first_dense + i - r - s)};
      if (c->values->rank != 2) return rank_error();
      rows = c->values->dims[0];
    }
    if (*batch < 0) *batch = rows;
    if (rows != *batch || rows < 0) return INVALID("inputs must all have the same batch dimension size.");
  }
  if (*batch < 0) *batch = 0;
  return NULL;
}

static shoal_status order_columns(const struct ragged_cross_state *st, const struct ragged_column *from,
                                  struct ragged_column *to) {
  int next[3] = {0, st->n_ragged, st->n_ragged + st->n_sparse}, end[3] = {next[1], next[2], st->n};
  for (int i = 0; i < st->n; i++) {
    const char *kind = strchr("RSD", st->order[i]);
    if (!kind) return INVALID("Unexpected input_order value.");
    int k = (int)(kind - "RSD"), at = next[k]++;
    if (at >= end[k])
      return INVALID("input_order \"%s\" specifies reading more columns of kind %c than there are", st->order, *kind);
    to[i] = from[at];
  }
  return NULL;
}

static int64_t row_begin(struct ragged_column *columns, int n, int64_t b) {
  int64_t total = 1;
  bool none = false;
  for (int k = 0; k < n; k++) {
    column_begin(&columns[k], b);
    none |= columns[k].count == 0;
    if (total >= 0 && mul_overflows(total, columns[k].count, &total)) total = -1;
  }
  return none ? 0 : total;
}

static int64_t hash_of(const struct ragged_cross_state *st, const struct ragged_column *columns, const int64_t *pick) {
  uint64_t h = st->key;
  for (int k = 0; k < st->n; k++) {
    const struct ragged_column *c = &columns[k];
    int64_t i = c->start + pick[k];
    uint64_t f;
    if (c->values->dtype == SHOAL_STRING) {
      const struct str *s = &T_DATA(c->values, const struct str)[i];
      f = fingerprint64(str_data(s), s->size);
    } else {
      f = T_DATA(c->values, const uint64_t)[i];
    }
    h = fingerprint_cat64(h, f);
  }
  return (int64_t)(h % (st->buckets > 0 ? (uint64_t)st->buckets : (uint64_t)INT64_MAX));
}

static void join(const struct ragged_cross_state *st, const struct ragged_column *columns, const int64_t *pick,
                 struct text *out) {
  out->n = 0;
  for (int k = 0; k < st->n; k++) {
    const struct ragged_column *c = &columns[k];
    int64_t i = c->start + pick[k];
    if (k) text_adds(out, "_X_");
    if (c->values->dtype == SHOAL_STRING) {
      const struct str *s = &T_DATA(c->values, const struct str)[i];
      text_add(out, str_data(s), s->size);
    } else {
      text_addf(out, "%" PRId64, T_DATA(c->values, const int64_t)[i]);
    }
  }
}

static shoal_status write_crosses(struct kernel_ctx *ctx, struct ragged_column *columns, int64_t batch, int64_t *pick) {
  const struct ragged_cross_state *st = ctx->state;
  struct tensor *out, *splits;
  int64_t total = 0, at = 0, n_splits = batch + 1;
  TRY(ctx_out_dims(ctx, 1, 1, &n_splits, &splits));
  int_put(splits, 0, 0);
  for (int64_t b = 0; b < batch; b++) {
    int64_t n = row_begin(columns, st->n, b);
    if (n < 0 || __builtin_add_overflow(total, n, &total) || (splits->dtype == SHOAL_INT32 && total > INT32_MAX))
      return INVALID("There are too many combinations to cross");
    int_put(splits, b + 1, total);
  }
  TRY(ctx_out_dims(ctx, 0, 1, &total, &out));
  for (int k = 0; k < st->n; k++) columns[k].start = columns[k].count = 0;
  struct text text = {0};
  for (int64_t b = 0; b < batch; b++) {
    int64_t n = row_begin(columns, st->n, b);
    memset(pick, 0, (size_t)st->n * sizeof *pick);
    for (int64_t i = 0; i < n; i++, at++) {
      if (out->dtype == SHOAL_INT64) {
        T_DATA(out, int64_t)[at] = hash_of(st, columns, pick);
      } else {
        join(st, columns, pick, &text);
        str_set(&T_DATA(out, struct str)[at], text_cstr(&text), text.n);
      }
      for (int k = st->n; k-- > 0 && ++pick[k] == columns[k].count;) pick[k] = 0;
    }
  }
  text_release(&text);
  return NULL;
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct ragged_cross_state *st = ctx->state;
  size_t n = (size_t)st->n;
  struct ragged_column *columns = mem_zalloc(2 * n + 1, sizeof *columns);
  int64_t *pick = mem_zalloc(n + 1, sizeof *pick), batch;
  shoal_status s = read_columns(ctx, columns, &batch);
  if (!s) s = order_columns(st, columns, columns + n);
  if (!s) s = write_crosses(ctx, columns + n, batch, pick);
  free(columns);
  free(pick);
  return s;
}

static shoal_status shape(struct shape_ctx *c) {
  c->out[0] = shape_vector(-1);
  c->out[1] = shape_vector(-1);
  return NULL;
}

static const struct kernel_def kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct ragged_cross_state), .init = init, .release = release, .run = run},
    {0}};

static const struct op_row rows[] = {
    {.name = "RaggedCross",
     .in = "ragged_values: ragged_values_types, ragged_row_splits: ragged_splits_types, sparse_indices: Nsparse * "
           "int64, sparse_values: sparse_values_types, sparse_shape: Nsparse * int64, dense_inputs: dense_types",
     .out = "output_values: out_values_type, output_row_splits: out_row_splits_type",
     .attrs = "Nsparse: int >= 0; input_order: string; hashed_output: bool; num_buckets: int >= 0; hash_key: int; "
              "ragged_values_types: list({int64, string}) >= 0; ragged_splits_types: list({int32, int64}) >= 0; "
              "sparse_values_types: list({int64, string}) >= 0; dense_types: list({int64, string}) >= 0; "
              "out_values_type: {int64, string}; out_row_splits_type: {int32, int64}",
     .flags = OP_NO_GRADIENT,
     .shape = shape,
     .kernels = kernels},
};
OP_FAMILY(ragged_cross, rows);
