/* Bias, Relu and max pooling behind a convolution, and the way back through them, where the device has kernels for
 * these as wholes: a card.
 *
 *   y = MaxPool(Relu(BiasAdd(x, bias)))            becomes y, where = _BiasReluPool(x, bias)
 *   dx = ReluGrad(MaxPoolGrad(relu, y, dy), relu)  becomes dx, sums = _BiasReluPoolGrad(where, dy)
 *   BiasAddGrad(dx)                                is sums
 *
 * with relu what is pooled, which nobody else reads: it is the largest tensor of a layer, and is in no memory any more,
 * nor read again on the way back. Windows are side by side, channels last. Of gradients the spatial sizes must be
 * known; the batch need not be. It comes before fuse_bias, which would take bias and Relu with the convolution. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

enum { MOST_BACK = 8, MOST_PLACES = 255 }; /* of a window: a byte tells them, and that there is none */

struct pool_chain {
  struct shoal_node *bias, *relu, *pool;
  struct shoal_node *back[MOST_BACK], *gate[MOST_BACK]; /* MaxPoolGrad, and the ReluGrad behind it */
  int n_back;
};

static bool is_out(shoal_out o, const struct shoal_node *n) { return o.node == n && o.index == 0; }

static bool together(const struct shoal_node *a, const struct shoal_node *b) {
  return str_equal(a->assigned, b->assigned) && !a->control.n;
}

static bool is_last(const struct shoal_node *n) {
  const struct attr *format = node_attr(n, "data_format");
  return format && format->kind == ATTR_STRING && !strcmp(format->s.data, "NHWC");
}

static bool same_attr(const struct shoal_node *a, const struct shoal_node *b, const char *name) {
  const struct attr *x = node_attr(a, name), *y = node_attr(b, name);
  return x && y && attr_equal(x, y);
}

static bool side_by_side(const struct shoal_node *pool) {
  const struct attr *size = node_attr(pool, "ksize");
  const struct attr *stride = node_attr(pool, "strides");
  if (!size || !stride || !attr_equal(size, stride) || size->list.n != 4) return false;
  int64_t high = size->list.at[1].i, wide = size->list.at[2].i;
  return size->list.at[0].i == 1 && size->list.at[3].i == 1 && high > 0 && wide > 0 && high <= MOST_PLACES / wide;
}

static bool sizes_known(const struct shoal_node *relu) {
  const struct shape *s = relu->out_shapes ? &relu->out_shapes[0] : NULL;
  return s && s->rank == 4 && s->dims[1] > 0 && s->dims[2] > 0;
}

/* A gradient of the pooling, which goes through Relu's and nowhere else. */
static bool see_back(const struct rewriting *r, struct pool_chain *c, struct shoal_node *back) {
  struct shoal_node *gate = rewrite_only_consumer(r, back);
  if (c->n_back == MOST_BACK || !together(back, c->pool) || !is_out(back->in[1], c->pool) || !is_last(back) ||
      !same_attr(back, c->pool, "ksize") || !same_attr(back, c->pool, "strides") ||
      !same_attr(back, c->pool, "padding") || !gate || !op_is(gate->op, "ReluGrad") || !is_out(gate->in[0], back) ||
      !is_out(gate->in[1], c->relu) || !together(gate, c->pool))
    return false;
  c->back[c->n_back] = back;
  c->gate[c->n_back++] = gate;
  return true;
}

static bool is_gate_of(const struct shoal_node *n, const struct pool_chain *c) {
  return op_is(n->op, "ReluGrad") && n->in[0].node && op_is(n->in[0].node->op, "MaxPoolGrad") &&
         is_out(n->in[0].node->in[0], c->relu);
}

/* Is all that reads Relu the pooling and its gradients? */
static bool see_chain(const struct rewriting *r, struct shoal_node *pool, struct pool_chain *c) {
  *c = (struct pool_chain){.pool = pool, .relu = pool->in[0].node};
  if (!is_last(pool) || !side_by_side(pool) || pool->in[0].index || !op_is(c->relu->op, "Relu") ||
      !together(c->relu, pool))
    return false;
  c->bias = c->relu->in[0].node;
  if (!op_is(c->bias->op, "BiasAdd") || !is_last(c->bias) || !str_equal(c->bias->assigned, pool->assigned) ||
      rewrite_only_consumer(r, c->bias) != c->relu || pool->control.n)
    return false;
  FOR_CONSUMERS (u, &r->users, c->relu) {
    if (u->input < 0) return false;
    if (u->node == pool || is_gate_of(u->node, c)) continue;
    if (u->input > 0 || !op_is(u->node->op, "MaxPoolGrad") || !see_back(r, c, u->node)) return false;
  }
  return !c->n_back || sizes_known(c->relu);
}

/* The attributes of the pooling, with room for two more. */
static struct named_attr *pool_attrs(const struct shoal_node *pool, int *n) {
  static const char *const kept[] = {"T", "ksize", "strides", "padding", "data_format"};
  struct named_attr *attrs = mem_zalloc(COUNT_OF(kept) + 2, sizeof *attrs);
  *n = 0;
  for (size_t i = 0; i < COUNT_OF(kept); i++)
    attrs[(*n)++] = (struct named_attr){mem_strdup(kept[i]), attr_copy(node_attr(pool, kept[i]))};
  return attrs;
}

static struct shoal_node *add_node(struct rewriting *r, const struct pool_chain *c, const struct shoal_node *like,
                                   const char *op, shoal_out a, shoal_out b, bool back) {
  int n;
  struct named_attr *attrs = pool_attrs(c->pool, &n);
  char *base = mem_printf("%s/fused", like->name);
  if (back) {
    attrs[n++] = (struct named_attr){mem_strdup("height"), attr_int(c->relu->out_shapes[0].dims[1])};
    attrs[n++] = (struct named_attr){mem_strdup("width"), attr_int(c->relu->out_shapes[0].dims[2])};
  }
  struct shoal_node *one = rewrite_add(r, like, base, op, (shoal_out[]){a, b}, 2, attrs, n);
  free(base);
  return one;
}

static bool is_sum(const struct shoal_node *n) { return op_is(n->op, "BiasAddGrad") && is_last(n); }

static void replace_back(struct rewriting *r, const struct pool_chain *c, int i, struct shoal_node *one) {
  struct shoal_node *gate = c->gate[i];
  rewrite_stands_for(one, c->back[i]);
  rewrite_stands_for(one, gate);
  FOR_CONSUMERS (u, &r->users, gate) {
    if (u->input < 0 || !is_sum(u->node) || !together(u->node, c->pool)) continue;
    rewrite_stands_for(one, u->node);
    rewrite_redirect(r, (shoal_out){u->node, 0}, (shoal_out){one, 1});
    rewrite_redirect_control(r, u->node, one);
  }
  rewrite_redirect(r, (shoal_out){gate, 0}, (shoal_out){one, 0});
  rewrite_redirect_control(r, gate, one);
}

static void fuse(struct rewriting *r, const struct pool_chain *c) {
  struct shoal_node *back[MOST_BACK], *const parts[] = {c->bias, c->relu, c->pool};
  struct shoal_node *one = add_node(r, c, c->pool, "_BiasReluPool", c->bias->in[0], c->bias->in[1], false);
  bool all = one != NULL;
  for (int i = 0; i < c->n_back; i++) {
    back[i] =
        all ? add_node(r, c, c->gate[i], "_BiasReluPoolGrad", (shoal_out){one, 1}, c->back[i]->in[2], true) : NULL;
    all = all && back[i];
  }
  if (!all) { /* the device has not both */
    for (int i = 0; i < c->n_back; i++)
      if (back[i]) graph_remove(r->g, back[i]);
    if (one) graph_remove(r->g, one);
    return;
  }
  for (size_t i = 0; i < COUNT_OF(parts); i++) rewrite_stands_for(one, parts[i]);
  for (size_t k = 0; k < c->bias->control.n; k++) graph_add_control(one, c->bias->control.at[k]);
  for (int i = 0; i < c->n_back; i++) replace_back(r, c, i, back[i]);
  rewrite_redirect(r, (shoal_out){c->pool, 0}, (shoal_out){one, 0});
  rewrite_redirect_control(r, c->pool, one);
}

/* In the order of the graph: what one node reads has become what it will be before it is looked at. */
void rewrite_fuse_pool(struct rewriting *r) {
  if (!r->o->own_ops || !r->o->of_host) return;
  int n = r->g->n_nodes;
  struct shoal_node **order = mem_zalloc((size_t)n, sizeof *order);
  shoal_status s = graph_topological_order(r->g, order);
  for (int i = 0; !s && i < n; i++) {
    struct pool_chain c;
    if (op_is(order[i]->op, "MaxPool") && !r->o->of_host(order[i]) && see_chain(r, order[i], &c)) fuse(r, &c);
  }
  shoal_status_free(s);
  free(order);
}
