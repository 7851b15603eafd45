/* Words that stand near each other in a text: pairs, the examples of a skip-gram model, or a word with all that are
 * around it, those of a continuous bag of words.
 *
 * The words are those of a file of lines "WORD COUNT", most frequent first, which `shoal word2vec train -save-vocab`
 * writes. The text is mapped and looked at where chance says: it may be larger than memory. Which pairs a batch has is
 * known by its number, so a run that goes on sees what it would have seen; each worker has a part of the text. */
#ifndef EXAMPLES_WORD_PAIRS_H
#define EXAMPLES_WORD_PAIRS_H

#include "tokens.h"

struct vocabulary {
  char *text; /* the file, its words ended by NUL */
  const char **words;
  float *counts, *keep; /* keep: how often an occurrence is used, out of 1; NULL until a text is opened */
  double total;
  int64_t n;
  int32_t *index; /* [slots]: 1 + a word's number; 0: free */
  uint64_t slots;
};

static inline uint64_t hash_of(const char *word, size_t n) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)word[i]) * 1099511628211u;
  return h ^ h >> 29;
}

/* The slot of a word, or the one where it would be. */
static inline uint64_t slot_of(const struct vocabulary *v, const char *word, size_t n) {
  uint64_t at = hash_of(word, n) % v->slots;
  for (; v->index[at]; at = (at + 1) % v->slots) {
    const char *known = v->words[v->index[at] - 1];
    if (!strncmp(known, word, n) && !known[n]) break;
  }
  return at;
}

/* A word's number; -1: it has none. */
static inline int64_t find_word(const struct vocabulary *v, const char *word, size_t n) {
  return (int64_t)v->index[slot_of(v, word, n)] - 1;
}

static inline struct vocabulary read_vocabulary(const char *path) {
  struct vocabulary v;
  size_t size, lines = 1;
  memset(&v, 0, sizeof v);
  const unsigned char *file = map_file(path, &size);
  v.text = (char *)calloc(size + 1, 1);
  memcpy(v.text, file, size);
  for (size_t i = 0; i < size; i++) lines += v.text[i] == '\n';
  v.slots = lines * 2;
  v.words = (const char **)calloc(lines, sizeof *v.words);
  v.counts = (float *)calloc(lines, sizeof *v.counts);
  v.index = (int32_t *)calloc(v.slots, sizeof *v.index);
  char *rest;
  for (char *line = strtok_r(v.text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char *space = strrchr(line, ' '), *end = line;
    double count = space ? strtod(space + 1, &end) : 0;
    if (!space || end == space + 1 || *end || count < 0)
      refuse_file(path, "a line is not \"WORD COUNT\", as `shoal word2vec train -save-vocab` writes them");
    *space = 0;
    v.index[slot_of(&v, line, strlen(line))] = (int32_t)v.n + 1;
    v.words[v.n] = line;
    v.counts[v.n++] = (float)count;
    v.total += count;
  }
  if (v.n < 3) refuse_file(path, "there are too few words in it");
  return v;
}

static inline void free_vocabulary(struct vocabulary *v) {
  free(v->text);
  free(v->words);
  free(v->counts);
  free(v->keep);
  free(v->index);
}

struct word_pairs {
  const struct vocabulary *vocabulary;
  const char *text; /* this worker's part */
  size_t size;
  int64_t batch, window;
  uint64_t seed;
  int worker;
};

static inline uint64_t next_chance(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/* Words more frequent than `sample` are passed over now and then, as in the original program. */
static inline void set_keep(struct vocabulary *v, double sample) {
  v->keep = (float *)calloc((size_t)v->n, sizeof *v->keep);
  for (int64_t i = 0; i < v->n; i++) {
    double often = sample * v->total, count = (double)v->counts[i];
    v->keep[i] = often > 0 && count > often ? (float)((sqrt(count / often) + 1) * often / count) : 1.0f;
  }
}

static inline bool passed_over(const struct vocabulary *v, int64_t word, uint64_t *state) {
  return v->keep[word] < 1 && (float)next_chance(state) / 2147483648.0f > v->keep[word];
}

static inline bool is_blank(char ch) { return ch == ' ' || ch == '\t' || ch == '\r'; }

/* Words that follow each other from a place that chance chose, in one line; returns how many. *looked grows by the
 * bytes that were looked at, no more than `patience` in all. */
static inline int words_somewhere(const struct word_pairs *p, uint64_t *state, int64_t *words, int most,
                                  size_t patience, size_t *looked) {
  enum { LEAST = 64 }; /* that a look costs */
  uint64_t high = next_chance(state), low = next_chance(state);
  size_t at = (size_t)((high << 31 | low) % p->size), from = at, left = patience - *looked;
  int n = 0;
  while (at < p->size && !is_blank(p->text[at]) && p->text[at] != '\n') at++; /* the rest of a word */
  while (at < p->size && n < most && at - from < left) {
    while (at < p->size && (is_blank(p->text[at]) || (p->text[at] == '\n' && !n))) at++;
    if (at >= p->size || p->text[at] == '\n') break;
    size_t begin = at;
    while (at < p->size && !is_blank(p->text[at]) && p->text[at] != '\n') at++;
    int64_t word = find_word(p->vocabulary, p->text + begin, at - begin);
    if (word >= 0 && !passed_over(p->vocabulary, word, state)) words[n++] = word;
  }
  *looked += at - from < LEAST ? LEAST : at - from;
  return n;
}

enum { MOST_AROUND = 64 };

/* Where chance begins for the batch of a number. */
static inline uint64_t batch_state(const struct word_pairs *p, int64_t position) {
  uint64_t state = (p->seed * 1000003u + (uint64_t)p->worker) * 0x9e3779b97f4a7c15u + (uint64_t)position * 7919u;
  next_chance(&state);
  return state;
}

/* Two words or more, in a window whose size chance chooses; the one in the middle is number n / 2. */
static inline int some_words(const struct word_pairs *p, uint64_t *state, int64_t words[MOST_AROUND]) {
  const size_t patience = (size_t)1 << 26;
  for (size_t looked = 0; looked < patience;) {
    int reach = 1 + (int)(next_chance(state) % (uint64_t)p->window);
    int found = words_somewhere(p, state, words, 2 * reach + 1, patience, &looked);
    if (found > 1) return found;
  }
  refuse("the text has hardly a line with two words of the vocabulary");
  return 0;
}

/* The batch of a number: a word, and one beside it. */
static inline shoal_status fill_pairs(void *arg, int64_t position, shoal_tensor **values) {
  const struct word_pairs *p = (const struct word_pairs *)arg;
  const int64_t dims[] = {p->batch, 1};
  int64_t words[MOST_AROUND], n = 0;
  uint64_t state = batch_state(p, position);
  check(shoal_tensor_new(SHOAL_INT64, 1, dims, &values[0]));
  check(shoal_tensor_new(SHOAL_INT64, 2, dims, &values[1]));
  int64_t *x = (int64_t *)shoal_tensor_data(values[0]), *y = (int64_t *)shoal_tensor_data(values[1]);
  while (n < p->batch) {
    int found = some_words(p, &state, words), middle = found / 2;
    for (int i = 0; i < found && n < p->batch; i++)
      if (i != middle) x[n] = words[middle], y[n++] = words[i];
  }
  return NULL;
}

/* The words around a word, that word, and what each of the first is worth: together 1. Where there are fewer than the
 * window has room for, the others are worth nothing. */
static inline shoal_status fill_around(void *arg, int64_t position, shoal_tensor **values) {
  const struct word_pairs *p = (const struct word_pairs *)arg;
  const int64_t around[] = {p->batch, 2 * p->window}, dims[] = {p->batch, 1};
  int64_t words[MOST_AROUND];
  uint64_t state = batch_state(p, position);
  check(shoal_tensor_new(SHOAL_INT64, 2, around, &values[0]));
  check(shoal_tensor_new(SHOAL_INT64, 2, dims, &values[1]));
  check(shoal_tensor_new(SHOAL_FLOAT32, 2, around, &values[2]));
  int64_t *x = (int64_t *)shoal_tensor_data(values[0]), *y = (int64_t *)shoal_tensor_data(values[1]);
  float *worth = (float *)shoal_tensor_data(values[2]);
  memset(x, 0, (size_t)(p->batch * around[1]) * sizeof *x);
  memset(worth, 0, (size_t)(p->batch * around[1]) * sizeof *worth);
  for (int64_t k = 0; k < p->batch; k++, x += around[1], worth += around[1]) {
    int found = some_words(p, &state, words), middle = found / 2, n = 0;
    y[k] = words[middle];
    for (int i = 0; i < found; i++)
      if (i != middle) x[n] = words[i], worth[n++] = 1 / (float)(found - 1);
  }
  return NULL;
}

/* This worker's part of a text, as even as bytes are. */
static inline void open_text(struct word_pairs *p, const char *path, int worker, int workers) {
  size_t size;
  const char *text = (const char *)map_file(path, &size);
  size_t begin = size / (size_t)workers * (size_t)worker;
  p->worker = worker;
  p->text = text + begin;
  p->size = worker + 1 < workers ? size / (size_t)workers : size - begin;
  if (p->size < 16) refuse_file(path, "there is too little text for so many workers");
}

#endif
