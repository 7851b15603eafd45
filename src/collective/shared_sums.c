/* Sums that everybody has, of one collective or of several, as if those were one value: see shared_work.h.
 *
 * Places are in bytes here. A part begins with a line of the cache, and so does every chunk and every rank's piece of
 * one: the elements of every type are whole wherever something is cut. */
#include <string.h>

#include "base/mem.h"
#include "collective/pairs.h"
#include "collective/shared_work.h"

enum {
  LINE = 64,
  BLOCK = 1024, /* while one is worked on, the lines of the next are on their way from another core */
};

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

/* Of SHARED_SUM bytes at the most. */
static void sum_some(const struct shared_work *w, const struct collective_run *run, const char *const *sources,
                     char *to, int64_t n) {
  const struct collective_arithmetic *a = run->arithmetic;
  pairs_sum(a, sources, w->size, run->element, n, to, w->spare, SHARED_SUM);
  if (a->final) a->final(a, to, run->members, n);
}

/* What is summed never leaves the nearest cache while it is: SHARED_SUM bytes at a time. */
void shared_sum(const struct shared_work *w, const struct collective_run *run, const char *const *sources, char *to,
                int64_t count) {
  size_t element = run->element;
  int64_t step = SHARED_SUM / (int64_t)element;
  for (int64_t i = 0; i < count; i += step) {
    int64_t n = MIN(step, count - i);
    const char *here[SHARED_RANKS];
    char *at = to + (size_t)i * element;
    for (int r = 0; r < w->size; r++) here[r] = sources[r] + (size_t)i * element;
    sum_some(w, run, here, at, n);
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

/* Lines that another core has written are asked for as one's own, since they are to be written: they come once. */
static void fetch(const char *at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += LINE)
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(at[i]));
#else
    __builtin_prefetch(at + i, 1, 3);
#endif
}

/* The library's copy: of what it knows to be a block at most a compiler makes a loop of its own, and a slower one. */
static void copy(char *to, const char *from, size_t n) {
  __asm__("" : "+r"(n));
  memcpy(to, from, n);
}

/* Of what was shown in the turn before: rank r's at sources[r]. */
static void find_sources(const struct shared_work *w, struct sum_range chunk, const struct sum_span *s, uint64_t turn,
                         const char **sources) {
  for (int r = 0; r < w->size; r++)
    sources[r] = r == w->rank ? in_of(s) : shared_slot(w, r, turn - 1) + (s->at.begin - chunk.begin);
}

static void sum_at_once(const struct shared_work *w, struct sum_range chunk, uint64_t turn) {
  const char *sources[SHARED_RANKS];
  for (struct sum_span s = first_span(w, chunk); s.part; s = next_span(w, chunk, s)) {
    find_sources(w, chunk, &s, turn, sources);
    shared_sum(w, s.part->run, sources, out_of(&s), (int64_t)(size_of(&s) / s.part->run->element));
  }
}

static void fetch_shown(const struct shared_work *w, const char *const *sources, size_t at, size_t bytes) {
  for (int r = 0; r < w->size; r++)
    if (r != w->rank) fetch(sources[r] + at, bytes);
}

/* Block by block into the own output, and from there to where each of the others has shown it. */
static void sum_span(const struct shared_work *w, struct sum_range chunk, const struct sum_span *s, uint64_t turn) {
  const struct collective_run *run = s->part->run;
  const char *sources[SHARED_RANKS];
  size_t bytes = size_of(s);
  char *to = out_of(s);
  find_sources(w, chunk, s, turn, sources);
  fetch_shown(w, sources, 0, MIN(BLOCK, bytes));
  for (size_t at = 0, n; at < bytes; at += n) {
    n = MIN(BLOCK, bytes - at);
    fetch_shown(w, sources, n, MIN(BLOCK, bytes - at - n));
    sum_some(w, run, sources, to, (int64_t)(n / run->element));
    for (int r = 0; r < w->size; r++) {
      if (r != w->rank) copy((char *)sources[r], to, n);
      sources[r] += n;
    }
    to += n;
  }
}

static void sum(const struct shared_work *w, int64_t k, uint64_t turn) {
  struct sum_range chunk = chunk_of(w, k), own = piece_of(w, chunk, w->rank);
  if (w->at_once) sum_at_once(w, chunk, turn);
  else
    for (struct sum_span s = first_span(w, own); s.part; s = next_span(w, own, s)) sum_span(w, chunk, &s, turn);
}

/* A walk over what others have summed, or are to sum, of a chunk: part by part. */
struct sum_walk {
  struct sum_range chunk, own; /* the own piece is for nobody else to see; at once there is none */
  struct sum_span now;         /* part NULL: it is over */
  size_t begin, end;           /* of that, in the slot; over: none */
};

static void walk_on(const struct shared_work *w, struct sum_walk *walk, size_t at, const struct shared_part *near) {
  struct sum_range c = walk->chunk;
  if (at < walk->own.begin) walk->now = span_from(w, (struct sum_range){at, walk->own.begin}, near);
  if (at >= walk->own.begin || !walk->now.part)
    walk->now = span_from(w, (struct sum_range){MAX(at, walk->own.end), c.end}, near);
  walk->begin = walk->now.part ? walk->now.at.begin - c.begin : SIZE_MAX;
  walk->end = walk->now.part ? walk->now.at.end - c.begin : SIZE_MAX;
}

static struct sum_walk walk_begin(const struct shared_work *w, int64_t k) {
  struct sum_walk walk = {.begin = SIZE_MAX, .end = SIZE_MAX};
  if (k < 0 || k >= w->chunks) return walk;
  walk.chunk = chunk_of(w, k);
  walk.own = w->at_once ? (struct sum_range){walk.chunk.end, walk.chunk.end} : piece_of(w, walk.chunk, w->rank);
  walk_on(w, &walk, walk.chunk.begin, first_part(w, walk.chunk));
  return walk;
}

static void walk_past(const struct shared_work *w, struct sum_walk *walk, size_t at) {
  if (walk->end <= at) walk_on(w, walk, walk->now.at.end, walk->now.part);
}

/* How far one can go from `at` before the walk meets another part, or its first one. */
static size_t walk_bound(const struct sum_walk *walk, size_t at) { return walk->begin > at ? walk->begin : walk->end; }

static bool is_on(const struct sum_walk *walk, size_t at) { return walk->begin <= at; }

/* The sums of a chunk out of the slot, and another into it: block by block, so that a line comes once for both. Between
 * are the own pieces, which nobody writes there. */
static void take_and_show(const struct shared_work *w, int64_t taken, int64_t shown, uint64_t turn) {
  struct sum_walk from = walk_begin(w, taken), to = walk_begin(w, shown);
  char *slot = shared_slot(w, w->rank, turn);
  for (size_t at = 0, end; from.now.part || to.now.part; at = end) {
    bool takes = is_on(&from, at), shows = is_on(&to, at);
    end = MIN(walk_bound(&from, at), walk_bound(&to, at));
    if (takes || shows) {
      size_t last = MAX(takes ? from.end : 0, shows ? to.end : 0);
      end = MIN(end, at + BLOCK);
      fetch(slot + end, MIN(BLOCK, last - end));
    }
    if (takes) copy(out_of(&from.now) + (at - from.begin), slot + at, end - at);
    if (shows) copy(slot + at, in_of(&to.now) + (at - to.begin), end - at);
    walk_past(w, &from, end);
    walk_past(w, &to, end);
  }
}

void shared_sums_turn(const struct shared_work *w, int64_t k, uint64_t turn) {
  if (k > 0 && k <= w->chunks) sum(w, k - 1, turn);
  take_and_show(w, w->at_once ? -1 : k - 2, k, turn);
}
