#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "word2vec/train_internal.h"
#include "word2vec/vectors.h"

void model_release(struct word_model *m) {
  free(m->in);
  free(m->out);
  free(m->nodes);
  *m = (struct word_model){0};
}

static void begin_at_random(struct word_model *m, size_t words, uint64_t seed) {
  uint64_t state = seed;
  for (size_t i = 0; i < words; i++)
    for (size_t j = 0; j < m->width; j++) {
      float u = (float)(chance(&state) >> 8) / 16777216.0f;
      m->in[i * m->stride + j] = (u - 0.5f) / (float)m->width;
    }
}

/* Does it fit? If not, which words would. */
static shoal_status check_size(const struct word_model *m, const struct word_vocabulary *v,
                               const struct training_options *o) {
  size_t a_word = m->stride * sizeof(float) * (size_t)(1 + o->hs + (o->negative > 0)), fit = o->memory / a_word;
  if (!o->memory || v->words.n <= fit) return NULL;
  int64_t least = fit ? v->words.at[fit].count + 1 : INT64_MAX;
  shoal_status s = STATUS(SHOAL_RESOURCE_EXHAUSTED, "%zu words of %zu numbers take %zu MB, and %zu are allowed",
                          v->words.n, m->width, v->words.n * a_word >> 20, o->memory >> 20);
  if (fit <= 1 || least > v->words.at[1].count) return status_suffix(s, ": raise --memory or lower -size");
  return status_suffix(s, ": -min-count %" PRId64 " would fit", least);
}

shoal_status model_new(struct word_model *m, const struct word_vocabulary *v, const struct training_options *o) {
  *m = (struct word_model){.width = o->width, .stride = rows_stride(o->width)};
  TRY(check_size(m, v, o));
  shoal_status s = rows_new(v->words.n, m->width, &m->in);
  if (!s && o->negative) s = rows_new(v->words.n, m->width, &m->out);
  if (!s && o->hs) s = rows_new(v->words.n, m->width, &m->nodes);
  if (s) {
    model_release(m);
    return s;
  }
  begin_at_random(m, v->words.n, o->seed);
  return NULL;
}
