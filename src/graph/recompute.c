/* Copies of a part's nodes, for its gradients; see recompute.h. */
#include "graph/recompute.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

struct recomputed_part {
  size_t from, to;
  shoal_out arrives; /* the gradient that came first; node NULL: none did */
};

struct late_input { /* what comes into a part, and the Identity that its copies read */
  shoal_out from, to;
};

struct recompute {
  struct shoal_graph *g;
  size_t first;
  VEC(struct recomputed_part) parts;
  VEC(int) made_for;          /* by id - first: the part whose gradients a node belongs to; -1: none */
  struct shoal_node **copies; /* [first] */
  bool *moves;                /* [first]: there may be a copy of it */
};

struct recompute *recompute_new(struct shoal_graph *g, size_t first) {
  size_t from, to;
  if (!graph_recompute_part(g, 0, &from, &to)) return NULL;
  struct recompute *c = mem_zalloc(1, sizeof *c);
  c->g = g;
  c->first = first;
  for (size_t i = 0; graph_recompute_part(g, i, &from, &to); i++)
    vec_push(&c->parts, (struct recomputed_part){.from = from, .to = MIN(to, first)});
  c->copies = mem_zalloc(first, sizeof *c->copies);
  c->moves = mem_zalloc(first, sizeof *c->moves);
  return c;
}

void recompute_free(struct recompute *c) {
  if (!c) return;
  vec_release(&c->parts);
  vec_release(&c->made_for);
  free(c->copies);
  free(c->moves);
  free(c);
}

/* -1: none. They are in the order of ids. */
static int part_of(const struct recompute *c, size_t id) {
  size_t low = 0, high = c->parts.n;
  while (low < high) {
    size_t mid = (low + high) / 2;
    if (id >= c->parts.at[mid].to) low = mid + 1;
    else high = mid;
  }
  return low < c->parts.n && id >= c->parts.at[low].from ? (int)low : -1;
}

void recompute_note(struct recompute *c, const struct shoal_node *n, size_t made, shoal_out dy) {
  int part = part_of(c, (size_t)n->id);
  while (c->made_for.n < made - c->first) vec_push(&c->made_for, -1);
  while (c->made_for.n < c->g->nodes.n - c->first) vec_push(&c->made_for, part);
  if (part >= 0 && dy.node && !c->parts.at[part].arrives.node) c->parts.at[part].arrives = dy;
}

/* ---- which nodes ---- */

/* Is it made of constants alone, as masks are? Those are folded, and there anyway. */
static bool is_constant(const struct shoal_node *n, int deep) {
  if (op_is(n->op, "Const")) return true;
  bool all = deep > 0 && n->n_in > 0 && node_is_pure(n);
  for (int i = 0; i < n->n_in && all; i++) all = n->in[i].node && is_constant(n->in[i].node, deep - 1);
  return all;
}

/* Does it depend on what a step computes, and come from outside of the part? */
static bool comes_in(const struct recomputed_part *p, const struct shoal_node *n) {
  enum { DEEP = 8 };
  return ((size_t)n->id < p->from || (size_t)n->id >= p->to) && node_is_pure(n) && !is_constant(n, DEEP);
}

static bool is_inside(const struct recomputed_part *p, const struct shoal_node *n) {
  return (size_t)n->id >= p->from && (size_t)n->id < p->to;
}

/* Nodes that nobody behind the part reads, made of what comes in. */
static void mark_moves(struct recompute *c, const struct recomputed_part *p, const struct consumers *users) {
  for (size_t id = p->from; id < p->to; id++) {
    const struct shoal_node *n = c->g->nodes.at[id];
    bool moves = false;
    for (int i = 0; n && i < n->n_in; i++) {
      const struct shoal_node *in = n->in[i].node;
      if (in && (size_t)in->id < id) moves |= comes_in(p, in) || (is_inside(p, in) && c->moves[in->id]);
    }
    if (!moves || !node_is_pure(n) || op_is(n->op, "Const")) continue;
    FOR_CONSUMERS (u, users, n)
      if (u->input >= 0 && (size_t)u->node->id < c->first && !is_inside(p, u->node)) moves = false;
    c->moves[id] = moves;
  }
}

/* ---- copies ---- */

typedef VEC(struct late_input) late_inputs;

/* The gradient is read beside the value where both are on one device: whoever fuses layers leaves those alone that
 * others wait for. */
static shoal_out late(struct recompute *c, const struct recomputed_part *p, late_inputs *all, shoal_out from) {
  for (size_t i = 0; i < all->n; i++)
    if (all->at[i].from.node == from.node && all->at[i].from.index == from.index) return all->at[i].to;
  bool near = !strcmp(from.node->device, p->arrives.node->device);
  graph_push_colocation(c->g, from.node);
  struct build b = build_begin(c->g, near ? "IdentityN" : "Identity", "again");
  build_in_list(&b, (shoal_out[]){from, p->arrives}, near ? 2 : 1);
  if (!near) build_control(&b, p->arrives.node);
  shoal_out to = build_end_out(&b);
  graph_pop_colocation(c->g);
  vec_push(all, (struct late_input){from, to});
  return to;
}

static void copy(struct recompute *c, const struct recomputed_part *p, late_inputs *inputs,
                 const struct shoal_node *n) {
  struct named_attr *attrs = mem_zalloc((size_t)n->n_attrs, sizeof *attrs);
  shoal_out *in = mem_zalloc((size_t)n->n_in, sizeof *in);
  for (int i = 0; i < n->n_attrs; i++)
    attrs[i] = (struct named_attr){mem_strdup(n->attrs[i].name), attr_copy(&n->attrs[i].value)};
  for (int i = 0; i < n->n_in; i++) {
    const struct shoal_node *from = n->in[i].node;
    in[i] = n->in[i];
    if (comes_in(p, from)) in[i] = late(c, p, inputs, n->in[i]);
    else if ((size_t)from->id < c->first && c->copies[from->id]) in[i].node = c->copies[from->id];
  }
  char *base = graph_scoped_name(c->g, n->name), *name = graph_unique_name(c->g, base);
  struct shoal_node *made = NULL;
  shoal_status s = graph_add(c->g, name, n->op, in, n->n_in, attrs, n->n_attrs, &made);
  if (s) {
    graph_fail(c->g, s);
  } else {
    graph_set_device(made, n->device);
    if (n->out_shapes) {
      made->out_shapes = mem_alloc((size_t)n->n_out * sizeof *made->out_shapes);
      memcpy(made->out_shapes, n->out_shapes, (size_t)n->n_out * sizeof *made->out_shapes);
    }
    c->copies[n->id] = made;
  }
  free(name);
  free(base);
  free(in);
}

/* A gradient that belongs to the part, and reads one of the nodes that move: that, and what it is made of, is wanted.
 */
static void mark_wanted(const struct recompute *c, int part, size_t last, bool *wanted) {
  const struct recomputed_part *p = &c->parts.at[part];
  for (size_t id = c->first; id < last; id++) {
    const struct shoal_node *n = c->g->nodes.at[id];
    if (c->made_for.at[id - c->first] != part || !n) continue;
    for (int i = 0; i < n->n_in; i++) {
      const struct shoal_node *from = n->in[i].node;
      if (from && is_inside(p, from) && c->moves[from->id]) wanted[from->id] = true;
    }
  }
  for (size_t id = p->to; id-- > p->from;) {
    const struct shoal_node *n = wanted[id] ? c->g->nodes.at[id] : NULL;
    for (int i = 0; n && i < n->n_in; i++) {
      const struct shoal_node *from = n->in[i].node;
      if (is_inside(p, from) && c->moves[from->id]) wanted[from->id] = true;
    }
  }
}

static void redirect(struct recompute *c, int part, size_t last) {
  const struct recomputed_part *p = &c->parts.at[part];
  for (size_t id = c->first; id < last; id++) {
    struct shoal_node *n = c->g->nodes.at[id];
    if (c->made_for.at[id - c->first] != part || !n) continue;
    for (int i = 0; i < n->n_in; i++) {
      const struct shoal_node *from = n->in[i].node;
      if (from && is_inside(p, from) && c->copies[from->id]) n->in[i].node = c->copies[from->id];
    }
  }
}

void recompute_apply(struct recompute *c) {
  size_t last = c->first + c->made_for.n;
  bool *wanted = mem_zalloc(c->first, sizeof *wanted);
  struct consumers users;
  consumers_init(&users, c->g);
  for (size_t i = 0; i < c->parts.n; i++)
    if (c->parts.at[i].arrives.node) mark_moves(c, &c->parts.at[i], &users);
  consumers_release(&users);
  graph_push_scope(c->g, "recomputed");
  for (size_t i = 0; i < c->parts.n && !graph_error(c->g); i++) {
    const struct recomputed_part *p = &c->parts.at[i];
    late_inputs inputs = {0};
    if (!p->arrives.node) continue;
    mark_wanted(c, (int)i, last, wanted);
    for (size_t id = p->from; id < p->to && !graph_error(c->g); id++)
      if (wanted[id]) copy(c, p, &inputs, c->g->nodes.at[id]);
    redirect(c, (int)i, last);
    vec_release(&inputs);
  }
  graph_pop_scope(c->g);
  free(wanted);
}
