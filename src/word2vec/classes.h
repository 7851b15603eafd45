/* Words put into classes by their vectors, as the original program does with -classes: k-means by cosine, ten times
 * over, words dealt out in turn at first. The same classes come out whatever the number of threads. */
#ifndef WORD2VEC_CLASSES_H
#define WORD2VEC_CLASSES_H

#include "base/words.h"
#include "base/status.h"

enum { CLASSES_MOST = 1 << 20 };

/* class_of: [words], to be filled; classes: 1 to as many as there are words. rows: as vectors.h has them.
 * RESOURCE_EXHAUSTED, or CANCELLED when told to stop. */
shoal_status classes_find(const float *rows, size_t words, size_t width, int classes, int threads, int32_t *class_of);
/* Writes lines "WORD CLASS", as many as there are words; the file appears when it is whole. */
shoal_status classes_write(const struct words *words, const float *rows, size_t width, int classes, int threads,
                           const char *path);

#endif
