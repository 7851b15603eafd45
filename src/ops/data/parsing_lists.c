/* Columns of feature lists to tensors: a walk to count steps and values, then one to copy them. */
#include <inttypes.h>
#include <stdio.h>

#include "ops/data/parsing_columns.h"

/* What a column's feature lists hold, over the batch. */
struct extent {
  int64_t *steps; /* [n] of each example */
  int64_t total_steps, total_values, most_steps, most_values;
};

static shoal_status list_error(const struct example_batch *b, int64_t i, const struct column *c, int64_t step,
                               const char *what) {
  int n;
  const char *name = batch_name(b, i, &n);
  return INVALID("Name: %.*s, Feature list: %s, Index: %" PRId64 ".  %s", n, name, c->key, step, what);
}

static shoal_status wrong_count(const struct example_batch *b, int64_t i, const struct column *c, int64_t step,
                                int64_t have) {
  int n;
  const char *name = batch_name(b, i, &n);
  const char *kind = c->dtype == SHOAL_INT64 ? "int64" : c->dtype == SHOAL_FLOAT32 ? "float" : "bytes";
  return INVALID("Name: %.*s, Key: %s, Index: %" PRId64 ".  Number of %s values != expected.  values size: %" PRId64
                 " but output shape: %s",
                 n, name, c->key, step, kind, have, shape_str(&c->shape));
}

/* The next feature of a list; its values counted. *end when there is none. */
static shoal_status next(struct feature_walk *w, const struct example_batch *b, int64_t i, const struct column *c,
                         int64_t step, struct feature *f, int64_t *count, bool *end) {
  struct feature_slot slot;
  enum wire_step s = feature_list_next(w, &slot);
  *end = s == WIRE_END;
  if (*end) return NULL;
  if (s == WIRE_BROKEN || !feature_open(&slot, f)) return list_error(b, i, c, step, "Can't parse serialized Example.");
  if (f->dtype && f->dtype != c->dtype) {
    char what[96];
    snprintf(what, sizeof what, "Data types don't match. Expected type: %s, Feature is: %s", dtype_tf_name(c->dtype),
             dtype_tf_name(f->dtype));
    return list_error(b, i, c, step, what);
  }
  *count = f->dtype ? feature_count(f) : 0;
  return *count < 0 ? list_error(b, i, c, step, "Can't parse serialized Example.") : NULL;
}

static const struct feature_slot *slot_of(const struct example_batch *b, size_t c, int64_t i) {
  return &b->slots[(size_t)i * b->columns->at.n + c];
}

static shoal_status measure(const struct example_batch *b, size_t col, bool dense, struct extent *e) {
  const struct column *c = &b->columns->at.at[col];
  for (int64_t i = 0; i < b->n; i++) {
    const struct feature_slot *slot = slot_of(b, col, i);
    if (!slot->data) {
      if (dense && !c->missing_ok) {
        int n;
        const char *name = batch_name(b, i, &n);
        return INVALID(
            "Name: %.*s, Feature list '%s' is required but could not be found.  Did you mean to include it in "
            "feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?",
            n, name, c->key);
      }
      continue;
    }
    struct feature_walk w = feature_list_walk(slot);
    for (;; e->steps[i]++) {
      struct feature f;
      int64_t count = 0;
      bool end;
      TRY(next(&w, b, i, c, e->steps[i], &f, &count, &end));
      if (end) break;
      if (dense && count != c->stride) return wrong_count(b, i, c, e->steps[i], count);
      e->total_values += count;
      if (count > e->most_values) e->most_values = count;
    }
    e->total_steps += e->steps[i];
    if (e->steps[i] > e->most_steps) e->most_steps = e->steps[i];
  }
  return NULL;
}

/* Copies the values of example i in order; each_step (optional) is told how many a step has. */
typedef void step_fn(void *arg, int64_t example, int64_t step, int64_t count);
static void copy(const struct example_batch *b, size_t col, int64_t i, char *to, step_fn *each_step, void *arg) {
  const struct column *c = &b->columns->at.at[col];
  const struct feature_slot *slot = slot_of(b, col, i);
  if (!slot->data) return;
  struct feature_walk w = feature_list_walk(slot);
  struct feature_slot at;
  for (int64_t step = 0; feature_list_next(&w, &at) == WIRE_FIELD; step++) {
    struct feature f;
    feature_open(&at, &f);
    int64_t count = f.dtype ? feature_count(&f) : 0;
    if (f.dtype) feature_copy(&f, to);
    to += (size_t)count * dtype_size(c->dtype);
    if (each_step) each_step(arg, i, step, count);
  }
}

/* ---- dense: [batch,] steps, shape; shorter lists are filled up with zeros ---- */

static shoal_status dense(struct kernel_ctx *ctx, int out, int lengths, const struct example_batch *b, size_t col,
                          const struct extent *e) {
  const struct column *c = &b->columns->at.at[col];
  struct shape shape = {0};
  if (!b->scalar) shape.dims[shape.rank++] = b->n;
  shape.dims[shape.rank++] = e->most_steps;
  if (shape.rank + c->shape.rank > SHOAL_MAX_RANK) return INVALID("Feature list %s has too many dimensions", c->key);
  for (int d = 0; d < c->shape.rank; d++) shape.dims[shape.rank++] = c->shape.dims[d];
  struct tensor *values, *length;
  TRY(ctx_out(ctx, out, &shape, &values));
  tensor_zero(values);
  size_t row = (size_t)(e->most_steps * c->stride) * dtype_size(c->dtype);
  for (int64_t i = 0; i < b->n; i++) copy(b, col, i, (char *)values->data + (size_t)i * row, NULL, NULL);
  if (lengths < 0) return NULL;
  TRY(ctx_out_dims(ctx, lengths, 1, &b->n, &length));
  for (int64_t i = 0; i < b->n; i++) T_DATA(length, int64_t)[i] = e->steps[i];
  return NULL;
}

shoal_status column_list_dense(struct kernel_ctx *ctx, int out, int lengths, const struct example_batch *b, size_t c) {
  const struct column *col = &b->columns->at.at[c];
  if (col->shape.rank > 0 && col->shape.dims[0] < 0)
    return INVALID("feature_list_dense_shapes of %s must be fully defined, but is %s", col->key,
                   shape_str(&col->shape));
  struct extent e = {.steps = mem_try_zalloc((size_t)b->n + 1, sizeof(int64_t))};
  if (!e.steps) return NO_MEMORY(b->n * 8, "steps of examples");
  shoal_status s = measure(b, c, true, &e);
  if (!s) s = dense(ctx, out, lengths, b, c, &e);
  free(e.steps);
  return s;
}

/* ---- sparse: indices [example,] step, place ---- */

struct indexer {
  int64_t *at;
  bool scalar;
};

static void put_indices(void *arg, int64_t example, int64_t step, int64_t count) {
  struct indexer *x = arg;
  for (int64_t k = 0; k < count; k++) {
    if (!x->scalar) *x->at++ = example;
    *x->at++ = step;
    *x->at++ = k;
  }
}

shoal_status column_list_sparse(struct kernel_ctx *ctx, int indices, int values, int shape,
                                const struct example_batch *b, size_t c) {
  struct extent e = {.steps = mem_try_zalloc((size_t)b->n + 1, sizeof(int64_t))};
  if (!e.steps) return NO_MEMORY(b->n * 8, "steps of examples");
  shoal_status s = measure(b, c, false, &e);
  int64_t rank = b->scalar ? 2 : 3, dims[2] = {e.total_values, rank};
  struct tensor *index, *out, *dense_shape;
  if (!s) s = ctx_out_dims(ctx, indices, 2, dims, &index);
  if (!s) s = ctx_out_dims(ctx, values, 1, &e.total_values, &out);
  if (!s) s = ctx_out_dims(ctx, shape, 1, &rank, &dense_shape);
  if (!s) {
    struct indexer x = {index->data, b->scalar};
    char *at = out->data;
    for (int64_t i = 0; i < b->n; i++) {
      const int64_t *before = x.at;
      copy(b, c, i, at, put_indices, &x);
      at += (size_t)((x.at - before) / rank) * dtype_size(b->columns->at.at[c].dtype);
    }
    int64_t *d = dense_shape->data;
    if (!b->scalar) *d++ = b->n;
    *d++ = e.most_steps;
    *d = e.most_values;
  }
  free(e.steps);
  return s;
}

/* ---- ragged: outer splits over examples, inner splits over steps ---- */

struct splitter {
  struct tensor *inner;
  int64_t step, total;
};

static void put_split(void *arg, int64_t example, int64_t step, int64_t count) {
  struct splitter *x = arg;
  x->total += count;
  set_split(x->inner, ++x->step, x->total);
}

shoal_status column_list_ragged(struct kernel_ctx *ctx, int values, int outer, int inner, const struct example_batch *b,
                                size_t c) {
  struct extent e = {.steps = mem_try_zalloc((size_t)b->n + 1, sizeof(int64_t))};
  if (!e.steps) return NO_MEMORY(b->n * 8, "steps of examples");
  shoal_status s = measure(b, c, false, &e);
  int64_t n_outer = b->n + 1, n_inner = e.total_steps + 1;
  struct tensor *out, *outer_t, *inner_t;
  if (!s) s = ctx_out_dims(ctx, values, 1, &e.total_values, &out);
  if (!s) s = ctx_out_dims(ctx, outer, 1, &n_outer, &outer_t);
  if (!s) s = ctx_out_dims(ctx, inner, 1, &n_inner, &inner_t);
  if (!s) {
    struct splitter x = {.inner = inner_t};
    size_t size = dtype_size(b->columns->at.at[c].dtype);
    set_split(inner_t, 0, 0);
    set_split(outer_t, 0, 0);
    for (int64_t i = 0; i < b->n; i++) {
      copy(b, c, i, (char *)out->data + (size_t)x.total * size, put_split, &x);
      set_split(outer_t, i + 1, x.step);
    }
  }
  free(e.steps);
  return s;
}
