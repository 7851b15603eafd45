#include "collective/shared_work.h"

#include <string.h>

#include "base/mem.h"

_Static_assert((int)SHARED_AT_ONCE <= (int)SHARED_CHUNK, "what is summed at once is one chunk");
_Static_assert(1 << (SHARED_SPARE / SHARED_SUM - 2) >= SHARED_RANKS, "there is a spare sum for every level, and one");

/* Does each rank bring something of its own for each of the others? */
static bool is_parted(const struct shared_work *w) {
  return w->operation == OPERATION_REDUCE_SCATTER || w->operation == OPERATION_ALL_TO_ALL;
}

/* Has everybody the sum? */
static bool is_sum(const struct shared_work *w) {
  return w->operation == OPERATION_ALL_REDUCE || w->operation == OPERATION_REDUCE;
}

int64_t shared_work_init(struct shared_work *w) {
  w->run = w->parts[0].run;
  w->operation = w->run->request->operation;
  if (is_sum(w)) return shared_sums_init(w);
  w->n = w->run->request->n;
  w->each = SHARED_CHUNK / (int64_t)w->run->element / (is_parted(w) ? w->size : 1);
  if (w->operation == OPERATION_BARRIER) return 2;
  w->chunks = (w->n + w->each - 1) / w->each;
  return w->chunks ? w->chunks + 1 : 0;
}

static const char *in_at(const struct shared_work *w, int64_t i) {
  return (const char *)w->run->in + (size_t)i * w->run->element;
}

static char *out_at(const struct shared_work *w, int64_t i) {
  return (char *)w->run->out + (size_t)i * w->run->element;
}

static void copy(const struct shared_work *w, void *to, const void *from, int64_t n) {
  if (n > 0 && to != from) memcpy(to, from, (size_t)n * w->run->element);
}

/* ---- showing ---- */

static void show(const struct shared_work *w, int64_t k, uint64_t turn) {
  int64_t first = k * w->each, m = MIN(w->each, w->n - first);
  char *to = shared_slot(w, w->rank, turn);
  size_t element = w->run->element;
  if (!is_parted(w)) {
    bool silent = w->operation == OPERATION_BROADCAST && w->rank != w->run->request->root;
    if (!silent) copy(w, to, in_at(w, first), m); /* who only listens has brought nothing: there is no `in` */
    return;
  }
  for (int r = 0; r < w->size; r++)
    if (r != w->rank) copy(w, to + (size_t)(r * w->each) * element, in_at(w, r * w->n + first), m);
}

/* ---- taking ---- */

/* Of what was shown in the turn before: rank r's, from element `at` of its slot on; the own from `in`. */
static void find_sources(const struct shared_work *w, uint64_t turn, int64_t at, const char *own, const char **out) {
  for (int r = 0; r < w->size; r++)
    out[r] = r == w->rank ? own : shared_slot(w, r, turn - 1) + (size_t)at * w->run->element;
}

static void take(const struct shared_work *w, int64_t k, uint64_t turn) {
  int64_t first = k * w->each, m = MIN(w->each, w->n - first);
  if (w->operation == OPERATION_BROADCAST) {
    int root = w->run->request->root;
    copy(w, out_at(w, first), w->rank == root ? in_at(w, first) : shared_slot(w, root, turn - 1), m);
    return;
  }
  const char *sources[SHARED_RANKS];
  find_sources(w, turn, is_parted(w) ? w->rank * w->each : 0, in_at(w, (is_parted(w) ? w->rank * w->n : 0) + first),
               sources);
  if (w->operation == OPERATION_REDUCE_SCATTER) shared_sum(w, w->run, sources, out_at(w, first), m);
  else
    for (int r = 0; r < w->size; r++) copy(w, out_at(w, r * w->n + first), sources[r], m);
}

void shared_work_turn(const struct shared_work *w, int64_t k, uint64_t turn) {
  if (is_sum(w)) {
    shared_sums_turn(w, k, turn);
    return;
  }
  if (k < w->chunks) show(w, k, turn);
  if (k > 0 && k <= w->chunks) take(w, k - 1, turn);
}
