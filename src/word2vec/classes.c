#include "word2vec/classes.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/text.h"
#include "base/vector.h"
#include "word2vec/crew.h"
#include "word2vec/vectors.h"

enum { ROUNDS = 10, AT_ONCE = 256 /* words that a thread takes */ };

struct classing {
  const float *rows;
  size_t words, stride;
  int classes;
  int32_t *class_of;
  float *centers; /* [classes][stride], of length 1; zeros: nobody is in that class */
  atomic_size_t next;
};

/* Sums in the order of words: threads would change the last bits, and with them a class now and then. */
static void find_centers(struct classing *c) {
  memset(c->centers, 0, (size_t)c->classes * c->stride * sizeof *c->centers);
  for (size_t i = 0; i < c->words; i++) {
    float *center = c->centers + (size_t)c->class_of[i] * c->stride;
    for (size_t j = 0; j < c->stride; j++) center[j] += c->rows[i * c->stride + j];
  }
  for (int k = 0; k < c->classes; k++) {
    float *center = c->centers + (size_t)k * c->stride;
    double square = 0;
    for (size_t j = 0; j < c->stride; j++) square += (double)center[j] * (double)center[j];
    float by = square > 0 ? (float)(1 / sqrt(square)) : 0;
    for (size_t j = 0; j < c->stride; j++) center[j] *= by;
  }
}

/* The class whose center is nearest; the first of several. Strides are multiples of eight. */
VECTOR_CLONES static int nearest(const float *row, const float *centers, size_t stride, int classes) {
  float most = -INFINITY;
  int best = 0;
  for (int k = 0; k < classes; k++, centers += stride) {
    float s[8] = {0};
    for (size_t i = 0; i < stride; i += 8)
      for (int l = 0; l < 8; l++) s[l] += row[i + l] * centers[i + l];
    float near = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    if (near > most) {
      most = near;
      best = k;
    }
  }
  return best;
}

static shoal_status assign(void *arg, int number) {
  struct classing *c = arg;
  (void)number;
  for (size_t at; (at = atomic_fetch_add(&c->next, AT_ONCE)) < c->words;) {
    if (stop_told()) return STATUS(SHOAL_CANCELLED, "told to stop while words were put into classes");
    for (size_t i = at; i < MIN(at + AT_ONCE, c->words); i++)
      c->class_of[i] = nearest(c->rows + i * c->stride, c->centers, c->stride, c->classes);
  }
  return NULL;
}

shoal_status classes_find(const float *rows, size_t words, size_t width, int classes, int threads, int32_t *class_of) {
  struct classing c = {rows, words, rows_stride(width), classes, class_of};
  TRY(rows_new((size_t)classes, width, &c.centers));
  for (size_t i = 0; i < words; i++) class_of[i] = (int32_t)(i % (size_t)classes);
  shoal_status s = NULL;
  for (int round = 0; round < ROUNDS && !s; round++) {
    find_centers(&c);
    atomic_store(&c.next, 0);
    s = crew_run(threads, assign, &c);
  }
  free(c.centers);
  return s;
}

static shoal_status write_lines(struct file_writer *f, const struct words *words, const int32_t *class_of) {
  struct text line = {0};
  shoal_status s = NULL;
  for (size_t i = 0; i < words->n && !s; i++) {
    line.n = 0;
    text_addf(&line, "%s %d\n", word_text(words, i), (int)class_of[i]);
    s = file_writer_add(f, line.at, line.n);
  }
  text_release(&line);
  return s;
}

shoal_status classes_write(const struct words *words, const float *rows, size_t width, int classes, int threads,
                           const char *path) {
  struct file_writer f;
  int32_t *class_of = mem_try_alloc(words->n * sizeof *class_of);
  if (!class_of) return NO_MEMORY(words->n * sizeof *class_of, "classes of words");
  shoal_status s = classes_find(rows, words->n, width, classes, threads, class_of);
  if (!s) s = file_writer_open(&f, path);
  if (!s) {
    s = write_lines(&f, words, class_of);
    if (!s) s = file_writer_commit(&f);
    else file_writer_abort(&f);
  }
  free(class_of);
  return s;
}
