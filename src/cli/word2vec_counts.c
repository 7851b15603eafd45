/* Counts of words that several tasks have made of their parts of a text become one table, the same in all of them.
 *
 * Each sends its words as lines "WORD COUNT" in pieces of one size, whole lines, filled up with NULs, as long as any
 * task has some left. All take in what all have sent in the same order, so where memory does not do and rare words are
 * dropped, they are the same ones everywhere. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cli/word2vec.h"
#include "word2vec/count.h"

enum { PIECE = WORD2VEC_PIECE, LINE = CORPUS_WORD + 24 }; /* bytes */

/* Lines from word *at on, as many as there is room for. */
static void put_lines(const struct words *w, size_t *at, char *piece) {
  size_t used = 0;
  memset(piece, 0, PIECE);
  for (; *at < w->n && used + LINE < PIECE; (*at)++)
    used += (size_t)snprintf(piece + used, LINE, "%s %" PRId64 "\n", word_text(w, *at), w->at[*at].count);
}

static shoal_status take_line(struct counter *into, char *line, int task, size_t limit) {
  char *space = strrchr(line, ' ');
  int64_t count = 0;
  size_t n = space ? (size_t)(space - line) : 0;
  if (!n || n > CORPUS_WORD || !str_to_int64(space + 1, &count) || count < 1)
    return INVALID("task %d does not send words and how often they are there, as this version of shoal does", task);
  return counter_add(into, line, n, count, limit);
}

static shoal_status take_lines(struct counter *into, const char *piece, int task, size_t limit) {
  char line[LINE];
  for (size_t at = 0; at < PIECE && piece[at];) {
    const char *end = memchr(piece + at, '\n', PIECE - at);
    size_t n = end ? (size_t)(end - piece) - at : LINE;
    if (n >= LINE) return INVALID("task %d sends a line that is too long for a word and its count", task);
    memcpy(line, piece + at, n);
    line[n] = 0;
    TRY(take_line(into, line, task, limit));
    at += n + 1;
  }
  return NULL;
}

/* One piece of each task. */
static shoal_status exchange(struct word2vec_hosts *h, const struct words *own, size_t *at, struct counter *into,
                             size_t limit) {
  shoal_tensor *piece, *all = NULL;
  int task, tasks = word2vec_hosts_tasks(h, &task);
  TRY(shoal_tensor_new(SHOAL_INT32, 1, (int64_t[]){WORD2VEC_GATHERED}, &piece));
  put_lines(own, at, shoal_tensor_data(piece));
  shoal_status s = word2vec_hosts_gather(h, piece, &all);
  shoal_tensor_unref(piece);
  TRY(s);
  for (int i = 0; !s && i < tasks; i++)
    s = take_lines(into, (const char *)shoal_tensor_const_data(all) + (size_t)i * PIECE, i, limit);
  shoal_tensor_unref(all);
  return s;
}

shoal_status word2vec_counts_join(void *arg, struct counter *own, size_t limit, shoal_status mine) {
  struct word2vec_hosts *h = arg;
  struct counter joined = {.dropped = own->dropped};
  size_t at = 0;
  TRY(word2vec_hosts_agree(h, mine));
  shoal_status s = word2vec_hosts_most(h, &joined.dropped);
  for (int64_t more = 1; !s && more;) {
    more = at < own->words.n;
    s = word2vec_hosts_most(h, &more);
    if (!s && more) s = exchange(h, &own->words, &at, &joined, limit);
  }
  if (s) words_release(&joined.words);
  else {
    words_release(&own->words);
    *own = joined;
  }
  return s;
}
