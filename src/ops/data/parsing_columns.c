/* Columns of Examples to tensors. Values are counted for all examples first, then memory is taken and they are copied,
 * both in pieces over the examples; of several errors that of the first example is told. */
#include "ops/data/parsing_columns.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { GRAIN = 16 };

shoal_status columns_add(struct columns *c, const char *key, size_t n, shoal_dtype dtype, const struct shape *shape,
                         const struct tensor *dflt) {
  struct column col = {.key = mem_strndup(key, n), .dtype = dtype, .dflt = dflt, .stride = 1};
  if (shape) {
    col.shape = *shape;
    shoal_status s = shape->rank < 0 ? INVALID("Feature %s must have a shape of known rank", col.key) : NULL;
    for (int i = 0; !s && i < shape->rank; i++) {
      if (shape->dims[i] < 0 && i > 0)
        s = INVALID("Feature %s: only the first dimension of shape %s may be unknown", col.key, shape_str(shape));
      else if (shape->dims[i] >= 0 && mul_overflows(col.stride, shape->dims[i], &col.stride))
        s = INVALID("Feature %s: shape %s has too many elements", col.key, shape_str(shape));
    }
    if (s) {
      free(col.key);
      return s;
    }
  }
  feature_index_add(&c->index, col.key, c->at.n);
  vec_push(&c->at, col);
  return NULL;
}

void columns_release(struct columns *c) {
  for (size_t i = 0; i < c->at.n; i++) free(c->at.at[i].key);
  vec_release(&c->at);
  feature_index_release(&c->index);
}

const char *batch_name(const struct example_batch *b, int64_t i, int *n) {
  if (b->names && i < b->names->n) {
    const struct str *s = string_at(b->names, i);
    *n = (int)s->size;
    return str_data(s);
  }
  *n = 9;
  return "<unknown>";
}

void set_split(struct tensor *t, int64_t i, int64_t v) {
  if (t->dtype == SHOAL_INT32) T_DATA(t, int32_t)[i] = (int32_t)v;
  else T_DATA(t, int64_t)[i] = v;
}

static bool varies(const struct column *c) { return c->shape.rank > 0 && c->shape.dims[0] < 0; }

static const char *values_name(shoal_dtype t) {
  return t == SHOAL_INT64 ? "int64" : t == SHOAL_FLOAT32 ? "float" : "bytes";
}

/* ---- finding ---- */

struct example_scan {
  const struct tensor *serialized;
  struct example_batch *b;
  atomic_int_fast64_t bad; /* the first example that is no Example; n: none */
};

static void scan_range(void *arg, int64_t begin, int64_t end) {
  struct example_scan *s = arg;
  size_t columns = s->b->columns->at.n;
  for (int64_t i = begin; i < end; i++) {
    const struct str *m = string_at(s->serialized, i);
    if (example_scan(str_data(m), m->size, &s->b->columns->index, s->b->slots + (size_t)i * columns)) continue;
    int_fast64_t had = atomic_load(&s->bad);
    while (i < had && !atomic_compare_exchange_weak(&s->bad, &had, i)) continue;
  }
}

shoal_status batch_scan(struct pool *pool, const struct tensor *serialized, struct example_batch *b) {
  enum { MAX_COLUMNS = 1 << 20, SCAN_GRAIN = 8 };
  size_t slots;
  if (b->columns->at.n > MAX_COLUMNS || __builtin_mul_overflow((size_t)b->n, b->columns->at.n, &slots))
    return INVALID("Too many features");
  b->slots = mem_try_zalloc(slots, sizeof *b->slots);
  if (!b->slots) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "no memory to parse %" PRId64 " examples", b->n);
  struct example_scan scan = {.serialized = serialized, .b = b};
  atomic_init(&scan.bad, b->n);
  pool_for(pool, b->n, SCAN_GRAIN, scan_range, &scan);
  int64_t bad = atomic_load(&scan.bad);
  if (bad >= b->n) return NULL;
  const struct str *m = string_at(serialized, bad);
  return INVALID("Could not parse example input, value: '%.*s'", (int)MIN(m->size, (size_t)1024), str_data(m));
}

/* ---- one pass over the examples ---- */

struct column_pass {
  const struct example_batch *b;
  const struct column *column;
  size_t c;
  int64_t *counts;  /* [n]: filled by the first pass; -1: the feature is absent */
  int64_t *offsets; /* [n]: where the example's values begin; NULL in the first pass */
  struct tensor *out;
  pthread_mutex_t lock;
  shoal_status error; /* lock: that of the first example that has one */
  int64_t error_at;   /* lock */
};

static void fail(struct column_pass *p, int64_t i, shoal_status s) {
  pthread_mutex_lock(&p->lock);
  if (!p->error || i < p->error_at) {
    shoal_status_free(p->error);
    p->error = s;
    p->error_at = i;
  } else {
    shoal_status_free(s);
  }
  pthread_mutex_unlock(&p->lock);
}

static shoal_status example_error(const struct column_pass *p, int64_t i, const char *what) {
  int n;
  const char *name = batch_name(p->b, i, &n);
  if (p->b->scalar) return INVALID("Key: %s.  %s", p->column->key, what);
  return INVALID("Name: %.*s, Key: %s, Index: %" PRId64 ".  %s", n, name, p->column->key, i, what);
}

static shoal_status wrong_type(const struct column_pass *p, int64_t i, shoal_dtype have) {
  char text[160];
  snprintf(text, sizeof text, "Data types don't match. Data type: %s but expected type: %s", dtype_tf_name(have),
           dtype_tf_name(p->column->dtype));
  return example_error(p, i, text);
}

static shoal_status wrong_count(const struct column_pass *p, int64_t i, int64_t have) {
  char text[320];
  const char *kind = values_name(p->column->dtype), *shape = shape_str(&p->column->shape);
  if (varies(p->column))
    snprintf(text, sizeof text,
             "Number of %s values is not a multiple of stride length. Saw %" PRId64 " values but output shape is: %s",
             kind, have, shape);
  else
    snprintf(text, sizeof text, "Number of %s values != expected.  Values size: %" PRId64 " but output shape: %s", kind,
             have, shape);
  return example_error(p, i, text);
}

static shoal_status missing(const struct column_pass *p, int64_t i) {
  int n;
  const char *name = batch_name(p->b, i, &n), *type = dtype_tf_name(p->column->dtype);
  if (p->b->scalar)
    return INVALID("Feature: %s (data type: %s) is required but could not be found.", p->column->key, type);
  return INVALID("Name: %.*s, Feature: %s (data type: %s) is required but could not be found.", n, name, p->column->key,
                 type);
}

static const struct feature_slot *slot_of(const struct example_batch *b, size_t c, int64_t i) {
  return &b->slots[(size_t)i * b->columns->at.n + c];
}

static void count_range(void *arg, int64_t begin, int64_t end) {
  struct column_pass *p = arg;
  for (int64_t i = begin; i < end; i++) {
    const struct feature_slot *slot = slot_of(p->b, p->c, i);
    struct feature f;
    p->counts[i] = -1;
    if (!slot->data) continue;
    if (!feature_open(slot, &f)) {
      fail(p, i, example_error(p, i, "Can't parse serialized Example."));
      continue;
    }
    if (!f.dtype) continue;
    if (f.dtype != p->column->dtype) {
      fail(p, i, wrong_type(p, i, f.dtype));
      continue;
    }
    p->counts[i] = feature_count(&f);
    if (p->counts[i] < 0) fail(p, i, example_error(p, i, "Can't parse serialized Example."));
  }
}

static void copy_range(void *arg, int64_t begin, int64_t end) {
  struct column_pass *p = arg;
  size_t size = dtype_size(p->column->dtype);
  for (int64_t i = begin; i < end; i++) {
    struct feature f;
    if (p->counts[i] <= 0 || !feature_open(slot_of(p->b, p->c, i), &f)) continue;
    feature_copy(&f, (char *)p->out->data + (size_t)p->offsets[i] * size);
  }
}

/* counts (and room for offsets) of all examples; free(p->counts) afterwards. */
static shoal_status count(struct pool *pool, const struct example_batch *b, size_t c, struct column_pass *p) {
  *p = (struct column_pass){.b = b, .column = &b->columns->at.at[c], .c = c, .lock = PTHREAD_MUTEX_INITIALIZER};
  p->counts = mem_try_zalloc((size_t)b->n * 2 + 1, sizeof *p->counts);
  if (!p->counts) return NO_MEMORY(b->n * 16, "counts of examples");
  p->offsets = p->counts + b->n;
  pool_for(pool, b->n, GRAIN, count_range, p);
  if (!p->error) return NULL;
  free(p->counts);
  return p->error;
}

static int64_t place_in_sequence(struct column_pass *p, int64_t *longest) {
  int64_t total = 0;
  *longest = 0;
  for (int64_t i = 0; i < p->b->n; i++) {
    p->offsets[i] = total;
    if (p->counts[i] > 0) total += p->counts[i];
    if (p->counts[i] > *longest) *longest = p->counts[i];
  }
  return total;
}

/* ---- forms ---- */

static shoal_status dense(struct pool *pool, const struct example_batch *b, struct column_pass *p) {
  const struct column *c = p->column;
  const struct tensor *dflt = c->dflt;
  int64_t row = c->stride, longest = 0;
  for (int64_t i = 0; i < b->n; i++) {
    if (varies(c)) {
      if (p->counts[i] > 0 && (c->stride == 0 || p->counts[i] % c->stride)) return wrong_count(p, i, p->counts[i]);
      if (p->counts[i] > longest) longest = p->counts[i];
    } else if (p->counts[i] < 0) {
      if (dflt->n == 0) return missing(p, i);
    } else if (p->counts[i] != c->stride) {
      return wrong_count(p, i, p->counts[i]);
    }
  }
  struct shape shape = {0};
  if (!b->scalar) shape.dims[shape.rank++] = b->n;
  if (shape.rank + c->shape.rank > SHOAL_MAX_RANK) return INVALID("Feature %s has too many dimensions", c->key);
  for (int d = 0; d < c->shape.rank; d++) shape.dims[shape.rank++] = c->shape.dims[d];
  if (varies(c)) {
    shape.dims[b->scalar ? 0 : 1] = c->stride ? longest / c->stride : 0;
    row = longest;
  }
  TRY(tensor_new(p->out, c->dtype, &shape));
  if (!p->out->n) return NULL;
  size_t size = dtype_size(c->dtype);
  for (int64_t i = 0; i < b->n; i++) {
    p->offsets[i] = i * row;
    char *at = (char *)p->out->data + (size_t)(i * row) * size;
    if (varies(c)) {
      for (int64_t k = MAX(p->counts[i], 0); k < row; k++)
        elements_copy(c->dtype, at + (size_t)k * size, dflt->data, 1);
    } else if (p->counts[i] < 0) {
      elements_copy(c->dtype, at, dflt->data, row);
    }
  }
  pool_for(pool, b->n, GRAIN, copy_range, p);
  return NULL;
}

shoal_status column_check_default(const struct column *c) {
  const struct tensor *d = c->dflt;
  struct shape s = tensor_shape(d);
  if (d->dtype != c->dtype)
    return INVALID("dense_defaults of %s has dtype %s, but %s is expected", c->key, dtype_tf_name(d->dtype),
                   dtype_tf_name(c->dtype));
  if (varies(c)) {
    if (d->n == 1) return NULL;
    return INVALID(
        "dense_shape of %s is a variable length shape: %s, therefore its default must contain a single "
        "element (the padding element).  But its shape is: %s",
        c->key, shape_str(&c->shape), shape_str(&s));
  }
  if (d->n == 0 || shape_equal(&s, &c->shape)) return NULL;
  return INVALID("The default of %s has shape %s, which is not compatible with its dense_shape %s", c->key,
                 shape_str(&s), shape_str(&c->shape));
}

shoal_status column_dense(struct pool *pool, const struct example_batch *b, size_t c, struct tensor *out) {
  struct column_pass p;
  TRY(column_check_default(&b->columns->at.at[c]));
  TRY(count(pool, b, c, &p));
  p.out = out;
  shoal_status s = dense(pool, b, &p);
  free(p.counts);
  return s;
}

shoal_status column_sparse(struct pool *pool, const struct example_batch *b, size_t c, struct tensor *indices,
                           struct tensor *values, struct tensor *shape) {
  struct column_pass p;
  TRY(count(pool, b, c, &p));
  p.out = values;
  int64_t longest, total = place_in_sequence(&p, &longest), rank = b->scalar ? 1 : 2, dims[2] = {total, rank};
  shoal_status s = tensor_new_dims(indices, SHOAL_INT64, 2, dims);
  if (!s) s = tensor_new_dims(values, p.column->dtype, 1, &total);
  if (!s) s = tensor_new_dims(shape, SHOAL_INT64, 1, &rank);
  if (!s) {
    int64_t *at = indices->data;
    for (int64_t i = 0; i < b->n; i++)
      for (int64_t k = 0; k < p.counts[i]; k++) {
        if (!b->scalar) *at++ = i;
        *at++ = k;
      }
    if (!b->scalar) T_DATA(shape, int64_t)[0] = b->n;
    T_DATA(shape, int64_t)[rank - 1] = longest;
    pool_for(pool, b->n, GRAIN, copy_range, &p);
  }
  free(p.counts);
  return s;
}

shoal_status column_ragged(struct pool *pool, const struct example_batch *b, size_t c, struct tensor *values,
                           struct tensor *splits) {
  struct column_pass p;
  TRY(count(pool, b, c, &p));
  p.out = values;
  int64_t longest, total = place_in_sequence(&p, &longest), n = b->scalar ? 0 : b->n + 1;
  shoal_status s = tensor_new_dims(values, p.column->dtype, 1, &total);
  if (!s) s = tensor_new_dims(splits, p.column->splits, 1, &n);
  if (!s) {
    for (int64_t i = 0; i < n; i++) set_split(splits, i, i < b->n ? p.offsets[i] : total);
    pool_for(pool, b->n, GRAIN, copy_range, &p);
  }
  free(p.counts);
  return s;
}
