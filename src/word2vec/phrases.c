#include "word2vec/phrases.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stop.h"
#include "base/text.h"
#include "word2vec/count.h"

struct phrasing {
  const struct phrases_options *o;
  const struct words *counts;
  int64_t total; /* words of the text */
  struct file_writer to;
  char last[2 * CORPUS_WORD + 2]; /* the word before, which may be joined with the next; a word of the text */
  size_t n;                       /* 0: none */
  bool written;                   /* it is, as the second of a pair: it joins no other */
  bool in_line;                   /* something is in this line */
  int64_t joined;
};

static int64_t count_of(const struct phrasing *p, const char *word, size_t n) {
  int64_t id = words_find(p->counts, word, n);
  return id < 0 ? 0 : p->counts->at[id].count;
}

/* Are the word before and this one a phrase? */
static bool is_phrase(struct phrasing *p, const char *word, size_t n) {
  int64_t a = count_of(p, p->last, p->n), b = count_of(p, word, n);
  if (!p->n || p->written || a < p->o->min_count || b < p->o->min_count) return false;
  p->last[p->n] = '_';
  memcpy(p->last + p->n + 1, word, n);
  int64_t both = count_of(p, p->last, p->n + 1 + n);
  return (double)(both - p->o->min_count) / (double)a / (double)b * (double)p->total > p->o->threshold;
}

static shoal_status add_word(struct phrasing *p, const char *word, size_t n) {
  bool joins = is_phrase(p, word, n);
  if (p->in_line) TRY(file_writer_add(&p->to, joins ? "_" : " ", 1));
  TRY(file_writer_add(&p->to, word, n));
  memcpy(p->last, word, n);
  p->n = n;
  p->written = joins;
  p->joined += joins;
  p->in_line = true;
  return NULL;
}

static shoal_status end_line(struct phrasing *p) {
  p->n = 0;
  p->written = p->in_line = false;
  return file_writer_add(&p->to, "\n", 1);
}

/* A line's end is told from the word "</s>" of the text by where it lies. */
static shoal_status add_chunk(struct phrasing *p, struct corpus_chunk *c) {
  const char *word;
  size_t n;
  while (corpus_next(c, &word, &n)) {
    bool inside = word >= c->bytes && word < c->bytes + c->room;
    TRY(inside ? add_word(p, word, n) : end_line(p));
  }
  return NULL;
}

static shoal_status add_text(struct phrasing *p, const struct corpus *c) {
  struct corpus_chunk chunk = {0};
  shoal_status s = NULL;
  for (int64_t i = 0; i < c->chunks && !s; i++) {
    s = stop_told() ? STATUS(SHOAL_CANCELLED, "told to stop while writing phrases") : corpus_read(c, i, &chunk);
    if (!s) s = add_chunk(p, &chunk);
  }
  corpus_chunk_release(&chunk);
  return s;
}

/* Words of the text alone: of pairs there are as many again, less one a line. */
static shoal_status count_total(const struct corpus *c, int threads, size_t memory, int64_t *total) {
  struct counter words;
  TRY(count_words(&words, c, false, threads, memory, NULL));
  for (size_t i = 0; i < words.words.n; i++) *total += words.words.at[i].count;
  words_release(&words.words);
  return NULL;
}

shoal_status phrases_write(const struct corpus *c, const struct phrases_options *o, const char *path, int64_t *joined) {
  struct counter counts;
  struct phrasing p = {.o = o, .counts = &counts.words};
  TRY(count_total(c, o->threads, o->memory, &p.total));
  TRY(count_words(&counts, c, true, o->threads, o->memory, NULL));
  shoal_status s = file_writer_open(&p.to, path);
  if (!s) {
    s = add_text(&p, c);
    if (!s) s = file_writer_commit(&p.to);
    else file_writer_abort(&p.to);
  }
  words_release(&counts.words);
  *joined = p.joined;
  return s;
}
