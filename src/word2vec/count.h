/* Counting words of a text by several threads: each has a table of its own, and the tables are joined. */
#ifndef WORD2VEC_COUNT_H
#define WORD2VEC_COUNT_H

#include "word2vec/corpus.h"
#include "base/words.h"

struct counter {
  struct words words;
  int64_t dropped; /* words met so often, or less, may be missing, for want of memory */
};

/* pairs: neighbours in a line are counted too, as "first_second". memory: bytes for all tables. CANCELLED when told to
 * stop. */
shoal_status count_words(struct counter *all, const struct corpus *c, bool pairs, int threads, size_t memory);

#endif
