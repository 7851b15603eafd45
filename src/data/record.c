/* TFRecord files; see record.h. Packed streams go through zlib with a window of 15 bits; several gzip members after
 * one another are read as one. Snappy has no stream of its own: blocks of as much as TensorFlow puts into one. */
#include "data/record.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#include "base/crc32c.h"
#include "base/snappy.h"
#include "tensor/strings.h"

enum { BUFFER = 1 << 18, GZIP_WINDOW = 15 + 16, ZLIB_WINDOW = 15, GROW = 1 << 20 };
enum { HEADER = RECORD_HEADER, FOOTER = RECORD_FOOTER };

shoal_status record_compression_parse(const char *name, enum record_compression *out) {
  if (!*name) *out = RECORD_PLAIN;
  else if (strcmp(name, "GZIP") == 0) *out = RECORD_GZIP;
  else if (strcmp(name, "ZLIB") == 0) *out = RECORD_ZLIB;
  else return INVALID("Unsupported compression_type: %s", name);
  return NULL;
}

/* ---- streams ---- */

shoal_status byte_stream_open(struct byte_stream *s, const char *path, enum record_compression c) {
  *s = (struct byte_stream){0};
  TRY(file_reader_open(&s->file, path));
  s->snappy = c == RECORD_SNAPPY;
  if (s->snappy) return NULL;
  s->raw = mem_alloc(BUFFER);
  s->out = s->raw;
  if (c == RECORD_PLAIN) return NULL;
  s->out = mem_alloc(BUFFER);
  s->z = mem_zalloc(1, sizeof *s->z);
  if (inflateInit2(s->z, c == RECORD_GZIP ? GZIP_WINDOW : ZLIB_WINDOW) == Z_OK) return NULL;
  byte_stream_close(s);
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "no memory to unpack %s", path);
}

static shoal_status read_raw(struct byte_stream *s, size_t *n) {
  int64_t left = s->file.size - s->file_at;
  *n = (size_t)MIN(MAX(left, 0), (int64_t)BUFFER);
  TRY(file_reader_get(&s->file, s->file_at, s->raw, *n));
  s->file_at += (int64_t)*n;
  return NULL;
}

static shoal_status unpack(struct byte_stream *s) {
  z_stream *z = s->z;
  z->next_out = (unsigned char *)s->out;
  z->avail_out = BUFFER;
  while (z->avail_out == BUFFER) {
    if (z->avail_in == 0) {
      size_t n;
      TRY(read_raw(s, &n));
      z->next_in = (unsigned char *)s->raw;
      z->avail_in = (unsigned)n;
      if (n == 0) {
        s->ended = true;
        break;
      }
    }
    int rc = inflate(z, Z_NO_FLUSH);
    s->within = rc != Z_STREAM_END;
    if (rc == Z_STREAM_END) {
      if (inflateReset(z) != Z_OK) return STATUS(SHOAL_DATA_LOSS, "%s: cannot be unpacked", s->file.path);
    } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
      return STATUS(SHOAL_DATA_LOSS, "%s: inflate() failed with error %d: %s", s->file.path, rc, z->msg ? z->msg : "");
    }
  }
  s->at = 0;
  s->have = BUFFER - z->avail_out;
  return NULL;
}

static void drop_block(struct byte_stream *s) {
  free(s->out);
  s->out = NULL;
  strings_count(-(int64_t)s->counted);
  s->counted = 0;
}

/* The next block. A length that is more than the file has left is no length. */
static shoal_status unpack_snappy(struct byte_stream *s) {
  unsigned char head[4];
  int64_t left = s->file.size - s->file_at;
  drop_block(s);
  s->at = s->have = 0;
  s->ended = left <= 0;
  if (s->ended) return NULL;
  if (left < (int64_t)sizeof head) return STATUS(SHOAL_DATA_LOSS, "%s: truncated block", s->file.path);
  TRY(file_reader_get(&s->file, s->file_at, head, sizeof head));
  size_t n = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
  if ((int64_t)n > left - (int64_t)sizeof head) return STATUS(SHOAL_DATA_LOSS, "%s: truncated block", s->file.path);
  char *packed = mem_try_alloc(n + 1);
  if (!packed) return NO_MEMORY(n, s->file.path);
  shoal_status bad = file_reader_get(&s->file, s->file_at + (int64_t)sizeof head, packed, n);
  if (!bad && !strings_have_room(snappy_length(packed, n))) bad = NO_MEMORY(snappy_length(packed, n), s->file.path);
  if (!bad) bad = status_prefix(snappy_decode(packed, n, &s->out, &s->have), "%s: ", s->file.path);
  s->counted = s->have;
  strings_count((int64_t)s->counted);
  free(packed);
  s->file_at += (int64_t)(sizeof head + n);
  return bad;
}

shoal_status byte_stream_fill(struct byte_stream *s) {
  if (s->at < s->have || s->ended) return NULL;
  if (s->snappy) {
    do TRY(unpack_snappy(s)); /* a block may hold nothing */
    while (!s->have && !s->ended);
    return NULL;
  }
  if (s->z) return unpack(s);
  s->at = 0;
  TRY(read_raw(s, &s->have));
  if (s->have == 0) s->ended = true;
  return NULL;
}

shoal_status byte_stream_read(struct byte_stream *s, void *to, size_t n, size_t *got) {
  size_t done = 0;
  while (done < n) {
    if (s->at == s->have) {
      TRY(byte_stream_fill(s));
      if (s->at == s->have) break;
    }
    size_t k = MIN(n - done, s->have - s->at);
    memcpy((char *)to + done, s->out + s->at, k);
    s->at += k;
    done += k;
  }
  *got = done;
  return NULL;
}

void byte_stream_close(struct byte_stream *s) {
  if (s->z) {
    inflateEnd(s->z);
    free(s->z);
    free(s->out);
  }
  if (s->snappy) drop_block(s);
  free(s->raw);
  file_reader_close(&s->file);
  *s = (struct byte_stream){0};
}

/* ---- reading ---- */

static uint32_t get32(const unsigned char *b) {
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

shoal_status record_reader_open(struct record_reader *r, const char *path, enum record_compression c) {
  *r = (struct record_reader){0};
  return byte_stream_open(&r->in, path, c);
}

static shoal_status truncated(struct record_reader *r) {
  r->fault = RECORD_CUT_OFF;
  return STATUS(SHOAL_DATA_LOSS, "truncated record at %" PRIu64, r->offset);
}

static shoal_status corrupted(struct record_reader *r, enum record_fault fault) {
  r->fault = fault;
  return STATUS(SHOAL_DATA_LOSS, "corrupted record at %" PRIu64, r->offset);
}

static uint64_t length_of(const unsigned char *head) { return (uint64_t)get32(head) | (uint64_t)get32(head + 4) << 32; }
static bool head_sound(const unsigned char *head) { return crc32c_mask(crc32c(head, 8)) == get32(head + 8); }

/* The header; *got 0 at the end of the stream. */
static shoal_status read_head(struct record_reader *r, size_t *got) {
  *got = HEADER;
  if (!r->head_read) TRY(byte_stream_read(&r->in, r->head, HEADER, got));
  r->head_read = false;
  return NULL;
}

static shoal_status read_whole(struct record_reader *r, struct text *record) {
  unsigned char foot[FOOTER];
  size_t got;
  r->fault = RECORD_BAD_STREAM;
  TRY(read_head(r, &got));
  if (got == 0) return STATUS(SHOAL_OUT_OF_RANGE, "eof");
  if (got < HEADER) return truncated(r);
  uint64_t length = length_of(r->head);
  if (!head_sound(r->head)) return corrupted(r, RECORD_BAD_LENGTH);
  /* Memory grows with what the stream delivers, not with what the header claims. */
  if (!r->in.z && !r->in.snappy && length > (uint64_t)r->in.file.size) return truncated(r);
  while (record->n < length) {
    size_t want = (size_t)MIN(length - record->n, (uint64_t)GROW);
    if (!counted_text_reserve(record, want)) return NO_MEMORY(length, "a record");
    TRY(byte_stream_read(&r->in, record->at + record->n, want, &got));
    record->n += got;
    if (got < want) return truncated(r);
  }
  TRY(byte_stream_read(&r->in, foot, FOOTER, &got));
  if (got < FOOTER) return truncated(r);
  if (crc32c_mask(crc32c(record->at, record->n)) != get32(foot)) return corrupted(r, RECORD_BAD_DATA);
  r->offset += HEADER + length + FOOTER;
  r->fault = RECORD_SOUND;
  return NULL;
}

shoal_status record_pass(struct record_reader *r) {
  size_t got;
  r->fault = RECORD_BAD_STREAM;
  TRY(read_head(r, &got));
  if (got == 0) return STATUS(SHOAL_OUT_OF_RANGE, "eof");
  if (got < HEADER) return truncated(r);
  if (!head_sound(r->head)) return corrupted(r, RECORD_BAD_LENGTH);
  uint64_t length = length_of(r->head);
  if (length > INT64_MAX || (!r->in.z && !r->in.snappy && length > (uint64_t)r->in.file.size)) return truncated(r);
  for (uint64_t left = length + FOOTER; left;) {
    char scrap[8192];
    size_t want = (size_t)MIN(left, (uint64_t)sizeof scrap);
    TRY(byte_stream_read(&r->in, scrap, want, &got));
    if (got < want) return truncated(r);
    left -= got;
  }
  r->offset += HEADER + length + FOOTER;
  r->fault = RECORD_SOUND;
  return NULL;
}

shoal_status record_read(struct record_reader *r, struct text *record) {
  record->n = 0;
  return read_whole(r, record);
}

/* Looks for the next header byte by byte. */
static bool find_head(struct record_reader *r) {
  size_t got;
  do {
    memmove(r->head, r->head + 1, HEADER - 1);
    shoal_status s = byte_stream_read(&r->in, r->head + HEADER - 1, 1, &got);
    if (s) {
      shoal_status_free(s);
      return false;
    }
    r->offset++;
  } while (got && !head_sound(r->head));
  r->head_read = got;
  return got;
}

bool record_skip(struct record_reader *r, uint64_t *skipped) {
  uint64_t before = r->offset;
  bool more = r->fault == RECORD_BAD_DATA;
  if (more) r->offset += HEADER + length_of(r->head) + FOOTER;
  else if (r->fault == RECORD_BAD_LENGTH) more = find_head(r);
  *skipped = r->offset - before;
  return more;
}

void record_reader_close(struct record_reader *r) { byte_stream_close(&r->in); }

/* A header whose checksum is right is that of a plain file: its first bytes may look like another's. */
shoal_status record_compression_guess(const char *path, enum record_compression *out) {
  struct record_reader r;
  size_t got = 0;
  *out = RECORD_PLAIN;
  TRY(record_reader_open(&r, path, RECORD_PLAIN));
  shoal_status s = byte_stream_read(&r.in, r.head, HEADER, &got);
  if (!s && !(got == HEADER && head_sound(r.head))) {
    if (got > 1 && r.head[0] == 0x1f && r.head[1] == 0x8b) *out = RECORD_GZIP;
    else if (got > 1 && (r.head[0] & 15) == Z_DEFLATED && (r.head[0] * 256 + r.head[1]) % 31 == 0) *out = RECORD_ZLIB;
  }
  record_reader_close(&r);
  return s;
}

/* ---- writing ---- */

static void forget(struct record_writer *w) {
  free(w->z);
  free(w->packed);
  *w = (struct record_writer){0};
}

/* With the file open. */
static shoal_status begin_packing(struct record_writer *w, const char *path, enum record_compression c) {
  if (c == RECORD_PLAIN) return NULL;
  w->packed = mem_alloc(BUFFER);
  w->snappy = c == RECORD_SNAPPY;
  if (w->snappy) return NULL;
  w->z = mem_zalloc(1, sizeof *w->z);
  int window = c == RECORD_GZIP ? GZIP_WINDOW : ZLIB_WINDOW;
  if (deflateInit2(w->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) == Z_OK) return NULL;
  shoal_status s = STATUS(SHOAL_RESOURCE_EXHAUSTED, "no memory to pack %s", path);
  file_writer_abort(&w->file);
  forget(w);
  return s;
}

shoal_status record_writer_open(struct record_writer *w, const char *path, enum record_compression c) {
  *w = (struct record_writer){0};
  TRY(file_writer_open_direct(&w->file, path, false));
  return begin_packing(w, path, c);
}

shoal_status record_writer_open_whole(struct record_writer *w, const char *path, enum record_compression c) {
  *w = (struct record_writer){0};
  TRY(file_writer_open(&w->file, path));
  return begin_packing(w, path, c);
}

static shoal_status pack(struct record_writer *w, const void *data, size_t n, int flush) {
  z_stream *z = w->z;
  z->next_in = (unsigned char *)(uintptr_t)data;
  do {
    z->avail_in = (unsigned)MIN(n, (size_t)1 << 30);
    n -= z->avail_in;
    int last = n ? Z_NO_FLUSH : flush;
    do {
      z->next_out = (unsigned char *)w->packed;
      z->avail_out = BUFFER;
      if (deflate(z, last) == Z_STREAM_ERROR) return INTERNAL("%s: deflate failed", w->file.path);
      TRY(file_writer_add(&w->file, w->packed, BUFFER - z->avail_out));
    } while (z->avail_out == 0);
  } while (n);
  return NULL;
}

/* What is pending as a block. */
static shoal_status end_block(struct record_writer *w) {
  if (!w->pending) return NULL;
  struct text block = {0};
  text_add(&block, "\0\0\0", 4);
  bool packed = snappy_encode(w->packed, w->pending, &block);
  for (int i = 0; packed && i < 4; i++) block.at[i] = (char)((block.n - 4) >> (24 - 8 * i));
  shoal_status s = packed ? file_writer_add(&w->file, block.at, block.n) : NO_MEMORY(w->pending, w->file.path);
  text_release(&block);
  w->pending = 0;
  return s;
}

static shoal_status put_snappy(struct record_writer *w, const char *data, size_t n) {
  while (n) {
    size_t k = MIN(n, BUFFER - w->pending);
    memcpy(w->packed + w->pending, data, k);
    w->pending += k;
    data += k;
    n -= k;
    if (w->pending == BUFFER) TRY(end_block(w));
  }
  return NULL;
}

static shoal_status put(struct record_writer *w, const void *data, size_t n) {
  if (w->snappy) return put_snappy(w, data, n);
  return w->z ? pack(w, data, n, Z_NO_FLUSH) : file_writer_add(&w->file, data, n);
}

static void set32(unsigned char *b, uint32_t v) {
  for (int i = 0; i < 4; i++) b[i] = (unsigned char)(v >> (8 * i));
}

shoal_status record_write(struct record_writer *w, const void *data, size_t n) {
  unsigned char head[HEADER], foot[FOOTER];
  set32(head, (uint32_t)n);
  set32(head + 4, (uint32_t)((uint64_t)n >> 32));
  set32(head + 8, crc32c_mask(crc32c(head, 8)));
  set32(foot, crc32c_mask(crc32c(data, n)));
  TRY(put(w, head, HEADER));
  TRY(put(w, data, n));
  return put(w, foot, FOOTER);
}

shoal_status record_flush(struct record_writer *w) {
  if (w->z) TRY(pack(w, NULL, 0, Z_SYNC_FLUSH));
  if (w->snappy) TRY(end_block(w));
  return file_writer_flush(&w->file);
}

shoal_status record_writer_close(struct record_writer *w) {
  if (!w->file.path) return NULL;
  shoal_status s = w->z ? pack(w, NULL, 0, Z_FINISH) : w->snappy ? end_block(w) : NULL;
  if (w->z) deflateEnd(w->z);
  if (!s) s = file_writer_commit(&w->file);
  else file_writer_abort(&w->file);
  forget(w);
  return s;
}

void record_writer_abort(struct record_writer *w) {
  if (!w->file.path) return;
  if (w->z) deflateEnd(w->z);
  file_writer_abort(&w->file);
  forget(w);
}
