/* The bytes of a bundle: entries of the index, and in data files the types that are not plain memory.
 *
 *   strings   varint length of each, u32 masked CRC-32C of the lengths, then all bytes. The entry's checksum goes
 *             over the lengths as u32 (u64 for those past 4 GiB), that masked checksum, and the bytes.
 *   variants  for each: varint length, VariantTensorDataProto, u32 masked checksum so far. The checksum goes over
 *             the lengths as u64, the bytes and those checksums. */
#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/wire.h"
#include "checkpoint/bundle.h"
#include "proto/checkpoint.wire.h"
#include "tensor/tensor_proto.h"

char *bundle_data_path(const char *prefix, int shard, int shards) {
  return mem_printf("%s.data-%05d-of-%05d", prefix, shard, shards);
}

char *bundle_index_path(const char *prefix) { return mem_printf("%s.index", prefix); }

void bundle_entry_release(struct bundle_entry *e) { vec_release(&e->slices); }

/* Fields in order of number, zeros left out: the bytes TensorFlow would write. */
void bundle_entry_encode(const struct bundle_entry *e, struct text *out) {
  if (e->dtype) put_BundleEntryProto_dtype(out, e->dtype);
  size_t shape = begin_BundleEntryProto_shape(out);
  shape_proto_encode(&e->shape, out);
  wire_end(out, shape);
  if (e->shard) put_BundleEntryProto_shard_id(out, e->shard);
  if (e->offset) put_BundleEntryProto_offset(out, e->offset);
  if (e->size) put_BundleEntryProto_size(out, e->size);
  if (e->crc) put_BundleEntryProto_crc32c(out, e->crc);
  for (size_t i = 0; i < e->slices.n; i++) {
    size_t slice = begin_BundleEntryProto_slices(out);
    slice_encode(&e->slices.at[i], out);
    wire_end(out, slice);
  }
}

shoal_status bundle_entry_decode(const char *key, const void *data, size_t n, struct bundle_entry *out) {
  *out = (struct bundle_entry){0};
  struct wire w = wire_from(data, n);
  struct wire_field f;
  enum wire_step step;
  struct slice slice;
  bool ok = true;
  while (ok && (step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == BundleEntryProto_dtype) out->dtype = (shoal_dtype)(f.value < DTYPE_COUNT ? f.value : 0);
    else if (f.tag == BundleEntryProto_shape) {
      shoal_status s = shape_proto_decode(f.data, f.size, &out->shape);
      if (s || !shape_known(&out->shape)) {
        shoal_status_free(s);
        bundle_entry_release(out);
        return STATUS(SHOAL_DATA_LOSS, "Invalid tensor shape: %s", key);
      }
    } else if (f.tag == BundleEntryProto_shard_id) {
      out->shard = f.value > INT32_MAX ? -1 : (int)f.value;
    } else if (f.tag == BundleEntryProto_offset) {
      out->offset = (int64_t)f.value;
    } else if (f.tag == BundleEntryProto_size) {
      out->size = (int64_t)f.value;
    } else if (f.tag == BundleEntryProto_crc32c) {
      out->crc = (uint32_t)f.value;
    } else if (f.tag == BundleEntryProto_slices) {
      ok = slice_decode(f.data, f.size, &slice) && slice.rank == out->shape.rank;
      if (ok) vec_push(&out->slices, slice);
    }
  }
  if (!ok || step == WIRE_BROKEN) {
    bundle_entry_release(out);
    return STATUS(SHOAL_DATA_LOSS, "Entry for key %s not parseable.", key);
  }
  return NULL;
}

static uint32_t extend_number(uint32_t crc, uint64_t v, int bytes) {
  unsigned char b[8];
  for (int i = 0; i < bytes; i++) b[i] = (unsigned char)(v >> (8 * i));
  return crc32c_extend(crc, b, (size_t)bytes);
}

static uint32_t extend_length(uint32_t crc, uint64_t n) { return extend_number(crc, n, n <= UINT32_MAX ? 4 : 8); }

static shoal_status put32(struct file_writer *f, uint32_t v) {
  unsigned char b[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16), (unsigned char)(v >> 24)};
  return file_writer_add(f, b, 4);
}

static uint32_t get32(const uint8_t *b) {
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

shoal_status bundle_put_strings(struct file_writer *f, const struct tensor *t, uint32_t *crc) {
  const struct str *s = t->data;
  struct text lengths = {0};
  uint32_t c = 0;
  for (int64_t i = 0; i < t->n; i++) {
    wire_put_varint(&lengths, s[i].size);
    c = extend_length(c, s[i].size);
  }
  shoal_status e = file_writer_add(f, lengths.at, lengths.n);
  text_release(&lengths);
  TRY(e);
  uint32_t masked = crc32c_mask(c);
  TRY(put32(f, masked));
  c = extend_number(c, masked, 4);
  for (int64_t i = 0; i < t->n; i++) {
    TRY(file_writer_add(f, str_data(&s[i]), s[i].size));
    c = crc32c_extend(c, str_data(&s[i]), s[i].size);
  }
  *crc = c;
  return NULL;
}

/* The bytes of an entry: in a file there cannot be fewer than it claims. */
static shoal_status load(const struct file_reader *f, int64_t offset, int64_t size, uint8_t **out) {
  if (offset < 0 || size < 0 || offset > f->size || size > f->size - offset)
    return STATUS(SHOAL_DATA_LOSS, "%s: an entry of %" PRId64 " bytes at %" PRId64 " is outside a file of %" PRId64,
                  f->path, size, offset, f->size);
  uint8_t *at = mem_try_alloc((size_t)size + 1);
  if (!at) return NO_MEMORY(size, f->path);
  shoal_status s = file_reader_get(f, offset, at, (size_t)size);
  if (s) {
    free(at);
    return s;
  }
  *out = at;
  return NULL;
}

static shoal_status take_strings(struct wire w, int64_t end, struct tensor *t, uint32_t *crc) {
  struct wire lengths = w;
  uint64_t total = 0, n;
  uint32_t c = 0;
  for (int64_t i = 0; i < t->n; i++) {
    if (!wire_get_varint(&w, &n) || n > (uint64_t)(w.end - w.at) || (total += n) > (uint64_t)(w.end - w.at))
      return STATUS(SHOAL_DATA_LOSS, "String lengths longer than expected offset %" PRId64, end);
    c = extend_length(c, n);
  }
  if (wire_left(&w) < 4 || wire_left(&w) - 4 < total)
    return STATUS(SHOAL_DATA_LOSS, "String lengths longer than expected offset %" PRId64, end);
  uint32_t stored = get32(w.at);
  w.at += 4;
  if (crc32c_unmask(stored) != c)
    return STATUS(SHOAL_DATA_LOSS, "The length checksum does not match: expected %08u but actual is %08u",
                  crc32c_unmask(stored), c);
  c = extend_number(c, stored, 4);
  struct str *s = t->data;
  for (int64_t i = 0; i < t->n; i++) {
    wire_get_varint(&lengths, &n);
    if (!str_try_set(&s[i], (const char *)w.at, n)) return NO_MEMORY(n, "a string");
    c = crc32c_extend(c, w.at, n);
    w.at += n;
  }
  *crc = c;
  return NULL;
}

shoal_status bundle_get_strings(const struct file_reader *f, int64_t offset, int64_t size, struct tensor *t,
                                uint32_t *crc) {
  uint8_t *at;
  TRY(load(f, offset, size, &at));
  shoal_status s = take_strings(wire_from(at, (size_t)size), offset + size, t, crc);
  free(at);
  return s;
}

shoal_status bundle_put_variants(struct file_writer *f, const struct tensor *t, uint32_t *crc) {
  struct text elem = {0}, length = {0};
  uint32_t c = 0;
  shoal_status s = NULL;
  for (int64_t i = 0; !s && i < t->n; i++) {
    elem.n = length.n = 0;
    struct variant *v = T_DATA(t, struct variant *)[i];
    if (v) TRY_GOTO(s, variant_proto_encode(v, 0, &elem), out);
    wire_put_varint(&length, elem.n);
    TRY_GOTO(s, file_writer_add(f, length.at, length.n), out);
    TRY_GOTO(s, file_writer_add(f, elem.at, elem.n), out);
    c = crc32c_extend(extend_number(c, elem.n, 8), elem.at, elem.n);
    uint32_t masked = crc32c_mask(c);
    TRY_GOTO(s, put32(f, masked), out);
    c = extend_number(c, masked, 4);
  }
  *crc = c;
out:
  text_release(&elem);
  text_release(&length);
  return s;
}

static shoal_status take_variants(struct wire w, struct tensor *t, uint32_t *crc) {
  uint32_t c = 0;
  size_t budget = TENSOR_PROTO_MAX_REPEAT;
  for (int64_t i = 0; i < t->n; i++) {
    uint64_t n;
    if (!wire_get_varint(&w, &n) || n > wire_left(&w) || wire_left(&w) - n < 4)
      return STATUS(SHOAL_DATA_LOSS, "Variant %" PRId64 " is cut short", i);
    c = crc32c_extend(extend_number(c, n, 8), w.at, n);
    uint32_t stored = get32(w.at + n);
    if (crc32c_unmask(stored) != c)
      return STATUS(SHOAL_DATA_LOSS,
                    "The checksum after Variant %" PRId64 " does not match. Expected: %08u Actual: %08u", i,
                    crc32c_unmask(stored), c);
    if (n) TRY(variant_proto_decode(wire_from(w.at, n), &budget, 0, &T_DATA(t, struct variant *)[i]));
    c = extend_number(c, stored, 4);
    w.at += n + 4;
  }
  *crc = c;
  return NULL;
}

shoal_status bundle_get_variants(const struct file_reader *f, int64_t offset, int64_t size, struct tensor *t,
                                 uint32_t *crc) {
  uint8_t *at;
  TRY(load(f, offset, size, &at));
  shoal_status s = take_variants(wire_from(at, (size_t)size), t, crc);
  free(at);
  return s;
}
