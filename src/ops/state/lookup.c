/* Lookup tables. */
#include "ops/state/lookup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "ops/math/to_integer.h"
#include "tensor/summarize.h"

static void free_entries(struct lookup_table *t) {
  if (!dtype_plain(t->key_dtype))
    elements_destroy(t->key_dtype, t->keys, (size_t)(t->n * t->key_n) * dtype_size(t->key_dtype));
  if (!dtype_plain(t->value_dtype))
    elements_destroy(t->value_dtype, t->values, (size_t)(t->n * t->value_n) * dtype_size(t->value_dtype));
  t->n = 0;
}

static void free_table(struct resource *r) {
  struct lookup_table *t = (struct lookup_table *)r;
  if (t->kind != TABLE_DENSE) free_entries(t);
  free(t->keys);
  free(t->values);
  free(t->hashes);
  free(t->slots);
  struct tensor *held[] = {&t->key_buckets, &t->value_buckets, &t->empty_key, &t->deleted_key};
  for (size_t i = 0; i < COUNT_OF(held); i++)
    if (tensor_valid(held[i])) tensor_release(held[i]);
  pthread_rwlock_destroy(&t->lock);
  free(t);
}

const struct resource_type lookup_type = {"N10tensorflow6lookup15LookupInterfaceE", "lookup table", free_table};

struct lookup_table *lookup_new(enum lookup_kind kind, shoal_dtype key_dtype, shoal_dtype value_dtype,
                                const struct shape *key_shape, const struct shape *value_shape) {
  struct lookup_table *t = mem_zalloc(1, sizeof *t);
  resource_init(&t->head, &lookup_type);
  pthread_rwlock_init(&t->lock, NULL);
  t->kind = kind;
  t->key_dtype = key_dtype;
  t->value_dtype = value_dtype;
  t->key_shape = *key_shape;
  t->value_shape = *value_shape;
  t->key_n = t->value_n = 1;
  for (int d = 0; d < key_shape->rank; d++) t->key_n *= key_shape->dims[d];
  for (int d = 0; d < value_shape->rank; d++) t->value_n *= value_shape->dims[d];
  return t;
}

static bool same_key(const struct lookup_table *t, const void *a, const void *b) {
  if (t->key_dtype != SHOAL_STRING) return memcmp(a, b, (size_t)t->key_n * dtype_size(t->key_dtype)) == 0;
  const struct str *x = a, *y = b;
  for (int64_t i = 0; i < t->key_n; i++)
    if (x[i].size != y[i].size || memcmp(str_data(&x[i]), str_data(&y[i]), x[i].size) != 0) return false;
  return true;
}

/* ---- fixed and mutable ---- */

static uint64_t hash_of(const struct lookup_table *t, const void *key) {
  if (t->key_dtype == SHOAL_STRING) {
    const struct str *s = key;
    return hash_bytes(str_data(s), s->size, 17);
  }
  return hash_bytes(key, (size_t)t->key_n * dtype_size(t->key_dtype), 17);
}

static char *key_at(const struct lookup_table *t, int64_t i) {
  return t->keys + (size_t)(i * t->key_n) * dtype_size(t->key_dtype);
}
static char *value_at(const struct lookup_table *t, int64_t i) {
  return t->values + (size_t)(i * t->value_n) * dtype_size(t->value_dtype);
}

/* The slot of key: of its entry, or the free one where it would go. */
static int64_t slot_of(const struct lookup_table *t, const void *key, uint64_t hash) {
  int64_t mask = t->n_slots - 1, i = (int64_t)hash & mask;
  for (; t->slots[i]; i = (i + 1) & mask) {
    int64_t e = (int64_t)t->slots[i] - 1;
    if (t->hashes[e] == hash && same_key(t, key_at(t, e), key)) break;
  }
  return i;
}

static shoal_status resize(void *array, size_t old, size_t now, size_t size) {
  void **at = array;
  void *p = realloc(*at, MAX(now * size, 1));
  if (!p) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory for a table of %zu entries", now);
  memset((char *)p + old * size, 0, (now - old) * size);
  *at = p;
  return NULL;
}

static shoal_status dense_reserve(struct lookup_table *t, int64_t more);

shoal_status lookup_reserve(struct lookup_table *t, int64_t more) {
  int64_t want;
  if (t->kind == TABLE_DENSE) return dense_reserve(t, more);
  if (__builtin_add_overflow(t->n, more, &want) || want > UINT32_MAX / 4)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "A table of %" PRId64 " entries is too large", more);
  if (want > t->cap) {
    int64_t cap = MAX(want, t->cap ? t->cap * 2 : 16);
    size_t old = (size_t)t->cap, now = (size_t)cap;
    TRY(resize(&t->keys, old, now, (size_t)t->key_n * dtype_size(t->key_dtype)));
    TRY(resize(&t->values, old, now, (size_t)t->value_n * dtype_size(t->value_dtype)));
    TRY(resize(&t->hashes, old, now, sizeof *t->hashes));
    t->cap = cap;
  }
  if (want * 2 <= t->n_slots) return NULL;
  int64_t n_slots = t->n_slots ? t->n_slots : 32;
  while (n_slots < want * 2) n_slots *= 2;
  uint32_t *slots = calloc((size_t)n_slots, sizeof *slots);
  if (!slots) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory for a table of %" PRId64 " entries", want);
  for (int64_t e = 0; e < t->n; e++) {
    int64_t i = (int64_t)t->hashes[e] & (n_slots - 1);
    while (slots[i]) i = (i + 1) & (n_slots - 1);
    slots[i] = (uint32_t)e + 1;
  }
  free(t->slots);
  t->slots = slots;
  t->n_slots = n_slots;
  return NULL;
}

static shoal_status map_put(struct lookup_table *t, const void *key, const void *value) {
  TRY(lookup_reserve(t, 1));
  uint64_t hash = hash_of(t, key);
  int64_t slot = slot_of(t, key, hash), e = (int64_t)t->slots[slot] - 1;
  if (e < 0) {
    e = t->n++;
    t->slots[slot] = (uint32_t)e + 1;
    t->hashes[e] = hash;
    elements_copy(t->key_dtype, key_at(t, e), key, t->key_n);
  }
  elements_copy(t->value_dtype, value_at(t, e), value, t->value_n);
  return NULL;
}

/* Closes the gap in a chain of slots. */
static void free_slot(struct lookup_table *t, int64_t hole) {
  int64_t mask = t->n_slots - 1;
  for (int64_t i = (hole + 1) & mask; t->slots[i]; i = (i + 1) & mask) {
    int64_t home = (int64_t)t->hashes[t->slots[i] - 1] & mask;
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    t->slots[hole] = t->slots[i];
    hole = i;
  }
  t->slots[hole] = 0;
}

/* The last entry takes the place of the one that goes. */
static void map_remove(struct lookup_table *t, const void *key) {
  if (!t->n) return;
  int64_t slot = slot_of(t, key, hash_of(t, key)), e = (int64_t)t->slots[slot] - 1, last = t->n - 1;
  if (e < 0) return;
  if (e != last) t->slots[slot_of(t, key_at(t, last), t->hashes[last])] = (uint32_t)e + 1;
  elements_copy(t->key_dtype, key_at(t, e), key_at(t, last), t->key_n);
  elements_copy(t->value_dtype, value_at(t, e), value_at(t, last), t->value_n);
  uint64_t moved = t->hashes[last];
  /* While the slot is freed, hashes must be those of the entries that the slots name. */
  t->hashes[e] = moved;
  t->slots[slot] = 0;
  free_slot(t, slot);
  size_t ks = (size_t)t->key_n * dtype_size(t->key_dtype), vs = (size_t)t->value_n * dtype_size(t->value_dtype);
  if (!dtype_plain(t->key_dtype)) elements_destroy(t->key_dtype, key_at(t, last), ks);
  if (!dtype_plain(t->value_dtype)) elements_destroy(t->value_dtype, value_at(t, last), vs);
  memset(key_at(t, last), 0, ks);
  memset(value_at(t, last), 0, vs);
  t->n--;
}

shoal_status lookup_put_once(struct lookup_table *t, const void *key, const void *value) {
  const void *old;
  TRY(lookup_find(t, key, &old));
  if (!old) return lookup_put(t, key, value);
  struct text k = {0}, a = {0}, b = {0};
  element_print(t->key_dtype, key, &k);
  element_print(t->value_dtype, old, &a);
  element_print(t->value_dtype, value, &b);
  shoal_status s = NULL;
  if (strcmp(text_cstr(&a), text_cstr(&b)) != 0)
    s = STATUS(SHOAL_FAILED_PRECONDITION,
               "HashTable has different value for same key. Key %s has %s and trying to add value %s", text_cstr(&k),
               text_cstr(&a), text_cstr(&b));
  text_release(&k);
  text_release(&a);
  text_release(&b);
  return s;
}

void lookup_clear(struct lookup_table *t) {
  free_entries(t);
  if (t->slots) memset(t->slots, 0, (size_t)t->n_slots * sizeof *t->slots);
  if (t->keys) memset(t->keys, 0, (size_t)(t->cap * t->key_n) * dtype_size(t->key_dtype));
  if (t->values) memset(t->values, 0, (size_t)(t->cap * t->value_n) * dtype_size(t->value_dtype));
}

/* ---- dense ---- */

static uint64_t hash_element(shoal_dtype dtype, const void *at) {
  switch (dtype) {
    case SHOAL_STRING: {
      const struct str *s = at;
      return hash64_stable(str_data(s), s->size);
    }
    case SHOAL_INT64: return (uint64_t) * (const int64_t *)at;
    case SHOAL_INT32: return (uint64_t)(int64_t) * (const int32_t *)at;
    case SHOAL_FLOAT32: return float_to_u64(*(const float *)at);
    case SHOAL_FLOAT64: return double_to_u64(*(const double *)at);
    default: {
      uint64_t bits = 0;
      memcpy(&bits, at, MIN(dtype_size(dtype), sizeof bits));
      return bits;
    }
  }
}

static uint64_t dense_hash(const struct lookup_table *t, const void *key) {
  size_t size = dtype_size(t->key_dtype);
  if (t->key_n == 1) return hash_element(t->key_dtype, key);
  uint64_t h = 0;
  for (int64_t i = 0; i < t->key_n; i++)
    h = hash64_combine(h, hash_element(t->key_dtype, (const char *)key + (size_t)i * size));
  return h;
}

static char *bucket_key(const struct lookup_table *t, int64_t i) {
  return (char *)t->key_buckets.data + (size_t)(i * t->key_n) * dtype_size(t->key_dtype);
}
static char *bucket_value(const struct lookup_table *t, int64_t i) {
  return (char *)t->value_buckets.data + (size_t)(i * t->value_n) * dtype_size(t->value_dtype);
}

static shoal_status new_buckets(struct lookup_table *t, int64_t buckets, struct tensor *keys, struct tensor *values) {
  if (buckets < 4 || (buckets & (buckets - 1)) != 0)
    return INVALID("Number of buckets must be at least 4 and a power of 2, got: %" PRId64, buckets);
  TRY(tensor_new_dims(keys, t->key_dtype, 2, (int64_t[]){buckets, t->key_n}));
  shoal_status s = tensor_new_dims(values, t->value_dtype, 2, (int64_t[]){buckets, t->value_n});
  if (s) {
    tensor_release(keys);
    return s;
  }
  size_t row = (size_t)t->key_n * dtype_size(t->key_dtype);
  for (int64_t i = 0; i < buckets; i++)
    elements_copy(t->key_dtype, (char *)keys->data + (size_t)i * row, t->empty_key.data, t->key_n);
  tensor_zero(values);
  return NULL;
}

shoal_status lookup_dense_init(struct lookup_table *t, const struct tensor *empty_key, const struct tensor *deleted_key,
                               int64_t buckets, float max_load) {
  tensor_ref(&t->empty_key, empty_key);
  tensor_ref(&t->deleted_key, deleted_key);
  t->empty_hash = dense_hash(t, empty_key->data);
  t->deleted_hash = dense_hash(t, deleted_key->data);
  t->max_load = max_load;
  if (!(max_load > 0 && max_load < 1))
    return INVALID("max_load_factor must be between 0 and 1, got: %g", (double)max_load);
  if (same_key(t, empty_key->data, deleted_key->data)) return INVALID("Empty and deleted keys cannot be equal");
  return new_buckets(t, buckets, &t->key_buckets, &t->value_buckets);
}

static shoal_status check_dense_key(const struct lookup_table *t, const void *key, uint64_t hash) {
  if (hash == t->empty_hash && same_key(t, key, t->empty_key.data))
    return INVALID("Using the empty_key as a table key is not allowed");
  if (hash == t->deleted_hash && same_key(t, key, t->deleted_key.data))
    return INVALID("Using the deleted_key as a table key is not allowed");
  return NULL;
}

/* The key's bucket, or -1; *place is where it would go. */
static shoal_status dense_probe(const struct lookup_table *t, const void *key, uint64_t hash, int64_t *found,
                                int64_t *place) {
  int64_t buckets = t->key_buckets.dims[0], mask = buckets - 1, i = (int64_t)(hash & (uint64_t)mask);
  *found = *place = -1;
  for (int64_t probes = 0; probes < buckets;) {
    if (same_key(t, bucket_key(t, i), key)) {
      *found = i;
      return NULL;
    }
    bool empty = same_key(t, bucket_key(t, i), t->empty_key.data);
    if (*place < 0 && (empty || same_key(t, bucket_key(t, i), t->deleted_key.data))) *place = i;
    if (empty) return NULL;
    probes++;
    i = (i + probes) & mask;
  }
  return *place >= 0 ? NULL : INTERNAL("Internal error in MutableDenseHashTable lookup");
}

static shoal_status own_buckets(struct lookup_table *t) { /* an export may still hold them */
  struct tensor *both[] = {&t->key_buckets, &t->value_buckets};
  for (int i = 0; i < 2; i++) {
    struct tensor own;
    if (tensor_writable(both[i])) continue;
    TRY(tensor_copy(&own, both[i]));
    tensor_release(both[i]);
    tensor_move(both[i], &own);
  }
  return NULL;
}

static shoal_status dense_put(struct lookup_table *t, const void *key, const void *value) {
  uint64_t hash = dense_hash(t, key);
  int64_t found, place;
  TRY(check_dense_key(t, key, hash));
  TRY(own_buckets(t));
  TRY(dense_probe(t, key, hash, &found, &place));
  if (found < 0) {
    found = place;
    elements_copy(t->key_dtype, bucket_key(t, found), key, t->key_n);
    t->n++;
  }
  elements_copy(t->value_dtype, bucket_value(t, found), value, t->value_n);
  return NULL;
}

/* Room for `more` keys, all of them taken for new ones, as TensorFlow does: the number of buckets is seen outside. */
static shoal_status dense_reserve(struct lookup_table *t, int64_t more) {
  int64_t buckets = t->key_buckets.dims[0], want = buckets;
  while ((double)t->n + (double)more > (double)want * (double)t->max_load) {
    if (want > INT64_MAX / 4) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "The table is too large");
    want *= 2;
  }
  if (want == buckets) return NULL;
  struct tensor keys, values, old_keys = t->key_buckets, old_values = t->value_buckets;
  TRY(new_buckets(t, want, &keys, &values));
  t->key_buckets = keys;
  t->value_buckets = values;
  t->n = 0;
  size_t ks = (size_t)t->key_n * dtype_size(t->key_dtype), vs = (size_t)t->value_n * dtype_size(t->value_dtype);
  shoal_status s = NULL;
  for (int64_t i = 0; i < buckets && !s; i++) {
    const char *key = (const char *)old_keys.data + (size_t)i * ks;
    if (same_key(t, key, t->empty_key.data) || same_key(t, key, t->deleted_key.data)) continue;
    s = dense_put(t, key, (const char *)old_values.data + (size_t)i * vs);
  }
  tensor_release(&old_keys);
  tensor_release(&old_values);
  return s;
}

shoal_status lookup_dense_import(struct lookup_table *t, const struct tensor *keys, const struct tensor *values) {
  int64_t buckets = keys->rank ? keys->dims[0] : 0;
  struct shape ks = tensor_shape(keys), vs = tensor_shape(values);
  if (buckets < 4 || (buckets & (buckets - 1)) != 0)
    return INVALID("Number of buckets must be at least 4 and a power of 2, got: %" PRId64, buckets);
  if (keys->n != buckets * t->key_n || values->rank < 1 || values->dims[0] != buckets ||
      values->n != buckets * t->value_n)
    return INVALID("Keys of shape %s and values of shape %s are no buckets of this table", shape_str(&ks),
                   shape_str(&vs));
  tensor_release(&t->key_buckets);
  tensor_release(&t->value_buckets);
  tensor_ref(&t->key_buckets, keys);
  tensor_ref(&t->value_buckets, values);
  t->n = 0;
  for (int64_t i = 0; i < buckets; i++)
    t->n += !same_key(t, bucket_key(t, i), t->empty_key.data) && !same_key(t, bucket_key(t, i), t->deleted_key.data);
  return NULL;
}

/* ---- all kinds ---- */

shoal_status lookup_find(struct lookup_table *t, const void *key, const void **value) {
  *value = NULL;
  if (t->kind == TABLE_DENSE) {
    uint64_t hash = dense_hash(t, key);
    int64_t found, place;
    TRY(check_dense_key(t, key, hash));
    TRY(dense_probe(t, key, hash, &found, &place));
    if (found >= 0) *value = bucket_value(t, found);
  } else if (t->n) {
    uint32_t e = t->slots[slot_of(t, key, hash_of(t, key))];
    if (e) *value = value_at(t, (int64_t)e - 1);
  }
  return NULL;
}

shoal_status lookup_put(struct lookup_table *t, const void *key, const void *value) {
  return t->kind == TABLE_DENSE ? dense_put(t, key, value) : map_put(t, key, value);
}

shoal_status lookup_remove(struct lookup_table *t, const void *key) {
  if (t->kind != TABLE_DENSE) {
    map_remove(t, key);
    return NULL;
  }
  uint64_t hash = dense_hash(t, key);
  int64_t found, place;
  TRY(check_dense_key(t, key, hash));
  TRY(own_buckets(t));
  TRY(dense_probe(t, key, hash, &found, &place));
  if (found < 0) return NULL;
  elements_copy(t->key_dtype, bucket_key(t, found), t->deleted_key.data, t->key_n);
  t->n--;
  return NULL;
}
