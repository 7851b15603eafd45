/* Lookup tables: from keys to values, both rows of elements of one type.
 *
 * Three kinds. TABLE_FIXED is filled once, by an initializer. TABLE_MUTABLE grows and shrinks. TABLE_DENSE does too,
 * but is kept in two tensors of buckets that leave it as they are (exports are checkpoints): the place of a key in
 * them is part of the format, so its hash and its probing are TensorFlow's. */
#ifndef OPS_STATE_LOOKUP_H
#define OPS_STATE_LOOKUP_H

#include "ops/state/state.h"

enum lookup_kind { TABLE_FIXED, TABLE_MUTABLE, TABLE_DENSE };

struct lookup_table {
  struct resource head;
  enum lookup_kind kind;
  shoal_dtype key_dtype, value_dtype;
  struct shape key_shape, value_shape; /* of one */
  int64_t key_n, value_n;              /* elements of one */
  pthread_rwlock_t lock;
  /* lock: */
  bool initialized; /* TABLE_FIXED */
  int64_t n;        /* entries */
  /* fixed and mutable: entries side by side, and slots (open addressing) that hold an entry's number + 1 */
  char *keys, *values;
  uint64_t *hashes;
  int64_t cap;
  uint32_t *slots;
  int64_t n_slots;
  /* dense: */
  struct tensor key_buckets, value_buckets; /* [buckets, ...] */
  struct tensor empty_key, deleted_key;
  uint64_t empty_hash, deleted_hash;
  float max_load;
};
extern const struct resource_type lookup_type;

struct lookup_table *lookup_new(enum lookup_kind kind, shoal_dtype key_dtype, shoal_dtype value_dtype,
                                const struct shape *key_shape, const struct shape *value_shape);
/* Gives a dense table its buckets. */
shoal_status lookup_dense_init(struct lookup_table *t, const struct tensor *empty_key, const struct tensor *deleted_key,
                               int64_t buckets, float max_load);

/* All with the lock held, for writing where they change something; key and value point to rows of elements. */
/* The value's row; NULL when there is none. */
shoal_status lookup_find(struct lookup_table *t, const void *key, const void **value);
shoal_status lookup_put(struct lookup_table *t, const void *key, const void *value);
shoal_status lookup_remove(struct lookup_table *t, const void *key);
void lookup_clear(struct lookup_table *t);
/* A fixed table's entries never change: the same value again is fine, another is FAILED_PRECONDITION. */
shoal_status lookup_put_once(struct lookup_table *t, const void *key, const void *value);
/* Room for n more. */
shoal_status lookup_reserve(struct lookup_table *t, int64_t n);
/* Dense: the buckets as they are, and from outside. */
shoal_status lookup_dense_import(struct lookup_table *t, const struct tensor *keys, const struct tensor *values);

#endif
