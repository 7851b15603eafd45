/* Cutting a plan into segments: runs of nodes that become ready at the same moment.
 *
 * What a node waits for, in the end, is a set of asynchronous nodes: all those on some path that leads to it. Nodes
 * with the same set can be run one after the other in a fixed order, without asking before each whether its inputs are
 * there; they are a segment. An asynchronous node is a segment of its own. A plan without any is one segment. A segment
 * that reads values of another waits for the whole of it: it is not delayed by that for long, since the other's set is
 * a part of its own.
 *
 * The sets are bit vectors, one for each that occurs; a node whose inputs all have one set has that set too. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/vec.h"
#include "runtime/plan_internal.h"

enum { MOST_WORDS = 1 << 22 }; /* of all sets together: 32 MB; a plan that needs more is not cut */

struct sets {
  int words;          /* of one */
  VEC(uint64_t) bits; /* one set behind the other; the first is empty */
  int n, cap;         /* sets there are; places in the table, a power of 2 */
  int *table;         /* set + 1 by hash, or 0 */
  uint64_t *scratch;  /* [words] */
};

static const uint64_t *set_at(const struct sets *s, int i) { return s->bits.at + (size_t)i * (size_t)s->words; }

static void set_insert(struct sets *s, int i) {
  uint64_t h = hash64_stable(set_at(s, i), (size_t)s->words * sizeof(uint64_t));
  while (s->table[h & (uint64_t)(s->cap - 1)]) h++;
  s->table[h & (uint64_t)(s->cap - 1)] = i + 1;
}

/* The set that scratch holds; it is added where there was none. -1: there are too many. */
static int set_intern(struct sets *s) {
  size_t bytes = (size_t)s->words * sizeof(uint64_t);
  uint64_t h = hash64_stable(s->scratch, bytes);
  for (int i; (i = s->table[h & (uint64_t)(s->cap - 1)]); h++)
    if (!memcmp(set_at(s, i - 1), s->scratch, bytes)) return i - 1;
  if ((size_t)s->n * (size_t)s->words >= MOST_WORDS) return -1;
  for (int w = 0; w < s->words; w++) vec_push(&s->bits, s->scratch[w]);
  s->n++;
  if (2 * s->n > s->cap) {
    s->cap *= 2;
    free(s->table);
    s->table = mem_zalloc((size_t)s->cap, sizeof *s->table);
    for (int i = 0; i < s->n; i++) set_insert(s, i);
  } else {
    set_insert(s, s->n - 1);
  }
  return s->n - 1;
}

static void sets_init(struct sets *s, int n_async) {
  *s = (struct sets){.words = n_async / 64 + 1, .cap = 64};
  s->table = mem_zalloc((size_t)s->cap, sizeof *s->table);
  s->scratch = mem_zalloc((size_t)s->words, sizeof *s->scratch);
  set_intern(s);
}

static void sets_release(struct sets *s) {
  vec_release(&s->bits);
  free(s->table);
  free(s->scratch);
}

/* What a node waits for: the union of the sets of all that leads to it. */
static int set_of(struct sets *s, const struct shoal_node *n, const int *set_after) {
  int set = 0;
  bool mixed = false;
  int total = n->n_in + (int)n->control.n;
  for (int k = 0; k < total; k++) {
    const struct shoal_node *from = k < n->n_in ? n->in[k].node : n->control.at[k - n->n_in];
    int other = set_after[from->id];
    if (other == 0 || other == set) continue;
    if (set != 0 && !mixed) {
      memcpy(s->scratch, set_at(s, set), (size_t)s->words * sizeof(uint64_t));
      mixed = true;
    }
    for (int w = 0; mixed && w < s->words; w++) s->scratch[w] |= set_at(s, other)[w];
    if (!mixed) set = other;
  }
  return mixed ? set_intern(s) : set;
}

struct segment_cutter {
  struct sets sets;
  int n_async;
  int *set_after;          /* by node id: what its readers wait for */
  VEC(int) segment_of_set; /* or -1 */
  VEC(struct segment) segments;
};

static int segment_new(struct segment_cutter *c, bool async) {
  vec_push(&c->segments, (struct segment){.call = async ? c->n_async++ : -1});
  return (int)c->segments.n - 1;
}

/* The segment of a node; -1: the plan cannot be cut. */
static int segment_of(struct segment_cutter *c, const struct shoal_node *n, bool async) {
  int set = set_of(&c->sets, n, c->set_after);
  if (set < 0) return -1;
  c->set_after[n->id] = set;
  if (async) {
    memcpy(c->sets.scratch, set_at(&c->sets, set), (size_t)c->sets.words * sizeof(uint64_t));
    c->sets.scratch[c->n_async / 64] |= 1ull << c->n_async % 64;
    c->set_after[n->id] = set_intern(&c->sets);
    return c->set_after[n->id] < 0 ? -1 : segment_new(c, true);
  }
  while ((int)c->segment_of_set.n <= set) vec_push(&c->segment_of_set, -1);
  if (c->segment_of_set.at[set] < 0) c->segment_of_set.at[set] = segment_new(c, false);
  return c->segment_of_set.at[set];
}

bool segments_cut(struct plan *p, struct shoal_node **nodes, const bool *async, size_t n_ids, int *segment) {
  struct segment_cutter c = {0};
  for (int i = p->n_once; i < p->n_nodes; i++) p->n_calls += async[i];
  sets_init(&c.sets, p->n_calls);
  c.set_after = mem_zalloc(n_ids, sizeof *c.set_after);
  bool ok = true;
  for (int i = 0; i < p->n_once; i++) segment[i] = -1;
  for (int i = p->n_once; ok && i < p->n_nodes; i++) {
    segment[i] = segment_of(&c, nodes[i], async[i]);
    ok = segment[i] >= 0;
    if (ok) c.segments.at[segment[i]].n++;
  }
  sets_release(&c.sets);
  free(c.set_after);
  vec_release(&c.segment_of_set);
  p->segments = c.segments.at;
  p->n_segments = (int)c.segments.n;
  return ok;
}

void segments_order(struct plan *p, struct shoal_node **nodes, int *segment) {
  size_t n = (size_t)p->n_nodes;
  struct shoal_node **was = memcpy(mem_alloc(n * sizeof *was + 1), nodes, n * sizeof *was);
  int *was_in = memcpy(mem_alloc(n * sizeof *was_in + 1), segment, n * sizeof *was_in);
  int at = p->n_once;
  for (int s = 0; s < p->n_segments; s++) {
    p->segments[s].first = at;
    at += p->segments[s].n;
    p->segments[s].n = 0;
  }
  for (int i = p->n_once; i < p->n_nodes; i++) {
    struct segment *s = &p->segments[was_in[i]];
    int to = s->first + s->n++;
    nodes[to] = was[i];
    segment[to] = was_in[i];
  }
  free(was);
  free(was_in);
}

/* ---- who waits for whom ---- */

void segments_link(struct plan *p, const int *segment) {
  int *seen = mem_zalloc((size_t)p->n_segments + 1, sizeof *seen); /* the segment + 1 that last linked to it */
  VEC(int) nexts = {0};
  for (int s = 0; s < p->n_segments; s++) {
    struct segment *from = &p->segments[s];
    from->first_next = (int)nexts.n;
    if (s + 1 < p->n_segments && p->segments[s + 1].follows) {
      seen[s + 1] = s + 1;
      vec_push(&nexts, s + 1);
      p->segments[s + 1].pending++;
    }
    for (int i = from->first; i < from->first + from->n; i++) {
      const struct plan_node *n = &p->nodes[i];
      from->expensive |= (n->flags & NODE_EXPENSIVE) != 0;
      for (int k = 0; k < n->n_edges; k++) {
        int to = segment[p->edges[n->first_edge + k].dst];
        if (to < 0 || to == s || seen[to] == s + 1) continue;
        seen[to] = s + 1;
        vec_push(&nexts, to);
        p->segments[to].pending++;
      }
    }
    from->n_next = (int)nexts.n - from->first_next;
  }
  p->nexts = nexts.at;
  free(seen);
}

/* ---- last uses ---- */

/* In how many segments each slot is read; where more than one does, a counter says who is the last. */
static void count_readers(struct plan *p, const int *segment) {
  int n_slots = p->frames[0].n_slots;
  int *seen = mem_zalloc((size_t)n_slots, sizeof *seen);
  p->readers = mem_zalloc((size_t)n_slots, sizeof *p->readers);
  for (int i = p->n_once; i < p->n_nodes; i++) {
    const struct plan_node *n = &p->nodes[i];
    for (int k = 0; k < n->n_in; k++) {
      int slot = p->in_slots[n->first_in + k];
      if (slot < p->n_once_slots || seen[slot] == segment[i] + 1) continue;
      seen[slot] = segment[i] + 1;
      p->readers[slot]++;
    }
  }
  free(seen);
}

void segments_last_uses(struct plan *p, const int *segment) {
  int n_slots = p->frames[0].n_slots;
  count_readers(p, segment);
  int *last = mem_alloc((size_t)n_slots * sizeof *last); /* of the inputs in one segment */
  p->last_use = mem_zalloc((size_t)p->total_in, 1);
  for (int s = 0; s < p->n_segments; s++) {
    const struct segment *seg = &p->segments[s];
    int end = seg->first + seg->n;
    for (int i = seg->first; i < end; i++)
      for (int k = 0; k < p->nodes[i].n_in; k++) last[p->in_slots[p->nodes[i].first_in + k]] = p->nodes[i].first_in + k;
    for (int i = seg->first; i < end; i++) {
      const struct plan_node *n = &p->nodes[i];
      for (int k = 0; k < n->n_in; k++) {
        int at = n->first_in + k, slot = p->in_slots[at];
        if (slot < p->n_once_slots || last[slot] != at) continue;
        p->last_use[at] = USE_LAST | (p->readers[slot] > 1 ? USE_COUNTED : 0);
        for (int j = 0; j < k; j++) /* Add(x, x): the other input would be overwritten with this one */
          if (p->in_slots[n->first_in + j] == slot) p->last_use[at] |= USE_TWICE;
      }
    }
  }
  free(last);
}

void segments_find_drops(struct plan *p) {
  VEC(int) drops = {0};
  p->first_drop = mem_zalloc((size_t)p->n_nodes + 1, sizeof *p->first_drop);
  p->steals = mem_zalloc((size_t)p->n_nodes, sizeof *p->steals);
  for (int i = 0; i < p->n_nodes; i++) {
    struct plan_node *n = &p->nodes[i];
    for (int k = 0; i >= p->n_once && k < n->n_in; k++) {
      uint8_t use = p->last_use[n->first_in + k];
      if (use & USE_COUNTED) n->flags |= NODE_COUNTED;
      else if (use) vec_push(&drops, p->in_slots[n->first_in + k]);
      if (use == USE_LAST && k < 64) p->steals[i] |= 1ull << k;
    }
    for (int k = 0; i >= p->n_once && k < n->n_out; k++)
      if (!p->readers[n->out_slot + k]) vec_push(&drops, n->out_slot + k);
    p->first_drop[i + 1] = (int)drops.n;
  }
  p->drops = drops.at;
}
