/* Writing tensor bundles; see bundle.h. Tensors go to the data file as they come; the index is sorted and written
 * at the end, when all is known and the data are safely on disk. */
#include <string.h>

#include "base/crc32c.h"
#include "base/wire.h"
#include "checkpoint/bundle.h"
#include "checkpoint/table.h"
#include "proto/checkpoint.wire.h"
#include "proto/types.wire.h"

static void item_free(struct bundle_item *it) {
  bundle_entry_release(&it->entry);
  text_release(&it->value);
  free(it->key);
  free(it);
}

static void release(struct bundle_writer *w) {
  for (size_t i = 0; i < w->items.n; i++) item_free(w->items.at[i]);
  vec_release(&w->items);
  strmap_release(&w->by_key);
  free(w->prefix);
  w->prefix = NULL;
}

shoal_status bundle_writer_open(struct bundle_writer *w, const char *prefix) {
  *w = (struct bundle_writer){.data = {.fd = -1}};
  char *dir = path_directory(prefix), *data = bundle_data_path(prefix, 0, 1);
  shoal_status s = directory_make_one(dir);
  if (!s) s = file_writer_open(&w->data, data);
  free(dir);
  free(data);
  if (!s) w->prefix = mem_strdup(prefix);
  return s;
}

static struct bundle_item *item_new(struct bundle_writer *w, const char *key, size_t n) {
  struct bundle_item *it = mem_zalloc(1, sizeof *it);
  it->key = mem_alloc(n + 1);
  if (n) memcpy(it->key, key, n);
  it->key[n] = 0;
  it->key_n = n;
  vec_push(&w->items, it);
  if (n && !memchr(key, 0, n)) strmap_put(&w->by_key, it->key, it);
  return it;
}

static shoal_status duplicate(const char *key, size_t n) { return INVALID("Adding duplicate key: %.*s", (int)n, key); }

/* Checksum and copy of a piece at a time: what the one read is still in the cache for the other. */
static shoal_status put_plain(struct file_writer *f, const struct tensor *t, uint32_t *crc) {
  enum { PIECE = 128 << 10 };
  const char *at = t->data;
  for (size_t left = tensor_bytes(t), n; left; left -= n, at += n) {
    n = MIN(left, (size_t)PIECE);
    *crc = crc32c_extend(*crc, at, n);
    TRY(file_writer_add(f, at, n));
  }
  return NULL;
}

static shoal_status add(struct bundle_writer *w, const char *key, size_t n, const struct tensor *t) {
  if (n == 0) return INVALID("A tensor in a checkpoint needs a name");
  if (!memchr(key, 0, n) && strmap_getn(&w->by_key, key, n)) return duplicate(key, n);
  struct bundle_item *it = item_new(w, key, n);
  it->entry.dtype = (shoal_dtype)t->dtype;
  it->entry.shape = tensor_shape(t);
  it->entry.offset = w->data.offset;
  uint32_t crc = 0;
  if (t->dtype == SHOAL_STRING) {
    TRY(bundle_put_strings(&w->data, t, &crc));
  } else if (t->dtype == SHOAL_VARIANT) {
    TRY(bundle_put_variants(&w->data, t, &crc));
  } else if (dtype_plain((shoal_dtype)t->dtype)) {
    TRY(put_plain(&w->data, t, &crc));
  } else {
    return UNIMPLEMENTED("A checkpoint cannot hold %.*s, a tensor of type %s", (int)n, key, dtype_tf_name(t->dtype));
  }
  it->entry.size = w->data.offset - it->entry.offset;
  it->entry.crc = crc32c_mask(crc);
  return NULL;
}

shoal_status bundle_writer_add(struct bundle_writer *w, const char *name, size_t n, const struct tensor *t) {
  return add(w, name, n, t);
}

shoal_status bundle_writer_add_slice(struct bundle_writer *w, const char *name, size_t n, const struct shape *full,
                                     const struct slice *s, const struct tensor *t) {
  if (slice_is_whole(s, full)) return add(w, name, n, t);
  struct bundle_item *it = n && !memchr(name, 0, n) ? strmap_getn(&w->by_key, name, n) : NULL;
  if (!it) {
    it = item_new(w, name, n);
    it->entry.dtype = (shoal_dtype)t->dtype;
    it->entry.shape = *full;
  } else if (it->entry.dtype != (shoal_dtype)t->dtype || !shape_equal(&it->entry.shape, full) || it->entry.crc) {
    return duplicate(name, n);
  }
  vec_push(&it->entry.slices, *s);
  struct text key = {0};
  slice_key(name, n, s, &key);
  shoal_status e = add(w, key.at, key.n, t);
  text_release(&key);
  return e;
}

static int by_key(const void *a, const void *b) {
  const struct bundle_item *x = *(struct bundle_item *const *)a, *y = *(struct bundle_item *const *)b;
  int c = memcmp(x->key, y->key, MIN(x->key_n, y->key_n));
  return c ? c : (x->key_n > y->key_n) - (x->key_n < y->key_n);
}

static shoal_status write_index(struct bundle_writer *w) {
  if (w->items.n) qsort(w->items.at, w->items.n, sizeof *w->items.at, by_key);
  for (size_t i = 1; i < w->items.n; i++)
    if (by_key(&w->items.at[i - 1], &w->items.at[i]) == 0) return duplicate(w->items.at[i]->key, w->items.at[i]->key_n);
  char *path = bundle_index_path(w->prefix);
  struct table_writer table;
  shoal_status s = table_writer_open(&table, path);
  free(path);
  TRY(s);
  struct text value = {0};
  put_BundleHeaderProto_num_shards(&value, 1); /* one shard */
  size_t version = begin_BundleHeaderProto_version(&value);
  put_VersionDef_producer(&value, 1); /* producer */
  wire_end(&value, version);
  s = table_writer_add(&table, "", 0, value.at, value.n);
  for (size_t i = 0; !s && i < w->items.n; i++) {
    value.n = 0;
    bundle_entry_encode(&w->items.at[i]->entry, &value);
    s = table_writer_add(&table, w->items.at[i]->key, w->items.at[i]->key_n, value.at, value.n);
  }
  text_release(&value);
  if (!s) return table_writer_finish(&table);
  table_writer_abort(&table);
  return s;
}

shoal_status bundle_writer_finish(struct bundle_writer *w) {
  shoal_status s = file_writer_commit(&w->data);
  if (!s) s = write_index(w);
  release(w);
  return s;
}

void bundle_writer_abort(struct bundle_writer *w) {
  file_writer_abort(&w->data);
  release(w);
}
