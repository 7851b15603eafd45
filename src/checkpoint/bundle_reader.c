/* Reading tensor bundles; see bundle.h. The index is read whole at the start, tensors straight into their memory
 * when asked for; every checksum is verified. */
#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"
#include "checkpoint/bundle.h"
#include "checkpoint/table.h"
#include "proto/checkpoint.wire.h"
#include "proto/types.wire.h"
#include "tensor/strings.h"

enum { MAX_SHARDS = 100000, OUR_VERSION = 1 };

static shoal_status read_header(struct bundle *b, const char *data, size_t n) {
  struct wire w = wire_from(data, n), v;
  struct wire_field f;
  uint64_t shards = 0, endianness = 0, min_consumer = 0;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == BundleHeaderProto_num_shards) shards = f.value;
    if (f.tag == BundleHeaderProto_endianness) endianness = f.value;
    if (f.tag != BundleHeaderProto_version) continue;
    v = wire_inside(&f);
    while ((step = wire_next(&v, &f)) == WIRE_FIELD) {
      if (f.tag == VersionDef_producer) b->producer = (int)f.value;
      if (f.tag == VersionDef_min_consumer) min_consumer = f.value;
    }
    if (step == WIRE_BROKEN) break;
  }
  if (step == WIRE_BROKEN || shards == 0 || shards > MAX_SHARDS)
    return STATUS(SHOAL_DATA_LOSS, "Unable to read the header of checkpoint %s", b->prefix);
  if (endianness != 0)
    return UNIMPLEMENTED("TensorBundle at %s is of a different endianness than this machine's hardware", b->prefix);
  if (min_consumer > OUR_VERSION)
    return INVALID("Checkpoint %s needs a reader of version %" PRIu64 "; this one has version %d", b->prefix,
                   min_consumer, OUR_VERSION);
  b->shards = (int)shards;
  b->files = mem_try_zalloc((size_t)shards, sizeof *b->files);
  return b->files ? NULL : NO_MEMORY(shards * sizeof *b->files, "a checkpoint's files");
}

static int compare(const char *a, size_t an, const char *b, size_t bn) {
  int c = memcmp(a, b, MIN(an, bn));
  return c ? c : (an > bn) - (an < bn);
}

static shoal_status add_item(void *arg, const char *key, size_t key_n, const char *value, size_t n) {
  struct bundle *b = arg;
  if (!b->files) {
    if (key_n != 0) return STATUS(SHOAL_DATA_LOSS, "Checkpoint %s does not begin with a header entry", b->prefix);
    return read_header(b, value, n);
  }
  if (b->items.n && compare(vec_last(&b->items).key, vec_last(&b->items).key_n, key, key_n) >= 0)
    return STATUS(SHOAL_DATA_LOSS, "The keys of checkpoint %s are not in order", b->prefix);
  size_t bytes = sizeof(struct bundle_item) + key_n + n; /* many times what the file has, where it is packed */
  if (!strings_have_room(bytes)) return NO_MEMORY(bytes, "a checkpoint's entry");
  struct bundle_item it = {.key = mem_try_strndup(key, key_n), .key_n = key_n};
  if (!it.key || !text_try_add(&it.value, value, n)) {
    free(it.key);
    return NO_MEMORY(key_n + n, "a checkpoint's entry");
  }
  vec_push(&b->items, it);
  b->counted += bytes;
  strings_count((int64_t)bytes);
  return NULL;
}

shoal_status bundle_open(struct bundle *b, const char *prefix) {
  *b = (struct bundle){.prefix = mem_strdup(prefix)};
  char *path = bundle_index_path(prefix);
  struct table t;
  shoal_status s = table_open(&t, path);
  free(path);
  if (!s) {
    s = table_each(&t, add_item, b);
    table_close(&t);
  }
  if (!s && !b->files) s = STATUS(SHOAL_DATA_LOSS, "Checkpoint %s has no header entry", prefix);
  if (s) bundle_close(b);
  return s;
}

void bundle_close(struct bundle *b) {
  for (size_t i = 0; i < b->items.n; i++) {
    free(b->items.at[i].key);
    text_release(&b->items.at[i].value);
  }
  vec_release(&b->items);
  strings_count(-(int64_t)b->counted);
  for (int i = 0; b->files && i < b->shards; i++) file_reader_close(&b->files[i]);
  free(b->files);
  free(b->prefix);
  *b = (struct bundle){0};
}

shoal_status bundle_find(const struct bundle *b, const char *key, size_t n, struct bundle_entry *out) {
  size_t lo = 0, hi = b->items.n;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    const struct bundle_item *it = &b->items.at[mid];
    int c = compare(it->key, it->key_n, key, n);
    if (c == 0) return bundle_entry_decode(it->key, it->value.at, it->value.n, out);
    if (c < 0) lo = mid + 1;
    else hi = mid;
  }
  return NOT_FOUND("Key %.*s not found in checkpoint", (int)n, key);
}

static shoal_status open_shard(struct bundle *b, int shard, struct file_reader **out) {
  if (shard < 0 || shard >= b->shards)
    return STATUS(SHOAL_DATA_LOSS, "Checkpoint %s has %d shards, not one number %d", b->prefix, b->shards, shard);
  if (!b->files[shard].path) {
    char *path = bundle_data_path(b->prefix, shard, b->shards);
    shoal_status s = file_reader_open(&b->files[shard], path);
    free(path);
    TRY(s);
  }
  *out = &b->files[shard];
  return NULL;
}

/* Large tensors are read in parts, side by side, so that summing and copying of some go on while the disk brings
 * others; in a part what has come is summed step by step, while it is near. The disk is told of what comes next. */
enum { STEP = 1 << 20, PART = 4 << 20, AHEAD = 2 };

struct bundle_reading {
  const struct file_reader *file;
  int64_t offset;
  char *to;
  size_t n;
  uint32_t *sums;       /* of each part */
  shoal_status *errors; /* likewise */
};

static shoal_status read_summed(const struct file_reader *f, int64_t offset, char *to, size_t n, uint32_t *crc) {
  for (size_t at = 0; at < n; at += STEP) {
    size_t here = MIN(n - at, (size_t)STEP);
    TRY(file_reader_get(f, offset + (int64_t)at, to + at, here));
    *crc = crc32c_extend(*crc, to + at, here);
  }
  return NULL;
}

static size_t part_size(const struct bundle_reading *r, size_t part) {
  return part * PART >= r->n ? 0 : MIN(r->n - part * PART, (size_t)PART);
}

static void read_parts(void *arg, int64_t begin, int64_t end) {
  struct bundle_reading *r = arg;
  for (size_t i = (size_t)begin; i < (size_t)end; i++) {
    size_t at = i * PART, ahead = i + AHEAD;
    file_reader_ahead(r->file, r->offset + (int64_t)(ahead * PART), part_size(r, ahead));
    r->errors[i] = read_summed(r->file, r->offset + (int64_t)at, r->to + at, part_size(r, i), &r->sums[i]);
  }
}

static shoal_status read_bytes(const struct bundle *b, const struct file_reader *f, int64_t offset, char *to, size_t n,
                               uint32_t *crc) {
  if (n < 2 * PART) {
    if (n >= STEP) file_reader_ahead(f, offset + (int64_t)n, PART); /* what is likely asked for next */
    return read_summed(f, offset, to, n, crc);
  }
  size_t parts = (n + PART - 1) / PART;
  struct bundle_reading r = {
      f, offset, to, n, mem_zalloc(parts, sizeof *r.sums), mem_zalloc(parts, sizeof(shoal_status))};
  file_reader_ahead(f, offset, (size_t)AHEAD * PART);
  pool_for(b->pool, (int64_t)parts, 1, read_parts, &r);
  shoal_status s = NULL;
  for (size_t i = 0; i < parts; i++) {
    *crc = crc32c_join(*crc, r.sums[i], part_size(&r, i));
    if (s) shoal_status_free(r.errors[i]);
    else s = r.errors[i];
  }
  free(r.sums);
  free(r.errors);
  return s;
}

static shoal_status read_values(struct bundle *b, const char *key, size_t n, const struct bundle_entry *e,
                                struct tensor *t) {
  struct file_reader *f;
  TRY(open_shard(b, e->shard, &f));
  uint32_t crc = 0;
  if (t->dtype == SHOAL_STRING) {
    TRY(bundle_get_strings(f, e->offset, e->size, t, &crc));
  } else if (t->dtype == SHOAL_VARIANT) {
    TRY(bundle_get_variants(f, e->offset, e->size, t, &crc));
  } else {
    if ((uint64_t)e->size != tensor_bytes(t))
      return STATUS(SHOAL_DATA_LOSS,
                    "Invalid size in bundle entry: key %.*s; stored size %" PRId64 "; expected size %zu", (int)n, key,
                    e->size, tensor_bytes(t));
    TRY(read_bytes(b, f, e->offset, t->data, (size_t)e->size, &crc));
  }
  if (crc32c_unmask(e->crc) != crc)
    return STATUS(SHOAL_DATA_LOSS,
                  "TensorBundle at %s shard %d (%" PRId64
                  " bytes): Checksum does not match: stored %08u vs. "
                  "calculated on the restored bytes %u",
                  b->prefix, e->shard, f->size, crc32c_unmask(e->crc), crc);
  return NULL;
}

/* Memory for a tensor, once the file is known to hold as much. The key may be a tensor's string, which has no end. */
static shoal_status read_entry(struct bundle *b, const char *key, size_t n, const struct bundle_entry *e,
                               struct tensor *out) {
  int64_t elements;
  size_t bytes;
  TRY(tensor_bytes_for(e->dtype, &e->shape, &elements, &bytes));
  if (e->dtype == SHOAL_RESOURCE) return UNIMPLEMENTED("key %.*s: a resource cannot be restored", (int)n, key);
  bool plain = dtype_plain(e->dtype);
  /* A string takes a byte of length at least, a variant five. */
  if (e->size < 0 || (plain ? bytes != (uint64_t)e->size : elements > e->size))
    return STATUS(SHOAL_DATA_LOSS,
                  "Invalid size in bundle entry: key %.*s; stored size %" PRId64 "; expected size %s%zu", (int)n, key,
                  e->size, plain ? "" : "is at least ", plain ? bytes : (size_t)elements);
  struct file_reader *f;
  TRY(open_shard(b, e->shard, &f));
  if (e->offset < 0 || e->offset > f->size || e->size > f->size - e->offset)
    return STATUS(SHOAL_OUT_OF_RANGE, "Read less bytes than requested: key %.*s of checkpoint %s", (int)n, key,
                  b->prefix);
  TRY(tensor_new(out, e->dtype, &e->shape));
  shoal_status s = read_values(b, key, n, e, out);
  if (s) tensor_release(out);
  return s;
}

static shoal_status not_enough(const char *key, size_t n, const struct slice *s) {
  struct text t = {0};
  slice_print(s, &t);
  shoal_status e = INVALID("Does not have sufficient slices for partitioned tensor %.*s to restore in slice_spec: %s",
                           (int)n, key, text_cstr(&t));
  text_release(&t);
  return e;
}

/* Puts slice `want` together from the slices that are stored. Each element must come from one of them, so the
 * elements they have in common with it must add up to all, once it is known that stored slices do not overlap. */
static shoal_status gather(struct bundle *b, const char *key, size_t n, const struct bundle_entry *e,
                           const struct slice *want, struct tensor *out) {
  int64_t covered = 0;
  TRY(slices_check_apart(key, n, e->slices.at, e->slices.n, &e->shape));
  for (size_t i = 0; i < e->slices.n; i++) {
    struct slice both;
    if (!slice_meet(&e->slices.at[i], want, &e->shape, &both)) continue;
    int64_t part = 1;
    for (int d = 0; d < both.rank; d++) part *= both.length[d];
    struct text part_key = {0};
    struct bundle_entry pe;
    struct shape shape;
    struct tensor t;
    slice_key(key, n, &e->slices.at[i], &part_key);
    shoal_status s = bundle_find(b, part_key.at, part_key.n, &pe);
    text_release(&part_key);
    if (s) return status_suffix(s, " (a slice of %.*s)", (int)n, key);
    s = slice_shape(&e->slices.at[i], &e->shape, &shape);
    if (!s && (!shape_equal(&shape, &pe.shape) || pe.dtype != e->dtype))
      s = STATUS(SHOAL_DATA_LOSS, "A slice of %.*s has another shape or type than its tensor", (int)n, key);
    if (!s) s = read_entry(b, key, n, &pe, &t);
    bundle_entry_release(&pe);
    TRY(s);
    slice_copy(&e->shape, &e->slices.at[i], &t, want, out);
    tensor_release(&t);
    covered += part;
  }
  return covered < out->n ? not_enough(key, n, want) : NULL;
}

static shoal_status read_part(struct bundle *b, const char *key, size_t n, const struct bundle_entry *e,
                              const struct slice *want, struct tensor *out) {
  if (!e->slices.n && slice_is_whole(want, &e->shape)) return read_entry(b, key, n, e, out);
  struct shape shape;
  TRY(slice_shape(want, &e->shape, &shape));
  if (!e->slices.n) {
    struct tensor whole;
    struct slice all = slice_whole(e->shape.rank);
    TRY(read_entry(b, key, n, e, &whole));
    shoal_status s = tensor_new(out, e->dtype, &shape);
    if (!s) slice_copy(&e->shape, &all, &whole, want, out);
    tensor_release(&whole);
    return s;
  }
  int64_t stored = 0; /* no more memory than the slices' own entries may fill */
  for (int i = 0; i < b->shards; i++) {
    struct file_reader *f;
    TRY(open_shard(b, i, &f));
    stored += f->size;
  }
  int64_t elements;
  size_t bytes;
  TRY(tensor_bytes_for(e->dtype, &shape, &elements, &bytes));
  if (dtype_plain(e->dtype) ? bytes > (uint64_t)stored : elements > stored) return not_enough(key, n, want);
  TRY(tensor_new(out, e->dtype, &shape));
  shoal_status s = gather(b, key, n, e, want, out);
  if (s) tensor_release(out);
  return s;
}

shoal_status bundle_read_slice(struct bundle *b, const char *key, size_t n, const struct slice *s, struct tensor *out) {
  struct bundle_entry e;
  TRY(bundle_find(b, key, n, &e));
  shoal_status st = read_part(b, key, n, &e, s, out);
  bundle_entry_release(&e);
  return st;
}

shoal_status bundle_read(struct bundle *b, const char *key, size_t n, struct tensor *out) {
  struct bundle_entry e;
  TRY(bundle_find(b, key, n, &e));
  struct slice all = slice_whole(e.shape.rank);
  shoal_status s = read_part(b, key, n, &e, &all, out);
  bundle_entry_release(&e);
  return s;
}
