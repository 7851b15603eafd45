/* TensorMap: maps from tensors to tensors as values, which graphs pass around as variants. A map in a tensor is never
 * changed, unless nobody else can see it: then the ops work in place, so that a loop of n inserts takes n steps.
 *
 * Keys are equal when dtype, shape and bytes are. Items stay in the order in which they came, which is also the order
 * of TensorMapStackKeys (TensorFlow's is that of a hash map and differs from run to run). Over the items lies a table
 * of slots, open addressing, at most half full: a slot is the item's number + 1.
 *
 * A map travels as TensorFlow has it: no metadata, and key, value, key, value... as the variant's tensors. */
#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/state/tensor_list.h"
#include "tensor/summarize.h"
#include "tensor/tensor_proto.h"

struct map_item {
  uint64_t hash;
  struct tensor key, value;
};

struct tensor_map {
  struct variant head;
  VEC(struct map_item) items;
  uint32_t *slots; /* [n_slots], a power of two; NULL while there is nothing */
  size_t n_slots;
};

enum { MAX_ITEMS = 1 << 28, FIRST_SLOTS = 16 };

static const struct variant_type map_type;

/* ---- the map ---- */

static uint64_t key_hash(const struct tensor *t) {
  uint64_t h = hash_bytes(t->dims, t->rank * sizeof *t->dims, t->dtype);
  if (t->dtype != SHOAL_STRING) return hash_bytes(t->data, tensor_bytes(t), h);
  for (int64_t i = 0; i < t->n; i++) {
    const struct str *s = &T_DATA(t, const struct str)[i];
    h = hash_bytes(str_data(s), s->size, h);
  }
  return h;
}

static bool key_equal(const struct tensor *a, const struct tensor *b) {
  if (a->dtype != b->dtype || !tensor_same_shape(a, b)) return false;
  if (a->dtype != SHOAL_STRING) return a->n == 0 || memcmp(a->data, b->data, tensor_bytes(a)) == 0;
  for (int64_t i = 0; i < a->n; i++) {
    const struct str *x = &T_DATA(a, const struct str)[i], *y = &T_DATA(b, const struct str)[i];
    if (x->size != y->size || memcmp(str_data(x), str_data(y), x->size) != 0) return false;
  }
  return true;
}

/* The slot that has the key, or the empty one where it would be. */
static size_t slot_of(const struct tensor_map *m, const struct tensor *key, uint64_t hash) {
  size_t at = hash & (m->n_slots - 1);
  for (; m->slots[at]; at = (at + 1) & (m->n_slots - 1)) {
    const struct map_item *it = &m->items.at[m->slots[at] - 1];
    if (it->hash == hash && key_equal(&it->key, key)) break;
  }
  return at;
}

static struct map_item *find(const struct tensor_map *m, const struct tensor *key) {
  if (!m->slots) return NULL;
  uint32_t i = m->slots[slot_of(m, key, key_hash(key))];
  return i ? &m->items.at[i - 1] : NULL;
}

static void fill_slots(struct tensor_map *m, size_t n_slots) {
  free(m->slots);
  m->slots = mem_zalloc(n_slots, sizeof *m->slots);
  m->n_slots = n_slots;
  for (size_t i = 0; i < m->items.n; i++) {
    size_t at = m->items.at[i].hash & (n_slots - 1);
    while (m->slots[at]) at = (at + 1) & (n_slots - 1);
    m->slots[at] = (uint32_t)i + 1;
  }
}

static void put(struct tensor_map *m, const struct tensor *key, const struct tensor *value) {
  if (m->items.n * 2 >= m->n_slots) fill_slots(m, m->n_slots ? m->n_slots * 2 : FIRST_SLOTS);
  struct map_item fresh = {.hash = key_hash(key)};
  tensor_ref(&fresh.value, value);
  size_t at = slot_of(m, key, fresh.hash);
  if (m->slots[at]) {
    struct tensor *old = &m->items.at[m->slots[at] - 1].value;
    tensor_release(old);
    *old = fresh.value;
    return;
  }
  tensor_ref(&fresh.key, key);
  vec_push(&m->items, fresh);
  m->slots[at] = (uint32_t)m->items.n;
}

static void item_release(struct map_item *it) {
  tensor_release(&it->key);
  tensor_release(&it->value);
}

static void drop(struct tensor_map *m, struct map_item *it) {
  size_t i = (size_t)(it - m->items.at);
  item_release(it);
  memmove(it, it + 1, (m->items.n - i - 1) * sizeof *it);
  m->items.n--;
  fill_slots(m, m->n_slots);
}

static void map_free(struct variant *v) {
  struct tensor_map *m = (struct tensor_map *)v;
  for (size_t i = 0; i < m->items.n; i++) item_release(&m->items.at[i]);
  vec_release(&m->items);
  free(m->slots);
  free(m);
}

static struct tensor_map *map_new(void) {
  struct tensor_map *m = mem_zalloc(1, sizeof *m);
  variant_init(&m->head, &map_type);
  return m;
}

static struct tensor_map *map_copy(const struct tensor_map *m) {
  struct tensor_map *c = map_new();
  vec_reserve(&c->items, m->items.n);
  for (size_t i = 0; i < m->items.n; i++) {
    struct map_item *it = &c->items.at[c->items.n++];
    it->hash = m->items.at[i].hash;
    tensor_ref(&it->key, &m->items.at[i].key);
    tensor_ref(&it->value, &m->items.at[i].value);
  }
  if (m->n_slots) fill_slots(c, m->n_slots);
  return c;
}

/* ---- the variant ---- */

static shoal_status map_encode(const struct variant *v, struct text *metadata, struct tensor **tensors, int *n) {
  const struct tensor_map *m = (const struct tensor_map *)v;
  (void)metadata;
  *n = 0;
  *tensors = mem_zalloc(2 * m->items.n + 1, sizeof **tensors);
  for (size_t i = 0; i < m->items.n; i++) {
    tensor_ref(&(*tensors)[(*n)++], &m->items.at[i].key);
    tensor_ref(&(*tensors)[(*n)++], &m->items.at[i].value);
  }
  return NULL;
}

static shoal_status check_key(const struct tensor *key) {
  if (key->dtype == SHOAL_RESOURCE || key->dtype == SHOAL_VARIANT)
    return INVALID("A tensor of %s cannot be the key of a TensorMap", dtype_tf_name((shoal_dtype)key->dtype));
  return NULL;
}

static shoal_status map_decode(const void *metadata, size_t size, const struct tensor *tensors, int n,
                               struct variant **out) {
  (void)metadata;
  (void)size;
  if (n % 2) return INVALID("Malformed TensorMap: %d tensors, which are not keys and values", n);
  for (int i = 0; i < n; i += 2) TRY(check_key(&tensors[i]));
  struct tensor_map *m = map_new();
  for (int i = 0; i < n; i += 2) put(m, &tensors[i], &tensors[i + 1]);
  *out = &m->head;
  return NULL;
}

/* As the gradient of a map: nothing flows to any key. */
static struct variant *map_zeros_like(const struct variant *v) {
  (void)v;
  return &map_new()->head;
}

static shoal_status map_add(const struct variant *a, const struct variant *b, struct variant **out) {
  struct tensor_map *sum = map_copy((const struct tensor_map *)a);
  const struct tensor_map *by = (const struct tensor_map *)b;
  shoal_status s = NULL;
  for (size_t i = 0; i < by->items.n && !s; i++) {
    const struct map_item *it = &by->items.at[i];
    struct map_item *mine = find(sum, &it->key);
    struct tensor both;
    if (!mine) {
      put(sum, &it->key, &it->value);
    } else if (mine->value.dtype != it->value.dtype) {
      s = INVALID("Trying to add two maps whose values of one key are of different types");
    } else if (!(s = tensors_add(&it->value, &mine->value, &both))) {
      tensor_release(&mine->value);
      mine->value = both;
    }
  }
  if (s) variant_unref(&sum->head);
  else *out = &sum->head;
  return s;
}

static const struct variant_type map_type = {.name = "tensorflow::TensorMap",
                                             .free = map_free,
                                             .encode = map_encode,
                                             .decode = map_decode,
                                             .zeros_like = map_zeros_like,
                                             .add = map_add};

__attribute__((constructor)) static void register_type(void) { variant_type_register(&map_type); }

/* ---- kernels ---- */

static shoal_status map_in(const struct kernel_ctx *ctx, struct tensor_map **out) {
  const struct tensor *t = ctx_in(ctx, 0);
  if (t->rank != 0) return INVALID("Input map must be a scalar. Saw: %s", tensor_shape_str(t));
  struct variant *v = *T_DATA(t, struct variant *);
  if (!v || v->type != &map_type) return INVALID("Input handle is not a map. Saw: '%s'", v ? v->type->name : "<empty>");
  *out = (struct tensor_map *)v;
  return NULL;
}

static shoal_status map_out(struct kernel_ctx *ctx, struct tensor_map *m) {
  struct tensor *out;
  shoal_status s = ctx_out_dims(ctx, 0, 0, NULL, &out);
  if (s) variant_unref(&m->head);
  else *T_DATA(out, struct variant *) = &m->head;
  return s;
}

/* Output 0 is a map like m for the kernel to change: m itself when nobody else sees it. */
static shoal_status map_change(struct kernel_ctx *ctx, struct tensor_map *m, struct tensor_map **out) {
  *out = m;
  if ((ctx->steal & 1) && tensor_writable(ctx_in(ctx, 0)) && ref_count(&m->head.refs) == 1)
    return ctx_forward(ctx, 0, 0, NULL);
  *out = map_copy(m);
  return map_out(ctx, *out);
}

static shoal_status missing(const struct kernel_ctx *ctx, const char *what) {
  struct text key = {0};
  tensor_summarize(ctx_in(ctx, 1), 100, false, &key);
  shoal_status s = INVALID("Trying to %s. Could not find key \"%s\".", what, text_cstr(&key));
  text_release(&key);
  return s;
}

static shoal_status run_empty(struct kernel_ctx *ctx) { return map_out(ctx, map_new()); }

static shoal_status run_size(struct kernel_ctx *ctx) {
  struct tensor_map *m;
  struct tensor *out;
  TRY(map_in(ctx, &m));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  *T_DATA(out, int32_t) = (int32_t)m->items.n;
  return NULL;
}

static shoal_status run_has(struct kernel_ctx *ctx) {
  struct tensor_map *m;
  struct tensor *out;
  TRY(map_in(ctx, &m));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  *T_DATA(out, bool) = find(m, ctx_in(ctx, 1)) != NULL;
  return NULL;
}

static shoal_status run_lookup(struct kernel_ctx *ctx) {
  struct tensor_map *m;
  TRY(map_in(ctx, &m));
  struct map_item *it = find(m, ctx_in(ctx, 1));
  if (!it) return missing(ctx, "lookup non-existent key");
  if (it->value.dtype != ctx_out_type(ctx, 0))
    return INVALID("The value of that key is of type %s, not %s", dtype_tf_name((shoal_dtype)it->value.dtype),
                   dtype_tf_name(ctx_out_type(ctx, 0)));
  struct tensor t;
  tensor_ref(&t, &it->value);
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status run_insert(struct kernel_ctx *ctx) {
  struct tensor_map *m, *changed;
  TRY(map_in(ctx, &m));
  TRY(check_key(ctx_in(ctx, 1)));
  if (m->items.n >= MAX_ITEMS) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "A TensorMap of %zu keys is full", m->items.n);
  TRY(map_change(ctx, m, &changed));
  put(changed, ctx_in(ctx, 1), ctx_in(ctx, 2));
  return NULL;
}

static shoal_status run_erase(struct kernel_ctx *ctx) {
  struct tensor_map *m, *changed;
  TRY(map_in(ctx, &m));
  if (!find(m, ctx_in(ctx, 1))) return missing(ctx, "erase non-existent item");
  TRY(map_change(ctx, m, &changed));
  drop(changed, find(changed, ctx_in(ctx, 1)));
  return NULL;
}

static shoal_status run_keys(struct kernel_ctx *ctx) {
  struct tensor_map *m;
  TRY(map_in(ctx, &m));
  if (m->items.n == 0) return INVALID("TensorMapStackKeys cannot be called on empty map.");
  const struct tensor *first = &m->items.at[0].key;
  for (size_t i = 0; i < m->items.n; i++) {
    const struct tensor *key = &m->items.at[i].key;
    if (key->dtype != ctx_out_type(ctx, 0)) return INVALID("Key does not match requested dtype.");
    if (!tensor_same_shape(key, first)) return INVALID("Keys must all have the same shape.");
  }
  if (first->rank == SHOAL_MAX_RANK) return INVALID("Keys of %d dimensions cannot be stacked", first->rank);
  int64_t dims[SHOAL_MAX_RANK] = {(int64_t)m->items.n};
  memcpy(dims + 1, first->dims, first->rank * sizeof *dims);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, first->rank + 1, dims, &out));
  size_t bytes = tensor_bytes(first);
  for (size_t i = 0; i < m->items.n; i++)
    elements_copy((shoal_dtype)out->dtype, (char *)out->data + i * bytes, m->items.at[i].key.data, first->n);
  return NULL;
}

#define CPU(run_)                         \
  (const struct kernel_def[]) {           \
    {.device = "CPU", .run = run_}, { 0 } \
  }

static const struct op_row rows[] = {
    {.name = "EmptyTensorMap",
     .out = "handle: variant",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = CPU(run_empty)},
    {.name = "TensorMapSize",
     .in = "input_handle: variant",
     .out = "size: int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = CPU(run_size)},
    {.name = "TensorMapLookup",
     .in = "input_handle: variant, key: key_dtype",
     .out = "value: value_dtype",
     .attrs = "key_dtype: type; value_dtype: type",
     .kernels = CPU(run_lookup)},
    {.name = "TensorMapInsert",
     .in = "input_handle: variant, key: key_dtype, value: value_dtype",
     .out = "output_handle: variant",
     .attrs = "key_dtype: type; value_dtype: type",
     .shape = shape_scalar_out,
     .kernels = CPU(run_insert)},
    {.name = "TensorMapErase",
     .in = "input_handle: variant, key: key_dtype",
     .out = "output_handle: variant",
     .attrs = "key_dtype: type; value_dtype: type",
     .shape = shape_scalar_out,
     .kernels = CPU(run_erase)},
    {.name = "TensorMapHasKey",
     .in = "input_handle: variant, key: key_dtype",
     .out = "has_key: bool",
     .attrs = "key_dtype: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = CPU(run_has)},
    {.name = "TensorMapStackKeys",
     .in = "input_handle: variant",
     .out = "keys: key_dtype",
     .attrs = "key_dtype: type",
     .flags = OP_NO_GRADIENT,
     .kernels = CPU(run_keys)},
};
OP_FAMILY(tensor_map, rows);
