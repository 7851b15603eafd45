/* Counting words of a text by several threads: each has a table of its own, and the tables are joined. */
#ifndef WORD2VEC_COUNT_H
#define WORD2VEC_COUNT_H

#include "word2vec/corpus.h"
#include "base/words.h"

struct counter {
  struct words words;
  int64_t dropped; /* words met so often, or less, may be missing, for want of memory */
};

/* A text of which others count their parts. */
struct count_share {
  int part, parts;
  /* What all have counted takes the place of this part's. limit: bytes for the table. mine: what went wrong with this
   * part, or NULL; it is taken over, all others hear of it, and it is the answer. */
  shoal_status (*join)(void *arg, struct counter *part, size_t limit, shoal_status mine);
  void *arg;
};

/* pairs: neighbours in a line are counted too, as "first_second". memory: bytes for all tables. share NULL: all of the
 * text is counted here. CANCELLED when told to stop. */
shoal_status count_words(struct counter *all, const struct corpus *c, bool pairs, int threads, size_t memory,
                         const struct count_share *share);
/* Counts a word so many times more; where the table has no room for it, the rarest go. */
shoal_status counter_add(struct counter *c, const char *word, size_t n, int64_t count, size_t limit);

#endif
