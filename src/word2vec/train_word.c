/* One position of a sentence: the words around it, the word itself, and those drawn against it.
 *
 * Words are drawn one position ahead, and their rows asked for: they are the only ones that are not in a cache. */
#include <string.h>

#include "base/mem.h"
#include "word2vec/train_internal.h"

static void ask_for(const float *row, size_t stride) {
  enum { LINE = 16 };
  for (size_t i = 0; i < stride; i += LINE) __builtin_prefetch(row + i, 1);
}

void trainer_draw(struct trainer *w) {
  const struct word_model *m = w->t->model;
  for (int i = 0; i < w->t->o->negative; i++) {
    w->drawn[i] = sampling_draw(&w->t->sampling, &w->state);
    ask_for(m->out + w->drawn[i] * m->stride, m->stride);
  }
}

/* The rows of the words around a position, in a window of random size. */
static int around(struct trainer *w, int at) {
  const struct word_model *m = w->t->model;
  int window = w->t->o->window, reach = window - (int)chance_below(&w->state, (uint32_t)window);
  int begin = MAX(at - reach, 0), end = MIN(at + reach + 1, w->n), n = 0;
  for (int i = begin; i < end; i++)
    if (i != at) w->x[n++] = m->in + w->sentence[i] * m->stride;
  return n;
}

static bool has(float *const *rows, int n, const float *row) {
  for (int i = 0; i < n; i++)
    if (rows[i] == row) return true;
  return false;
}

/* The word, and those drawn: one that is drawn twice, or is the word itself, counts once. */
static int against_drawn(struct trainer *w, uint32_t word) {
  const struct word_model *m = w->t->model;
  int n = 1;
  w->y[0] = m->out + word * m->stride;
  for (int i = 0; i < w->t->o->negative; i++) {
    float *row = m->out + w->drawn[i] * m->stride;
    if (!has(w->y, n, row)) w->y[n++] = row;
  }
  memset(w->label, 0, (size_t)n * sizeof *w->label);
  w->label[0] = 1;
  return n;
}

/* The nodes on the way to the word. */
static int on_the_way(struct trainer *w, uint32_t word) {
  const struct word_tree *t = &w->t->tree;
  int n = 0;
  for (size_t i = t->first[word]; i < t->first[word + 1]; i++, n++) {
    w->y[n] = w->t->model->nodes + t->steps[i].node * w->t->model->stride;
    w->label[n] = !t->steps[i].second;
  }
  return n;
}

/* All x against all y, as many at once as a kernel takes. */
static void step_all(struct trainer *w, float *const *x, int n_x, int n_y) {
  for (int k = 0; k < n_y; k += BLOCK_Y)
    for (int i = 0; i < n_x; i += BLOCK_X) {
      struct pair_block b = {x + i, w->y + k, w->label + k, MIN(n_x - i, (int)BLOCK_X), MIN(n_y - k, (int)BLOCK_Y)};
      w->t->kernel->step(&b, w->t->model->stride, w->rate, &w->room);
    }
}

static void step_variants(struct trainer *w, float *const *x, int n, uint32_t word) {
  const struct training_options *o = w->t->o;
  if (o->hs) step_all(w, x, n, on_the_way(w, word));
  if (!o->negative) return;
  int n_y = against_drawn(w, word);
  trainer_draw(w); /* for the next position: what this one needs is in y */
  step_all(w, x, n, n_y);
}

void trainer_step(struct trainer *w, int at) {
  const struct block_kernel *k = w->t->kernel;
  size_t stride = w->t->model->stride;
  int n = around(w, at);
  if (!n) return;
  if (!w->t->o->cbow) {
    step_variants(w, w->x, n, w->sentence[at]);
    return;
  }
  k->mean(w->x, n, stride, w->hidden);
  memcpy(w->before, w->hidden, stride * sizeof *w->hidden);
  step_variants(w, &w->hidden, 1, w->sentence[at]);
  k->spread(w->x, n, stride, w->before, w->hidden);
}
