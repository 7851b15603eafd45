/* The lookup table ops, by V1 (string reference) and V2 (resource) handles. The tables are in ops/state/lookup.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "ops/state/lookup.h"

/* ---- making ---- */

struct table_maker {
  struct state_maker m; /* not used by anonymous tables */
  bool anonymous;
  enum lookup_kind kind;
  shoal_dtype key_dtype, value_dtype;
  struct shape value_shape;
  int64_t buckets;
  float max_load;
};

static shoal_status maker_init(struct kernel_init *ki, struct table_maker *st, enum lookup_kind kind) {
  const struct shoal_node *n = ki->node;
  bool by_node = false;
  st->kind = kind;
  st->value_shape = shape_scalar();
  TRY(node_get_type(n, "key_dtype", &st->key_dtype));
  TRY(node_get_type(n, "value_dtype", &st->value_dtype));
  if (node_attr(n, "value_shape")) TRY(node_get_shape(n, "value_shape", &st->value_shape));
  if (!shape_known(&st->value_shape)) return INVALID("Shape %s is not fully defined", shape_str(&st->value_shape));
  int64_t elements;
  TRY(shape_elements(&st->value_shape, &elements));
  if (!dtype_plain(st->key_dtype) && st->key_dtype != SHOAL_STRING)
    return INVALID("Keys of a table cannot be of type %s", dtype_tf_name(st->key_dtype));
  if (kind == TABLE_DENSE) {
    TRY(node_get_int(n, "initial_num_buckets", &st->buckets));
    TRY(node_get_float(n, "max_load_factor", &st->max_load));
    if (st->value_shape.rank > 1)
      return INVALID("Empty value must be a scalar or a vector, got shape %s", shape_str(&st->value_shape));
  }
  st->anonymous = !node_attr(n, "shared_name");
  if (st->anonymous) return NULL;
  TRY(node_get_bool(n, "use_node_name_sharing", &by_node));
  return state_maker_init(&st->m, ki, &lookup_type, !by_node);
}
static shoal_status fixed_init(struct kernel_init *ki, void *st) { return maker_init(ki, st, TABLE_FIXED); }
static shoal_status mutable_init(struct kernel_init *ki, void *st) { return maker_init(ki, st, TABLE_MUTABLE); }
static shoal_status dense_init(struct kernel_init *ki, void *st) { return maker_init(ki, st, TABLE_DENSE); }
static shoal_status of_tensors_init(struct kernel_init *ki, void *state) {
  struct table_maker *st = state;
  TRY(maker_init(ki, st, TABLE_MUTABLE));
  if (st->value_shape.rank == 1) return NULL;
  return INVALID("Default value must be a vector, got shape %s", shape_str(&st->value_shape));
}

static void maker_release(void *state) { state_maker_release(&((struct table_maker *)state)->m); }

struct table_making {
  struct table_maker *st;
  struct kernel_ctx *ctx;
};

static shoal_status make_table(void *arg, struct resource **out) {
  struct table_making *m = arg;
  struct table_maker *st = m->st;
  struct shape key_shape = shape_scalar();
  const struct tensor *empty = NULL, *deleted = NULL;
  if (st->kind == TABLE_DENSE) {
    empty = ctx_in(m->ctx, 0);
    deleted = m->ctx->kernel->n_in > 1 ? ctx_in(m->ctx, 1) : NULL;
    key_shape = tensor_shape(empty);
    if (key_shape.rank > 1)
      return INVALID("Empty key must be a scalar or a vector, got shape %s", shape_str(&key_shape));
    if (deleted && !tensor_same_shape(empty, deleted)) {
      struct shape other = tensor_shape(deleted);
      return INVALID("Empty and deleted keys must have same shape, got shapes: %s and %s", shape_str(&key_shape),
                     shape_str(&other));
    }
  }
  struct lookup_table *t = lookup_new(st->kind, st->key_dtype, st->value_dtype, &key_shape, &st->value_shape);
  if (st->kind == TABLE_DENSE) {
    struct tensor none = tensor_none();
    shoal_status s = NULL;
    if (!deleted) { /* the first version has none; one that no key can be equal to is hard to find, so: one unlike */
      s = tensor_copy(&none, empty);
      if (!s && none.dtype == SHOAL_STRING) str_set(none.data, "\xff\xfe\xfd deleted", 11);
      else if (!s && none.n) ((char *)none.data)[0] ^= 0x55;
      deleted = &none;
    }
    if (!s) s = lookup_dense_init(t, empty, deleted, st->buckets, st->max_load);
    if (tensor_valid(&none)) tensor_release(&none);
    if (s) {
      resource_unref(&t->head);
      return s;
    }
  }
  *out = &t->head;
  return NULL;
}

static shoal_status maker_run(struct kernel_ctx *ctx) {
  struct table_maker *st = ctx->state;
  struct table_making m = {st, ctx};
  struct resource *r;
  if (st->anonymous) {
    struct tensor handle;
    TRY(make_table(&m, &r));
    TRY(resource_handle_anonymous(ctx->kernel->resources, ctx->kernel->device->name, "table", &lookup_type, r,
                                  &handle));
    ctx_set(ctx, 0, &handle);
    return NULL;
  }
  TRY(state_maker_run(&st->m, ctx, make_table, &m, &r));
  struct lookup_table *t = (struct lookup_table *)r;
  shoal_status s = NULL;
  if (t->key_dtype != st->key_dtype || t->value_dtype != st->value_dtype)
    s = INVALID("Conflicting key/value dtypes %s->%s with %s-%s for table %s", dtype_tf_name(st->key_dtype),
                dtype_tf_name(st->value_dtype), dtype_tf_name(t->key_dtype), dtype_tf_name(t->value_dtype), st->m.name);
  resource_unref(r);
  return s;
}

/* ---- checks ---- */

static shoal_status find_table(struct kernel_ctx *ctx, struct lookup_table **out) {
  struct resource *r;
  TRY(state_from_handle(ctx, 0, &lookup_type, &r));
  *out = (struct lookup_table *)r;
  return NULL;
}

static void print_types(struct text *out, int n, const uint8_t *types) {
  for (int i = 0; i < n; i++) text_addf(out, "%s%s", i ? ", " : "", dtype_tf_name(types[i]));
}

/* The kernel's types are those of the table: keys and values among its inputs, or its outputs (for exports). */
static shoal_status check_types(const struct kernel_ctx *ctx, const struct lookup_table *t, bool exports) {
  const struct kernel *k = ctx->kernel;
  shoal_dtype want[2] = {t->key_dtype, t->value_dtype};
  const uint8_t *have = exports ? k->out_types : k->in_types + 1;
  int n = exports ? 2 : k->n_in - 1;
  bool good = true;
  for (int i = 0; i < n; i++) good &= (shoal_dtype)have[i] == want[i];
  if (k->n_out == 1 && k->n_in == 3) good &= (shoal_dtype)k->out_types[0] == t->value_dtype;
  if (good) return NULL;
  struct text a = {0}, b = {0};
  print_types(&a, k->n_in, k->in_types);
  text_adds(&a, "->");
  print_types(&a, k->n_out, k->out_types);
  text_adds(&b, dtype_tf_name(k->in_types[0]));
  for (int i = 0; !exports && i < n; i++) text_addf(&b, ", %s", dtype_tf_name(want[i]));
  text_adds(&b, "->");
  if (exports) text_addf(&b, "%s, %s", dtype_tf_name(want[0]), dtype_tf_name(want[1]));
  else if (k->n_out) text_adds(&b, dtype_tf_name(t->value_dtype));
  shoal_status s = INVALID("Signature mismatch, have: %s expected: %s", text_cstr(&a), text_cstr(&b));
  text_release(&a);
  text_release(&b);
  return s;
}

/* keys' shape without the table's key shape at its end, and then the value shape. */
static shoal_status values_shape(const struct lookup_table *t, const struct tensor *keys, struct shape *out,
                                 int64_t *n) {
  struct shape ks = tensor_shape(keys);
  int tail = t->key_shape.rank;
  bool fits = ks.rank >= tail;
  for (int d = 0; fits && d < tail; d++) fits = ks.dims[ks.rank - tail + d] == t->key_shape.dims[d];
  if (!fits)
    return INVALID("Input key shape %s must end with the table's key shape %s", shape_str(&ks),
                   shape_str(&t->key_shape));
  if (t->kind == TABLE_DENSE && ks.rank - tail > 1) {
    struct shape want = shape_vector(ks.dims[0]);
    for (int d = 0; d < tail; d++) want.dims[want.rank++] = t->key_shape.dims[d];
    return INVALID("Expected key shape %s got %s", shape_str(&want), shape_str(&ks));
  }
  *out = ks;
  out->rank -= tail;
  *n = 1;
  for (int d = 0; d < out->rank; d++) *n *= out->dims[d];
  if (out->rank + t->value_shape.rank > SHOAL_MAX_RANK) return INVALID("The values would have too many dimensions");
  for (int d = 0; d < t->value_shape.rank; d++) out->dims[out->rank++] = t->value_shape.dims[d];
  return NULL;
}

static const void *row(const void *base, shoal_dtype dtype, int64_t each, int64_t i) {
  return (const char *)base + (size_t)(i * each) * dtype_size(dtype);
}

/* ---- finding, inserting, removing ---- */

static shoal_status find_locked(struct kernel_ctx *ctx, struct lookup_table *t) {
  const struct tensor *keys = ctx_in(ctx, 1), *dflt = ctx_in(ctx, 2);
  if (t->kind == TABLE_FIXED && !t->initialized) return STATUS(SHOAL_FAILED_PRECONDITION, "Table not initialized.");
  struct shape shape, ds = tensor_shape(dflt);
  int64_t n;
  TRY(values_shape(t, keys, &shape, &n));
  bool full = !shape_equal(&ds, &t->value_shape);
  if (full && !shape_equal(&ds, &shape))
    return INVALID("Expected shape %s or %s for default value, got %s", shape_str(&t->value_shape), shape_str(&shape),
                   shape_str(&ds));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  bool own_default = full && t->kind != TABLE_FIXED;
  for (int64_t i = 0; i < n; i++) {
    const void *value;
    TRY(lookup_find(t, row(keys->data, t->key_dtype, t->key_n, i), &value));
    if (!value) value = own_default ? row(dflt->data, t->value_dtype, t->value_n, i) : dflt->data;
    elements_copy(t->value_dtype, (void *)(uintptr_t)row(out->data, t->value_dtype, t->value_n, i), value, t->value_n);
  }
  return NULL;
}

static shoal_status find_run(struct kernel_ctx *ctx) {
  struct lookup_table *t;
  TRY(find_table(ctx, &t));
  shoal_status s = check_types(ctx, t, false);
  pthread_rwlock_rdlock(&t->lock);
  if (!s) s = find_locked(ctx, t);
  pthread_rwlock_unlock(&t->lock);
  resource_unref(&t->head);
  return s;
}

static shoal_status put_all(struct lookup_table *t, const struct tensor *keys, const struct tensor *values,
                            shoal_status (*put)(struct lookup_table *, const void *, const void *)) {
  struct shape want, have = tensor_shape(values);
  int64_t n;
  TRY(values_shape(t, keys, &want, &n));
  if (!shape_equal(&want, &have))
    return INVALID("Expected shape %s for value, got %s", shape_str(&want), shape_str(&have));
  TRY(lookup_reserve(t, n));
  for (int64_t i = 0; i < n; i++)
    TRY(put(t, row(keys->data, t->key_dtype, t->key_n, i), row(values->data, t->value_dtype, t->value_n, i)));
  return NULL;
}

/* Fills a fixed table; doing so again with as many entries is fine. */
static shoal_status initialize(struct lookup_table *t, const struct tensor *keys, const struct tensor *values) {
  if (!keys->n) return INVALID("keys and values cannot be empty tensors.");
  if (t->initialized) {
    if (t->n == keys->n) return NULL;
    return STATUS(SHOAL_FAILED_PRECONDITION, "Table was already initialized with different data.");
  }
  shoal_status s = put_all(t, keys, values, lookup_put_once);
  if (s) lookup_clear(t);
  else t->initialized = true;
  return s;
}

static shoal_status insert_locked(struct kernel_ctx *ctx, struct lookup_table *t, bool import) {
  const struct tensor *keys = ctx_in(ctx, 1), *values = ctx_in(ctx, 2);
  if (t->kind == TABLE_FIXED) {
    if (import) return initialize(t, keys, values);
    return UNIMPLEMENTED("Insert not supported by InitializableLookupTable implementations");
  }
  if (import && t->kind == TABLE_DENSE) return lookup_dense_import(t, keys, values);
  if (import) lookup_clear(t);
  return put_all(t, keys, values, lookup_put);
}

static shoal_status insert(struct kernel_ctx *ctx, bool import) {
  struct lookup_table *t;
  TRY(find_table(ctx, &t));
  shoal_status s = check_types(ctx, t, false);
  pthread_rwlock_wrlock(&t->lock);
  if (!s) s = insert_locked(ctx, t, import);
  pthread_rwlock_unlock(&t->lock);
  resource_unref(&t->head);
  return s;
}
static shoal_status insert_run(struct kernel_ctx *ctx) { return insert(ctx, false); }
static shoal_status import_run(struct kernel_ctx *ctx) { return insert(ctx, true); }

static shoal_status remove_run(struct kernel_ctx *ctx) {
  const struct tensor *keys = ctx_in(ctx, 1);
  struct lookup_table *t;
  TRY(find_table(ctx, &t));
  struct shape shape;
  int64_t n = 0;
  shoal_status s = check_types(ctx, t, false);
  if (!s && t->kind == TABLE_FIXED)
    s = UNIMPLEMENTED("Remove not supported by InitializableLookupTable implementations");
  if (!s) s = values_shape(t, keys, &shape, &n);
  pthread_rwlock_wrlock(&t->lock);
  for (int64_t i = 0; i < n && !s; i++) s = lookup_remove(t, row(keys->data, t->key_dtype, t->key_n, i));
  pthread_rwlock_unlock(&t->lock);
  resource_unref(&t->head);
  return s;
}

static shoal_status size_run(struct kernel_ctx *ctx) {
  struct lookup_table *t;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(find_table(ctx, &t));
  pthread_rwlock_rdlock(&t->lock);
  *T_DATA(out, int64_t) = t->n;
  pthread_rwlock_unlock(&t->lock);
  resource_unref(&t->head);
  return NULL;
}

static shoal_status export_locked(struct kernel_ctx *ctx, struct lookup_table *t) {
  if (t->kind == TABLE_DENSE) {
    struct tensor keys, values;
    tensor_ref(&keys, &t->key_buckets);
    tensor_ref(&values, &t->value_buckets);
    ctx_set(ctx, 0, &keys);
    ctx_set(ctx, 1, &values);
    return NULL;
  }
  if (t->kind == TABLE_FIXED && !t->initialized) return STATUS(SHOAL_ABORTED, "HashTable is not initialized.");
  struct tensor *keys, *values;
  struct shape shape = shape_vector(t->n);
  for (int d = 0; d < t->value_shape.rank; d++) shape.dims[shape.rank++] = t->value_shape.dims[d];
  TRY(ctx_out_dims(ctx, 0, 1, &t->n, &keys));
  TRY(ctx_out(ctx, 1, &shape, &values));
  elements_copy(t->key_dtype, keys->data, t->keys, t->n);
  elements_copy(t->value_dtype, values->data, t->values, t->n * t->value_n);
  return NULL;
}

static shoal_status export_run(struct kernel_ctx *ctx) {
  struct lookup_table *t;
  TRY(find_table(ctx, &t));
  shoal_status s = check_types(ctx, t, true);
  pthread_rwlock_rdlock(&t->lock);
  if (!s) s = export_locked(ctx, t);
  pthread_rwlock_unlock(&t->lock);
  resource_unref(&t->head);
  return s;
}

/* ---- initializing ---- */

static shoal_status not_initializable(struct kernel_ctx *ctx) {
  const struct resource_handle *h = state_is_ref(ctx, 0) ? NULL : resource_handle_of(ctx_in(ctx, 0));
  return INVALID("Table %s %s is not initializable", h ? h->container : "", h ? h->name : ctx->kernel->name);
}

static shoal_status initialize_run(struct kernel_ctx *ctx) {
  const struct tensor *keys = ctx_in(ctx, 1), *values = ctx_in(ctx, 2);
  struct shape ks = tensor_shape(keys), vs = tensor_shape(values);
  struct lookup_table *t;
  TRY(find_table(ctx, &t));
  shoal_status s = t->kind == TABLE_FIXED ? check_types(ctx, t, false) : not_initializable(ctx);
  if (!s && keys->rank != 1) s = INVALID("Keys must be a vector, but received shape%s", shape_str(&ks));
  if (!s && values->rank != 1) s = INVALID("Values must be a vector, but received shape%s", shape_str(&vs));
  if (!s && keys->n != values->n)
    s = INVALID("Keys and values must have the same size %" PRId64 " vs %" PRId64, keys->n, values->n);
  pthread_rwlock_wrlock(&t->lock);
  if (!s) s = initialize(t, keys, values);
  pthread_rwlock_unlock(&t->lock);
  resource_unref(&t->head);
  return s;
}

enum { LINE_NUMBER = -1, WHOLE_LINE = -2 };

struct from_file {
  int64_t key_index, value_index, vocab_size, offset;
  char delimiter;
};

static shoal_status from_file_init(struct kernel_init *ki, void *state) {
  struct from_file *st = state;
  const char *delimiter;
  TRY(node_get_int(ki->node, "key_index", &st->key_index));
  TRY(node_get_int(ki->node, "value_index", &st->value_index));
  TRY(node_get_int(ki->node, "vocab_size", &st->vocab_size));
  TRY(node_get_int(ki->node, "offset", &st->offset));
  TRY(node_get_string(ki->node, "delimiter", &delimiter));
  if (strlen(delimiter) != 1) return INVALID("delimiter should be only 1 char");
  st->delimiter = delimiter[0];
  return NULL;
}

static shoal_status check_columns(const struct from_file *st, const struct lookup_table *t) {
  if (st->key_index == LINE_NUMBER && t->key_dtype != SHOAL_INT64)
    return INVALID("Key index for line number requires table key dtype of int64, got %s", dtype_tf_name(t->key_dtype));
  if (st->key_index == WHOLE_LINE && t->key_dtype != SHOAL_STRING && !dtype_integer(t->key_dtype))
    return INVALID("Key index for whole line requires string or integer table key, got %s",
                   dtype_tf_name(t->key_dtype));
  if (st->value_index == LINE_NUMBER && t->value_dtype != SHOAL_INT64)
    return INVALID("Value index for line number requires table value dtype of int64, got %s",
                   dtype_tf_name(t->value_dtype));
  return NULL;
}

struct line {
  const char *at;
  size_t n;
  int64_t number;
};

/* Field `index` of a line as one element. */
static shoal_status read_field(const struct from_file *st, const struct line *l, int64_t index, shoal_dtype dtype,
                               void *to) {
  if (index == LINE_NUMBER) {
    *(int64_t *)to = (int64_t)((uint64_t)l->number + (uint64_t)st->offset);
    return NULL;
  }
  const char *at = l->at, *end = l->at + l->n;
  for (int64_t i = 0; i < index && at; i++) {
    at = memchr(at, st->delimiter, (size_t)(end - at));
    if (at) at++;
  }
  size_t n = (size_t)(end - at);
  if (index >= 0) {
    const char *stop = memchr(at, st->delimiter, n);
    if (stop) n = (size_t)(stop - at);
  }
  if (dtype == SHOAL_STRING) {
    str_set(to, at, n);
    return NULL;
  }
  char *word = mem_strndup(at, n), *stop;
  const char *kind = dtype == SHOAL_INT32     ? "int32"
                     : dtype == SHOAL_INT64   ? "int64"
                     : dtype == SHOAL_FLOAT32 ? "float"
                                              : "double";
  shoal_status s = NULL;
  bool good = n > 0;
  errno = 0;
  if (dtype == SHOAL_INT32 || dtype == SHOAL_INT64) {
    long long v = strtoll(word, &stop, 10);
    good = good && !*stop && !errno && (dtype == SHOAL_INT64 || (v >= INT32_MIN && v <= INT32_MAX));
    if (dtype == SHOAL_INT64) *(int64_t *)to = v;
    else *(int32_t *)to = (int32_t)v;
  } else if (dtype == SHOAL_FLOAT32 || dtype == SHOAL_FLOAT64) {
    double v = dtype == SHOAL_FLOAT32 ? (double)strtof(word, &stop) : strtod(word, &stop);
    good = good && !*stop;
    if (dtype == SHOAL_FLOAT32) *(float *)to = (float)v;
    else *(double *)to = v;
  } else {
    s = INVALID("Data type %s not supported.", dtype_tf_name(dtype));
  }
  if (!s && !good) s = INVALID("Field %s in line %" PRId64 " is not a valid %s.", word, l->number, kind);
  free(word);
  return s;
}

static shoal_status read_line(const struct from_file *st, struct lookup_table *t, const char *file,
                              const struct line *l) {
  int64_t need = MAX(st->key_index, st->value_index), columns = 1;
  for (size_t i = 0; i < l->n; i++) columns += l->at[i] == st->delimiter;
  if (need >= columns)
    return INVALID("Invalid number of columns in %s line %" PRId64 " (%.*s) : expected at least %" PRIu64
                   " got %" PRId64,
                   file, l->number, (int)MIN(l->n, 200), l->at, (uint64_t)need + 1, columns);
  struct tensor key, value;
  TRY(tensor_new_scalar(&key, t->key_dtype));
  shoal_status s = tensor_new_scalar(&value, t->value_dtype);
  if (!s) {
    s = read_field(st, l, st->key_index, t->key_dtype, key.data);
    if (!s) s = read_field(st, l, st->value_index, t->value_dtype, value.data);
    if (!s) s = lookup_put_once(t, key.data, value.data);
    tensor_release(&value);
  }
  tensor_release(&key);
  return s;
}

static shoal_status read_lines(const struct from_file *st, struct lookup_table *t, const char *file, char *data,
                               size_t size) {
  struct line l = {.number = 0};
  for (size_t at = 0; at < size; l.number++) {
    char *end = memchr(data + at, '\n', size - at);
    size_t n = end ? (size_t)(end - data) - at : size - at, next = at + n + (end ? 1 : 0), kept = 0;
    for (size_t i = 0; i < n; i++) /* carriage returns do not count */
      if (data[at + i] != '\r') data[at + kept++] = data[at + i];
    if (st->vocab_size >= 0 && l.number >= st->vocab_size) return NULL;
    if (!kept) return INVALID("Invalid content in %s: empty line found at position %zu.", file, next);
    l.at = data + at;
    l.n = kept;
    TRY(read_line(st, t, file, &l));
    at = next;
  }
  if (st->vocab_size >= 0 && l.number != st->vocab_size)
    return INVALID("Invalid vocab_size in %s: expected %" PRId64 " but got %" PRId64, file, st->vocab_size, l.number);
  return NULL;
}

static shoal_status from_file_run(struct kernel_ctx *ctx) {
  struct from_file *st = ctx->state;
  const struct tensor *name = ctx_in(ctx, 1);
  if (name->n != 1) {
    struct shape shape = tensor_shape(name);
    return INVALID("filename should be a single string, but got %s", shape_str(&shape));
  }
  const struct str *text = T_DATA(name, const struct str);
  if (!text->size) return INVALID("filename cannot be empty.");
  struct lookup_table *t;
  TRY(find_table(ctx, &t));
  char *file = mem_strndup(str_data(text), text->size), *data = NULL;
  size_t size = 0;
  shoal_status s = t->kind == TABLE_FIXED ? check_columns(st, t) : not_initializable(ctx);
  if (!s && t->value_shape.rank) s = INVALID("A table of vectors cannot be read from a file");
  pthread_rwlock_wrlock(&t->lock);
  if (!s && !t->initialized) {
    s = file_read(file, 0, &data, &size);
    if (!s) s = read_lines(st, t, file, data, size);
    if (s) lookup_clear(t);
    else t->initialized = true;
  }
  pthread_rwlock_unlock(&t->lock);
  free(data);
  free(file);
  resource_unref(&t->head);
  return s;
}

/* ---- rows ---- */

static shoal_status shape_table(struct shape_ctx *c) {
  c->out[0] = dtype_is_ref(c->node->out_types[0]) ? shape_vector(2) : shape_scalar();
  return NULL;
}

#define KERNEL(id, ...) static const struct kernel_def id[] = {{.device = "CPU", __VA_ARGS__}, {0}}
#define MAKER(id, init_) \
  KERNEL(id, .state_size = sizeof(struct table_maker), .init = init_, .release = maker_release, .run = maker_run)
MAKER(fixed_kernels, fixed_init);
MAKER(mutable_kernels, mutable_init);
MAKER(of_tensors_kernels, of_tensors_init);
MAKER(dense_kernels, dense_init);
KERNEL(find_kernels, .run = find_run);
KERNEL(insert_kernels, .run = insert_run);
KERNEL(import_kernels, .run = import_run);
KERNEL(remove_kernels, .run = remove_run);
KERNEL(size_kernels, .run = size_run);
KERNEL(export_kernels, .run = export_run);
KERNEL(initialize_kernels, .run = initialize_run);
KERNEL(from_file_kernels, .flags = KERNEL_EXPENSIVE, .state_size = sizeof(struct from_file), .init = from_file_init,
       .run = from_file_run);

#define TYPES "key_dtype: type; value_dtype: type"
#define NAMED "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; " TYPES
#define VALUE_SHAPE "; value_shape: shape = []"
#define BUCKETS VALUE_SHAPE "; initial_num_buckets: int = 131072; max_load_factor: float = 0.800000011920929"
#define MAKE(op, in_, out_, attrs_, kernels_)                                                        \
  {                                                                                                  \
    .name = op, .in = in_, .out = out_, .attrs = attrs_, .flags = OP_STATEFUL, .shape = shape_table, \
    .kernels = kernels_                                                                              \
  }
#define REF "table_handle: Ref(string)"
#define RESOURCE "table_handle: resource"
#define USE(op, more, out_, attrs_, kernels_)                                                                  \
  {.name = op, .in = REF more, .out = out_, .attrs = attrs_, .flags = OP_NO_GRADIENT, .kernels = kernels_}, {  \
    .name = op "V2", .in = RESOURCE more, .out = out_, .attrs = attrs_, .flags = OP_STATEFUL | OP_NO_GRADIENT, \
    .kernels = kernels_                                                                                        \
  }
#define FILE_ATTRS                                                                                       \
  "key_index: int >= -2; value_index: int >= -2; vocab_size: int >= -1 = -1; delimiter: string = '\t'; " \
  "offset: int = 0"
static const struct op_row rows[] = {
    MAKE("HashTable", NULL, REF, NAMED, fixed_kernels),
    MAKE("HashTableV2", NULL, RESOURCE, NAMED, fixed_kernels),
    MAKE("AnonymousHashTable", NULL, RESOURCE, TYPES, fixed_kernels),
    MAKE("MutableHashTable", NULL, REF, NAMED, mutable_kernels),
    MAKE("MutableHashTableV2", NULL, RESOURCE, NAMED, mutable_kernels),
    MAKE("AnonymousMutableHashTable", NULL, RESOURCE, TYPES, mutable_kernels),
    MAKE("MutableHashTableOfTensors", NULL, REF, NAMED VALUE_SHAPE, of_tensors_kernels),
    MAKE("MutableHashTableOfTensorsV2", NULL, RESOURCE, NAMED VALUE_SHAPE, of_tensors_kernels),
    MAKE("AnonymousMutableHashTableOfTensors", NULL, RESOURCE, TYPES VALUE_SHAPE, of_tensors_kernels),
    MAKE("MutableDenseHashTable", "empty_key: key_dtype", REF, NAMED BUCKETS, dense_kernels),
    MAKE("MutableDenseHashTableV2", "empty_key: key_dtype, deleted_key: key_dtype", RESOURCE, NAMED BUCKETS,
         dense_kernels),
    MAKE("AnonymousMutableDenseHashTable", "empty_key: key_dtype, deleted_key: key_dtype", RESOURCE, TYPES BUCKETS,
         dense_kernels),
    USE("LookupTableFind", ", keys: Tin, default_value: Tout", "values: Tout", "Tin: type; Tout: type", find_kernels),
    USE("LookupTableInsert", ", keys: Tin, values: Tout", NULL, "Tin: type; Tout: type", insert_kernels),
    USE("LookupTableImport", ", keys: Tin, values: Tout", NULL, "Tin: type; Tout: type", import_kernels),
    USE("LookupTableSize", "", "size: int64", NULL, size_kernels),
    USE("LookupTableExport", "", "keys: Tkeys, values: Tvalues", "Tkeys: type; Tvalues: type", export_kernels),
    {.name = "LookupTableRemoveV2",
     .in = RESOURCE ", keys: Tin",
     .attrs = "Tin: type",
     .flags = OP_STATEFUL,
     .kernels = remove_kernels},
    USE("InitializeTable", ", keys: Tkey, values: Tval", NULL, "Tkey: type; Tval: type", initialize_kernels),
    USE("InitializeTableFromTextFile", ", filename: string", NULL, FILE_ATTRS, from_file_kernels),
};
OP_FAMILY(tables, rows);
