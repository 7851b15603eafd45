/* A dataset that functions make: one begins a state, one gives elements of it until it says OUT_OF_RANGE, one ends it,
 * whether the end was reached or the iterator goes before. */
#include <stdlib.h>

#include "base/mem.h"
#include "data/dataset.h"

enum { INIT, NEXT, FINISH };

struct generator {
  struct dataset head;
  struct captured f[3];
};

struct generator_iter {
  struct data_iterator head;
  struct tensor *state; /* what the first function gave; NULL: not begun, or over */
  bool over;
};

static const struct captured *function_of(const struct data_iterator *it, int which) {
  return &((const struct generator *)it->of)->f[which];
}

static shoal_status finish(struct generator_iter *g, struct data_ctx *ctx) {
  if (!g->state) return NULL;
  const struct captured *f = function_of(&g->head, FINISH);
  int n = function_rets(function_of(&g->head, INIT)->f), n_rets = function_rets(f->f);
  struct tensor *rets = mem_zalloc((size_t)MAX(n_rets, 1), sizeof *rets);
  shoal_status s = captured_call(f, ctx, g->state, n, rets, n_rets);
  if (!s) tensors_release(rets, n_rets);
  free(rets);
  tensors_release(g->state, n);
  free(g->state);
  g->state = NULL;
  return s;
}

static void generator_iter_free(struct data_iterator *it) {
  struct cancel cancel;
  cancel_init(&cancel);
  shoal_status_free(finish((struct generator_iter *)it, &(struct data_ctx){.cancel = &cancel}));
  cancel_release(&cancel);
}

static shoal_status generator_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct generator_iter *g = (struct generator_iter *)it;
  const struct captured *init = function_of(it, INIT), *next = function_of(it, NEXT);
  *end = g->over;
  if (g->over) return NULL;
  if (!g->state) {
    struct tensor *state = mem_zalloc((size_t)MAX(function_rets(init->f), 1), sizeof *state);
    shoal_status s = captured_call(init, ctx, NULL, 0, state, function_rets(init->f));
    if (s) free(state);
    TRY(s);
    g->state = state;
  }
  shoal_status s = captured_call(next, ctx, g->state, function_rets(init->f), out, it->of->n);
  if (shoal_status_code(s) != SHOAL_OUT_OF_RANGE) return s;
  shoal_status_free(s);
  *end = g->over = true;
  return finish(g, ctx);
}

static const struct data_iterator_type generator_iter_type = {sizeof(struct generator_iter), generator_next,
                                                              generator_iter_free};

static shoal_status generator_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&generator_iter_type, d);
  return NULL;
}

static int64_t generator_size(const struct dataset *d) { return SIZE_UNKNOWN; }

static void generator_free(struct dataset *d) {
  for (int i = 0; i < 3; i++) captured_release(&((struct generator *)d)->f[i]);
}

static const struct dataset_type generator_type = {"Generator", generator_iterate, generator_size, generator_free};

struct dataset *dataset_generator(struct captured f[3], const struct element_spec *spec) {
  struct generator *g =
      (struct generator *)dataset_new(sizeof *g, &generator_type, spec->n, spec->types, spec->shapes, NULL, 0);
  for (int i = 0; i < 3; i++) g->f[i] = f[i];
  return &g->head;
}
