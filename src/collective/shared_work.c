#include "collective/shared_work.h"

#include <string.h>

#include "base/mem.h"
#include "collective/pairs.h"

_Static_assert(1 << (SHARED_SPARE / SHARED_SUM - 2) >= SHARED_RANKS, "there is a spare sum for every level, and one");
_Static_assert((int)SHARED_AT_ONCE <= (int)SHARED_CHUNK, "what is summed at once is one chunk");

/* Does each rank bring something of its own for each of the others? */
static bool is_parted(const struct shared_work *w) {
  return w->operation == OPERATION_REDUCE_SCATTER || w->operation == OPERATION_ALL_TO_ALL;
}

static bool in_two(const struct shared_work *w) {
  return (w->operation == OPERATION_ALL_REDUCE || w->operation == OPERATION_REDUCE) && !w->at_once;
}

int64_t shared_work_init(struct shared_work *w) {
  const struct schedule_request *r = w->run->request;
  size_t element = w->run->element;
  w->operation = r->operation;
  w->n = r->n;
  w->each = SHARED_CHUNK / (int64_t)element / (is_parted(w) ? w->size : 1);
  w->at_once = w->n <= SHARED_AT_ONCE / (int64_t)element;
  if (w->operation == OPERATION_BARRIER) return 2;
  w->chunks = (w->n + w->each - 1) / w->each;
  return w->chunks ? w->chunks + 1 + in_two(w) : 0;
}

static char *slot(const struct shared_work *w, int rank, uint64_t turn) { return w->areas[rank]->slots[turn & 1]; }

static const char *in_at(const struct shared_work *w, int64_t i) {
  return (const char *)w->run->in + (size_t)i * w->run->element;
}

static char *out_at(const struct shared_work *w, int64_t i) {
  return (char *)w->run->out + (size_t)i * w->run->element;
}

static void copy(const struct shared_work *w, void *to, const void *from, int64_t n) {
  if (n > 0 && to != from) memcpy(to, from, (size_t)n * w->run->element);
}

/* Rank r's piece of m elements: as equal as whole lines of the cache allow. */
static int64_t piece_of(const struct shared_work *w, int64_t m, int r, int64_t *begin) {
  int64_t line = MAX(64 / (int64_t)w->run->element, 1), per = (m + w->size - 1) / w->size;
  per = (per + line - 1) / line * line;
  *begin = MIN(per * r, m);
  return MIN(per, m - *begin);
}

/* to = the sum of `count` elements of all, rank r's at sources[r]. What is summed never leaves the nearest cache while
 * it is: SHARED_SUM bytes at a time. */
static void sum(const struct shared_work *w, const char *const *sources, char *to, int64_t count) {
  const struct collective_arithmetic *a = w->run->arithmetic;
  size_t element = w->run->element;
  int64_t step = SHARED_SUM / (int64_t)element;
  for (int64_t i = 0; i < count; i += step) {
    int64_t n = MIN(step, count - i);
    const char *here[SHARED_RANKS];
    bool inside = false; /* one of them lies where the sum goes, and would be lost */
    char *at = to + (size_t)i * element;
    for (int r = 0; r < w->size; r++) {
      here[r] = sources[r] + (size_t)i * element;
      inside |= r && here[r] == at && w->size > 2;
    }
    char *whole = inside ? w->spare + SHARED_SPARE - SHARED_SUM : at;
    pairs_sum(a, here, w->size, element, n, whole, w->spare, SHARED_SUM);
    if (a->final) a->final(a, whole, w->run->members, n);
    copy(w, at, whole, n);
  }
}

/* ---- showing ---- */

static void show(const struct shared_work *w, int64_t k, uint64_t turn) {
  int64_t first = k * w->each, m = MIN(w->each, w->n - first), begin = 0, own = 0;
  char *to = slot(w, w->rank, turn);
  size_t element = w->run->element;
  if (is_parted(w)) {
    for (int r = 0; r < w->size; r++)
      if (r != w->rank) copy(w, to + (size_t)(r * w->each) * element, in_at(w, r * w->n + first), m);
    return;
  }
  if (w->operation == OPERATION_BROADCAST && w->rank != w->run->request->root) return;
  if (in_two(w)) own = piece_of(w, m, w->rank, &begin); /* which nobody else needs */
  copy(w, to, in_at(w, first), begin);
  copy(w, to + (size_t)(begin + own) * element, in_at(w, first + begin + own), m - begin - own);
}

/* ---- taking ---- */

/* Of what was shown in the turn before: rank r's, from element `at` of its slot on; the own from `in`. */
static void find_sources(const struct shared_work *w, uint64_t turn, int64_t at, const char *own, const char **out) {
  for (int r = 0; r < w->size; r++) out[r] = r == w->rank ? own : slot(w, r, turn - 1) + (size_t)at * w->run->element;
}

static void take_sum(const struct shared_work *w, int64_t k, uint64_t turn) {
  const char *sources[SHARED_RANKS];
  int64_t first = k * w->each, m = MIN(w->each, w->n - first), begin = 0;
  if (w->operation == OPERATION_REDUCE_SCATTER) {
    find_sources(w, turn, w->rank * w->each, in_at(w, w->rank * w->n + first), sources);
    sum(w, sources, out_at(w, first), m);
    return;
  }
  if (w->at_once) {
    find_sources(w, turn, 0, in_at(w, first), sources);
    sum(w, sources, out_at(w, first), m);
    return;
  }
  int64_t own = piece_of(w, m, w->rank, &begin);
  char *result = w->areas[w->rank]->results[turn & 1];
  find_sources(w, turn, begin, in_at(w, first + begin), sources);
  sum(w, sources, result, own);
  copy(w, out_at(w, first + begin), result, own);
}

static void take_copies(const struct shared_work *w, int64_t k, uint64_t turn) {
  int64_t first = k * w->each, m = MIN(w->each, w->n - first);
  if (w->operation == OPERATION_BROADCAST) {
    int root = w->run->request->root;
    copy(w, out_at(w, first), w->rank == root ? in_at(w, first) : slot(w, root, turn - 1), m);
    return;
  }
  bool all_to_all = w->operation == OPERATION_ALL_TO_ALL;
  const char *sources[SHARED_RANKS];
  find_sources(w, turn, all_to_all ? w->rank * w->each : 0, in_at(w, (all_to_all ? w->rank * w->n : 0) + first),
               sources);
  for (int r = 0; r < w->size; r++) copy(w, out_at(w, r * w->n + first), sources[r], m);
}

/* The others' pieces of a sum. */
static void gather(const struct shared_work *w, int64_t k, uint64_t turn) {
  int64_t first = k * w->each, m = MIN(w->each, w->n - first), begin;
  for (int r = 0; r < w->size; r++) {
    int64_t count = piece_of(w, m, r, &begin);
    if (r != w->rank) copy(w, out_at(w, first + begin), w->areas[r]->results[(turn - 1) & 1], count);
  }
}

void shared_work_turn(const struct shared_work *w, int64_t k, uint64_t turn) {
  bool sums = w->operation == OPERATION_ALL_REDUCE || w->operation == OPERATION_REDUCE ||
              w->operation == OPERATION_REDUCE_SCATTER;
  if (k < w->chunks) show(w, k, turn);
  if (k > 0 && k <= w->chunks) (sums ? take_sum : take_copies)(w, k - 1, turn);
  if (k > 1 && in_two(w)) gather(w, k - 2, turn);
}
