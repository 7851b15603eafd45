/* Sorted string tables: the index of a checkpoint, and the whole of a checkpoint in the old format.
 *
 *   file     data blocks, metaindex block (empty), index block, footer
 *   block    entries, u32 offset of each restart, u32 number of restarts; then u8 type (0 stored, 1 Snappy),
 *            u32 masked CRC-32C of block and type
 *   entry    varint shared, varint unshared, varint value length, key's last `unshared` bytes, value; `shared` bytes
 *            of the key are those of the key before it, none at a restart
 *   index    key: not before the last key of a data block and before the first of the next; value: its handle
 *   handle   varint offset, varint size (without the 5 bytes after the block)
 *   footer   metaindex handle, index handle, zeros up to 40 bytes, u64 magic */
#ifndef CHECKPOINT_TABLE_H
#define CHECKPOINT_TABLE_H

#include "base/file.h"
#include "base/snappy.h"
#include "base/text.h"

/* ---- writing ---- */
struct table_writer {
  struct file_writer file;
  struct text block, index, last_key;
  VEC(uint32_t) restarts, index_restarts;
  int since_restart;
  bool pending; /* the block of last_key is written, its index entry is not */
  uint64_t pending_offset, pending_size;
};
shoal_status table_writer_open(struct table_writer *w, const char *path);
/* Keys must come in order of their bytes, each once. */
shoal_status table_writer_add(struct table_writer *w, const void *key, size_t key_n, const void *value, size_t n);
/* The file appears under its name; frees w, also on an error. */
shoal_status table_writer_finish(struct table_writer *w);
void table_writer_abort(struct table_writer *w);

/* ---- reading ---- */
/* Snappy makes at most 64 bytes of 3; keys that share what they begin with are whole again after 16. */
enum { TABLE_MOST_PACKED = SNAPPY_MOST, TABLE_MOST_SHARED = 16 };
struct table_block {
  char *key; /* of the index entry: no key of the block is past it */
  size_t key_n;
  uint64_t offset, size;
};
struct table {
  struct file_reader file;
  VEC(struct table_block) blocks;
};
/* Reads the index. DATA_LOSS when it is no table, or damaged. */
shoal_status table_open(struct table *t, const char *path);
void table_close(struct table *t);
/* Calls fn for every entry in order; what it is given lives for the call. Ends with fn's error, if any. */
typedef shoal_status table_visit(void *arg, const char *key, size_t key_n, const char *value, size_t n);
shoal_status table_each(const struct table *t, table_visit *fn, void *arg);
/* The value of a key in memory of the caller's; *value is NULL when there is none. */
shoal_status table_find(const struct table *t, const void *key, size_t key_n, char **value, size_t *n);

#endif
