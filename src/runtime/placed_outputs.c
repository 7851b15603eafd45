/* Values that are written where they will stand in a concatenation, which then has nothing to copy: gradients that go
 * into a bucket, mostly.
 *
 * A step of a straight plan begins with the memory of each such whole. A node whose output is read by the concatenation
 * alone, straight or through nodes that give it another shape, finds its part of it as the place of its output
 * (kernel_ctx.place), and the concatenation the whole; it copies what is not there yet. So nothing rests on a kernel
 * taking its place: one that makes its output in another way, or of another size, is copied as before.
 *
 * A part has to begin with a line of the cache, as every output does, for kernels count on it. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/vec.h"
#include "runtime/plan_internal.h"

enum { LINE = 64 };

struct finder {
  struct plan *p;
  struct shoal_node **nodes;
  const int *at; /* node id -> plan index */
  VEC(struct plan_whole) wholes;
  VEC(struct plan_place) places;
};

/* How long a list is, as far as it is known; -1: it is none, or not known. */
static int64_t list_length(shoal_out o) {
  const struct shape *s = o.node->out_shapes ? &o.node->out_shapes[o.index] : NULL;
  return s && s->rank == 1 && s->dims[0] >= 0 ? s->dims[0] : -1;
}

static bool is_zero(shoal_out axis) {
  const struct tensor *t;
  if (!op_is(axis.node->op, "Const")) return false;
  shoal_status s = node_get_tensor(axis.node, "value", &t);
  bool zero = !s && t->dtype == SHOAL_INT32 && t->n == 1 && *T_DATA(t, int32_t) == 0;
  shoal_status_free(s);
  return zero;
}

/* Lists of known lengths, one behind the other. */
static bool joins_lists(const struct shoal_node *n) {
  if (!op_is(n->op, "ConcatV2") || n->n_in < 3 || !dtype_plain(dtype_base(n->out_types[0]))) return false;
  for (int i = 0; i < n->n_in - 1; i++)
    if (list_length(n->in[i]) < 0) return false;
  return is_zero(n->in[n->n_in - 1]);
}

static bool is_read_once(const struct finder *f, shoal_out o) {
  const struct plan_node *n = &f->p->nodes[f->at[o.node->id]];
  return n->frame == 0 && n->out_frame == 0 && f->p->frames[0].slot_uses[n->out_slot + o.index] == 1;
}

/* The node whose output it is, under whatever shape; NULL: others read it, too. */
static struct shoal_node *maker_of(const struct finder *f, shoal_out o) {
  while (is_read_once(f, o)) {
    if (!op_is(o.node->op, "Reshape")) return o.index == 0 ? o.node : NULL;
    o = o.node->in[0];
  }
  return NULL;
}

static bool can_be_placed(const struct plan *p, int node) {
  enum { NEVER = NODE_ASYNC | NODE_REFS | NODE_MAY_SKIP | NODE_PLACED };
  const struct plan_node *n = &p->nodes[node];
  return node >= p->n_once && !(n->flags & NEVER) && n->kernel->def->run && !n->kernel->host_out;
}

static void place(struct finder *f, int node, struct plan_place where) {
  where.node = node;
  f->p->nodes[node].flags |= NODE_PLACED;
  vec_push(&f->places, where);
}

static void place_parts(struct finder *f, const struct shoal_node *n, int whole) {
  size_t size = dtype_size(dtype_base(n->out_types[0]));
  int64_t first = 0, length;
  for (int i = 0; i < n->n_in - 1; i++, first += length) {
    length = list_length(n->in[i]);
    const struct shoal_node *maker = maker_of(f, n->in[i]);
    bool fits = maker && length && (size_t)first * size % LINE == 0 && can_be_placed(f->p, f->at[maker->id]);
    if (fits && dtype_base(maker->out_types[0]) == dtype_base(n->out_types[0]))
      place(f, f->at[maker->id], (struct plan_place){.whole = whole, .first = first, .n = length});
  }
}

static void place_all(struct finder *f, int node) {
  const struct shoal_node *n = f->nodes[node];
  if (!joins_lists(n) || !can_be_placed(f->p, node)) return;
  size_t before = f->places.n;
  int64_t length = 0;
  for (int i = 0; i < n->n_in - 1; i++)
    if (__builtin_add_overflow(length, list_length(n->in[i]), &length)) return;
  place_parts(f, n, (int)f->wholes.n);
  if (f->places.n == before) return;
  place(f, node, (struct plan_place){.whole = (int)f->wholes.n, .n = length, .is_whole = true});
  vec_push(&f->wholes, (struct plan_whole){dtype_base(n->out_types[0]), length});
}

static int by_node(const void *a, const void *b) {
  return ((const struct plan_place *)a)->node - ((const struct plan_place *)b)->node;
}

void places_find(struct plan *p, struct shoal_node **nodes, const int *at) {
  struct finder f = {.p = p, .nodes = nodes, .at = at};
  if (!p->device->type->host) return;
  for (int i = p->n_once; i < p->n_nodes; i++) place_all(&f, i);
  if (f.places.n) qsort(f.places.at, f.places.n, sizeof *f.places.at, by_node);
  p->wholes = f.wholes.at;
  p->n_wholes = (int)f.wholes.n;
  p->places = f.places.at;
  p->n_places = (int)f.places.n;
}

const struct plan_place *place_of(const struct plan *p, int node) {
  int low = 0, high = p->n_places;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (p->places[middle].node <= node) low = middle;
    else high = middle;
  }
  return &p->places[low];
}
