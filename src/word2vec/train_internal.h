/* What the files of training share.
 *
 *   model.c       the matrices
 *   train.c       threads, passes, chunks, sentences
 *   train_word.c  one position of a sentence */
#ifndef WORD2VEC_TRAIN_INTERNAL_H
#define WORD2VEC_TRAIN_INTERNAL_H

#include <stdatomic.h>

#include "word2vec/block.h"
#include "word2vec/sampling.h"
#include "word2vec/train.h"
#include "word2vec/tree.h"

enum { SENTENCE = 1000 /* words; longer ones are cut, as in the original */ };

/* A chunk as numbers of words. */
struct numbers {
  size_t n;
  uint32_t at[];
};

struct word_training {
  const struct training_options *o;
  const struct corpus *corpus;
  const struct word_vocabulary *vocabulary;
  const struct word_model *model;
  const struct block_kernel *kernel;
  struct word_sampling sampling;
  struct word_tree tree;
  int64_t began;                   /* clock_ns() */
  atomic_llong next;               /* chunk of a pass, of this host's, that nobody has taken */
  int64_t until;                   /* which is left for after the next meeting */
  int64_t chunks;                  /* of this host */
  atomic_llong words;              /* trained */
  atomic_llong room;               /* bytes that chunks may still take */
  _Atomic(struct numbers *) *kept; /* [chunks] */
};

/* One thread. */
struct trainer {
  struct word_training *t;
  uint64_t state; /* of chance() */
  float rate;
  int64_t words; /* not yet in t->words */
  int64_t told;  /* clock_ns() of the last progress */
  struct corpus_chunk chunk;
  uint32_t sentence[SENTENCE];
  int n;
  /* of one position */
  uint32_t drawn[TRAIN_MOST_NEGATIVE];
  float *x[2 * TRAIN_MOST_WINDOW];
  float **y, *label;      /* as many as there can be */
  float *hidden, *before; /* rows, for CBOW */
  struct block_room room;
};

/* The matrices: vectors begin at random, as the original's do, the others with zeros. */
shoal_status model_new(struct word_model *m, const struct word_vocabulary *v, const struct training_options *o);

/* Draws the words for the first position of a sentence. */
void trainer_draw(struct trainer *w);
/* Trains one position, and draws for the next. */
void trainer_step(struct trainer *w, int at);

#endif
