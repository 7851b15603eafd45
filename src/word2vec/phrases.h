/* Phrases: pairs of words that stand together more often than chance would have it become one word, "new_york". Run on
 * what it wrote, it finds longer ones.
 *
 * A pair's score is (count of the pair - min_count) / (count of the first * count of the second) * words of the text,
 * as in the original's word2phrase; pairs above the threshold are joined, the first of two that overlap. */
#ifndef WORD2VEC_PHRASES_H
#define WORD2VEC_PHRASES_H

#include "word2vec/corpus.h"

struct phrases_options {
  int64_t min_count;
  double threshold;
  int threads;
  size_t memory; /* for counts; where it does not do, rare words and pairs are dropped as vocabulary.h has it */
};

/* Writes the text again, phrases joined, its lines as they were; *joined: how many. The file appears when whole. */
shoal_status phrases_write(const struct corpus *c, const struct phrases_options *o, const char *path, int64_t *joined);

#endif
