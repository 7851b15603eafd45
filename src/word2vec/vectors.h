/* Words with their vectors: what training makes, what the files of word2vec hold, what questions are asked of.
 *
 *   text     "WORDS WIDTH\n", then for each word "WORD x x x ... \n"
 *   binary   "WORDS WIDTH\n", then for each word "WORD ", WIDTH floats (little-endian), "\n"
 *
 * The newline behind binary floats is missing in files of some writers (gensim): one is passed over where it is. */
#ifndef WORD2VEC_VECTORS_H
#define WORD2VEC_VECTORS_H

#include "base/file.h"
#include "base/words.h"

struct vectors {
  struct words words;
  float *rows;          /* [words.n][stride], 64-byte aligned, zero beyond the width */
  size_t width, stride; /* floats */
};

/* Rows of zeros for so many words; RESOURCE_EXHAUSTED when there is no memory. */
shoal_status rows_new(size_t n, size_t width, float **out);
size_t rows_stride(size_t width);

enum vectors_format { VECTORS_GUESS, VECTORS_TEXT, VECTORS_BINARY };

/* NULs in the words of a file, numbers that are none, files cut short: DATA_LOSS, with file and word. */
shoal_status vectors_read(struct vectors *v, const char *path, enum vectors_format format);
/* The same of a file's bytes, data[n] being a NUL; name is for errors. */
shoal_status vectors_parse(struct vectors *v, const char *data, size_t n, enum vectors_format format, const char *name);
/* The file appears when it is whole. */
shoal_status vectors_write(const struct words *words, const float *rows, size_t width, const char *path, bool binary);
void vectors_release(struct vectors *v);

/* ---- questions ---- */

struct word_neighbor {
  size_t word;
  float cosine;
};
/* Makes every row of length 1; rows of zeros stay. */
void vectors_normalize(struct vectors *v);
/* The words nearest to the sum of rows times their signs, without those asked of; returns how many (at most `most`).
 * Rows must be of length 1. */
size_t vectors_near(const struct vectors *v, const size_t *words, const float *signs, size_t n,
                    struct word_neighbor *out, size_t most);

#endif
