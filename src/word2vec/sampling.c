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

void sampling_init(struct word_sampling *s, const struct word_vocabulary *v, double sample) {
  s->n = (uint32_t)v->words.n;
  s->places = mem_zalloc(s->n, sizeof *s->places);
  s->pass = mem_zalloc(s->n, sizeof *s->pass);
  double *weights = mem_zalloc(s->n, sizeof *weights);
  for (uint32_t i = 0; i < s->n; i++) weights[i] = pow((double)v->words.at[i].count, 0.75);
  alias_fill(s->places, weights, s->n);
  fill_pass(s, v, sample);
  free(weights);
}

void sampling_release(struct word_sampling *s) {
  free(s->places);
  free(s->pass);
  *s = (struct word_sampling){0};
}
