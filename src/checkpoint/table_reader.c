/* Reading sorted string tables; table.h has the layout. A file is hostile until its checksums and every length in
 * it have been checked: nothing is allocated for a size that the file itself could not hold. That goes for all keys of
 * a block together too, each of which may repeat a long one with a few bytes. */
#include <string.h>

#include "base/crc32c.h"
#include "base/snappy.h"
#include "base/wire.h"
#include "checkpoint/table.h"

enum { FOOTER = 48, TRAILER = 5, STORED = 0, SNAPPY = 1, KEYS_FREE = 64 << 10 };
#define MAGIC 0xdb4775248b80fb57ull

#define LOST(t, ...) status_prefix(STATUS(SHOAL_DATA_LOSS, __VA_ARGS__), "%s: ", (t)->file.path)

static uint32_t get32(const char *p) {
  const unsigned char *b = (const unsigned char *)p;
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* A block's contents, checked against its checksum; the caller frees them. */
static shoal_status read_block(const struct table *t, uint64_t offset, uint64_t size, char **out, size_t *n) {
  uint64_t file = (uint64_t)t->file.size;
  if (size > file || offset > file || size + TRAILER > file - offset)
    return LOST(t, "truncated block read: a block of %llu bytes at %llu in a file of %llu", (unsigned long long)size,
                (unsigned long long)offset, (unsigned long long)file);
  char *at = mem_try_alloc(size + TRAILER);
  if (!at) return NO_MEMORY(size, t->file.path);
  shoal_status s = file_reader_get(&t->file, (int64_t)offset, at, size + TRAILER);
  if (!s && crc32c_mask(crc32c(at, size + 1)) != get32(at + size + 1)) s = LOST(t, "block checksum mismatch");
  if (!s && at[size] == SNAPPY) {
    char *plain = NULL;
    s = status_prefix(snappy_decode(at, size, &plain, n), "%s: ", t->file.path);
    if (!s) {
      free(at);
      *out = plain;
      return NULL;
    }
  } else if (!s && at[size] != STORED) {
    s = LOST(t, "bad block type %d", at[size]);
  }
  if (s) {
    free(at);
    return s;
  }
  *out = at;
  *n = size;
  return NULL;
}

/* Calls fn for the entries of a block. */
static shoal_status each_entry(const struct table *t, const char *block, size_t n, table_visit *fn, void *arg) {
  if (n < 4) return LOST(t, "bad block contents");
  uint64_t restarts = get32(block + n - 4);
  if (restarts > (n - 4) / 4) return LOST(t, "bad block contents");
  struct wire w = wire_from(block, n - 4 - 4 * restarts);
  struct text key = {0};
  size_t keys = 0, most = n * TABLE_MOST_SHARED + KEYS_FREE;
  shoal_status s = NULL;
  while (!s && w.at < w.end) {
    uint64_t shared, unshared, value;
    if (!wire_get_varint(&w, &shared) || !wire_get_varint(&w, &unshared) || !wire_get_varint(&w, &value) ||
        shared > key.n || unshared > wire_left(&w) || value > wire_left(&w) - unshared) {
      s = LOST(t, "bad entry in block");
      break;
    }
    if ((keys += shared + unshared) > most) {
      s = LOST(t, "bad entry in block: its keys repeat more than a block may");
      break;
    }
    key.n = shared;
    if (!text_try_add(&key, (const char *)w.at, unshared)) {
      s = NO_MEMORY(unshared, "a key");
      break;
    }
    w.at += unshared;
    const char *v = (const char *)w.at;
    w.at += value;
    s = fn(arg, key.at, key.n, v, value);
  }
  text_release(&key);
  return s;
}

static shoal_status add_block(void *arg, const char *key, size_t key_n, const char *value, size_t n) {
  struct table *t = arg;
  struct wire w = wire_from(value, n);
  uint64_t offset, size;
  if (!wire_get_varint(&w, &offset) || !wire_get_varint(&w, &size)) return LOST(t, "bad block handle");
  char *copy = mem_try_strndup(key, key_n);
  if (!copy) return NO_MEMORY(key_n, "a key");
  vec_push(&t->blocks, (struct table_block){copy, key_n, offset, size});
  return NULL;
}

shoal_status table_open(struct table *t, const char *path) {
  *t = (struct table){0};
  TRY(file_reader_open(&t->file, path));
  shoal_status s = NULL;
  char footer[FOOTER];
  if (t->file.size < FOOTER) s = LOST(t, "file is too short to be an sstable");
  else s = file_reader_get(&t->file, t->file.size - FOOTER, footer, FOOTER);
  if (!s && ((uint64_t)get32(footer + 40) | (uint64_t)get32(footer + 44) << 32) != MAGIC)
    s = LOST(t, "not an sstable (bad magic number)");
  if (!s) {
    struct wire w = wire_from(footer, FOOTER - 8);
    uint64_t meta_offset, meta_size, offset, size;
    char *block;
    size_t n;
    if (!wire_get_varint(&w, &meta_offset) || !wire_get_varint(&w, &meta_size) || !wire_get_varint(&w, &offset) ||
        !wire_get_varint(&w, &size)) {
      s = LOST(t, "bad footer");
    } else if (!(s = read_block(t, offset, size, &block, &n))) {
      s = each_entry(t, block, n, add_block, t);
      free(block);
    }
  }
  if (s) table_close(t);
  return s;
}

void table_close(struct table *t) {
  for (size_t i = 0; i < t->blocks.n; i++) free(t->blocks.at[i].key);
  vec_release(&t->blocks);
  file_reader_close(&t->file);
}

shoal_status table_each(const struct table *t, table_visit *fn, void *arg) {
  for (size_t i = 0; i < t->blocks.n; i++) {
    char *block = NULL;
    size_t n;
    TRY(read_block(t, t->blocks.at[i].offset, t->blocks.at[i].size, &block, &n));
    shoal_status s = each_entry(t, block, n, fn, arg);
    free(block);
    TRY(s);
  }
  return NULL;
}

static int compare(const void *a, size_t an, const void *b, size_t bn) {
  int c = memcmp(a, b, MIN(an, bn));
  return c ? c : (an > bn) - (an < bn);
}

struct table_search {
  const void *key;
  size_t key_n;
  char *value;
  size_t n;
};

static shoal_status match(void *arg, const char *key, size_t key_n, const char *value, size_t n) {
  struct table_search *f = arg;
  if (f->value || key_n != f->key_n || (key_n && memcmp(key, f->key, key_n) != 0)) return NULL;
  f->value = mem_try_alloc(n + 1);
  if (!f->value) return NO_MEMORY(n, "a value");
  memcpy(f->value, value, n);
  f->n = n;
  return NULL;
}

shoal_status table_find(const struct table *t, const void *key, size_t key_n, char **value, size_t *n) {
  size_t lo = 0, hi = t->blocks.n; /* the first block whose index key is not before ours */
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    if (compare(t->blocks.at[mid].key, t->blocks.at[mid].key_n, key, key_n) < 0) lo = mid + 1;
    else hi = mid;
  }
  *value = NULL;
  *n = 0;
  if (lo == t->blocks.n) return NULL;
  char *block;
  size_t size;
  TRY(read_block(t, t->blocks.at[lo].offset, t->blocks.at[lo].size, &block, &size));
  struct table_search f = {.key = key, .key_n = key_n};
  shoal_status s = each_entry(t, block, size, match, &f);
  free(block);
  if (s) {
    free(f.value);
    return s;
  }
  *value = f.value;
  *n = f.n;
  return NULL;
}
