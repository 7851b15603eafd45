/* Text for language models: a file of tokens in llm.c's layout, any other file as bytes, or, without a file, tokens
 * that are made up but can be learnt.
 *
 *   a file of tokens     256 x int32  20240520, version 1, number of tokens, zeros
 *                        n x uint16   the tokens
 *   a table of words     256 x int32  20240328, version, number of words, ...
 *                        n x          uint8 length, so many bytes: what a token is as text
 *
 * A file is mapped, not read: it may be larger than memory. An example is `context` tokens and the one behind them;
 * which examples a step has is known by the step's number (shoal_batches), so a run that goes on sees what it would
 * have seen. */
#ifndef EXAMPLES_TOKENS_H
#define EXAMPLES_TOKENS_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

enum { TOKENS_MAGIC = 20240520, WORDS_MAGIC = 20240328, HEADER_INTS = 256, BYTE_TOKENS = 256 };

struct tokens {
  const char *path; /* NULL: made up */
  const unsigned char *bytes;
  size_t size;
  bool text;     /* a token is a byte */
  int64_t n;     /* tokens */
  int64_t vocab; /* all are below it */
};

static inline void refuse_file(const char *path, const char *what) {
  fprintf(stderr, "%s: %s: %s\n", program_name, path, what);
  exit(1);
}

/* A file's bytes, mapped until the program ends. */
static inline const unsigned char *map_file(const char *path, size_t *size) {
  struct stat s;
  int fd = open(path, O_RDONLY);
  if (fd < 0 || fstat(fd, &s)) refuse_file(path, strerror(errno));
  if (!S_ISREG(s.st_mode) || s.st_size < 1) refuse_file(path, "this is no file, or an empty one");
  void *at = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) refuse_file(path, strerror(errno));
  close(fd);
  *size = (size_t)s.st_size;
  return (const unsigned char *)at;
}

/* Number i of a file of little-endian int32. */
static inline int64_t header_int(const unsigned char *bytes, int i) {
  const unsigned char *p = bytes + 4 * i;
  return (int64_t)p[0] | (int64_t)p[1] << 8 | (int64_t)p[2] << 16 | (int64_t)(p[3] & 127) << 24;
}

static inline int64_t made_up(const struct tokens *t, int64_t i) {
  return (i * i / 3 + i / 7) % t->vocab; /* squares: each token follows from where it stands */
}

static inline int64_t token_at(const struct tokens *t, int64_t i) {
  if (!t->bytes) return made_up(t, i);
  if (t->text) return t->bytes[i];
  const unsigned char *p = t->bytes + 4 * HEADER_INTS + 2 * i;
  return (int64_t)p[0] | (int64_t)p[1] << 8;
}

/* The file's kind, and how many tokens it has. */
static inline void read_kind(struct tokens *t) {
  t->text = t->size < 4 * HEADER_INTS || header_int(t->bytes, 0) != TOKENS_MAGIC;
  t->n = (int64_t)t->size;
  if (t->text) return;
  t->n = header_int(t->bytes, 2);
  if (header_int(t->bytes, 1) != 1)
    refuse_file(t->path, "tokens of version 1, two bytes each, are read; this is another");
  if ((t->size - 4 * HEADER_INTS) / 2 < (size_t)t->n)
    refuse_file(t->path, "it is cut short: its header says more tokens");
}

/* Made up once, and laid out as in a file, where two bytes hold a token: to divide for each of a step's tokens takes a
 * hundredth of the time that a card has for the step. */
static inline void make_up(struct tokens *t) {
  if (t->vocab > 1 << 16) return;
  size_t size = 4 * HEADER_INTS + 2 * (size_t)t->n;
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return;
  unsigned char *bytes = (unsigned char *)at;
  for (int64_t i = 0; i < t->n; i++) {
    int64_t token = made_up(t, i);
    bytes[4 * HEADER_INTS + 2 * i] = (unsigned char)(token & 255);
    bytes[4 * HEADER_INTS + 2 * i + 1] = (unsigned char)(token >> 8);
  }
  t->bytes = bytes;
}

/* Opens what there is; vocab 0: 256 for text, else GPT-2's. The tokens themselves are looked at as they are used. */
static inline struct tokens open_tokens(const char *path, int64_t vocab, int64_t context) {
  struct tokens t = {path, NULL, 0, false, 1 << 20, vocab};
  if (path) {
    t.bytes = map_file(path, &t.size);
    read_kind(&t);
  }
  if (!vocab) t.vocab = t.text ? BYTE_TOKENS : 50257;
  if (!path) make_up(&t);
  if (t.n <= context) refuse_file(path ? path : "--context", "there are fewer tokens than one example has");
  return t;
}

/* ---- batches ---- */

struct token_feeder {
  const struct tokens *tokens;
  shoal_batches *batches; /* of examples, which stand one behind the other */
  int64_t batch, context;
};

/* task, tasks: of several that take the batches of an epoch in turn. */
static inline struct token_feeder token_feeder_of(const struct tokens *t, int64_t batch, int64_t context, int64_t seed,
                                                  int task, int tasks) {
  struct token_feeder f = {t, NULL, batch, context};
  check_given(shoal_batches_new((t->n - 1) / context, batch, (uint64_t)seed, task, tasks, &f.batches));
  return f;
}
static inline struct token_feeder token_feeder_new(const struct tokens *t, int64_t batch, int64_t context,
                                                   int64_t seed) {
  return token_feeder_of(t, batch, context, seed, 0, 1);
}

/* The tokens of a step, and those that follow each: two tensors [batch, context]. */
static inline shoal_status fill_tokens(void *arg, int64_t position, shoal_tensor **values) {
  struct token_feeder *f = (struct token_feeder *)arg;
  const int64_t dims[] = {f->batch, f->context}, *example = shoal_batches_at(f->batches, position);
  for (int i = 0; i < 2; i++) check(shoal_tensor_new(SHOAL_INT32, 2, dims, &values[i]));
  int32_t *x = (int32_t *)shoal_tensor_data(values[0]), *y = (int32_t *)shoal_tensor_data(values[1]);
  for (int64_t b = 0; b < f->batch; b++, x += f->context, y += f->context) {
    int64_t first = example[b] * f->context, token = token_at(f->tokens, first), largest = token;
    for (int64_t i = 0; i < f->context; i++) {
      x[i] = (int32_t)token;
      token = token_at(f->tokens, first + i + 1);
      y[i] = (int32_t)token;
      if (token > largest) largest = token;
    }
    if (largest >= f->tokens->vocab) refuse_file(f->tokens->path, "it has a token that --vocab does not have");
  }
  return NULL;
}

/* ---- tokens as text ---- */

struct words {
  const unsigned char **word; /* NULL: there is no table */
  int *length;
  int64_t n;
};

static inline struct words read_words(const char *path) {
  struct words w = {NULL, NULL, 0};
  if (!path) return w;
  size_t size = 0;
  const unsigned char *bytes = map_file(path, &size), *at = bytes + 4 * HEADER_INTS, *end = bytes + size;
  if (size < 4 * HEADER_INTS || header_int(bytes, 0) != WORDS_MAGIC) refuse_file(path, "this is no table of words");
  w.n = header_int(bytes, 2);
  if (w.n > (int64_t)size) refuse_file(path, "it is cut short");
  w.word = (const unsigned char **)calloc((size_t)w.n + 1, sizeof *w.word);
  w.length = (int *)calloc((size_t)w.n + 1, sizeof *w.length);
  for (int64_t i = 0; i < w.n; i++) {
    if (at >= end || end - at - 1 < *at) refuse_file(path, "it is cut short");
    w.length[i] = *at;
    w.word[i] = at + 1;
    at += 1 + *at;
  }
  return w;
}

/* As text where it is known, else as its number. */
static inline void print_token(const struct words *w, bool text, int64_t token) {
  if (token < w->n) fwrite(w->word[token], 1, (size_t)w->length[token], stdout);
  else if (text && token < BYTE_TOKENS) putchar((int)token);
  else printf("%lld ", (long long)token);
}

static inline void free_words(struct words *w) {
  free(w->word);
  free(w->length);
}

#endif
