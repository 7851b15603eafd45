/* TFRecord files: a sequence of byte strings with checksums, plain or inside a gzip, zlib or Snappy stream.
 *
 *   record   u64 length, u32 masked CRC-32C of those 8 bytes, data, u32 masked CRC-32C of the data
 *
 * There is no header and no end: an empty file is a file of no records. A Snappy stream is blocks, each a u32 length,
 * most significant byte first, and as many packed bytes (base/snappy.h). */
#ifndef DATA_RECORD_H
#define DATA_RECORD_H

#include "base/file.h"
#include "base/text.h"

enum record_compression { RECORD_PLAIN, RECORD_GZIP, RECORD_ZLIB, RECORD_SNAPPY };
/* "", "GZIP" or "ZLIB", as TensorFlow names them; "SNAPPY" is only for what it saves of datasets. */
shoal_status record_compression_parse(const char *name, enum record_compression *out);

/* A file read from front to back, unpacked on the way: records are one use, lines of text another. */
struct byte_stream {
  struct file_reader file;
  struct z_stream_s *z; /* NULL when plain, or Snappy */
  bool snappy;          /* out is the block last unpacked */
  char *raw, *out;      /* what was read, what it unpacked to (the same when plain) */
  size_t at, have;      /* out[at..have) is not yet taken */
  int64_t file_at;      /* the next byte to read from the file */
  bool ended;
  bool within;    /* a packed stream has begun and not come to its end: true at the end of a file that is cut off */
  size_t counted; /* Snappy: bytes of out, in the account of strings */
};
shoal_status byte_stream_open(struct byte_stream *s, const char *path, enum record_compression c);
/* Takes up to n bytes; *got is less only at the end of the stream. */
shoal_status byte_stream_read(struct byte_stream *s, void *to, size_t n, size_t *got);
/* More bytes into out[at..have), when it is empty; leaves it empty at the end. */
shoal_status byte_stream_fill(struct byte_stream *s);
void byte_stream_close(struct byte_stream *s);

/* What is wrong with a record that could not be read. */
enum record_fault { RECORD_SOUND, RECORD_BAD_LENGTH, RECORD_BAD_DATA, RECORD_CUT_OFF, RECORD_BAD_STREAM };

enum { RECORD_HEADER = 12, RECORD_FOOTER = 4 };

struct record_reader {
  struct byte_stream in;
  uint64_t offset; /* of the next record in the unpacked stream */
  unsigned char head[RECORD_HEADER];
  bool head_read; /* record_skip has found the next one's */
  enum record_fault fault;
};
shoal_status record_reader_open(struct record_reader *r, const char *path, enum record_compression c);
/* The next record in *record, a counted text (tensor/strings.h) whose contents are replaced. OUT_OF_RANGE at the end;
 * DATA_LOSS for a record that is truncated or damaged. */
shoal_status record_read(struct record_reader *r, struct text *record);
/* The same without the record, whose bytes are not checked. */
shoal_status record_pass(struct record_reader *r);
/* After DATA_LOSS: past the damaged record, so that reading may go on. Where its length is what is damaged, the next
 * one begins where twelve bytes have their checksum right. *skipped: bytes of the unpacked stream that were passed.
 * False when there is no going on: the file ends here, or cannot be unpacked. */
bool record_skip(struct record_reader *r, uint64_t *skipped);
void record_reader_close(struct record_reader *r);

/* How a file of records is packed, by its first bytes. */
shoal_status record_compression_guess(const char *path, enum record_compression *out);

struct record_writer {
  struct file_writer file;
  struct z_stream_s *z;
  char *packed;
  bool snappy;
  size_t pending; /* Snappy: plain bytes in `packed` that wait for more */
};
shoal_status record_writer_open(struct record_writer *w, const char *path, enum record_compression c);
/* The same for a file that appears when it is whole; what is there and no file (a pipe) is written to as it is. */
shoal_status record_writer_open_whole(struct record_writer *w, const char *path, enum record_compression c);
shoal_status record_write(struct record_writer *w, const void *data, size_t n);
/* What was written so far reaches the system (a packed stream up to a point where it can be read). */
shoal_status record_flush(struct record_writer *w);
shoal_status record_writer_close(struct record_writer *w);
/* Of a file that was to appear when whole: it does not. */
void record_writer_abort(struct record_writer *w);

#endif
