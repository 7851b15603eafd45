/* The table of rewrites, and what they share. */
#include "graph/rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/frames.h"
#include "graph/shape_fn.h"

/* In the order they are done. */
static const struct {
  const char *name;
  void (*fn)(struct rewriting *r);
} rewrites[] = {
    {"fold", rewrite_fold},                         /* computes what depends on constants alone, once */
    {"merge", rewrite_merge},                       /* merges nodes that compute the same */
    {"skip_unread", rewrite_skip_unread},           /* what is waited for but never read is not computed */
    {"fuse_layers", rewrite_fuse_layers},           /* layers of Transformers, and their gradients, become one node */
    {"fuse_pool", rewrite_fuse_pool},               /* bias, Relu and max pooling, and the way back, on a card */
    {"fuse_bias", rewrite_fuse_bias},               /* product or convolution, bias and activation become one node */
    {"fuse_softmax", rewrite_fuse_softmax},         /* mask and softmax, and the way back, on a card */
    {"fuse_gelu", rewrite_fuse_gelu},               /* a product, its bias and GELU */
    {"fuse_gelu_grad", rewrite_fuse_gelu_grad},     /* a product and the gradient of GELU */
    {"fuse_norm", rewrite_fuse_norm},               /* batch normalisation, a sum and Relu become one node */
    {"norm_averages", rewrite_norm_averages},       /* its moving averages are its own, on a card */
    {"fuse_residual", rewrite_fuse_residual},       /* a product that is added to something, on a card */
    {"fuse_dense", rewrite_fuse_dense},             /* a small classifier's last layer, its losses, the way back */
    {"fuse_elementwise", rewrite_fuse_elementwise}, /* chains of elementwise ops become one pass over memory */
    {"join_updates", rewrite_join_updates},         /* updates of all variables, clipped or on a card: one pass */
    {"join_gradients", rewrite_join_gradients},     /* gradients of small dense layers become one node, on a card */
    {"sweep_updates", rewrite_sweep_updates},       /* updates of many small variables become one node */
    {"read_together", rewrite_read_together},       /* and reads of them */
};

static bool is_off(const char *off, const char *name) {
  if (!off) return false;
  size_t n = strlen(name);
  for (const char *at = off; *at;) {
    size_t k = strcspn(at, ",");
    if ((k == n && !memcmp(at, name, n)) || (k == 3 && !memcmp(at, "all", 3))) return true;
    at += k + (at[k] == ',');
  }
  return false;
}

bool node_is_pure(const struct shoal_node *n) {
  if ((n->op->flags & (OP_STATEFUL | OP_LOCAL)) || n->op->name[0] == '_') return false;
  if (node_is_switch(n) || node_is_merge(n) || node_is_enter(n) || node_is_exit(n) || node_is_next_iteration(n) ||
      op_is(n->op, "LoopCond") || op_is(n->op, "ControlTrigger"))
    return false;
  for (int i = 0; i < n->n_in; i++)
    if (dtype_is_ref(n->in_types[i])) return false;
  for (int i = 0; i < n->n_out; i++)
    if (dtype_is_ref(n->out_types[i])) return false;
  return true;
}

struct shoal_node *rewrite_only_consumer(const struct rewriting *r, const struct shoal_node *n) {
  struct shoal_node *one = NULL;
  if (n->id >= r->known) return NULL;
  FOR_CONSUMERS (c, &r->users, n) {
    if (one || c->index != 0) return NULL;
    one = c->node;
  }
  return one;
}

void rewrite_redirect(struct rewriting *r, shoal_out from, shoal_out to) {
  FOR_CONSUMERS (c, &r->users, from.node)
    if (c->input >= 0 && c->index == from.index) c->node->in[c->input] = to;
}

void rewrite_redirect_control(struct rewriting *r, struct shoal_node *from, struct shoal_node *to) {
  FOR_CONSUMERS (c, &r->users, from) {
    if (c->input >= 0) continue;
    for (size_t i = 0; i < c->node->control.n; i++) {
      if (c->node->control.at[i] != from) continue;
      c->node->control.at[i] = c->node->control.at[--c->node->control.n];
      break;
    }
    graph_add_control(c->node, to);
  }
}

struct shoal_node *rewrite_add(struct rewriting *r, const struct shoal_node *like, const char *base, const char *op,
                               const shoal_out *in, int n_in, struct named_attr *attrs, int n_attrs) {
  struct shoal_node *n = NULL;
  char *name = graph_unique_name(r->g, base);
  shoal_status s = graph_add(r->g, name, op_find(op), in, n_in, attrs, n_attrs, &n);
  free(name);
  if (s) {
    shoal_status_free(s);
    return NULL;
  }
  graph_set_device(n, like->device);
  n->assigned = like->assigned ? mem_strdup(like->assigned) : NULL;
  if (r->o->has_kernel && !r->o->has_kernel(n)) {
    graph_remove(r->g, n);
    return NULL;
  }
  s = node_infer_shapes(n);
  shoal_status_free(s);
  return n;
}

void rewrite_stands_for(struct shoal_node *n, const struct shoal_node *part) {
  if (part) vec_push(&n->original_names, mem_strdup(part->name));
}

/* Pure nodes that had consumers and have none any more go, and what only they needed. */
static void sweep(struct shoal_graph *g, const bool *had_users, size_t n_before) {
  int *uses = mem_zalloc(g->nodes.n, sizeof *uses);
  VEC(struct shoal_node *) idle = {0};
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    for (int k = 0; k < n->n_in; k++)
      if (n->in[k].node) uses[n->in[k].node->id]++;
    for (size_t k = 0; k < n->control.n; k++) uses[n->control.at[k]->id]++;
  }
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i] && !uses[i]) vec_push(&idle, g->nodes.at[i]);
  while (idle.n) {
    struct shoal_node *n = vec_pop(&idle);
    if (!node_is_pure(n) || ((size_t)n->id < n_before && !had_users[n->id])) continue;
    for (int k = 0; k < n->n_in; k++)
      if (n->in[k].node && --uses[n->in[k].node->id] == 0) vec_push(&idle, n->in[k].node);
    for (size_t k = 0; k < n->control.n; k++)
      if (--uses[n->control.at[k]->id] == 0) vec_push(&idle, n->control.at[k]);
    graph_remove(g, n);
  }
  vec_release(&idle);
  free(uses);
}

shoal_status graph_rewrite(struct shoal_graph *g, const struct rewrite_options *o) {
  shoal_status s = graph_infer_shapes(g);
  shoal_status_free(s); /* what does not fit will say so when it runs */
  for (size_t i = 0; i < COUNT_OF(rewrites); i++) {
    if (is_off(o->off, rewrites[i].name)) continue;
    struct rewriting r = {.g = g, .o = o, .known = (int)g->nodes.n};
    consumers_init(&r.users, g);
    size_t before = g->nodes.n;
    bool *had_users = mem_zalloc(before, sizeof *had_users);
    for (size_t k = 0; k < before; k++) had_users[k] = r.users.first[k + 1] > r.users.first[k];
    rewrites[i].fn(&r);
    consumers_release(&r.users);
    sweep(g, had_users, before);
    free(had_users);
  }
  return NULL;
}
