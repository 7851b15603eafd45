/* Tensor bundles: checkpoints of TensorFlow's V2 format. Prefix P stands for P.index (a sorted string table of
 * names and entries) and P.data-00000-of-00001 and so on (the tensors' bytes, one after another).
 *
 * Files appear under their names only when complete, the index last. */
#ifndef CHECKPOINT_BUNDLE_H
#define CHECKPOINT_BUNDLE_H

#include "base/cancel.h"
#include "base/file.h"
#include "base/pool.h"
#include "base/strmap.h"
#include "checkpoint/slice.h"
#include "tensor/tensor.h"

/* P.data-SSSSS-of-NNNNN and P.index; the caller frees them. */
char *bundle_data_path(const char *prefix, int shard, int shards);
char *bundle_index_path(const char *prefix);

/* What the index says of one tensor. */
struct bundle_entry {
  shoal_dtype dtype;
  struct shape shape;
  int shard;
  int64_t offset, size;
  uint32_t crc;             /* masked */
  VEC(struct slice) slices; /* of a partitioned tensor; its data are in entries of their own */
};
void bundle_entry_release(struct bundle_entry *e);
void bundle_entry_encode(const struct bundle_entry *e, struct text *out);
shoal_status bundle_entry_decode(const char *key, const void *data, size_t n, struct bundle_entry *out);

/* ---- writing ---- */
struct bundle_writer {
  char *prefix;
  struct file_writer data;
  VEC(struct bundle_item *) items;
  struct strmap by_key; /* for names without NULs; duplicates of the others show when the index is written */
};
shoal_status bundle_writer_open(struct bundle_writer *w, const char *prefix);
shoal_status bundle_writer_add(struct bundle_writer *w, const char *name, size_t n, const struct tensor *t);
/* t is slice s of a tensor of shape full. */
shoal_status bundle_writer_add_slice(struct bundle_writer *w, const char *name, size_t n, const struct shape *full,
                                     const struct slice *s, const struct tensor *t);
/* Completes both files; frees w, also on an error. */
shoal_status bundle_writer_finish(struct bundle_writer *w);
void bundle_writer_abort(struct bundle_writer *w);

/* ---- reading ---- */
struct bundle_item {
  char *key;
  size_t key_n;
  struct text value;         /* reading: the entry's bytes */
  struct bundle_entry entry; /* writing */
};
struct bundle {
  char *prefix;
  int shards;
  int producer;
  VEC(struct bundle_item) items; /* in order of key; the header is not among them */
  struct file_reader *files;     /* [shards], opened when first needed */
  size_t counted;                /* bytes of the items, in the account of strings */
  struct pool *pool;             /* large tensors are read on its threads; NULL: on the caller's alone */
};
/* NOT_FOUND when there is no index. */
shoal_status bundle_open(struct bundle *b, const char *prefix);
void bundle_close(struct bundle *b);
/* The entry of a key; NOT_FOUND "Key x not found in checkpoint". Release it. */
shoal_status bundle_find(const struct bundle *b, const char *key, size_t n, struct bundle_entry *out);
/* The whole tensor, put together from slices if need be. */
shoal_status bundle_read(struct bundle *b, const char *key, size_t n, struct tensor *out);
/* The part that slice s is of the tensor. */
shoal_status bundle_read_slice(struct bundle *b, const char *key, size_t n, const struct slice *s, struct tensor *out);

/* Makes one bundle of several by renaming their data files and joining their indices; cancel (may be NULL) ends it
 * before the first is renamed. */
shoal_status bundle_merge(const char *const *prefixes, int n, const char *merged, bool allow_missing,
                          struct cancel *cancel);
/* The same, and some tensors get a second name: an entry of the index for the same bytes. */
struct bundle_alias {
  const char *name, *slice; /* "" for all of it, else which part, as RestoreV2 has it */
  const char *alias;
};
shoal_status bundle_merge_named(const char *const *prefixes, int n, const char *merged, bool allow_missing,
                                struct cancel *cancel, const struct bundle_alias *aliases, int n_aliases);

/* ---- the encoding of strings and the like in data files ---- */
shoal_status bundle_put_strings(struct file_writer *f, const struct tensor *t, uint32_t *crc);
shoal_status bundle_get_strings(const struct file_reader *f, int64_t offset, int64_t size, struct tensor *t,
                                uint32_t *crc);
shoal_status bundle_put_variants(struct file_writer *f, const struct tensor *t, uint32_t *crc);
shoal_status bundle_get_variants(const struct file_reader *f, int64_t offset, int64_t size, struct tensor *t,
                                 uint32_t *crc);

#endif
