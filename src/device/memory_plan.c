/* Planning the memory of steps; see memory_plan.h. */
#include "device/memory_plan.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MOST_SPANS = 1 << 14, LOOK_AHEAD = 16 }; /* placing takes the square of their number */
#define NEVER INT64_MAX

static _Thread_local struct memory_plan *noting, *used;

static size_t rounded(size_t size) {
  return MAX(size + MEMORY_PLAN_ALIGN - 1, (size_t)MEMORY_PLAN_ALIGN) / MEMORY_PLAN_ALIGN * MEMORY_PLAN_ALIGN;
}

/* ---- notes ---- */

void memory_plan_begin(struct memory_plan *p, const struct device *d) {
  static atomic_uint_fast64_t runs;
  p->id = atomic_fetch_add(&runs, 1) + 1;
  p->device = d;
  p->now = 0;
  p->in_use = p->most = p->total = 0;
  p->spans.n = 0;
  noting = p;
}

struct memory_note memory_note_take(const struct device *d, size_t size) {
  struct memory_plan *p = noting;
  if (!p || p->device != d) return (struct memory_note){0};
  struct memory_span s = {.size = rounded(size), .from = p->now++, .to = NEVER};
  vec_push(&p->spans, s);
  p->in_use += s.size;
  p->most = MAX(p->most, p->in_use);
  return (struct memory_note){p->id, p->spans.n - 1};
}

void memory_note_give(struct memory_note n) {
  struct memory_plan *p = noting;
  if (!n.of || !p || p->id != n.of) return;
  p->spans.at[n.i].to = p->now++;
  p->in_use -= p->spans.at[n.i].size;
}

/* ---- places ---- */

static int by_size(const void *a, const void *b) {
  const struct memory_span *x = *(struct memory_span *const *)a, *y = *(struct memory_span *const *)b;
  if (x->size != y->size) return x->size < y->size ? 1 : -1;
  return x->from < y->from ? -1 : x->from > y->from;
}

static bool at_once(const struct memory_span *a, const struct memory_span *b) {
  return a->from < b->to && b->from < a->to;
}

/* The lowest place, between those that have theirs and are somebody's at the same time. */
static void place(struct memory_span *s, struct memory_span *const *placed, size_t n) {
  s->at = 0;
  for (size_t i = 0; i < n; i++) {
    const struct memory_span *o = placed[i];
    if (!at_once(s, o)) continue;
    if (s->at + s->size <= o->at) return;
    s->at = MAX(s->at, o->at + o->size);
  }
}

/* placed: by their places. */
static void insert(struct memory_span **placed, size_t n, struct memory_span *s) {
  size_t i = n;
  for (; i && placed[i - 1]->at > s->at; i--) placed[i] = placed[i - 1];
  placed[i] = s;
}

static void lay_out(struct memory_plan *p) {
  size_t n = p->spans.n;
  struct memory_span **sorted = mem_zalloc(n, sizeof *sorted), **placed = mem_zalloc(n, sizeof *placed);
  for (size_t i = 0; i < n; i++) sorted[i] = &p->spans.at[i];
  qsort(sorted, n, sizeof *sorted, by_size);
  for (size_t i = 0; i < n; i++) {
    place(sorted[i], placed, i);
    insert(placed, i, sorted[i]);
    p->total = MAX(p->total, sorted[i]->at + sorted[i]->size);
  }
  free(placed);
  free(sorted);
}

void memory_plan_end(void) {
  struct memory_plan *p = noting;
  noting = NULL;
  if (p->spans.n && p->spans.n <= MOST_SPANS) lay_out(p);
}

void memory_plan_release(struct memory_plan *p) {
  vec_release(&p->spans);
  *p = (struct memory_plan){0};
}

void memory_plan_use(struct memory_plan *p) { used = p; }
struct memory_plan *memory_plan_used(const struct device *d) {
  return used && used->device == d ? used : NULL;
}

/* ---- serving ---- */

void memory_serving_init(struct memory_serving *s, const struct memory_plan *p) {
  *s = (struct memory_serving){0};
  for (size_t i = 0; p->total && i < p->spans.n; i++) vec_push(&s->spans, p->spans.at[i]);
}

void memory_serving_release(struct memory_serving *s) {
  vec_release(&s->spans);
  vec_release(&s->out);
}

static bool is_free(const struct memory_serving *s, const struct memory_span *want) {
  for (size_t i = 0; i < s->out.n; i++) {
    const struct memory_span *has = &s->spans.at[s->out.at[i]];
    if (want->at < has->at + has->size && has->at < want->at + want->size) return false;
  }
  return true;
}

/* A few requests that were noted and do not come are passed over. */
bool memory_serving_take(struct memory_serving *s, size_t size, size_t *span) {
  size = rounded(size);
  for (size_t i = s->next; i < s->spans.n && i < s->next + LOOK_AHEAD; i++) {
    if (s->spans.at[i].size != size) continue;
    if (!is_free(s, &s->spans.at[i])) return false;
    vec_push(&s->out, i);
    s->next = i + 1;
    *span = i;
    return true;
  }
  return false;
}

void memory_serving_give(struct memory_serving *s, size_t span) {
  for (size_t i = s->out.n; i--;)
    if (s->out.at[i] == span) {
      s->out.at[i] = s->out.at[--s->out.n];
      return;
    }
}
