/* SparseCross and its later forms: for each row of a batch, every combination of one feature from each column,
 * joined as text or as a hash. The hashes are TensorFlow's, so that models trained there find their buckets here. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "ops/sparse/sparse.h"

enum form { CROSS, CROSS_HASHED, CROSS_V2 };

struct cross_state {
  enum form form;
  int n; /* sparse columns */
  bool hashed;
  int64_t buckets;
  uint64_t key;
  shoal_dtype internal;
};

static shoal_status cross_init(struct kernel_init *ki, void *state) {
  struct cross_state *st = state;
  int64_t n, key;
  TRY(node_get_int(ki->node, "N", &n));
  st->n = (int)n;
  st->form = op_is(ki->node->op, "SparseCross")     ? CROSS
             : op_is(ki->node->op, "SparseCrossV2") ? CROSS_V2
                                                    : CROSS_HASHED;
  st->hashed = st->form == CROSS_HASHED;
  if (st->form != CROSS) return NULL;
  TRY(node_get_bool(ki->node, "hashed_output", &st->hashed));
  TRY(node_get_int(ki->node, "num_buckets", &st->buckets));
  TRY(node_get_int(ki->node, "hash_key", &key));
  TRY(node_get_type(ki->node, "internal_type", &st->internal));
  st->key = (uint64_t)key;
  shoal_dtype out;
  TRY(node_get_type(ki->node, "out_type", &out));
  if (out != (st->hashed ? SHOAL_INT64 : SHOAL_STRING))
    return INVALID("SparseCross: out_type %s does not go with hashed_output %s", dtype_tf_name(out),
                   st->hashed ? "true" : "false");
  return NULL;
}

struct crossed_column {
  const struct tensor *values;
  const struct tensor *indices; /* NULL: dense */
  int64_t start, count;         /* of the row being worked on */
};

struct cross {
  const struct cross_state *st;
  struct crossed_column *columns;
  int n;
  int64_t buckets;
  bool strong;
  uint64_t salt[2];
  const char *sep;
  size_t sep_n;
};

/* ---- features ---- */

static uint64_t feature_hash(const struct cross *x, const struct crossed_column *c, int64_t i) {
  bool keyed = x->st->form == CROSS_HASHED;
  if (c->values->dtype == SHOAL_STRING) {
    const struct str *s = &T_DATA(c->values, const struct str)[i];
    return keyed && x->strong ? siphash64(x->salt[0], x->salt[1], str_data(s), s->size)
                              : fingerprint64(str_data(s), s->size);
  }
  int64_t v = T_DATA(c->values, const int64_t)[i];
  /* Keyed forms hash the first four bytes of a number; dense columns are hashed only when strongly. */
  if (keyed && x->strong) return siphash64(x->salt[0], x->salt[1], &v, 4);
  return keyed && c->indices ? fingerprint64(&v, 4) : (uint64_t)v;
}

static void feature_text(const struct crossed_column *c, int64_t i, struct text *out) {
  if (c->values->dtype == SHOAL_STRING) {
    const struct str *s = &T_DATA(c->values, const struct str)[i];
    text_add(out, str_data(s), s->size);
  } else {
    text_addf(out, "%" PRId64, T_DATA(c->values, const int64_t)[i]);
  }
}

static int64_t hash_of(const struct cross *x, const int64_t *pick) {
  uint64_t h = x->st->key;
  for (int k = 0; k < x->n; k++) {
    uint64_t f = feature_hash(x, &x->columns[k], x->columns[k].start + pick[k]);
    h = k == 0 && x->st->form == CROSS_HASHED ? f : fingerprint_cat64(h, f);
  }
  return (int64_t)(h % (x->buckets > 0 ? (uint64_t)x->buckets : (uint64_t)INT64_MAX));
}

/* ---- rows ---- */

/* Moves every column to row b; returns the number of combinations, -1 when it is too large. */
static int64_t row_begin(struct cross *x, int64_t b) {
  int64_t total = 1;
  for (int k = 0; k < x->n; k++) {
    struct crossed_column *c = &x->columns[k];
    if (c->indices) {
      c->start += c->count;
      c->count = 0;
      while (c->start + c->count < c->values->n && T_DATA(c->indices, const int64_t)[2 * (c->start + c->count)] == b)
        c->count++;
    } else {
      c->count = c->values->dims[1];
      c->start = b * c->count;
    }
    if (total >= 0 && mul_overflows(total, c->count, &total)) total = -1;
  }
  return total;
}

static void rewind_columns(struct cross *x) {
  for (int k = 0; k < x->n; k++) x->columns[k].start = x->columns[k].count = 0;
}

static shoal_status check(struct kernel_ctx *ctx, const struct cross_state *st, int n_dense, int64_t *batch) {
  int n = st->n;
  for (int i = 0; i < n; i++) {
    const struct tensor *ix = ctx_in(ctx, i), *v = ctx_in(ctx, n + i), *s = ctx_in(ctx, 2 * n + i);
    if (ix->rank != 2)
      return INVALID("Input indices should be a matrix but received shape %s at position %d", tensor_shape_str(ix), i);
    if (ix->dims[1] != 2) return INVALID("Expected D2 of index to be 2 got %" PRId64 " at position %d", ix->dims[1], i);
    if (st->internal == SHOAL_STRING && v->dtype == SHOAL_INT64)
      return INVALID("Input values should be of internal type %d but received %d", (int)st->internal, v->dtype);
    if (v->rank != 1)
      return INVALID("Input values should be a vector but received shape %s at position %d", tensor_shape_str(v), i);
    if (ix->dims[0] != v->n)
      return INVALID("Expected size of values to be %" PRId64 " got %" PRId64 " at position %d", ix->dims[0], v->n, i);
    if (s->rank != 1)
      return INVALID("Input shapes should be a vector but received shape %s at position %d", tensor_shape_str(s), i);
    if (s->n != 2) return INVALID("shape should imply a 2D tensor, but got %s at position %d", tensor_shape_str(s), i);
    if (i == 0) *batch = int_at(s, 0);
    if (int_at(s, 0) != *batch || *batch < 0)
      return INVALID("Expected batch size %" PRId64 " got %" PRId64 " at position %d", *batch, int_at(s, 0), i);
  }
  for (int i = 0; i < n_dense; i++) {
    const struct tensor *d = ctx_in(ctx, 3 * n + i);
    if (st->internal == SHOAL_STRING && d->dtype == SHOAL_INT64)
      return INVALID("Dense inputs should be of internal type %d but received %d", (int)st->internal, d->dtype);
    if (d->rank != 2)
      return INVALID("Dense inputs should be a matrix but received shape %s at position %d", tensor_shape_str(d), i);
    if (n == 0 && i == 0) *batch = d->dims[0];
    if (d->dims[0] != *batch)
      return INVALID("Expected batch size %" PRId64 " got %" PRId64 " at dense tensor %d", *batch, d->dims[0], i);
  }
  return NULL;
}

static shoal_status fill(struct kernel_ctx *ctx, struct cross *x, int64_t batch) {
  const struct cancel *cancel = ctx->step->cancel;
  int64_t total = 0, longest = 0;
  for (int64_t b = 0; b < batch; b++) { /* rows may be many more than values */
    if (b % 4096 == 0 && cancel && cancel_started(cancel)) return cancel_reason(ctx->step->cancel);
    int64_t n = row_begin(x, b);
    if (n < 0 || __builtin_add_overflow(total, n, &total)) return INVALID("There are too many combinations to cross");
    longest = MAX(longest, n);
  }
  struct tensor *ix, *v, *shape;
  TRY(sparse_out(ctx, 0, total, 2, &ix, &v, &shape));
  int_put(shape, 0, batch);
  int_put(shape, 1, longest);
  rewind_columns(x);
  int64_t *pick = mem_zalloc((size_t)x->n + 1, sizeof *pick), at = 0;
  struct text joined = {0};
  for (int64_t b = 0; b < batch && at < total; b++) {
    if (b % 4096 == 0 && cancel && cancel_started(cancel)) break; /* the executor says why */
    int64_t n = row_begin(x, b);
    memset(pick, 0, (size_t)x->n * sizeof *pick);
    for (int64_t i = 0; i < n; i++, at++) {
      T_DATA(ix, int64_t)[2 * at] = b;
      T_DATA(ix, int64_t)[2 * at + 1] = i;
      if (x->st->hashed) T_DATA(v, int64_t)[at] = hash_of(x, pick);
      else {
        joined.n = 0;
        for (int k = 0; k < x->n; k++) {
          if (k) text_add(&joined, x->sep, x->sep_n);
          feature_text(&x->columns[k], x->columns[k].start + pick[k], &joined);
        }
        str_set(&T_DATA(v, struct str)[at], text_cstr(&joined), joined.n);
      }
      for (int k = x->n; k-- > 0 && ++pick[k] == x->columns[k].count;) pick[k] = 0;
    }
  }
  text_release(&joined);
  free(pick);
  return NULL;
}

static shoal_status cross_run(struct kernel_ctx *ctx) {
  const struct cross_state *st = ctx->state;
  int tail = st->form == CROSS ? 0 : st->form == CROSS_V2 ? 1 : 3, n_dense = ctx->kernel->n_in - 3 * st->n - tail;
  int64_t batch = 0;
  struct cross x = {.st = st, .n = st->n + n_dense, .buckets = st->buckets, .sep = "_X_", .sep_n = 3};
  int at = ctx->kernel->n_in - tail;
  if (st->form == CROSS_V2) {
    TRY(ctx_check_scalar(ctx, at, "sep"));
    const struct str *s = ctx_in(ctx, at)->data;
    x.sep = str_data(s);
    x.sep_n = s->size;
  } else if (st->form == CROSS_HASHED) {
    TRY(ctx_check_scalar(ctx, at, "num_buckets"));
    TRY(ctx_check_scalar(ctx, at + 1, "strong_hash"));
    const struct tensor *salt = ctx_in(ctx, at + 2);
    x.buckets = int_at(ctx_in(ctx, at), 0);
    x.strong = *T_DATA(ctx_in(ctx, at + 1), const bool);
    if (salt->rank != 1 || salt->n != 2)
      return INVALID("Input \"salt\" must have length 2 but has length %" PRId64, salt->n);
    x.salt[0] = (uint64_t)int_at(salt, 0);
    x.salt[1] = (uint64_t)int_at(salt, 1);
  }
  TRY(check(ctx, st, n_dense, &batch));
  x.columns = mem_zalloc((size_t)x.n + 1, sizeof *x.columns);
  for (int k = 0; k < st->n; k++) x.columns[k] = (struct crossed_column){ctx_in(ctx, st->n + k), ctx_in(ctx, k)};
  for (int k = 0; k < n_dense; k++) x.columns[st->n + k] = (struct crossed_column){ctx_in(ctx, 3 * st->n + k)};
  shoal_status s = fill(ctx, &x, batch);
  free(x.columns);
  return s;
}

static shoal_status cross_shape(struct shape_ctx *c) {
  sparse_out_shapes(c, 0, -1, 2);
  return NULL;
}

static const struct kernel_def cross_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct cross_state), .init = cross_init, .run = cross_run}, {0}};

static const struct op_row rows[] = {
    {.name = "SparseCross",
     .in = "indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types",
     .out = "output_indices: int64, output_values: out_type, output_shape: int64",
     .attrs = "N: int >= 0; hashed_output: bool; num_buckets: int >= 0; hash_key: int; sparse_types: list({int64, "
              "string}) >= 0; dense_types: list({int64, string}) >= 0; out_type: {int64, string}; internal_type: "
              "{int64, string}",
     .flags = OP_NO_GRADIENT,
     .shape = cross_shape,
     .kernels = cross_kernels},
    {.name = "SparseCrossHashed",
     .in = "indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types, num_buckets: "
           "int64, strong_hash: bool, salt: int64",
     .out = "output_indices: int64, output_values: int64, output_shape: int64",
     .attrs = "N: int >= 0; sparse_types: list({int64, string}) >= 0; dense_types: list({int64, string}) >= 0",
     .flags = OP_NO_GRADIENT,
     .shape = cross_shape,
     .kernels = cross_kernels},
    {.name = "SparseCrossV2",
     .in = "indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types, sep: string",
     .out = "output_indices: int64, output_values: string, output_shape: int64",
     .attrs = "N: int >= 0; sparse_types: list({int64, string}) >= 0; dense_types: list({int64, string}) >= 0",
     .flags = OP_NO_GRADIENT,
     .shape = cross_shape,
     .kernels = cross_kernels},
};
OP_FAMILY(sparse_cross, rows);
