#include "word2vec/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "word2vec/count.h"

void vocabulary_release(struct word_vocabulary *v) { words_release(&v->words); }

/* ---- counting ---- */

/* Puts "</s>" first, drops the rare, sorts the rest. */
static shoal_status order(struct word_vocabulary *v, struct words *from, int64_t min_count) {
  size_t end = strlen(CORPUS_LINE_END);
  int64_t line_end = words_find(from, CORPUS_LINE_END, end);
  words_count(&v->words, CORPUS_LINE_END, end, line_end < 0 ? 0 : from->at[line_end].count, 0);
  for (size_t i = 0; i < from->n; i++) {
    const struct word *x = &from->at[i];
    if ((int64_t)i == line_end || x->count < min_count) continue;
    if (!words_count(&v->words, from->bytes + x->at, x->n, x->count, 0)) return NO_MEMORY(x->n, "the vocabulary");
  }
  words_sort(&v->words, 1);
  for (size_t i = 0; i < v->words.n; i++)
    if (__builtin_add_overflow(v->total, v->words.at[i].count, &v->total))
      return INVALID("all words together are there more than %" PRId64 " times", INT64_MAX);
  size_t different = from->n - (line_end >= 0);
  if (v->words.n > 1) return NULL;
  if (!different) return INVALID("there are no words");
  return INVALID("no word is there %" PRId64 " times or more (%zu different ones are): lower -min-count", min_count,
                 different);
}

static void measure(struct word_vocabulary *v, const struct words *w) {
  v->distinct = (int64_t)w->n;
  for (size_t i = 0; i < w->n; i++) v->seen += w->at[i].count;
}

shoal_status vocabulary_count_shared(struct word_vocabulary *v, const struct corpus *c, int64_t min_count, int threads,
                                     size_t memory, const struct count_share *share) {
  *v = (struct word_vocabulary){0};
  struct counter all;
  TRY(count_words(&all, c, false, threads, memory, share));
  v->dropped = all.dropped;
  measure(v, &all.words);
  shoal_status s = order(v, &all.words, min_count);
  words_release(&all.words);
  if (s) vocabulary_release(v);
  return s;
}

shoal_status vocabulary_count(struct word_vocabulary *v, const struct corpus *c, int64_t min_count, int threads,
                              size_t memory) {
  return vocabulary_count_shared(v, c, min_count, threads, memory, NULL);
}

/* ---- files ---- */

shoal_status vocabulary_save(const struct word_vocabulary *v, const char *path) {
  struct file_writer f;
  TRY(file_writer_open(&f, path));
  struct text line = {0};
  shoal_status s = NULL;
  for (size_t i = 0; i < v->words.n && !s; i++) {
    line.n = 0;
    text_addf(&line, "%s %" PRId64 "\n", word_text(&v->words, i), v->words.at[i].count);
    s = file_writer_add(&f, line.at, line.n);
  }
  text_release(&line);
  if (!s) return file_writer_commit(&f);
  file_writer_abort(&f);
  return s;
}

/* Reads one line, of which the end is a NUL. */
static shoal_status read_line(struct words *w, char *line, const char *path, int64_t number) {
  char *space = strrchr(line, ' ');
  int64_t count = 0;
  size_t n = space ? (size_t)(space - line) : 0;
  if (!n || n > CORPUS_WORD || !str_to_int64(space + 1, &count) || count < 0)
    return INVALID("%s: line %" PRId64 " is not \"WORD COUNT\"", path, number);
  if (words_find(w, line, n) >= 0) return INVALID("%s: line %" PRId64 " has a word for the second time", path, number);
  if (!words_count(w, line, n, count, 0)) return NO_MEMORY(n, "the vocabulary");
  return NULL;
}

static shoal_status read_lines(struct words *w, char *data, const char *path) {
  int64_t number = 1;
  for (char *line = data, *end; *line; line = end, number++) {
    end = line + strcspn(line, "\n");
    if (*end) *end++ = 0;
    TRY(read_line(w, line, path, number));
  }
  return NULL;
}

shoal_status vocabulary_read(struct word_vocabulary *v, const char *path, int64_t min_count) {
  *v = (struct word_vocabulary){0};
  struct words all = {0};
  char *data;
  size_t n;
  TRY(file_read(path, 0, &data, &n));
  shoal_status s = read_lines(&all, data, path);
  free(data);
  if (!s) s = status_prefix(order(v, &all, min_count), "%s: ", path);
  words_release(&all);
  if (s) vocabulary_release(v);
  return s;
}
