/* Gradients: the walk back from ys to xs.
 *
 * First, which nodes lie on a path from some x to some y, and how many consumers of each do. Then, from the ys
 * backwards, every node whose consumers are all done: the gradients of its outputs are added up, its op's gradient
 * function makes those of its inputs. Nodes go into the same graph, beside their forward node when asked.
 *
 * Functions and functional control flow are lowered first, so that only plain nodes are met, and calls of functions
 * that have gradients of their own (gradient_call.c); loops and conditionals
 * are then handled by gradient_flow.c and gradient_loop.c. */
#include "graph/gradient.h"

#include <stdlib.h>
#include <string.h>

#include "graph/gradient_internal.h"
#include "graph/lower.h"
#include "graph/recompute.h"
#include "graph/shape_fn.h"

bool grad_trainable(int type) {
  shoal_dtype t = dtype_base(type);
  return dtype_floating(t) || dtype_complex(t) || t == SHOAL_RESOURCE || t == SHOAL_VARIANT;
}

/* ---- gradients collected so far ---- */

void grad_add(struct grad_run *r, shoal_out o, struct grad gr) {
  if (grad_none(gr) || (size_t)o.node->id >= r->first) return;
  struct grad_list **lists = &r->grads[o.node->id];
  if (!*lists) *lists = mem_zalloc((size_t)o.node->n_out, sizeof **lists);
  struct grad_list *l = &(*lists)[o.index];
  l->at = mem_realloc(l->at, (size_t)l->n + 1, sizeof *l->at);
  l->at[l->n++] = gr;
}

bool grad_any(const struct grad_run *r, const struct shoal_node *n) {
  const struct grad_list *l = r->grads[n->id];
  for (int i = 0; l && i < n->n_out; i++)
    if (l[i].n) return true;
  return false;
}

static shoal_out concat(struct shoal_graph *g, const shoal_out *parts, int n) {
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in_list(&b, parts, n);
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  return build_end_out(&b);
}

/* Slices of slices: rows one after another; a row that occurs twice counts twice. */
static struct grad add_slices(struct shoal_graph *g, const struct grad *parts, int n) {
  shoal_out *values = mem_zalloc((size_t)n, sizeof *values), *indices = mem_zalloc((size_t)n, sizeof *indices);
  bool same = true;
  shoal_out dense_shape = {0};
  for (int i = 0; i < n; i++) {
    same &= out_type(parts[i].indices) == out_type(parts[0].indices);
    if (!dense_shape.node) dense_shape = parts[i].dense_shape;
  }
  for (int i = 0; i < n; i++) {
    values[i] = parts[i].values;
    indices[i] = same ? parts[i].indices : build_cast(g, parts[i].indices, SHOAL_INT64);
  }
  struct grad sum = {concat(g, values, n), concat(g, indices, n), dense_shape};
  free(values);
  free(indices);
  return sum;
}

static struct grad aggregate(struct shoal_graph *g, struct grad_list *l) {
  if (!l->n) return (struct grad){0};
  bool all_sparse = true;
  for (int i = 0; i < l->n; i++) all_sparse &= grad_sparse(l->at[i]);
  if (l->n > 1 && all_sparse) {
    l->at[0] = add_slices(g, l->at, l->n);
  } else if (l->n > 1) {
    struct build b = build_begin(g, "AddN", NULL);
    for (int i = 0; i < l->n; i++) build_in(&b, grad_densify(g, l->at[i]));
    l->at[0] = grad_dense(build_end_out(&b));
  }
  l->n = 1;
  return l->at[0];
}

/* ---- which nodes ---- */

static void mark_between(struct grad_run *r, const shoal_out *ys, int ny, const shoal_out *xs, int nx) {
  struct shoal_graph *g = r->g;
  bool *reached = mem_zalloc(r->first, sizeof *reached);
  struct consumers users;
  consumers_init(&users, g);
  VEC(struct shoal_node *) todo = {0};
  for (int i = 0; i < nx; i++)
    if (!reached[xs[i].node->id]) {
      reached[xs[i].node->id] = true;
      vec_push(&todo, xs[i].node);
    }
  while (todo.n) {
    struct shoal_node *n = vec_pop(&todo);
    FOR_CONSUMERS (c, &users, n) {
      if (c->input < 0 || reached[c->node->id] || !grad_trainable(n->out_types[c->index])) continue;
      reached[c->node->id] = true;
      vec_push(&todo, c->node);
    }
  }
  consumers_release(&users);
  for (int i = 0; i < ny; i++)
    if (reached[ys[i].node->id] && !r->between[ys[i].node->id]) {
      r->between[ys[i].node->id] = true;
      vec_push(&todo, ys[i].node);
    }
  while (todo.n) {
    struct shoal_node *n = vec_pop(&todo);
    for (int i = 0; i < n->n_in; i++) {
      struct shoal_node *from = n->in[i].node;
      if (!reached[from->id]) continue;
      r->pending[from->id]++;
      if (r->between[from->id]) continue;
      r->between[from->id] = true;
      vec_push(&todo, from);
    }
  }
  vec_release(&todo);
  free(reached);
}

/* Gradients are not passed on by the xs that depend on no other x, nor by stop's nodes. */
static bool *mark_stops(const struct grad_run *r, const shoal_out *xs, int nx, const shoal_out *stop, int n_stop) {
  bool *stops = mem_zalloc(r->first, sizeof *stops);
  for (int i = 0; i < nx; i++) {
    bool inner = false;
    for (int k = 0; k < xs[i].node->n_in; k++) inner |= r->between[xs[i].node->in[k].node->id];
    if (!inner) stops[xs[i].node->id] = true;
  }
  for (int i = 0; i < n_stop; i++) stops[stop[i].node->id] = true;
  return stops;
}

/* ---- the walk ---- */

static void consumed(struct grad_run *r, struct shoal_node *n) {
  for (int i = 0; i < n->n_in; i++) {
    struct shoal_node *from = n->in[i].node;
    if (!r->between[from->id]) continue;
    bool ready = r->between[n->id] && --r->pending[from->id] == 0;
    /* A loop's Switch is visited twice: from the exit, and when the body is done. */
    if (!ready && r->has_flow && is_exit(n) && is_loop_switch(from)) ready = true;
    if (!ready) continue;
    if (r->has_flow && is_exit(from)) loop_exit_ready(r, from);
    else vec_push(&r->queue, from);
  }
}

static shoal_status no_gradient(const struct shoal_node *n) {
  const struct attr *why = node_attr(n, LOWER_ERROR);
  if (why && why->kind == ATTR_STRING) return INVALID("%s", why->s.data);
  return STATUS(SHOAL_NOT_FOUND, "No gradient defined for operation '%s' (op type: %s)", n->name, n->op->name);
}

static shoal_status differentiate(struct grad_run *r, struct shoal_node *n, struct grad *dy, struct grad *dx) {
  struct grad_ctx c = {.g = r->g, .node = n, .dy = dy, .dx = dx};
  if (r->has_flow && loop_gradient(r, &c)) return NULL;
  const char *own = call_own_gradient(r->g, n);
  if (own) return call_differentiate(&c, own);
  if (!n->op->row->grad) return n->op->flags & OP_NO_GRADIENT ? NULL : no_gradient(n);
  return n->op->row->grad(&c);
}

static shoal_status visit(struct grad_run *r, struct shoal_node *n, bool stops, bool colocate) {
  struct shoal_graph *g = r->g;
  /* Gradients of a variable that is used more than once are added where they are made, not where the variable is:
   * only their sum travels to a parameter server. */
  if (op_is(n->op, "ReadVariableOp")) colocate = false;
  struct grad *dy = mem_zalloc((size_t)n->n_out, sizeof *dy), *dx = mem_zalloc((size_t)n->n_in, sizeof *dx);
  char *scope = mem_printf("%s_grad", n->name);
  graph_push_scope(g, scope);
  free(scope);
  if (colocate) graph_push_colocation(g, n);
  size_t mark = g->nodes.n, made = mark;
  shoal_out arrived = {0};
  bool any = false;
  for (int i = 0; i < n->n_out && r->grads[n->id]; i++) {
    dy[i] = aggregate(g, &r->grads[n->id][i]);
    any |= !grad_none(dy[i]);
    if (!arrived.node) arrived = dy[i].values;
  }
  if (r->has_flow) loop_settle(r, mark, loop_before(r, n));
  shoal_status s = NULL;
  if (any && !stops && n->n_in && !graph_error(g)) {
    mark = g->nodes.n;
    s = differentiate(r, n, dy, dx);
    if (r->has_flow && !s) loop_settle(r, mark, loop_after(r, n));
    for (int i = 0; i < n->n_in && !s; i++)
      if (r->between[n->in[i].node->id]) grad_add(r, n->in[i], dx[i]);
  }
  if (r->again) recompute_note(r->again, n, made, arrived);
  if (colocate) graph_pop_colocation(g);
  graph_pop_scope(g);
  free(dy);
  free(dx);
  if (s) return status_prefix(s, "gradient of {{node %s}}: ", n->name);
  consumed(r, n);
  return NULL;
}

/* What comes in at the ys. */
static shoal_status seed(struct grad_run *r, const shoal_out *ys, int ny, const struct grad *dys) {
  for (int i = 0; i < ny; i++) {
    int type = out_type(ys[i]);
    struct grad gr = dys ? dys[i] : (struct grad){0};
    if (grad_none(gr)) {
      if (dtype_complex((shoal_dtype)type))
        return INVALID("Gradients of complex tensors ('%s') must set grad_ys (y.dtype = %s)", ys[i].node->name,
                       shoal_dtype_name((shoal_dtype)type));
      if (!dtype_floating((shoal_dtype)type)) continue;
      gr = grad_dense(build_op1(r->g, "OnesLike", ys[i]));
    } else if (out_type(gr.values) != (shoal_dtype)type && type != SHOAL_VARIANT && type != SHOAL_RESOURCE) {
      return INVALID("Gradient type %s generated for tensor '%s' with type %s must match",
                     dtype_tf_name(out_type(gr.values)), ys[i].node->name, dtype_tf_name(type));
    }
    grad_add(r, ys[i], gr);
  }
  return NULL;
}

static shoal_status walk(struct grad_run *r, const shoal_out *ys, int ny, const bool *stops, bool colocate) {
  bool *queued = mem_zalloc(r->first, sizeof *queued);
  for (int i = 0; i < ny; i++) {
    struct shoal_node *n = ys[i].node;
    if (!r->between[n->id] || r->pending[n->id] || queued[n->id]) continue;
    queued[n->id] = true;
    if (!r->has_flow || !is_exit(n)) vec_push(&r->queue, n);
  }
  free(queued);
  if (r->has_flow) TRY(loops_begin(r, ys, ny));
  for (size_t i = 0; i < r->queue.n; i++) {
    if (graph_error(r->g)) return status_copy(graph_error(r->g));
    struct shoal_node *n = r->queue.at[i];
    TRY(visit(r, n, stops[n->id], colocate));
  }
  if (r->has_flow) loops_end(r);
  return NULL;
}

static shoal_status check(const struct shoal_graph *g, const shoal_out *o, int n, const char *what) {
  for (int i = 0; i < n; i++) {
    if (!o[i].node) return INVALID("gradients: %s %d is not a tensor", what, i);
    if (o[i].index < 0 || o[i].index >= o[i].node->n_out || g->nodes.at[o[i].node->id] != o[i].node)
      return INVALID("gradients: %s %d is not a tensor of this graph", what, i);
  }
  return NULL;
}

static shoal_status run(struct grad_run *r, const shoal_out *ys, int ny, const struct grad *dys, const shoal_out *xs,
                        int nx, const shoal_out *stop, int n_stop, bool colocate, struct grad *dxs) {
  mark_between(r, ys, ny, xs, nx);
  TRY(flow_analyse(r));
  for (int i = 0; i < nx && r->has_flow; i++)
    if (flow_frame(r, xs[i].node)) return UNIMPLEMENTED("gradients: x '%s' is inside a while loop", xs[i].node->name);
  for (int i = 0; i < ny && r->has_flow; i++)
    if (flow_frame(r, ys[i].node)) return UNIMPLEMENTED("gradients: y '%s' is inside a while loop", ys[i].node->name);
  size_t mark = r->g->nodes.n;
  TRY(seed(r, ys, ny, dys));
  if (r->has_flow) loop_settle(r, mark, NULL);
  bool *stops = mark_stops(r, xs, nx, stop, n_stop);
  shoal_status s = walk(r, ys, ny, stops, colocate);
  free(stops);
  TRY(s);
  if (r->again) recompute_apply(r->again);
  mark = r->g->nodes.n;
  for (int i = 0; i < nx; i++)
    if (r->grads[xs[i].node->id]) dxs[i] = aggregate(r->g, &r->grads[xs[i].node->id][xs[i].index]);
  if (r->has_flow) loop_settle(r, mark, NULL);
  return graph_error(r->g) ? status_copy(graph_error(r->g)) : NULL;
}

shoal_status graph_gradients(struct shoal_graph *g, const shoal_out *ys, int ny, const struct grad *dys,
                             const shoal_out *xs, int nx, const shoal_out *stop, int n_stop, bool colocate,
                             struct grad *dxs) {
  memset(dxs, 0, (size_t)nx * sizeof *dxs);
  if (graph_error(g)) return status_copy(graph_error(g));
  TRY(check(g, ys, ny, "y"));
  TRY(check(g, xs, nx, "x"));
  TRY(check(g, stop, n_stop, "stop"));
  bool infer = graph_needs_lowering(g);
  TRY(graph_try_lower_portable(g));
  /* Gradients ask for ranks; nodes of an imported graph have no shapes yet. */
  for (size_t i = 0; !infer && i < g->nodes.n; i++)
    infer = g->nodes.at[i] && g->nodes.at[i]->n_out && !g->nodes.at[i]->out_shapes;
  if (infer) TRY(graph_infer_shapes(g));
  struct grad_run r = {.g = g, .first = g->nodes.n};
  r.between = mem_zalloc(r.first, sizeof *r.between);
  r.pending = mem_zalloc(r.first, sizeof *r.pending);
  r.grads = mem_zalloc(r.first, sizeof *r.grads);
  r.again = recompute_new(g, r.first);
  graph_push_scope(g, "gradients");
  shoal_status s = run(&r, ys, ny, dys, xs, nx, stop, n_stop, colocate, dxs);
  graph_pop_scope(g);
  recompute_free(r.again);
  loops_release(&r);
  flow_release(&r);
  for (size_t i = 0; i < r.first; i++) {
    for (int k = 0; r.grads[i] && k < g->nodes.at[i]->n_out; k++) free(r.grads[i][k].at);
    free(r.grads[i]);
  }
  free(r.grads);
  free(r.between);
  free(r.pending);
  vec_release(&r.places);
  vec_release(&r.queue);
  return s;
}
