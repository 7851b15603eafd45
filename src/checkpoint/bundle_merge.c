/* Joining the bundles that the tasks of a cluster wrote: data files are renamed, not copied, and one index takes the
 * place of many. Shards are numbered in the order in which entries first name them. What is kept of the indices is in
 * the account of strings, and as long as they are read nothing has changed: there a merge may be cancelled. */
#include <string.h>

#include "base/wire.h"
#include "checkpoint/bundle.h"
#include "checkpoint/table.h"
#include "proto/checkpoint.wire.h"
#include "proto/types.wire.h"
#include "tensor/strings.h"

struct merge {
  VEC(struct bundle_item *) items;
  struct strmap by_key;
  VEC(char *) files;     /* data files in order of their new shard numbers */
  struct strmap by_path; /* of files: 1 + the number */
  int producer;
  int bundles;
  size_t counted; /* bytes of all this, in the account of strings */
};

static void release(struct merge *m) {
  for (size_t i = 0; i < m->items.n; i++) {
    bundle_entry_release(&m->items.at[i]->entry);
    free(m->items.at[i]->key);
    free(m->items.at[i]);
  }
  vec_release(&m->items);
  strmap_release(&m->by_key);
  for (size_t i = 0; i < m->files.n; i++) free(m->files.at[i]);
  vec_release(&m->files);
  strmap_release(&m->by_path);
  strings_count(-(int64_t)m->counted);
}

static shoal_status count(struct merge *m, size_t bytes) {
  if (!strings_have_room(bytes)) return NO_MEMORY(bytes, "the index of a merged checkpoint");
  m->counted += bytes;
  strings_count((int64_t)bytes);
  return NULL;
}

static shoal_status number_shard(struct merge *m, const char *prefix, int shards, int *shard) {
  char *path = bundle_data_path(prefix, *shard, shards);
  uintptr_t number = (uintptr_t)strmap_get(&m->by_path, path);
  shoal_status s = number ? NULL : count(m, 2 * strlen(path) + sizeof(struct strmap_entry));
  if (number || s) {
    free(path);
  } else {
    vec_push(&m->files, path);
    number = m->files.n;
    strmap_put(&m->by_path, path, (void *)number);
  }
  *shard = (int)number - 1;
  return s;
}

static shoal_status add(struct merge *m, const char *prefix, struct bundle_item *it, struct bundle_entry *e) {
  bool plain = it->key_n && !memchr(it->key, 0, it->key_n);
  struct bundle_item *had = plain ? strmap_get(&m->by_key, it->key) : NULL;
  TRY(count(m, e->slices.n * sizeof *e->slices.at));
  if (had) {
    if (!e->slices.n || !had->entry.slices.n)
      return INVALID("Duplicate tensor keyed by %s encountered, when merging prefix: %s", it->key, prefix);
    if (e->dtype != had->entry.dtype || !shape_equal(&e->shape, &had->entry.shape))
      return INVALID("Slices of %s disagree on its type or shape, when merging prefix: %s", it->key, prefix);
    for (size_t i = 0; i < e->slices.n; i++) vec_push(&had->entry.slices, e->slices.at[i]);
    bundle_entry_release(e);
    return NULL;
  }
  TRY(count(m, sizeof *it + sizeof(struct strmap_entry) + (size_t)2 * it->key_n)); /* the map has its own copy */
  struct bundle_item *kept = mem_zalloc(1, sizeof *kept);
  kept->key = it->key;
  kept->key_n = it->key_n;
  it->key = NULL;
  kept->entry = *e;
  *e = (struct bundle_entry){0};
  vec_push(&m->items, kept);
  if (plain) strmap_put(&m->by_key, kept->key, kept);
  return NULL;
}

static shoal_status merge_one(struct merge *m, const char *prefix, bool allow_missing, struct cancel *cancel) {
  struct bundle b;
  if (cancel && cancel_started(cancel)) return cancel_reason(cancel);
  shoal_status s = bundle_open(&b, prefix);
  if (s && allow_missing && shoal_status_code(s) == SHOAL_NOT_FOUND) {
    shoal_status_free(s);
    return NULL;
  }
  TRY(s);
  if (m->bundles && m->producer != b.producer)
    s = INVALID("Merging bundles with different format versions: merged %d vs. curr %d", m->producer, b.producer);
  m->producer = b.producer;
  m->bundles++;
  for (size_t i = 0; !s && i < b.items.n; i++) {
    struct bundle_item *it = &b.items.at[i];
    struct bundle_entry e;
    if (cancel && cancel_started(cancel)) s = cancel_reason(cancel);
    if (!s) s = bundle_entry_decode(it->key, it->value.at, it->value.n, &e);
    if (s) break;
    if (e.shard < 0 || e.shard >= b.shards)
      s = STATUS(SHOAL_DATA_LOSS, "Checkpoint %s has %d shards, not one number %d", prefix, b.shards, e.shard);
    else s = number_shard(m, prefix, b.shards, &e.shard);
    if (!s) s = add(m, prefix, it, &e);
    if (s) bundle_entry_release(&e);
  }
  bundle_close(&b);
  return s;
}

static int by_key(const void *a, const void *b) {
  const struct bundle_item *x = *(struct bundle_item *const *)a, *y = *(struct bundle_item *const *)b;
  int c = memcmp(x->key, y->key, MIN(x->key_n, y->key_n));
  return c ? c : (x->key_n > y->key_n) - (x->key_n < y->key_n);
}

static shoal_status write_index(struct merge *m, const char *merged) {
  if (m->items.n) qsort(m->items.at, m->items.n, sizeof *m->items.at, by_key);
  char *path = bundle_index_path(merged);
  struct table_writer table;
  shoal_status s = table_writer_open(&table, path);
  free(path);
  TRY(s);
  struct text value = {0};
  if (m->files.n) put_BundleHeaderProto_num_shards(&value, m->files.n);
  size_t version = begin_BundleHeaderProto_version(&value);
  if (m->producer) put_VersionDef_producer(&value, m->producer);
  wire_end(&value, version);
  s = table_writer_add(&table, "", 0, value.at, value.n);
  for (size_t i = 0; !s && i < m->items.n; i++) {
    struct bundle_item *it = m->items.at[i];
    if (i && by_key(&m->items.at[i - 1], &m->items.at[i]) == 0)
      s = INVALID("Duplicate tensor slice encountered, when merging into prefix: %s", merged);
    value.n = 0;
    bundle_entry_encode(&it->entry, &value);
    if (!s) s = table_writer_add(&table, it->key, it->key_n, value.at, value.n);
  }
  text_release(&value);
  if (!s) return table_writer_finish(&table);
  table_writer_abort(&table);
  return s;
}

/* The entry that has the bytes of a tensor, or of a slice of one; NULL: there is none. */
static const struct bundle_item *find_bytes(const struct merge *m, const struct bundle_alias *a) {
  const struct bundle_item *it = strmap_get(&m->by_key, a->name), *found = NULL;
  struct shape full, part;
  struct slice slice;
  if (!it || !it->entry.slices.n) return it;
  shoal_status bad = slice_parse(a->slice, strlen(a->slice), &full, &slice, &part);
  if (!bad) {
    struct text key = {0};
    slice_key(a->name, strlen(a->name), &slice, &key);
    for (size_t i = 0; i < m->items.n && !found; i++)
      if (m->items.at[i]->key_n == key.n && !memcmp(m->items.at[i]->key, key.at, key.n)) found = m->items.at[i];
    text_release(&key);
  }
  shoal_status_free(bad);
  return found;
}

/* An entry of another name for the same bytes. */
static shoal_status add_alias(struct merge *m, const struct bundle_alias *a) {
  const struct bundle_item *had = find_bytes(m, a);
  if (!had) return NOT_FOUND("there is no tensor '%s' %s to be called '%s'", a->name, a->slice, a->alias);
  if (strmap_get(&m->by_key, a->alias)) return INVALID("there is a tensor '%s' already", a->alias);
  struct bundle_item *other = mem_zalloc(1, sizeof *other);
  other->key = mem_strdup(a->alias);
  other->key_n = strlen(a->alias);
  other->entry = had->entry;
  other->entry.slices = (__typeof__(other->entry.slices)){0};
  vec_push(&m->items, other);
  strmap_put(&m->by_key, other->key, other);
  return NULL;
}

shoal_status bundle_merge(const char *const *prefixes, int n, const char *merged, bool allow_missing,
                          struct cancel *cancel) {
  return bundle_merge_named(prefixes, n, merged, allow_missing, cancel, NULL, 0);
}

shoal_status bundle_merge_named(const char *const *prefixes, int n, const char *merged, bool allow_missing,
                                struct cancel *cancel, const struct bundle_alias *aliases, int n_aliases) {
  struct merge m = {0};
  char *dir = path_directory(merged);
  shoal_status s = directory_make_one(dir);
  free(dir);
  for (int i = 0; !s && i < n; i++) s = merge_one(&m, prefixes[i], allow_missing, cancel);
  for (int i = 0; !s && i < n_aliases; i++) s = add_alias(&m, &aliases[i]);
  for (size_t i = 0; !s && i < m.files.n; i++) {
    char *to = bundle_data_path(merged, (int)i, (int)m.files.n);
    s = file_rename(m.files.at[i], to);
    free(to);
  }
  if (!s) s = write_index(&m, merged);
  for (int i = 0; !s && i < n; i++) { /* their indices name files that are no longer there */
    if (strcmp(prefixes[i], merged) == 0) continue;
    char *index = bundle_index_path(prefixes[i]);
    shoal_status_free(file_remove(index));
    free(index);
  }
  release(&m);
  return s;
}
