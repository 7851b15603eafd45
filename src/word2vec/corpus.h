/* The text that is trained on: files of any size, read in chunks by several threads.
 *
 * A word is a run of bytes between blanks (space, tab, carriage return, NUL, the end of a line); the end of a line is a
 * word too, "</s>", as in the original program. A word belongs to the chunk it begins in, so chunks can be read in any
 * order and each word is seen once. Words of more than CORPUS_WORD bytes are cut there, before a byte of UTF-8 that
 * goes on; nothing else is asked of their encoding. What a chunk takes of memory is bounded, whatever is in the file: a
 * line of a gigabyte, or a word of one.
 *
 * Files are read by position, not mapped: one that is cut short meanwhile is an error, not a signal. */
#ifndef WORD2VEC_CORPUS_H
#define WORD2VEC_CORPUS_H

#include "base/file.h"

enum { CORPUS_WORD = 99 };
#define CORPUS_LINE_END "</s>"

struct corpus_file {
  struct file_reader reader;
  int64_t first; /* its first chunk's number */
};

struct corpus {
  VEC(struct corpus_file) files;
  int64_t bytes, chunks, chunk_bytes;
};

/* Files that are all empty are INVALID_ARGUMENT. */
shoal_status corpus_open(struct corpus *c, char *const *paths, int n);
void corpus_close(struct corpus *c);

struct corpus_chunk {
  char *bytes;
  size_t room, n; /* n: bytes that are there; words may reach beyond `end` */
  size_t at, end;
};
/* Reads a chunk into c, which may have held another. */
shoal_status corpus_read(const struct corpus *from, int64_t chunk, struct corpus_chunk *c);
/* The next word, in c's memory, not ended by NUL; false: there is none. */
bool corpus_next(struct corpus_chunk *c, const char **word, size_t *n);
void corpus_chunk_release(struct corpus_chunk *c);

#endif
