/* Writing sorted string tables; table.h has the layout. */
#include <string.h>

#include "base/crc32c.h"
#include "base/wire.h"
#include "checkpoint/table.h"

enum { BLOCK_LIMIT = 262144, RESTART_EVERY = 16, FOOTER = 48 };
#define MAGIC 0xdb4775248b80fb57ull

static void put32(struct text *t, uint32_t v) {
  char b[4] = {(char)v, (char)(v >> 8), (char)(v >> 16), (char)(v >> 24)};
  text_add(t, b, 4);
}

shoal_status table_writer_open(struct table_writer *w, const char *path) {
  *w = (struct table_writer){0};
  return file_writer_open(&w->file, path);
}

static void put_entry(struct text *block, size_t shared, const char *key, size_t key_n, const void *value, size_t n) {
  wire_put_varint(block, shared);
  wire_put_varint(block, key_n - shared);
  wire_put_varint(block, n);
  text_add(block, key + shared, key_n - shared);
  text_add(block, value, n);
}

/* The block, its restarts and its trailer; empties it. */
static shoal_status write_block(struct table_writer *w, struct text *block, const uint32_t *restarts, size_t n,
                                uint64_t *offset, uint64_t *size) {
  for (size_t i = 0; i < n; i++) put32(block, restarts[i]);
  if (n == 0) put32(block, 0);
  put32(block, (uint32_t)(n ? n : 1));
  *offset = (uint64_t)w->file.offset;
  *size = block->n;
  text_addc(block, 0);
  uint32_t crc = crc32c_mask(crc32c(block->at, block->n));
  put32(block, crc);
  TRY(file_writer_add(&w->file, block->at, block->n));
  block->n = 0;
  return NULL;
}

static void put_index(struct table_writer *w, const char *key, size_t n) {
  struct text handle = {0};
  wire_put_varint(&handle, w->pending_offset);
  wire_put_varint(&handle, w->pending_size);
  vec_push(&w->index_restarts, (uint32_t)w->index.n);
  put_entry(&w->index, 0, key, n, handle.at, handle.n);
  text_release(&handle);
  w->pending = false;
}

/* A short key k with last <= k < next: where the two differ, one more than last's byte, if that is still below. */
static void index_before(struct table_writer *w, const unsigned char *next, size_t next_n) {
  unsigned char *last = (unsigned char *)w->last_key.at;
  size_t n = w->last_key.n, common = 0;
  while (common < MIN(n, next_n) && last[common] == next[common]) common++;
  if (common < MIN(n, next_n) && last[common] < 0xff && last[common] + 1 < next[common]) {
    last[common]++;
    n = common + 1;
  }
  put_index(w, w->last_key.at, n);
}

/* A short key not before the last of all. */
static void index_after(struct table_writer *w) {
  unsigned char *last = (unsigned char *)w->last_key.at;
  size_t n = w->last_key.n;
  for (size_t i = 0; i < n; i++)
    if (last[i] != 0xff) {
      last[i]++;
      n = i + 1;
      break;
    }
  put_index(w, w->last_key.at, n);
}

static shoal_status flush_block(struct table_writer *w) {
  if (!w->restarts.n) return NULL;
  TRY(write_block(w, &w->block, w->restarts.at, w->restarts.n, &w->pending_offset, &w->pending_size));
  vec_clear(&w->restarts);
  w->since_restart = 0;
  w->pending = true;
  return NULL;
}

shoal_status table_writer_add(struct table_writer *w, const void *key, size_t key_n, const void *value, size_t n) {
  if (w->pending) index_before(w, key, key_n);
  size_t shared = 0;
  if (w->restarts.n && w->since_restart < RESTART_EVERY) {
    size_t most = MIN(w->last_key.n, key_n);
    while (shared < most && w->last_key.at[shared] == ((const char *)key)[shared]) shared++;
  } else {
    vec_push(&w->restarts, (uint32_t)w->block.n);
    w->since_restart = 0;
  }
  put_entry(&w->block, shared, key, key_n, value, n);
  w->since_restart++;
  w->last_key.n = 0;
  text_add(&w->last_key, key, key_n);
  size_t with_restarts = w->block.n + 4 * w->restarts.n + 4;
  return with_restarts >= BLOCK_LIMIT ? flush_block(w) : NULL;
}

static shoal_status finish(struct table_writer *w) {
  TRY(flush_block(w));
  struct text footer = {0};
  uint64_t meta_offset, meta_size, index_offset, index_size;
  TRY(write_block(w, &w->block, NULL, 0, &meta_offset, &meta_size));
  if (w->pending) index_after(w);
  TRY(write_block(w, &w->index, w->index_restarts.at, w->index_restarts.n, &index_offset, &index_size));
  wire_put_varint(&footer, meta_offset);
  wire_put_varint(&footer, meta_size);
  wire_put_varint(&footer, index_offset);
  wire_put_varint(&footer, index_size);
  while (footer.n < FOOTER - 8) text_addc(&footer, 0);
  put32(&footer, (uint32_t)MAGIC);
  put32(&footer, (uint32_t)(MAGIC >> 32));
  shoal_status s = file_writer_add(&w->file, footer.at, footer.n);
  text_release(&footer);
  return s;
}

static void release(struct table_writer *w) {
  text_release(&w->block);
  text_release(&w->index);
  text_release(&w->last_key);
  vec_release(&w->restarts);
  vec_release(&w->index_restarts);
}

shoal_status table_writer_finish(struct table_writer *w) {
  shoal_status s = finish(w);
  release(w);
  if (!s) return file_writer_commit(&w->file);
  file_writer_abort(&w->file);
  return s;
}

void table_writer_abort(struct table_writer *w) {
  release(w);
  file_writer_abort(&w->file);
}
