#include "word2vec/sampling.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

static void fill_pass(struct word_sampling *s, const struct word_vocabulary *v, double sample) {
  double often = sample * (double)v->total;
  for (uint32_t i = 0; i < s->n; i++) {
    double count = (double)v->words.at[i].count, p = 1;
    if (sample > 0 && count > 0) p = (sqrt(count / often) + 1) * often / count;
    s->pass[i] = p >= 1 ? UINT32_MAX : (uint32_t)(p * 4294967295.0);
  }
}

/* Shares of the whole, times n: those below 1 are filled up from those above. */
static void shares(const struct word_vocabulary *v, double *share) {
  double sum = 0;
  for (size_t i = 0; i < v->words.n; i++) sum += share[i] = pow((double)v->words.at[i].count, 0.75);
  for (size_t i = 0; i < v->words.n; i++) share[i] *= sum > 0 ? (double)v->words.n / sum : 0;
}

static void fill_places(struct word_sampling *s, double *share, uint32_t *few, uint32_t *many) {
  uint32_t n_few = 0, n_many = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    s->places[i] = (struct sampling_place){UINT32_MAX, i};
    if (share[i] < 1) few[n_few++] = i;
    else many[n_many++] = i;
  }
  while (n_few && n_many) {
    uint32_t a = few[--n_few], b = many[n_many - 1];
    s->places[a] = (struct sampling_place){(uint32_t)(share[a] * 4294967295.0), b};
    share[b] -= 1 - share[a];
    if (share[b] < 1) {
      n_many--;
      few[n_few++] = b;
    }
  }
}

void sampling_init(struct word_sampling *s, const struct word_vocabulary *v, double sample) {
  s->n = (uint32_t)v->words.n;
  s->places = mem_zalloc(s->n, sizeof *s->places);
  s->pass = mem_zalloc(s->n, sizeof *s->pass);
  double *share = mem_zalloc(s->n, sizeof *share);
  uint32_t *lists = mem_zalloc(s->n, 2 * sizeof *lists);
  shares(v, share);
  fill_places(s, share, lists, lists + s->n);
  fill_pass(s, v, sample);
  free(share);
  free(lists);
}

void sampling_release(struct word_sampling *s) {
  free(s->places);
  free(s->pass);
  *s = (struct word_sampling){0};
}
