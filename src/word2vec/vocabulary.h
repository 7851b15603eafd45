/* The words that get vectors: counted by several threads, the rare ones left out, the most frequent first.
 *
 * Word 0 is "</s>", the end of a line, whatever its count; so have it the original program and its files. The result
 * does not depend on the number of threads, as long as the memory allowed is enough. Where it is not, each thread's
 * table drops the words it has met least so far, once, then twice, and so on, as the original does at a fixed size; how
 * far that went is told. */
#ifndef WORD2VEC_VOCABULARY_H
#define WORD2VEC_VOCABULARY_H

#include "word2vec/corpus.h"
#include "base/words.h"

struct word_vocabulary {
  struct words words;
  int64_t total;    /* occurrences of the words in it */
  int64_t seen;     /* of all words; 0: not known */
  int64_t distinct; /* of those */
  int64_t dropped;  /* words met so often, or less, in a part of the text may be missing for want of memory; 0: none */
};

/* memory: bytes that counting may take. INVALID_ARGUMENT when no word is left. */
shoal_status vocabulary_count(struct word_vocabulary *v, const struct corpus *c, int64_t min_count, int threads,
                              size_t memory);
/* The same by several that share the text: all have the same words in the end. */
struct count_share; /* word2vec/count.h */
shoal_status vocabulary_count_shared(struct word_vocabulary *v, const struct corpus *c, int64_t min_count, int threads,
                                     size_t memory, const struct count_share *share);
/* A file of lines "WORD COUNT": what vocabulary_save() and the original write. */
shoal_status vocabulary_read(struct word_vocabulary *v, const char *path, int64_t min_count);
shoal_status vocabulary_save(const struct word_vocabulary *v, const char *path);
void vocabulary_release(struct word_vocabulary *v);

#endif
