/* Sparse tensors as rows of serialized tensors (strings, or variants that hold a tensor), and as handles into a map
 * that lives with the session: how they pass through queues and batching. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ops/sparse/sparse.h"
#include "ops/state/state.h"
#include "proto/tensor.wire.h"
#include "tensor/tensor_proto.h"
#include "tensor/tensor_variant.h"

/* ---- elements: string or variant ---- */

static shoal_status put_tensor(struct tensor *to, int64_t i, const struct tensor *t) {
  if (to->dtype == SHOAL_VARIANT) {
    T_DATA(to, struct variant *)[i] = tensor_variant_new(t);
    return NULL;
  }
  struct text bytes = {0};
  shoal_status s = tensor_proto_encode(t, &bytes);
  /* No content at all for an empty tensor: the bytes are TensorFlow's. */
  static const char none[] = {TensorProto_tensor_content, 0};
  if (!s && t->n == 0 && bytes.n >= 2 && !memcmp(bytes.at + bytes.n - 2, none, 2)) bytes.n -= 2;
  if (!s) str_set(&T_DATA(to, struct str)[i], text_cstr(&bytes), bytes.n);
  text_release(&bytes);
  return s;
}

static shoal_status get_tensor(const struct tensor *from, int64_t i, struct tensor *out) {
  if (from->dtype == SHOAL_VARIANT) {
    const struct variant *v = T_DATA(from, struct variant *const)[i];
    if (!tensor_variant_get(v, out)) return INVALID("Cannot unpack a tensor from variant element %" PRId64, i);
    return NULL;
  }
  const struct str *s = &T_DATA(from, const struct str)[i];
  shoal_status bad = tensor_proto_decode(str_data(s), s->size, out);
  if (!bad) return NULL;
  shoal_status_free(bad);
  return INVALID("Could not parse serialized proto");
}

/* ---- parts of a batch ---- */

/* A sparse tensor that owns its parts. */
struct owned {
  struct tensor indices, values, shape;
};

static void owned_release(struct owned *o) {
  tensor_release(&o->indices);
  tensor_release(&o->values);
  tensor_release(&o->shape);
}

static shoal_status check_batch(const struct sparse *s) {
  if (s->rank < 2) return INVALID("Rank of input SparseTensor should be > 1, but saw rank: %d", s->rank);
  int64_t dims[SHOAL_MAX_RANK], dense;
  TRY(sparse_dims(s->shape, dims, &dense));
  const int64_t *ix = s->indices->data;
  for (int64_t i = 0; i < s->n; i++) {
    for (int k = 0; k < s->rank; k++)
      if (ix[i * s->rank + k] < 0 || ix[i * s->rank + k] >= dims[k])
        return INVALID("indices[%" PRId64 "] = %s is out of bounds: need 0 <= index < %s", i,
                       ints_str(s->indices, i * s->rank, s->rank, ","), ints_str(s->shape, 0, s->rank, ","));
    if (i && ix[i * s->rank] < ix[(i - 1) * s->rank])
      return INVALID("indices[%" PRId64
                     "] = %s is out of order. Many sparse ops require sorted indices.\n    Use "
                     "`tf.sparse.reorder` to create a correctly ordered copy.\n\n",
                     i, ints_str(s->indices, i * s->rank, s->rank, ","));
  }
  return NULL;
}

/* Row `row` without its first dimension; *at is where its entries begin, and moves on. */
static shoal_status take_row(const struct sparse *s, int64_t row, int64_t *at, struct owned *out) {
  int64_t n = 0, rank = s->rank - 1;
  const int64_t *ix = s->indices->data;
  while (*at + n < s->n && ix[(*at + n) * s->rank] == row) n++;
  *out = (struct owned){0};
  shoal_dtype t = (shoal_dtype)s->values->dtype;
  shoal_status bad = tensor_new_dims(&out->indices, SHOAL_INT64, 2, (int64_t[]){n, rank});
  if (!bad) bad = tensor_new_dims(&out->values, t, 1, &n);
  if (!bad) bad = tensor_new_dims(&out->shape, SHOAL_INT64, 1, &rank);
  if (bad) {
    owned_release(out);
    return bad;
  }
  for (int64_t i = 0; i < n; i++)
    memcpy(T_DATA(&out->indices, int64_t) + i * rank, ix + (*at + i) * s->rank + 1, (size_t)rank * sizeof *ix);
  elements_copy(t, out->values.data, sparse_value(s, *at), n);
  for (int k = 0; k < rank; k++) T_DATA(&out->shape, int64_t)[k] = int_at(s->shape, k + 1);
  *at += n;
  return NULL;
}

/* Several sparse tensors of one rank stacked under new leading dimensions. parts[i] gives the i-th; the result has
 * the largest of their shapes. Outputs 0, 1, 2. */
static shoal_status stack(struct kernel_ctx *ctx, struct owned *parts, int64_t n, int lead, const int64_t *lead_dims,
                          shoal_dtype dtype, bool from_map) {
  int64_t total = 0, dims[SHOAL_MAX_RANK] = {0};
  int rank = -1;
  for (int64_t i = 0; i < n; i++) {
    struct sparse s = {&parts[i].indices, &parts[i].values, &parts[i].shape};
    if (s.indices->rank != 2)
      return INVALID("Expected serialized_sparse[%" PRId64 ", 0] to represent an index matrix but received shape %s", i,
                     tensor_shape_str(s.indices));
    if (s.values->rank != 1)
      return INVALID("Expected serialized_sparse[%" PRId64 ", 1] to represent a values vector but received shape %s", i,
                     tensor_shape_str(s.values));
    if (s.shape->rank != 1)
      return INVALID("Expected serialized_sparse[%" PRId64 ", 2] to represent a shape vector but received shape %s", i,
                     tensor_shape_str(s.shape));
    if (s.values->dtype != dtype)
      return INVALID("Requested SparseTensor of type %s but SparseTensor[%" PRId64 "].values.dtype() == %s",
                     dtype_tf_name(dtype), i, dtype_tf_name(s.values->dtype));
    if (s.indices->dtype != SHOAL_INT64 || s.shape->dtype != SHOAL_INT64)
      return INVALID("Indices and shape of SparseTensor[%" PRId64 "] must be int64", i);
    TRY(sparse_check(&s));
    if (rank >= 0 && s.rank != rank && from_map) /* there the new dimension counts */
      return INVALID("Inconsistent rank across SparseTensors: rank prior to SparseTensor[%" PRId64
                     "] was: %d but rank of SparseTensor[%" PRId64 "] is: %d",
                     i, rank + 1, i, s.rank + 1);
    if (rank >= 0 && s.rank != rank)
      return INVALID("Inconsistent shape across SparseTensors: rank prior to SparseTensor[%" PRId64
                     "] was: %d but rank of SparseTensor[%" PRId64 "] is: %d",
                     i, rank, i, s.rank);
    rank = s.rank;
    if (rank + lead > SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
    for (int k = 0; k < rank; k++) dims[k] = MAX(dims[k], int_at(s.shape, k));
    total += s.n;
  }
  struct tensor *ix, *v, *shape;
  int out_rank = lead + MAX(rank, 0);
  TRY(sparse_out(ctx, 0, total, out_rank, &ix, &v, &shape));
  for (int k = 0; k < lead; k++) int_put(shape, k, lead_dims[k]);
  for (int k = 0; k < rank; k++) int_put(shape, lead + k, dims[k]);
  int64_t *to = ix->data;
  char *values = v->data;
  for (int64_t i = 0; i < n; i++) {
    const int64_t *from = parts[i].indices.data;
    for (int64_t e = 0; e < parts[i].values.n; e++, to += out_rank, from += rank) {
      int64_t rest = i;
      for (int k = lead; k-- > 0; rest /= lead_dims[k]) to[k] = rest % lead_dims[k];
      if (rank > 0) memcpy(to + lead, from, (size_t)rank * sizeof *to);
    }
    elements_copy(dtype, values, parts[i].values.data, parts[i].values.n);
    values += tensor_bytes(&parts[i].values);
  }
  return NULL;
}

/* ---- SerializeSparse, SerializeManySparse ---- */

static shoal_status serialize_run(struct kernel_ctx *ctx) {
  struct sparse s;
  TRY(sparse_get(ctx, 0, &s));
  struct shape vector = shape_vector(3);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &vector, &y));
  for (int i = 0; i < 3; i++) TRY(put_tensor(y, i, ctx_in(ctx, i)));
  return NULL;
}

static shoal_status serialize_many_run(struct kernel_ctx *ctx) {
  struct sparse s;
  TRY(sparse_get(ctx, 0, &s));
  TRY(check_batch(&s));
  int64_t n = int_at(s.shape, 0), at = 0;
  struct shape matrix = shape_matrix(n, 3);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &matrix, &y));
  for (int64_t r = 0; r < n; r++) {
    struct owned o;
    TRY(take_row(&s, r, &at, &o));
    shoal_status bad = put_tensor(y, 3 * r, &o.indices);
    if (!bad) bad = put_tensor(y, 3 * r + 1, &o.values);
    if (!bad) bad = put_tensor(y, 3 * r + 2, &o.shape);
    owned_release(&o);
    TRY(bad);
  }
  return NULL;
}

static shoal_status serialize_shape(struct shape_ctx *c) {
  c->out[0] = shape_vector(3);
  return NULL;
}

static shoal_status serialize_many_shape(struct shape_ctx *c) {
  c->out[0] = shape_matrix(-1, 3);
  return NULL;
}

/* ---- DeserializeSparse, DeserializeManySparse ---- */

static shoal_status deserialize(struct kernel_ctx *ctx, bool many) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (many && x->rank != 2)
    return INVALID("Serialized sparse should be a matrix but received shape %s", tensor_shape_str(x));
  if (x->rank < 1)
    return INVALID("Serialized sparse should have non-zero rank but received shape %s", tensor_shape_str(x));
  if (x->dims[x->rank - 1] != 3)
    return INVALID("Serialized sparse should have 3 %s %s",
                   many ? "columns but received shape" : "as the last dimension", tensor_shape_str(x));
  int64_t n = x->n / 3;
  if (n == 0)
    return INVALID("Serialized sparse should have at least 1 serialized tensor, but has a zero dimension %s",
                   tensor_shape_str(x));
  struct owned *parts = calloc((size_t)n, sizeof *parts);
  if (!parts) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory for %" PRId64 " sparse tensors", n);
  shoal_status s = NULL;
  for (int64_t i = 0; i < n && !s; i++) {
    s = get_tensor(x, 3 * i, &parts[i].indices);
    if (!s) s = get_tensor(x, 3 * i + 1, &parts[i].values);
    if (!s) s = get_tensor(x, 3 * i + 2, &parts[i].shape);
  }
  if (!s) s = stack(ctx, parts, n, x->rank - 1, x->dims, ctx_out_type(ctx, 1), false);
  for (int64_t i = 0; i < n; i++) owned_release(&parts[i]);
  free(parts);
  return s;
}

static shoal_status deserialize_run(struct kernel_ctx *ctx) { return deserialize(ctx, false); }
static shoal_status deserialize_many_run(struct kernel_ctx *ctx) { return deserialize(ctx, true); }

static shoal_status deserialize_shape(struct shape_ctx *c) {
  sparse_out_shapes(c, 0, -1, -1);
  return NULL;
}

static const struct kernel_def serialize_kernels[] = {{.device = "CPU", .run = serialize_run}, {0}};
static const struct kernel_def serialize_many_kernels[] = {{.device = "CPU", .run = serialize_many_run}, {0}};
static const struct kernel_def deserialize_kernels[] = {{.device = "CPU", .run = deserialize_run}, {0}};
static const struct kernel_def deserialize_many_kernels[] = {{.device = "CPU", .run = deserialize_many_run}, {0}};

/* ---- the map: handles are numbers that are never given twice ---- */

struct sparse_map {
  struct resource head;
  pthread_mutex_t lock;
  int64_t next; /* lock */
  struct sparse_map_entry {
    int64_t handle;
    struct owned parts;
  } * at; /* lock */
  size_t n, cap;
};

static void map_free(struct resource *r) {
  struct sparse_map *m = (struct sparse_map *)r;
  for (size_t i = 0; i < m->n; i++) owned_release(&m->at[i].parts);
  free(m->at);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

static const struct resource_type map_type = {"N10tensorflow16SparseTensorsMapE", "sparse tensors map", map_free};

static shoal_status map_make(void *arg, struct resource **out) {
  struct sparse_map *m = mem_zalloc(1, sizeof *m);
  resource_init(&m->head, &map_type);
  pthread_mutex_init(&m->lock, NULL);
  *out = &m->head;
  return NULL;
}

/* Takes over the parts. */
static int64_t map_add(struct sparse_map *m, struct owned *o) {
  pthread_mutex_lock(&m->lock);
  if (m->n == m->cap) {
    m->cap = m->cap ? 2 * m->cap : 16;
    m->at = mem_realloc(m->at, m->cap, sizeof *m->at);
  }
  int64_t handle = m->next++;
  m->at[m->n++] = (struct sparse_map_entry){handle, *o};
  pthread_mutex_unlock(&m->lock);
  return handle;
}

static shoal_status map_take(struct sparse_map *m, int64_t handle, struct owned *out) {
  pthread_mutex_lock(&m->lock);
  bool found = false;
  for (size_t i = 0; i < m->n && !found; i++) {
    if (m->at[i].handle != handle) continue;
    *out = m->at[i].parts;
    m->at[i] = m->at[--m->n];
    found = true;
  }
  pthread_mutex_unlock(&m->lock);
  return found ? NULL : INVALID("Unable to find SparseTensor: %" PRId64 " in map: SparseTensorsMap", handle);
}

struct map_state {
  struct resource_name name;
};

static shoal_status map_init(struct kernel_init *ki, void *state) {
  return resource_name_init(&((struct map_state *)state)->name, ki);
}

static void map_release(void *state) { resource_name_release(&((struct map_state *)state)->name); }

static shoal_status map_get(struct kernel_ctx *ctx, bool make, struct sparse_map **out) {
  const struct map_state *st = ctx->state;
  struct resource *r;
  if (make)
    TRY(resource_find_or_make(ctx->kernel->resources, st->name.container, &map_type, st->name.name, map_make, NULL,
                              &r));
  else TRY(resource_find(ctx->kernel->resources, st->name.container, &map_type, st->name.name, &r));
  *out = (struct sparse_map *)r;
  return NULL;
}

static shoal_status add_run(struct kernel_ctx *ctx) {
  struct sparse s;
  struct sparse_map *m;
  struct tensor *y;
  TRY(sparse_get(ctx, 0, &s));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  TRY(map_get(ctx, true, &m));
  struct owned o;
  tensor_ref(&o.indices, s.indices);
  tensor_ref(&o.values, s.values);
  tensor_ref(&o.shape, s.shape);
  *T_DATA(y, int64_t) = map_add(m, &o);
  resource_unref(&m->head);
  return NULL;
}

static shoal_status add_many_run(struct kernel_ctx *ctx) {
  struct sparse s;
  struct sparse_map *m;
  struct tensor *y;
  TRY(sparse_get(ctx, 0, &s));
  TRY(check_batch(&s));
  int64_t n = int_at(s.shape, 0), at = 0;
  TRY(ctx_out_dims(ctx, 0, 1, &n, &y));
  TRY(map_get(ctx, true, &m));
  shoal_status bad = NULL;
  /* Rows with entries get their handles first. */
  for (int empty = 0; empty < 2; empty++) {
    at = 0;
    for (int64_t r = 0; r < n && !bad; r++) {
      struct owned o;
      bad = take_row(&s, r, &at, &o);
      if (bad) break;
      if ((o.values.n == 0) == empty) T_DATA(y, int64_t)[r] = map_add(m, &o);
      else owned_release(&o);
    }
  }
  resource_unref(&m->head);
  return bad;
}

static shoal_status take_run(struct kernel_ctx *ctx) {
  const struct tensor *handles = ctx_in(ctx, 0);
  if (handles->rank != 1)
    return INVALID("sparse_handles should be a vector but received shape %s", tensor_shape_str(handles));
  if (handles->n < 1) return INVALID("Must have at least 1 sparse handle");
  struct sparse_map *m;
  TRY(map_get(ctx, true, &m));
  struct owned *parts = calloc((size_t)handles->n, sizeof *parts);
  shoal_status s = parts ? NULL : STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory for %" PRId64 " tensors", handles->n);
  for (int64_t i = 0; i < handles->n && !s; i++) s = map_take(m, int_at(handles, i), &parts[i]);
  if (!s) s = stack(ctx, parts, handles->n, 1, &handles->n, ctx_out_type(ctx, 1), true);
  for (int64_t i = 0; parts && i < handles->n; i++) owned_release(&parts[i]);
  free(parts);
  resource_unref(&m->head);
  return s;
}

static shoal_status add_many_shape(struct shape_ctx *c) {
  c->out[0] = shape_vector(-1);
  return NULL;
}

#define MAP_KERNELS(name)                                                                     \
  static const struct kernel_def name##_kernels[] = {{.device = "CPU",                        \
                                                      .state_size = sizeof(struct map_state), \
                                                      .init = map_init,                       \
                                                      .release = map_release,                 \
                                                      .run = name##_run},                     \
                                                     {0}}
MAP_KERNELS(add);
MAP_KERNELS(add_many);
MAP_KERNELS(take);

static const struct op_row rows[] = {
    {.name = "SerializeSparse",
     .in = "sparse_indices: int64, sparse_values: T, sparse_shape: int64",
     .out = "serialized_sparse: out_type",
     .attrs = "T: type; out_type: {string, variant} = string",
     .flags = OP_NO_GRADIENT,
     .shape = serialize_shape,
     .kernels = serialize_kernels},
    {.name = "SerializeManySparse",
     .in = "sparse_indices: int64, sparse_values: T, sparse_shape: int64",
     .out = "serialized_sparse: out_type",
     .attrs = "T: type; out_type: {string, variant} = string",
     .flags = OP_NO_GRADIENT,
     .shape = serialize_many_shape,
     .kernels = serialize_many_kernels},
    {.name = "DeserializeSparse",
     .in = "serialized_sparse: Tserialized",
     .out = "sparse_indices: int64, sparse_values: dtype, sparse_shape: int64",
     .attrs = "dtype: type; Tserialized: {string, variant} = string",
     .flags = OP_NO_GRADIENT,
     .shape = deserialize_shape,
     .kernels = deserialize_kernels},
    {.name = "DeserializeManySparse",
     .in = "serialized_sparse: string",
     .out = "sparse_indices: int64, sparse_values: dtype, sparse_shape: int64",
     .attrs = "dtype: type",
     .flags = OP_NO_GRADIENT,
     .shape = deserialize_shape,
     .kernels = deserialize_many_kernels},
    {.name = "AddSparseToTensorsMap",
     .in = "sparse_indices: int64, sparse_values: T, sparse_shape: int64",
     .out = "sparse_handle: int64",
     .attrs = "T: type; container: string = ''; shared_name: string = ''",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = add_kernels},
    {.name = "AddManySparseToTensorsMap",
     .in = "sparse_indices: int64, sparse_values: T, sparse_shape: int64",
     .out = "sparse_handles: int64",
     .attrs = "T: type; container: string = ''; shared_name: string = ''",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = add_many_shape,
     .kernels = add_many_kernels},
    {.name = "TakeManySparseFromTensorsMap",
     .in = "sparse_handles: int64",
     .out = "sparse_indices: int64, sparse_values: dtype, sparse_shape: int64",
     .attrs = "dtype: type; container: string = ''; shared_name: string = ''",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = deserialize_shape,
     .kernels = take_kernels},
};
OP_FAMILY(sparse_serialize, rows);
