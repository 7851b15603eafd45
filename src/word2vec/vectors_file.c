/* Files of vectors, read and written. Numbers in a file's first line are held against its size before memory is taken
 * on their word. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "word2vec/vectors.h"

/* ---- writing ---- */

/* "%f " of a number, to `to`; returns its length. A float has 24 bits and a million 14 that count, so their product is
 * exact in a double, and rounding it gives the digits of printf, which took most of the time that a file takes. */
static size_t put_number(char to[32], float x) {
  enum { MILLION = 1000000 };
  uint64_t v = (uint64_t)rint(fabs((double)x) * MILLION);
  char digits[24];
  size_t n = 0, at = 0;
  if (signbit(x)) to[n++] = '-';
  for (; at < 7 || v; v /= 10) digits[at++] = (char)('0' + v % 10);
  for (; at; to[n++] = digits[--at])
    if (at == 6) to[n++] = '.';
  to[n++] = ' ';
  return n;
}

static void add_text(struct text *line, const float *row, size_t width) {
  for (size_t i = 0; i < width; i++) {
    char number[32];
    if (fabsf(row[i]) < 1e9F) text_add(line, number, put_number(number, row[i]));
    else text_addf(line, "%f ", (double)row[i]); /* also what is no number */
  }
}

shoal_status vectors_write(const struct words *words, const float *rows, size_t width, const char *path, bool binary) {
  struct file_writer f;
  TRY(file_writer_open(&f, path));
  struct text line = {0};
  text_addf(&line, "%zu %zu\n", words->n, width);
  shoal_status s = file_writer_add(&f, line.at, line.n);
  for (size_t i = 0; i < words->n && !s; i++) {
    const float *row = rows + i * rows_stride(width);
    line.n = 0;
    text_addf(&line, "%s ", word_text(words, i));
    if (binary) text_add(&line, (const char *)row, width * sizeof *row);
    else add_text(&line, row, width);
    text_addc(&line, '\n');
    s = file_writer_add(&f, line.at, line.n);
  }
  text_release(&line);
  if (!s) return file_writer_commit(&f);
  file_writer_abort(&f);
  return s;
}

/* ---- reading ---- */

struct vectors_source {
  const char *at, *end, *name;
  size_t n, width; /* as the first line has it */
};

/* A number that ends at the given byte. */
static bool read_size(struct vectors_source *f, char stop, size_t *out) {
  uint64_t v = 0;
  const char *from = f->at;
  for (; f->at < f->end && *f->at >= '0' && *f->at <= '9' && v < (uint64_t)1 << 40; f->at++)
    v = v * 10 + (uint64_t)(*f->at - '0');
  if (f->at == from || f->at == f->end || *f->at != stop) return false;
  f->at++;
  *out = v;
  return true;
}

static shoal_status read_head(struct vectors_source *f) {
  if (!read_size(f, ' ', &f->n) || !read_size(f, '\n', &f->width) || !f->n || !f->width)
    return STATUS(SHOAL_DATA_LOSS, "%s: the first line is not \"WORDS WIDTH\": this is no file of word vectors",
                  f->name);
  uint64_t least = 2 * (uint64_t)f->width + 1; /* bytes of a word and its numbers, at the very least */
  if (f->width >= 1u << 24 || f->n >= UINT32_MAX || f->n * least > (uint64_t)(f->end - f->at))
    return STATUS(SHOAL_DATA_LOSS, "%s: cut short: %zu words of %zu numbers each are announced", f->name, f->n,
                  f->width);
  return NULL;
}

/* Are the bytes to the end of the line numbers, for all one can see? */
static bool looks_like_text(const struct vectors_source *f) {
  const char *p = memchr(f->at, ' ', (size_t)(f->end - f->at));
  size_t numbers = 0;
  for (p = p ? p + 1 : f->end; p < f->end && *p != '\n'; p++) {
    if (!*p || !strchr("0123456789+-.eEnaif \t\r", *p)) return false;
    numbers += *p == ' ' || p + 1 == f->end || p[1] == '\n' || p[1] == '\r';
  }
  return numbers >= f->width;
}

static shoal_status bad(const struct vectors_source *f, size_t word, const char *why) {
  return STATUS(SHOAL_DATA_LOSS, "%s: word %zu: %s", f->name, word + 1, why);
}

static shoal_status read_word(struct vectors_source *f, struct vectors *v, size_t number) {
  while (f->at < f->end && *f->at == '\n') f->at++;
  const char *space = memchr(f->at, ' ', (size_t)(f->end - f->at));
  size_t n = space ? (size_t)(space - f->at) : 0;
  if (!n || memchr(f->at, 0, n) || memchr(f->at, '\n', n)) return bad(f, number, "there is none, or one with a NUL");
  if (words_find(&v->words, f->at, n) >= 0) return bad(f, number, "it is there for the second time");
  if (!words_count(&v->words, f->at, n, 0, 0)) return NO_MEMORY(n, "words");
  f->at = space + 1;
  return NULL;
}

static shoal_status read_binary(struct vectors_source *f, size_t number, float *row) {
  size_t bytes = f->width * sizeof *row;
  if ((size_t)(f->end - f->at) < bytes) return bad(f, number, "cut short");
  memcpy(row, f->at, bytes);
  f->at += bytes;
  return NULL;
}

static shoal_status read_text(struct vectors_source *f, size_t number, float *row) {
  for (size_t i = 0; i < f->width; i++) {
    char *end;
    while (f->at < f->end && (*f->at == ' ' || *f->at == '\t')) f->at++;
    if (f->at == f->end || *f->at == '\n') return bad(f, number, "fewer numbers than announced");
    row[i] = strtof(f->at, &end);
    if (end == f->at || !strchr(" \t\r\n", *end)) return bad(f, number, "something that is no number");
    f->at = end;
  }
  while (f->at < f->end && strchr(" \t\r", *f->at)) f->at++;
  if (f->at < f->end && *f->at != '\n') return bad(f, number, "more numbers than announced");
  return NULL;
}

static shoal_status check_numbers(const struct vectors_source *f, size_t number, const float *row) {
  for (size_t i = 0; i < f->width; i++)
    if (!isfinite(row[i])) return bad(f, number, "a number that is not finite");
  return NULL;
}

shoal_status vectors_parse(struct vectors *v, const char *data, size_t n, enum vectors_format format,
                           const char *name) {
  *v = (struct vectors){0};
  struct vectors_source f = {data, data + n, name};
  TRY(read_head(&f));
  TRY(rows_new(f.n, f.width, &v->rows));
  v->width = f.width;
  v->stride = rows_stride(f.width);
  bool text = format == VECTORS_GUESS ? looks_like_text(&f) : format == VECTORS_TEXT;
  shoal_status s = NULL;
  for (size_t i = 0; i < f.n && !s; i++) {
    float *row = v->rows + i * v->stride;
    s = read_word(&f, v, i);
    if (!s) s = text ? read_text(&f, i, row) : read_binary(&f, i, row);
    if (!s) s = check_numbers(&f, i, row);
  }
  if (s) vectors_release(v);
  return s;
}

shoal_status vectors_read(struct vectors *v, const char *path, enum vectors_format format) {
  char *data;
  size_t n;
  TRY(file_read(path, 0, &data, &n));
  shoal_status s = vectors_parse(v, data, n, format, path);
  free(data);
  return s;
}
