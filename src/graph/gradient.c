/* Reverse-mode gradients: from ys back to xs, each node once all gradients of its outputs are in. */
#include "graph/gradient.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct bucket {
  VEC(struct grad) parts;
};

static bool differentiable(int type) {
  shoal_dtype t = dtype_base(type);
  return dtype_floating(t) || dtype_complex(t) || t == SHOAL_VARIANT || t == SHOAL_RESOURCE;
}

/* Several gradients of one tensor added up: AddN, or slices concatenated. */
static struct grad aggregate(struct graph *g, const struct grad *parts, int n) {
  if (n == 1) return parts[0];
  bool sparse = true;
  for (int i = 0; i < n; i++) sparse &= grad_sparse(parts[i]);
  if (!sparse) {
    struct build b = build_begin(g, "AddN", NULL);
    for (int i = 0; i < n; i++) build_in(&b, grad_densify(g, parts[i]));
    return grad_dense(build_end_out(&b));
  }
  struct out zero = build_const_int(g, SHOAL_INT32, 0), out[2];
  for (int part = 0; part < 2; part++) {
    struct build b = build_begin(g, "ConcatV2", NULL);
    for (int i = 0; i < n; i++) build_in(&b, part ? build_cast(g, parts[i].indices, SHOAL_INT64) : parts[i].values);
    build_in(&b, zero);
    out[part] = build_end_out(&b);
  }
  return (struct grad){out[0], out[1], parts[0].dense_shape};
}

static void mark_forward(const struct graph *g, const struct out *xs, int nx, bool *from) {
  struct consumers users;
  consumers_init(&users, g);
  VEC(struct node *) todo = {0};
  for (int i = 0; i < nx; i++)
    if (!from[xs[i].node->id]) {
      from[xs[i].node->id] = true;
      vec_push(&todo, xs[i].node);
    }
  while (todo.n) {
    struct node *n = vec_pop(&todo);
    FOR_CONSUMERS(c, &users, n) {
      if (c->input < 0 || from[c->node->id] || !differentiable(c->node->in_types[c->input])) continue;
      from[c->node->id] = true;
      vec_push(&todo, c->node);
    }
  }
  vec_release(&todo);
  consumers_release(&users);
}

static void mark_backward(const struct out *ys, int ny, const bool *from, bool *between, int *pending) {
  VEC(struct node *) todo = {0};
  for (int i = 0; i < ny; i++)
    if (from[ys[i].node->id] && !between[ys[i].node->id]) {
      between[ys[i].node->id] = true;
      vec_push(&todo, ys[i].node);
    }
  while (todo.n) {
    struct node *n = vec_pop(&todo);
    for (int i = 0; i < n->n_in; i++) {
      struct node *p = n->in[i].node;
      if (!p || !from[p->id]) continue;
      pending[p->id]++;
      if (between[p->id]) continue;
      between[p->id] = true;
      vec_push(&todo, p);
    }
  }
  vec_release(&todo);
}

static shoal_status node_gradient(struct graph *g, struct node *n, struct grad *dy, struct grad *dx, bool colocate) {
  if (!n->op->row->grad) {
    if (n->op->flags & OP_NO_GRADIENT) return NULL;
    return NOT_FOUND("No gradient defined for operation '%s' (op type: %s)", n->name, n->op->name);
  }
  struct grad_ctx c = {.g = g, .node = n, .dy = dy, .dx = dx};
  if (colocate) graph_push_colocation(g, n);
  graph_push_scope(g, n->name);
  shoal_status s = n->op->row->grad(&c);
  graph_pop_scope(g);
  if (colocate) graph_pop_colocation(g);
  if (!s && graph_error(g)) s = status_copy(graph_error(g));
  return s ? node_error(n, s) : NULL;
}

shoal_status graph_gradients(struct graph *g, const struct out *ys, int ny, const struct grad *dys,
                             const struct out *xs, int nx, const struct out *stop, int n_stop, bool colocate,
                             struct grad *dxs) {
  size_t n_nodes = g->nodes.n;
  bool *from = mem_zalloc(n_nodes, sizeof *from), *between = mem_zalloc(n_nodes, sizeof *between);
  int *pending = mem_zalloc(n_nodes, sizeof *pending);
  struct bucket **buckets = mem_zalloc(n_nodes, sizeof *buckets);
  VEC(struct node *) ready = {0};
  shoal_status s = NULL;
  mark_forward(g, xs, nx, from);
  mark_backward(ys, ny, from, between, pending);
  for (size_t i = 0; i < n_nodes; i++)
    if (between[i]) buckets[i] = mem_zalloc((size_t)g->nodes.at[i]->n_out, sizeof **buckets);
  graph_push_scope(g, "gradients");
  for (int i = 0; i < ny; i++) {
    if (!between[ys[i].node->id]) continue;
    struct grad dy = dys && !grad_none(dys[i]) ? dys[i] : grad_dense(build_op1(g, "OnesLike", ys[i]));
    vec_push(&buckets[ys[i].node->id][ys[i].index].parts, dy);
  }
  for (size_t i = 0; i < n_nodes; i++)
    if (between[i] && !pending[i]) vec_push(&ready, g->nodes.at[i]);
  while (ready.n && !s) {
    struct node *n = vec_pop(&ready);
    struct grad *dy = mem_zalloc((size_t)n->n_out, sizeof *dy), *dx = mem_zalloc((size_t)n->n_in, sizeof *dx);
    bool any = false;
    for (int i = 0; i < n->n_out; i++) {
      struct bucket *b = &buckets[n->id][i];
      if (!b->parts.n) continue;
      any = true;
      dy[i] = aggregate(g, b->parts.at, (int)b->parts.n);
      for (int k = 0; k < nx; k++)
        if (xs[k].node == n && xs[k].index == i) dxs[k] = dy[i];
    }
    bool stopped = false;
    for (int k = 0; k < n_stop; k++) stopped |= stop[k].node == n;
    bool needed = false;
    for (int i = 0; i < n->n_in; i++) needed |= n->in[i].node && from[n->in[i].node->id];
    if (any && needed && !stopped) s = node_gradient(g, n, dy, dx, colocate);
    for (int i = 0; i < n->n_in; i++) {
      struct node *p = n->in[i].node;
      if (!p || !between[p->id]) continue;
      if (!s && !grad_none(dx[i])) vec_push(&buckets[p->id][n->in[i].index].parts, dx[i]);
      if (--pending[p->id] == 0) vec_push(&ready, p);
    }
    free(dy);
    free(dx);
  }
  graph_pop_scope(g);
  if (!s && graph_error(g)) s = status_copy(graph_error(g));
  for (size_t i = 0; i < n_nodes; i++) {
    for (int k = 0; buckets[i] && k < g->nodes.at[i]->n_out; k++) vec_release(&buckets[i][k].parts);
    free(buckets[i]);
  }
  free(buckets);
  free(from);
  free(between);
  free(pending);
  vec_release(&ready);
  return s;
}
