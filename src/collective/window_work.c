#include "collective/window_work.h"

#include "base/mem.h"

_Static_assert((int)SHARED_JOINED <= (int)WINDOW_SLOT, "what is done as one is one chunk");
_Static_assert((int)SHARED_RANKS <= (int)MOST_MERGED, "all can be summed at once");

/* Does each rank bring something of its own for each of the others? */
static bool is_parted(const struct window_work *w) {
  return w->operation == OPERATION_REDUCE_SCATTER || w->operation == OPERATION_ALL_TO_ALL;
}

int64_t window_work_init(struct window_work *w) {
  w->run = w->parts[0].run;
  w->operation = w->run->request->operation;
  if (w->n_parts > 1 || w->operation == OPERATION_BARRIER) return 2;
  w->n = w->run->request->n;
  w->each = WINDOW_SLOT / (int64_t)w->run->element / (is_parted(w) ? w->size : 1);
  w->chunks = (w->n + w->each - 1) / w->each;
  return w->chunks ? w->chunks + 1 : 0;
}

/* ---- parts of values: no references of their own ---- */

static struct tensor part(const struct tensor *t, shoal_dtype dtype, size_t at, int64_t n) {
  struct tensor p = {.buffer = t->buffer, .data = (char *)t->data + at, .dtype = (uint8_t)dtype, .rank = 1, .n = n};
  p.dims[0] = n;
  return p;
}

static struct tensor elements(const struct tensor *t, int64_t first, int64_t n) {
  return part(t, (shoal_dtype)t->dtype, (size_t)first * dtype_size((shoal_dtype)t->dtype), n);
}

/* What rank r shows in a turn, from a byte on. */
static struct tensor slot(const struct window_work *w, int r, uint64_t turn, shoal_dtype dtype, size_t at, int64_t n) {
  return part(&w->windows[r], dtype, (turn & 1 ? WINDOW_SLOT : 0) + at, n);
}

static void copy(const struct window_work *w, struct tensor from, struct tensor to) {
  if (from.n && from.data != to.data) w->device->type->ops->copy(w->device, &from, &to, 0);
}

static shoal_dtype type_of(const struct collective_run *r) {
  return (shoal_dtype)(r->device_in ? r->device_in : r->device_out)->dtype;
}

/* ---- sums ---- */

/* n elements of a collective, from `first` on, of which others have shown theirs at byte `at` of their slots; `out_at`:
 * where they go. */
static shoal_status sum(const struct window_work *w, const struct collective_run *run, int64_t first, size_t at,
                        uint64_t turn, int64_t out_at, int64_t n) {
  struct tensor views[SHARED_RANKS], to = elements(run->device_out, out_at, n);
  const struct tensor *in[SHARED_RANKS], *out = &to;
  for (int r = 0; r < w->size; r++) {
    views[r] = r == w->rank ? elements(run->device_in, first, n) : slot(w, r, turn - 1, type_of(run), at, n);
    in[r] = &views[r];
  }
  struct device_merging m = {.merge = run->arithmetic->op,
                             .mean_of = run->arithmetic->final ? run->members : 0,
                             .n_in = w->size,
                             .n_out = 1,
                             .in = in,
                             .out = &out};
  return n ? w->device->type->ops->merge(w->device, &m) : NULL;
}

/* Several at once, each at its place in the slot. */
static shoal_status turn_of_many(const struct window_work *w, int64_t k, uint64_t turn) {
  for (int i = 0; i < w->n_parts; i++) {
    const struct shared_part *p = &w->parts[i];
    const struct collective_run *run = p->run;
    int64_t n = run->request->n;
    if (k == 0) copy(w, elements(run->device_in, 0, n), slot(w, w->rank, turn, type_of(run), p->at, n));
    else TRY(sum(w, run, 0, p->at, turn, 0, n));
  }
  return NULL;
}

/* ---- one collective, chunk by chunk ---- */

static void show(const struct window_work *w, int64_t k, uint64_t turn) {
  int64_t first = k * w->each, m = MIN(w->each, w->n - first);
  const struct tensor *in = w->run->device_in;
  shoal_dtype type = type_of(w->run);
  if (!is_parted(w)) {
    bool silent = w->operation == OPERATION_BROADCAST && w->rank != w->run->request->root;
    if (!silent) copy(w, elements(in, first, m), slot(w, w->rank, turn, type, 0, m));
    return;
  }
  for (int r = 0; r < w->size; r++)
    if (r != w->rank)
      copy(w, elements(in, r * w->n + first, m),
           slot(w, w->rank, turn, type, (size_t)(r * w->each) * w->run->element, m));
}

/* Rank r's, of what was shown in the turn before; the own from where it is. */
static struct tensor source(const struct window_work *w, int r, int64_t first, int64_t m, uint64_t turn) {
  bool parted = is_parted(w);
  if (r == w->rank) return elements(w->run->device_in, (parted ? r * w->n : 0) + first, m);
  return slot(w, r, turn - 1, type_of(w->run), parted ? (size_t)(w->rank * w->each) * w->run->element : 0, m);
}

static shoal_status take(const struct window_work *w, int64_t k, uint64_t turn) {
  int64_t first = k * w->each, m = MIN(w->each, w->n - first);
  const struct tensor *out = w->run->device_out;
  switch (w->operation) {
    case OPERATION_ALL_REDUCE:
    case OPERATION_REDUCE: return sum(w, w->run, first, 0, turn, first, m);
    case OPERATION_REDUCE_SCATTER:
      return sum(w, w->run, w->rank * w->n + first, (size_t)(w->rank * w->each) * w->run->element, turn, first, m);
    case OPERATION_BROADCAST:
      copy(w, source(w, w->run->request->root, first, m, turn), elements(out, first, m));
      return NULL;
    default:
      for (int r = 0; r < w->size; r++) copy(w, source(w, r, first, m, turn), elements(out, r * w->n + first, m));
      return NULL;
  }
}

static shoal_status queue(const struct window_work *w, int64_t k, uint64_t turn) {
  if (w->operation == OPERATION_BARRIER) return NULL;
  if (w->n_parts > 1) return turn_of_many(w, k, turn);
  if (k < w->chunks) show(w, k, turn);
  return k > 0 ? take(w, k - 1, turn) : NULL;
}

shoal_status window_work_turn(const struct window_work *w, int64_t k, uint64_t turn) {
  TRY(queue(w, k, turn));
  return w->device->type->ops->finish(w->device);
}
