/* Training word vectors on one host, or several: skip-gram or CBOW, by negative sampling, the hierarchical softmax, or
 * both.
 *
 * Threads take chunks of the text in turn, one pass after the other, and train one model (block.h says how, and why
 * without locks). Which occurrences are used, which windows they have and which words are drawn is decided by the seed,
 * the pass and the chunk; with one thread the same bits come out each time. The rate falls in a line to a ten
 * thousandth of what it began with, as in the original.
 *
 * The text is read from its files in each pass; what is left of the memory allowed, beside the model, holds chunks as
 * numbers of words, which need not be looked up again. */
#ifndef WORD2VEC_TRAIN_H
#define WORD2VEC_TRAIN_H

#include "word2vec/vocabulary.h"

enum { TRAIN_MOST_WINDOW = 255, TRAIN_MOST_NEGATIVE = 255 };

struct word_model;

struct training_progress {
  double part;    /* of all passes, up to 1 */
  double rate;    /* of learning */
  int64_t words;  /* trained so far, those passed over included */
  double seconds; /* since training began */
};

struct training_options {
  size_t width;
  int window, negative;
  bool cbow, hs;
  double rate, sample;
  int64_t passes;
  int threads;
  uint64_t seed;
  size_t memory; /* bytes for the model, and for what is kept of the text; 0: as much as it takes, nothing is kept */
  void (*tell)(void *arg, const struct training_progress *p); /* now and then, by one thread; may be NULL */
  void *arg;
  /* Several hosts: each trains its part of the text, and they meet before the first pass, and so many times in
   * each. workers 0: this one alone. mine: what went wrong here since the last time, or NULL; it is taken over, all
   * hosts hear of it, and it is the answer. */
  int worker, workers, meetings;
  shoal_status (*meet)(void *arg, struct word_model *m, size_t words, shoal_status mine);
  void *meet_arg;
};

struct word_model {
  float *in;    /* [words][stride]: the vectors */
  float *out;   /* of negative sampling; NULL: none */
  float *nodes; /* of the hierarchical softmax; NULL: none */
  size_t width, stride;
};

/* INVALID_ARGUMENT for what makes no sense whatever the text is. */
shoal_status training_options_check(const struct training_options *o);
/* INVALID_ARGUMENT for what makes no sense, RESOURCE_EXHAUSTED for a model that is too large, CANCELLED when told to
 * stop (base/stop.h), FAILED_PRECONDITION when numbers grew beyond all bounds. */
shoal_status word2vec_train(struct word_model *m, const struct corpus *c, const struct word_vocabulary *v,
                            const struct training_options *o);
void model_release(struct word_model *m);

#endif
