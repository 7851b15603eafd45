/* What nobody reads is not computed: a pure node that others only wait for goes, and they wait for what it waited for.
 *
 * TensorFlow's gradients are tied together by control edges: the gradient of a first layer's input, a product as large
 * as the layer's own, is waited for and never read. TensorFlow itself leaves it out the same way.
 *
 * Kept are nodes whose failing is their purpose (CheckNumerics), nodes that tell in which branch or loop others run
 * (those that read Switch, Merge, Enter, Exit, NextIteration, or what another device sent: a value may be dead, waiting
 * for its arrival never is), reads of ref variables (waited for to learn whether they have a value), and nodes with so
 * many edges on both sides that joining them would cost more than running. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/frames.h"
#include "graph/rewrite.h"

enum { MAX_EDGES = 256 }; /* made in place of one node */

typedef VEC(struct shoal_node *) node_list;

static bool steers(const struct shoal_node *n) {
  return node_is_switch(n) || node_is_merge(n) || node_is_enter(n) || node_is_exit(n) || node_is_next_iteration(n) ||
         op_is(n->op, "_Recv") || op_is(n->op, "_HostRecv");
}

static bool can_skip(const struct shoal_node *n) {
  if (!node_is_pure(n) || n->n_in == 0 || !strncmp(n->op->name, "CheckNumerics", 13)) return false;
  for (int i = 0; i < n->n_in; i++)
    if (steers(n->in[i].node) || dtype_is_ref(n->in[i].node->out_types[n->in[i].index])) return false;
  return true;
}

static void forget_control(struct shoal_node *n, const struct shoal_node *from) {
  for (size_t i = 0; i < n->control.n; i++)
    if (n->control.at[i] == from) {
      n->control.at[i] = n->control.at[--n->control.n];
      return;
    }
}

static void wait_for(struct shoal_node *n, struct shoal_node *from, node_list *waiting) {
  size_t before = n->control.n;
  graph_add_control(n, from);
  if (n->control.n > before) vec_push(&waiting[from->id], n);
}

void rewrite_skip_unread(struct rewriting *r) {
  struct shoal_graph *g = r->g;
  int n_order = g->n_nodes;
  struct shoal_node **order = mem_zalloc((size_t)n_order, sizeof *order);
  node_list *waiting = mem_zalloc(g->nodes.n, sizeof *waiting); /* by id: those that wait for the node */
  int *readers = mem_zalloc(g->nodes.n, sizeof *readers);
  shoal_status s = graph_topological_order(g, order);
  for (int i = 0; !s && i < n_order; i++) {
    for (int k = 0; k < order[i]->n_in; k++) readers[order[i]->in[k].node->id]++;
    for (size_t k = 0; k < order[i]->control.n; k++) vec_push(&waiting[order[i]->control.at[k]->id], order[i]);
  }
  for (int i = n_order - 1; !s && i >= 0; i--) { /* readers before what they read: a chain goes as one */
    struct shoal_node *n = order[i];
    node_list *w = &waiting[n->id];
    if (readers[n->id] || !w->n || !can_skip(n) || w->n * ((size_t)n->n_in + n->control.n) > MAX_EDGES) continue;
    for (size_t k = 0; k < w->n; k++) {
      forget_control(w->at[k], n);
      for (int j = 0; j < n->n_in; j++) wait_for(w->at[k], n->in[j].node, waiting);
      for (size_t j = 0; j < n->control.n; j++) wait_for(w->at[k], n->control.at[j], waiting);
    }
    w->n = 0;
    for (int j = 0; j < n->n_in; j++) readers[n->in[j].node->id]--;
    for (size_t j = 0; j < n->control.n; j++) {
      node_list *of = &waiting[n->control.at[j]->id];
      for (size_t k = 0; k < of->n; k++)
        if (of->at[k] == n) of->at[k--] = of->at[--of->n];
    }
    graph_remove(g, n);
  }
  for (size_t i = 0; i < g->nodes.n; i++) vec_release(&waiting[i]);
  shoal_status_free(s);
  free(waiting);
  free(readers);
  free(order);
}
