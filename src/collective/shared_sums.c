/* Sums that everybody has, of one collective or of several, as if those were one value: see shared_work.h.
 *
 * Places are in bytes here. A part begins with a line of the cache, and so does every chunk and every rank's piece of
 * one: the elements of every type are whole wherever something is cut. */
#include <string.h>

#include "base/mem.h"
#include "collective/pairs.h"
#include "collective/shared_work.h"

enum { LINE = 64 };

static size_t in_lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

bool shared_work_joins(enum collective_operation operation, int64_t n, size_t element, size_t *room) {
  bool fits = operation == OPERATION_ALL_REDUCE && element && LINE % element == 0 && n >= 0 &&
              (uint64_t)n <= SHARED_JOINED / element;
  *room = fits ? in_lines((size_t)n * element) : 0;
  return fits;
}

int64_t shared_sums_init(struct shared_work *w) {
  const struct shared_part *last = &w->parts[w->n_parts - 1];
  w->bytes = last->at + last->bytes;
  w->at_once = w->bytes * (size_t)(w->size - 1) <= SHARED_AT_ONCE;
  w->chunks = (int64_t)((w->bytes + SHARED_CHUNK - 1) / SHARED_CHUNK);
  return w->chunks ? w->chunks + (w->at_once ? 1 : 2) : 0;
}

/* What is summed never leaves the nearest cache while it is: SHARED_SUM bytes at a time. */
void shared_sum(const struct shared_work *w, const struct collective_run *run, const char *const *sources, char *to,
                int64_t count) {
  const struct collective_arithmetic *a = run->arithmetic;
  size_t element = run->element;
  int64_t step = SHARED_SUM / (int64_t)element;
  for (int64_t i = 0; i < count; i += step) {
    int64_t n = MIN(step, count - i);
    const char *here[SHARED_RANKS];
    char *at = to + (size_t)i * element;
    for (int r = 0; r < w->size; r++) here[r] = sources[r] + (size_t)i * element;
    pairs_sum(a, here, w->size, element, n, at, w->spare, SHARED_SUM);
    if (a->final) a->final(a, at, run->members, n);
  }
}

/* ---- places ---- */

struct sum_range {
  size_t begin, end;
};

static struct sum_range chunk_of(const struct shared_work *w, int64_t k) {
  size_t begin = (size_t)k * SHARED_CHUNK;
  return (struct sum_range){begin, MIN(begin + SHARED_CHUNK, w->bytes)};
}

/* Rank r's piece of a chunk: as equal as whole lines allow. */
static struct sum_range piece_of(const struct shared_work *w, struct sum_range chunk, int r) {
  size_t size = (size_t)w->size, per = in_lines((chunk.end - chunk.begin + size - 1) / size);
  size_t begin = MIN(chunk.begin + per * (size_t)r, chunk.end);
  return (struct sum_range){begin, MIN(begin + per, chunk.end)};
}

/* What of a range is one part's. */
struct sum_span {
  const struct shared_part *part;
  struct sum_range at; /* in the exchange */
};

/* The part in which a range begins. */
static const struct shared_part *first_part(const struct shared_work *w, struct sum_range of) {
  int low = 0, high = w->n_parts;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (w->parts[middle].at <= of.begin) low = middle;
    else high = middle;
  }
  return &w->parts[low];
}

/* The first of a range, from that part on; part NULL: there is no more of it. */
static struct sum_span span_from(const struct shared_work *w, struct sum_range of, const struct shared_part *part) {
  for (; part < w->parts + w->n_parts && part->at < of.end; part++) {
    struct sum_range at = {MAX(of.begin, part->at), MIN(of.end, part->at + part->bytes)};
    if (at.begin < at.end) return (struct sum_span){part, at};
  }
  return (struct sum_span){0};
}

static struct sum_span first_span(const struct shared_work *w, struct sum_range of) {
  return span_from(w, of, first_part(w, of));
}

static struct sum_span next_span(const struct shared_work *w, struct sum_range of, struct sum_span s) {
  return span_from(w, of, s.part + 1);
}

static size_t size_of(const struct sum_span *s) { return s->at.end - s->at.begin; }
static const char *in_of(const struct sum_span *s) {
  return (const char *)s->part->run->in + (s->at.begin - s->part->at);
}
static char *out_of(const struct sum_span *s) { return (char *)s->part->run->out + (s->at.begin - s->part->at); }

/* ---- a turn ---- */

static void show_range(const struct shared_work *w, struct sum_range chunk, struct sum_range of, uint64_t turn) {
  char *slot = w->areas[w->rank]->slots[turn & 1];
  for (struct sum_span s = first_span(w, of); s.part; s = next_span(w, of, s))
    memcpy(slot + (s.at.begin - chunk.begin), in_of(&s), size_of(&s));
}

/* The own piece is for nobody else to see. */
static void show(const struct shared_work *w, int64_t k, uint64_t turn) {
  struct sum_range chunk = chunk_of(w, k), own = piece_of(w, chunk, w->rank);
  if (w->at_once) own.begin = own.end = chunk.end;
  show_range(w, chunk, (struct sum_range){chunk.begin, own.begin}, turn);
  show_range(w, chunk, (struct sum_range){own.end, chunk.end}, turn);
}

/* Of what was shown in the turn before. */
static void sum_part(const struct shared_work *w, struct sum_range chunk, const struct sum_span *s, uint64_t turn,
                     char *to) {
  const char *sources[SHARED_RANKS];
  for (int r = 0; r < w->size; r++)
    sources[r] = r == w->rank ? in_of(s) : w->areas[r]->slots[(turn - 1) & 1] + (s->at.begin - chunk.begin);
  shared_sum(w, s->part->run, sources, to, (int64_t)(size_of(s) / s->part->run->element));
}

/* Into the own output and, while it is in the nearest cache, into the results that others copy: these are lines that
 * others have read, and cost less when they are written by a copy alone. */
static void sum_for_all(const struct shared_work *w, struct sum_range chunk, struct sum_span s, uint64_t turn,
                        char *results) {
  size_t end = s.at.end;
  for (; s.at.begin < end; s.at.begin = s.at.end) {
    s.at.end = MIN(end, s.at.begin + SHARED_SUM);
    sum_part(w, chunk, &s, turn, out_of(&s));
    memcpy(results, out_of(&s), size_of(&s));
    results += size_of(&s);
  }
}

static void sum(const struct shared_work *w, int64_t k, uint64_t turn) {
  struct sum_range chunk = chunk_of(w, k), own = w->at_once ? chunk : piece_of(w, chunk, w->rank);
  char *results = w->areas[w->rank]->results[turn & 1];
  for (struct sum_span s = first_span(w, own); s.part; s = next_span(w, own, s)) {
    if (w->at_once) sum_part(w, chunk, &s, turn, out_of(&s));
    else sum_for_all(w, chunk, s, turn, results + (s.at.begin - own.begin));
  }
}

/* The others' pieces. */
static void gather(const struct shared_work *w, int64_t k, uint64_t turn) {
  for (int r = 0; r < w->size; r++) {
    struct sum_range piece = piece_of(w, chunk_of(w, k), r);
    const char *results = w->areas[r]->results[(turn - 1) & 1];
    if (r == w->rank) continue;
    for (struct sum_span s = first_span(w, piece); s.part; s = next_span(w, piece, s))
      memcpy(out_of(&s), results + (s.at.begin - piece.begin), size_of(&s));
  }
}

void shared_sums_turn(const struct shared_work *w, int64_t k, uint64_t turn) {
  if (k < w->chunks) show(w, k, turn);
  if (k > 0 && k <= w->chunks) sum(w, k - 1, turn);
  if (k > 1 && !w->at_once) gather(w, k - 2, turn);
}
