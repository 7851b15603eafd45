/* Stages: a segment is cut where something that others wait for could begin.
 *
 * A segment's nodes run one after the other, and an asynchronous node that reads one of their values waits for the
 * whole segment: all of backward stood in one, and the first bucket of gradients was sent when the last had been
 * computed. So where collectives take enough to be worth it, the segment is cut into stages: first what the one needs
 * that needs least, then what the next needs beside that, at last what none of them needs. Each stage waits for the one
 * before, so nodes still run one after the other, and every value is computed as it was. What a collective waits for is
 * its stage; what waits for the collective is where it was.
 *
 * Who still reads a variable that is changed meanwhile keeps the value as it was: it is copied then. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/vec.h"
#include "runtime/plan_internal.h"

enum { EARLY_BYTES = 64 << 10, MOST_STAGES = 64 };

struct early_node {
  const struct shoal_node *node;
  int needs; /* nodes of the segment */
};

struct stager {
  struct plan *p;
  struct shoal_node **nodes;
  const int *segment;
  int *index; /* node id -> its place among nodes; -1: it is in no segment */
  int *stage; /* [n_nodes] in its segment */
  int *seen;  /* [n_nodes] the last search that came by */
  int searches;
  VEC(int) todo;
};

static bool is_large(shoal_out o) {
  const struct shape *s = o.node->out_shapes ? &o.node->out_shapes[o.index] : NULL;
  int64_t n = 0;
  if (!s || !shape_known(s)) return false;
  shoal_status overflow = shape_elements(s, &n);
  bool large = !overflow && n >= EARLY_BYTES / (int64_t)MAX(dtype_size(dtype_base(o.node->out_types[o.index])), 1);
  shoal_status_free(overflow);
  return large;
}

bool stages_wanted(const struct shoal_node *n) {
  return str_starts(n->op->name, "Collective") && n->n_in > 0 && n->in[0].node && is_large(n->in[0]);
}

static const struct shoal_node *input_of(const struct shoal_node *n, int k) {
  return k < n->n_in ? n->in[k].node : n->control.at[k - n->n_in];
}

/* How many of the segment's nodes that have no stage yet are to run before n. They get this one; -1: they are only
 * counted. */
static int search(struct stager *s, const struct shoal_node *n, int segment, int stage) {
  int found = 0;
  s->searches++;
  for (const struct shoal_node *from = n;;) {
    for (int k = 0; k < from->n_in + (int)from->control.n; k++) {
      int i = s->index[input_of(from, k)->id];
      if (i < 0 || s->segment[i] != segment || s->seen[i] == s->searches || s->stage[i] >= 0) continue;
      s->seen[i] = s->searches;
      if (stage >= 0) s->stage[i] = stage;
      found++;
      vec_push(&s->todo, i);
    }
    if (!s->todo.n) return found;
    from = s->nodes[vec_pop(&s->todo)];
  }
}

static int by_needs(const void *a, const void *b) {
  return ((const struct early_node *)a)->needs - ((const struct early_node *)b)->needs;
}

/* Gives every node of the segment a stage, and says how many there are. */
static int cut_segment(struct stager *s, const bool *early, int segment) {
  struct early_node found[MOST_STAGES];
  int n = 0, stages = 0, left = s->p->segments[segment].n;
  for (int i = s->p->n_once; i < s->p->n_nodes && n < MOST_STAGES; i++) {
    if (!early[i]) continue;
    int needs = search(s, s->nodes[i], segment, -1);
    if (needs) found[n++] = (struct early_node){s->nodes[i], needs};
  }
  qsort(found, (size_t)n, sizeof *found, by_needs);
  for (int i = 0; i < n; i++) {
    int more = search(s, found[i].node, segment, stages);
    stages += more > 0;
    left -= more;
  }
  return stages + (left > 0);
}

/* Numbers segments anew: the stages of one stand together, in their order. */
static void renumber(struct stager *s, const int *stages, int *segment) {
  struct plan *p = s->p;
  VEC(struct segment) cut = {0};
  int *first = mem_zalloc((size_t)p->n_segments + 1, sizeof *first);
  for (int k = 0; k < p->n_segments; k++) {
    first[k] = (int)cut.n;
    for (int j = 0; j < MAX(stages[k], 1); j++)
      vec_push(&cut, (struct segment){.call = p->segments[k].call, .follows = j > 0});
  }
  for (int i = p->n_once; i < p->n_nodes; i++) {
    int k = segment[i], last = MAX(stages[k], 1) - 1;
    segment[i] = first[k] + (s->stage[i] >= 0 ? s->stage[i] : last);
    cut.at[segment[i]].n++;
  }
  free(first);
  free(p->segments);
  p->segments = cut.at;
  p->n_segments = (int)cut.n;
}

void stages_cut(struct plan *p, struct shoal_node **nodes, const bool *early, size_t n_ids, int *segment) {
  struct stager s = {.p = p, .nodes = nodes, .segment = segment};
  size_t n = (size_t)p->n_nodes;
  s.index = mem_alloc((n_ids + 1) * sizeof *s.index);
  s.stage = mem_alloc((n + 1) * sizeof *s.stage);
  s.seen = mem_zalloc(n + 1, sizeof *s.seen);
  int *stages = mem_zalloc((size_t)p->n_segments + 1, sizeof *stages);
  bool any = false;
  for (size_t i = 0; i < n_ids; i++) s.index[i] = -1;
  for (int i = 0; i < p->n_nodes; i++) {
    s.stage[i] = -1;
    if (i >= p->n_once) s.index[nodes[i]->id] = i;
  }
  for (int k = 0; k < p->n_segments; k++) {
    if (p->segments[k].call < 0) stages[k] = cut_segment(&s, early, k);
    any |= stages[k] > 1;
  }
  if (any) renumber(&s, stages, segment);
  free(stages);
  free(s.index);
  free(s.stage);
  free(s.seen);
  vec_release(&s.todo);
}
