/* What loops and conditionals there are in a graph, found from its nodes alone: a GraphDef does not say.
 *
 * Frames follow from Enter and Exit. Conditionals follow from Switch and Merge: an output of a Switch is guarded by
 * its predicate, a node by the innermost guard of what it reads, and a Merge takes off the guards in which its inputs
 * differ. Loops' own Switches and Merges guard nothing: there a whole round is dead or alive. */
#include <stdlib.h>
#include <string.h>

#include "graph/gradient_internal.h"

bool is_loop_switch(const struct shoal_node *n) {
  return (op_is(n->op, "Switch") || op_is(n->op, "RefSwitch")) && n->in[1].node && op_is(n->in[1].node->op, "LoopCond");
}

bool is_loop_merge(const struct shoal_node *n) {
  if (!is_merge(n)) return false;
  for (int i = 0; i < n->n_in; i++)
    if (n->in[i].node && is_next(n->in[i].node)) return true;
  return false;
}

struct frame *flow_frame(const struct grad_run *r, const struct shoal_node *n) {
  if ((size_t)n->id >= r->first) {
    const struct place *p = &r->places.at[(size_t)n->id - r->first];
    return p->forward ? p->frame : NULL;
  }
  struct frame *f = r->frames[n->id];
  return f && is_exit(n) ? f->parent : f;
}

static struct guard *new_guard(struct grad_run *r, struct guard *up, struct shoal_node *n, int side) {
  struct guard *g = mem_zalloc(1, sizeof *g);
  *g = (struct guard){up, n->in[1], op_is(n->op, "_SwitchN"), n->n_out, side, up ? up->depth + 1 : 1};
  vec_push(&r->all_guards, g);
  return g;
}

struct guard *flow_guard(const struct grad_run *r, shoal_out o) {
  const struct shoal_node *n = o.node;
  if ((size_t)n->id >= r->first) return r->places.at[(size_t)n->id - r->first].guard;
  struct guard *own = r->guards[n->id];
  if (is_exit(n)) return r->frames[n->id] ? r->frames[n->id]->guard : NULL;
  if (!is_switch(n) || is_loop_switch(n)) return own;
  return new_guard((struct grad_run *)r, own, (struct shoal_node *)n, o.index);
}

static bool same_guard(const struct guard *a, const struct guard *b) {
  for (; a != b; a = a->up, b = b->up)
    if (!a || !b || a->depth != b->depth || a->select.node != b->select.node || a->select.index != b->select.index ||
        a->side != b->side)
      return false;
  return true;
}

static struct guard *common(struct guard *a, struct guard *b) {
  while (!same_guard(a, b)) {
    if (!a || !b) return NULL;
    if (a->depth >= b->depth) a = a->up;
    else b = b->up;
  }
  return a;
}

static struct guard *deeper(struct guard *a, struct guard *b) { return !a || (b && b->depth > a->depth) ? b : a; }

static struct frame *enter_frame(struct grad_run *r, struct frame *parent, struct shoal_node *n) {
  const char *name = NULL;
  shoal_status s = node_get_string(n, "frame_name", &name);
  if (s) {
    shoal_status_free(s);
    name = "";
  }
  for (size_t i = 0; i < r->all_frames.n; i++) {
    struct frame *f = r->all_frames.at[i];
    if (f->parent == parent && !strcmp(f->name, name)) return f;
  }
  struct frame *f = mem_zalloc(1, sizeof *f);
  f->parent = parent;
  f->name = name;
  f->enter = n;
  f->parallel = 10;
  const struct attr *p = node_attr(n, "parallel_iterations");
  if (p && p->kind == ATTR_INT) f->parallel = p->i;
  vec_push(&r->all_frames, f);
  return f;
}

static void visit(struct grad_run *r, struct shoal_node *n) {
  struct frame *frame = NULL;
  struct guard *guard = NULL;
  bool first = true;
  for (int i = 0; i < n->n_in; i++) {
    struct shoal_node *from = n->in[i].node;
    if (is_next(from) && is_merge(n)) continue;
    struct frame *f = flow_frame(r, from);
    if (f) frame = f;
    struct guard *g = flow_guard(r, n->in[i]);
    guard = first || !is_merge(n) ? deeper(guard, g) : common(guard, g);
    first = false;
  }
  for (size_t i = 0; i < n->control.n; i++) {
    struct frame *f = flow_frame(r, n->control.at[i]);
    if (f) frame = f;
    if (!is_merge(n)) guard = deeper(guard, flow_guard(r, (shoal_out){n->control.at[i], 0}));
  }
  if (is_enter(n)) {
    struct frame *inner = enter_frame(r, frame, n);
    inner->guard = deeper(inner->guard, guard);
    frame = inner;
    guard = NULL;
  }
  if (is_loop_merge(n)) guard = NULL;
  r->frames[n->id] = frame;
  r->guards[n->id] = guard;
  if (!frame) return;
  if (op_is(n->op, "LoopCond")) frame->loop_cond = n;
  if (is_exit(n)) vec_push(&frame->exits, n);
  if (op_is(n->op, "StackPushV2") || op_is(n->op, "StackPopV2")) frame->has_stacks = true;
}

shoal_status flow_analyse(struct grad_run *r) {
  for (size_t i = 0; i < r->first && !r->has_flow; i++)
    r->has_flow = r->g->nodes.at[i] && (is_switch(r->g->nodes.at[i]) || is_enter(r->g->nodes.at[i]));
  if (!r->has_flow) return NULL;
  r->frames = mem_zalloc(r->first, sizeof *r->frames);
  r->guards = mem_zalloc(r->first, sizeof *r->guards);
  struct shoal_node **order = mem_zalloc((size_t)r->g->n_nodes, sizeof *order);
  shoal_status s = graph_topological_order(r->g, order);
  for (int i = 0; i < r->g->n_nodes && !s; i++) visit(r, order[i]);
  free(order);
  return s;
}

void flow_release(struct grad_run *r) {
  for (size_t i = 0; i < r->all_frames.n; i++) {
    vec_release(&r->all_frames.at[i]->exits);
    free(r->all_frames.at[i]);
  }
  for (size_t i = 0; i < r->all_guards.n; i++) free(r->all_guards.at[i]);
  vec_release(&r->all_frames);
  vec_release(&r->all_guards);
  free(r->frames);
  free(r->guards);
}
