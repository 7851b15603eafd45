/* Memory of rows, and questions asked of vectors: all cosines are computed, the best kept in order. */
#include "word2vec/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "word2vec/block.h"

size_t rows_stride(size_t width) { return (width + BLOCK_STRIDE - 1) / BLOCK_STRIDE * BLOCK_STRIDE; }

shoal_status rows_new(size_t n, size_t width, float **out) {
  enum { LARGE_PAGE = 2 << 20 };
  size_t bytes;
  if (__builtin_mul_overflow(n, rows_stride(width) * sizeof(float), &bytes) || bytes > SIZE_MAX / 2)
    return NO_MEMORY(SIZE_MAX, "vectors");
  size_t unit = bytes >= LARGE_PAGE ? LARGE_PAGE : 64;
  bytes = (MAX(bytes, (size_t)1) + unit - 1) / unit * unit;
  *out = mem_fails() ? NULL : aligned_alloc(unit, bytes);
  if (!*out) return NO_MEMORY(bytes, "vectors");
  if (unit == LARGE_PAGE) madvise(*out, bytes, MADV_HUGEPAGE); /* rows are looked up at random */
  memset(*out, 0, bytes);
  return NULL;
}

void vectors_release(struct vectors *v) {
  words_release(&v->words);
  free(v->rows);
  *v = (struct vectors){0};
}

/* In eight sums, which compilers make vectors of. */
static float dot(const float *a, const float *b, size_t n) {
  float s[8] = {0};
  for (size_t i = 0; i < n; i += 8)
    for (int l = 0; l < 8; l++) s[l] += a[i + l] * b[i + l];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static void normalize(float *row, size_t n) {
  float length = sqrtf(dot(row, row, n));
  for (size_t i = 0; i < n && length > 0; i++) row[i] /= length;
}

void vectors_normalize(struct vectors *v) {
  for (size_t i = 0; i < v->words.n; i++) normalize(v->rows + i * v->stride, v->stride);
}

static bool among(const size_t *words, size_t n, size_t word) {
  for (size_t i = 0; i < n; i++)
    if (words[i] == word) return true;
  return false;
}

/* Puts one in its place; the last falls out when there are too many. */
static size_t insert(struct word_neighbor *list, size_t n, size_t most, struct word_neighbor x) {
  if (n == most && !(x.cosine > list[n - 1].cosine)) return n;
  size_t at = n < most ? n++ : n - 1;
  for (; at > 0 && x.cosine > list[at - 1].cosine; at--) list[at] = list[at - 1];
  list[at] = x;
  return n;
}

size_t vectors_near(const struct vectors *v, const size_t *words, const float *signs, size_t n,
                    struct word_neighbor *out, size_t most) {
  float *sum = mem_zalloc(v->stride, sizeof *sum);
  size_t found = 0;
  for (size_t k = 0; k < n; k++)
    for (size_t i = 0; i < v->stride; i++) sum[i] += signs[k] * v->rows[words[k] * v->stride + i];
  normalize(sum, v->stride);
  for (size_t i = 0; i < v->words.n && most; i++)
    if (!among(words, n, i))
      found = insert(out, found, most, (struct word_neighbor){i, dot(sum, v->rows + i * v->stride, v->stride)});
  free(sum);
  return found;
}
