#include "word2vec/count.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stop.h"
#include "word2vec/crew.h"

struct word_counting {
  const struct corpus *corpus;
  bool pairs;
  int part, parts;   /* chunk i is part i % parts */
  atomic_llong next; /* chunk of this part that nobody has taken */
  size_t limit;      /* of each table */
  struct counter *counters;
};

shoal_status counter_add(struct counter *c, const char *word, size_t n, int64_t count, size_t limit) {
  while (!words_count(&c->words, word, n, count, limit)) {
    if (!c->words.n) return NO_MEMORY(limit, "a table of words");
    words_drop_rare(&c->words, ++c->dropped + 1);
  }
  return NULL;
}

/* A word, as the first of a pair: "word_", or nothing at the beginning of a line. */
struct before {
  char text[2 * CORPUS_WORD + 2];
  size_t n;
};

static shoal_status count_pair(struct counter *c, struct before *b, const char *word, size_t n, size_t limit) {
  shoal_status s = NULL;
  if (b->n) {
    memcpy(b->text + b->n, word, n);
    s = counter_add(c, b->text, b->n + n, 1, limit);
  }
  b->n = 0;
  if (n == strlen(CORPUS_LINE_END) && !memcmp(word, CORPUS_LINE_END, n)) return s;
  memcpy(b->text, word, n);
  b->text[n] = '_';
  b->n = n + 1;
  return s;
}

static shoal_status count_chunk(struct word_counting *j, struct counter *c, struct corpus_chunk *chunk) {
  struct before before = {.n = 0};
  const char *word;
  size_t n;
  while (corpus_next(chunk, &word, &n)) {
    TRY(counter_add(c, word, n, 1, j->limit));
    if (j->pairs) TRY(count_pair(c, &before, word, n, j->limit));
  }
  return NULL;
}

static shoal_status count_chunks(void *arg, int number) {
  struct word_counting *j = arg;
  struct corpus_chunk chunk = {0};
  shoal_status s = NULL;
  for (int64_t i; !s && (i = j->part + j->parts * atomic_fetch_add(&j->next, 1)) < j->corpus->chunks;) {
    if (stop_told()) s = STATUS(SHOAL_CANCELLED, "told to stop while counting words");
    else s = corpus_read(j->corpus, i, &chunk);
    if (!s) s = count_chunk(j, &j->counters[number], &chunk);
  }
  corpus_chunk_release(&chunk);
  return s;
}

static shoal_status add_all(struct counter *into, const struct counter *from, size_t limit) {
  into->dropped = MAX(into->dropped, from->dropped);
  for (size_t i = 0; i < from->words.n; i++)
    TRY(counter_add(into, word_text(&from->words, i), from->words.at[i].n, from->words.at[i].count, limit));
  return NULL;
}

shoal_status count_words(struct counter *all, const struct corpus *c, bool pairs, int threads, size_t memory,
                         const struct count_share *share) {
  /* A table is copied as it grows. */
  struct word_counting j = {.corpus = c,
                            .pairs = pairs,
                            .part = share ? share->part : 0,
                            .parts = share ? share->parts : 1,
                            .limit = memory / (2 * (size_t)threads)};
  j.counters = mem_zalloc((size_t)threads, sizeof *j.counters);
  shoal_status s = crew_run(threads, count_chunks, &j);
  for (int t = 1; t < threads; t++) {
    if (!s) s = add_all(&j.counters[0], &j.counters[t], memory / 2);
    words_release(&j.counters[t].words);
  }
  if (share) s = share->join(share->arg, &j.counters[0], memory / 2, s);
  if (s) words_release(&j.counters[0].words);
  *all = j.counters[0];
  free(j.counters);
  return s;
}
