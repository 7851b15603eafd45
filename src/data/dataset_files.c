/* Datasets of files: lines of text, TFRecords, records of fixed length; plain or packed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset.h"
#include "data/record.h"
#include "tensor/strings.h"

struct record_dataset {
  struct dataset head;
  enum record_kind kind;
  enum record_compression compression;
  int64_t header, record, footer;
  char **files;
  int64_t *offsets; /* [n_files] of the first record; NULL: 0 */
  int64_t n_files;
};

struct records_iter {
  struct data_iterator head;
  int64_t file; /* the next to open */
  bool open;
  struct byte_stream stream;   /* lines, fixed */
  struct record_reader reader; /* TFRecord */
  struct text line;            /* reused */
  struct text tail;            /* fixed: bytes that may be the footer */
};

static void close_file(struct records_iter *r) {
  if (!r->open) return;
  if (((struct record_dataset *)r->head.of)->kind == RECORDS_TFRECORD) record_reader_close(&r->reader);
  else byte_stream_close(&r->stream);
  r->open = false;
}

static void records_iter_free(struct data_iterator *it) {
  struct records_iter *r = (struct records_iter *)it;
  close_file(r);
  counted_text_release(&r->line);
  counted_text_release(&r->tail);
}

/* Passes by n bytes; *all is false when there are fewer. */
static shoal_status pass_by(struct byte_stream *in, int64_t n, bool *all) {
  char scrap[4096];
  *all = true;
  while (n > 0 && *all) {
    size_t got, want = (size_t)MIN(n, (int64_t)sizeof scrap);
    TRY(byte_stream_read(in, scrap, want, &got));
    *all = got == want;
    n -= (int64_t)got;
  }
  return NULL;
}

static shoal_status open_file(struct records_iter *r, const struct record_dataset *d) {
  const char *path = d->files[r->file++];
  bool all;
  if (d->kind == RECORDS_TFRECORD) {
    TRY(record_reader_open(&r->reader, path, d->compression));
    r->open = true;
    if (!d->offsets) return NULL;
    r->reader.offset = (uint64_t)d->offsets[r->file - 1];
    return pass_by(&r->reader.in, d->offsets[r->file - 1], &all); /* past the end there are no records */
  }
  TRY(byte_stream_open(&r->stream, path, d->compression));
  r->open = true;
  vec_clear(&r->tail);
  if (d->kind != RECORDS_FIXED) return NULL;
  if (d->compression == RECORD_PLAIN) { /* TensorFlow refuses a body that is no whole number of records */
    int64_t size, body;
    TRY(file_size(path, &size));
    body = size - d->header - d->footer;
    if (body < 0 || body % d->record)
      return INVALID("Excluding the header (%" PRId64 " bytes) and footer (%" PRId64
                     " bytes), input file \"%s\" has body "
                     "length %" PRId64 " bytes, which is not an exact multiple of the record length (%" PRId64
                     " bytes).",
                     d->header, d->footer, path, body, d->record);
  }
  TRY(pass_by(&r->stream, d->header, &all));
  if (!all) return INVALID("Excessive header: %s is shorter than header_bytes (%" PRId64 ")", path, d->header);
  return NULL;
}

/* One line without its end, "\n" or "\r\n"; false at the end of the file. */
static shoal_status read_line(struct records_iter *r, bool *got) {
  struct byte_stream *s = &r->stream;
  vec_clear(&r->line);
  *got = false;
  for (;;) {
    TRY(byte_stream_fill(s));
    if (s->at == s->have) return NULL;
    *got = true;
    const char *from = s->out + s->at, *nl = memchr(from, '\n', s->have - s->at);
    size_t n = nl ? (size_t)(nl - from) : s->have - s->at;
    if (!counted_text_add(&r->line, from, n)) return NO_MEMORY(r->line.n + n, "a line");
    s->at += n + (nl ? 1 : 0);
    if (!nl) continue;
    if (r->line.n && r->line.at[r->line.n - 1] == '\r') r->line.n--;
    return NULL;
  }
}

/* A record of fixed length, with the footer's bytes always held back. */
static shoal_status read_fixed(struct records_iter *r, const struct record_dataset *d, bool *got) {
  size_t want = (size_t)(d->record + d->footer);
  while (r->tail.n < want) {
    char piece[8192];
    size_t n;
    TRY(byte_stream_read(&r->stream, piece, MIN(sizeof piece, want - r->tail.n), &n));
    if (!n) break;
    if (!counted_text_add(&r->tail, piece, n)) return NO_MEMORY(want, "a record");
  }
  *got = r->tail.n == want;
  if (!*got && r->tail.n != (size_t)d->footer)
    return STATUS(SHOAL_DATA_LOSS,
                  "%s: the last record is cut off: %zu of %" PRId64 " bytes, with a footer of %" PRId64,
                  d->files[r->file - 1], r->tail.n, d->record + d->footer, d->footer);
  if (!*got) return NULL;
  vec_clear(&r->line);
  if (!counted_text_add(&r->line, r->tail.at, (size_t)d->record)) return NO_MEMORY(d->record, "a record");
  memmove(r->tail.at, r->tail.at + d->record, (size_t)d->footer);
  r->tail.n = (size_t)d->footer;
  return NULL;
}

/* pass: it is not asked for, and may be passed by unread. */
static shoal_status read_one(struct records_iter *r, const struct record_dataset *d, bool pass, bool *got) {
  if (d->kind == RECORDS_LINES) return read_line(r, got);
  if (d->kind == RECORDS_FIXED) return read_fixed(r, d, got);
  shoal_status s = pass ? record_pass(&r->reader) : record_read(&r->reader, &r->line);
  *got = !s;
  if (shoal_status_code(s) == SHOAL_OUT_OF_RANGE) {
    shoal_status_free(s);
    s = NULL;
  }
  if (!s || r->reader.fault == RECORD_BAD_STREAM) return s; /* which names the file */
  return status_prefix(s, "%s: ", d->files[r->file - 1]);
}

/* The next record into the line, or past it. */
static shoal_status advance(struct data_iterator *it, bool pass, bool *end) {
  struct records_iter *r = (struct records_iter *)it;
  const struct record_dataset *d = (const struct record_dataset *)it->of;
  for (;;) {
    bool got = false;
    if (!r->open) {
      *end = r->file >= d->n_files;
      if (*end) return NULL;
      shoal_status s = open_file(r, d);
      if (s) close_file(r);
      TRY(s);
    }
    shoal_status s = read_one(r, d, pass, &got);
    if (s || !got) close_file(r);
    TRY(s);
    if (got) return NULL;
  }
}

static shoal_status records_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct records_iter *r = (struct records_iter *)it;
  TRY(advance(it, false, end));
  if (*end) return NULL;
  TRY(tensor_new_scalar(&out[0], SHOAL_STRING));
  str_set(out[0].data, r->line.n ? r->line.at : "", r->line.n);
  return NULL;
}

static shoal_status records_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  return advance(it, true, end);
}

static const struct data_iterator_type records_iter_type = {sizeof(struct records_iter), records_next,
                                                            records_iter_free, records_skip};

static shoal_status records_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&records_iter_type, d);
  return NULL;
}

static int64_t records_size(const struct dataset *d) { return SIZE_UNKNOWN; }

static void records_free(struct dataset *d) {
  struct record_dataset *r = (struct record_dataset *)d;
  for (int64_t i = 0; i < r->n_files; i++) free(r->files[i]);
  free(r->files);
  free(r->offsets);
}

static const struct dataset_type records_type = {"Records", records_iterate, records_size, records_free};

shoal_status dataset_records(const struct tensor *filenames, const struct record_options *o, struct dataset **out) {
  if (filenames->rank > 1) return INVALID("`filenames` must be a scalar or a vector.");
  enum record_compression compression;
  TRY(record_compression_parse(o->compression, &compression));
  if (o->kind == RECORDS_FIXED) {
    if (o->header < 0) return INVALID("`header_bytes` must be >= 0");
    if (o->record <= 0) return INVALID("`record_bytes` must be > 0");
    if (o->footer < 0) return INVALID("`footer_bytes` must be >= 0");
    if (o->record > INT32_MAX || o->footer > INT32_MAX) return INVALID("`record_bytes` or `footer_bytes` is too large");
  }
  if (o->offsets) {
    if (o->offsets->rank > 1) return INVALID("`byte_offsets` must be a scalar or a vector.");
    if (o->offsets->n != filenames->n)
      return INVALID("`byte_offsets` must be of same size as `filenames`: %" PRId64 " != %" PRId64, o->offsets->n,
                     filenames->n);
    for (int64_t i = 0; i < o->offsets->n; i++)
      if (T_DATA(o->offsets, const int64_t)[i] < 0) return INVALID("`byte_offsets` must not be negative");
  }
  shoal_dtype type = SHOAL_STRING;
  struct shape scalar = shape_scalar();
  struct record_dataset *d = (struct record_dataset *)dataset_new(sizeof *d, &records_type, 1, &type, &scalar, NULL, 0);
  d->kind = o->kind;
  d->compression = compression;
  d->header = o->header;
  d->record = o->record;
  d->footer = o->footer;
  d->n_files = filenames->n;
  d->files = mem_zalloc((size_t)filenames->n, sizeof *d->files);
  if (o->offsets) d->offsets = mem_zalloc((size_t)filenames->n, sizeof *d->offsets);
  for (int64_t i = 0; o->offsets && i < filenames->n; i++) d->offsets[i] = T_DATA(o->offsets, const int64_t)[i];
  for (int64_t i = 0; i < filenames->n; i++) {
    const struct str *s = &T_DATA(filenames, const struct str)[i];
    d->files[i] = mem_strndup(str_data(s), s->size);
  }
  *out = &d->head;
  return NULL;
}
