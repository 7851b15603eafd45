/* The product that leads back to a GELU, and the GELU's own gradient, become one node, which multiplies by it before
 * it stores the product.
 *
 *   _ShoalGeluGrad(x, MatMul(a, b)) becomes _MatMulGeluGrad(a, b, x)
 *
 * Between the two there may be a Reshape, which then stands behind. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

static bool leads_to(const struct rewriting *r, const struct shoal_node *n, const char *op,
                     const struct shoal_node *next) {
  return op_is(n->op, op) && !n->control.n && rewrite_only_consumer(r, n) == next &&
         str_equal(n->assigned, next->assigned);
}

/* The product's columns; -1: not known. */
static int64_t columns_of(const struct shoal_node *product) {
  struct shape s = product->out_shapes ? product->out_shapes[0] : shape_unknown();
  return s.rank == 2 ? s.dims[1] : -1;
}

static struct shoal_node *fused(struct rewriting *r, const struct shoal_node *product, const struct shoal_node *grad) {
  static const char *const kept[] = {"T", "transpose_a", "transpose_b"};
  struct named_attr *attrs = mem_zalloc(4, sizeof *attrs);
  for (int i = 0; i < 3; i++)
    attrs[i] = (struct named_attr){mem_strdup(kept[i]), attr_copy(node_attr(product, kept[i]))};
  attrs[3] = (struct named_attr){mem_strdup("columns"), attr_int(columns_of(product))};
  char *base = mem_printf("%s/fused", grad->name);
  shoal_out in[] = {product->in[0], product->in[1], grad->in[0]};
  struct shoal_node *one = rewrite_add(r, grad, base, "_MatMulGeluGrad", in, 3, attrs, 4);
  free(base);
  return one;
}

/* A second one of a Reshape, of another value. */
static struct shoal_node *reshaped(struct rewriting *r, const struct shoal_node *like, struct shoal_node *value) {
  struct named_attr *attrs = mem_zalloc((size_t)like->n_attrs, sizeof *attrs);
  for (int i = 0; i < like->n_attrs; i++)
    attrs[i] = (struct named_attr){mem_strdup(like->attrs[i].name), attr_copy(&like->attrs[i].value)};
  char *base = mem_printf("%s/shape", value->name);
  shoal_out in[] = {{value, 0}, like->in[1]};
  struct shoal_node *n = rewrite_add(r, like, base, "Reshape", in, 2, attrs, like->n_attrs);
  free(base);
  return n;
}

static void fuse(struct rewriting *r, struct shoal_node *grad) {
  struct shoal_node *product = grad->in[1].node, *shape = NULL;
  if (leads_to(r, product, "Reshape", grad)) {
    shape = product;
    product = shape->in[0].node;
  }
  if (!leads_to(r, product, "MatMul", shape ? shape : grad) || columns_of(product) < 1) return;
  struct shoal_node *one = fused(r, product, grad), *last = one;
  if (one && shape) last = reshaped(r, shape, one);
  if (one && !last) graph_remove(r->g, one);
  if (!last) return;
  rewrite_stands_for(one, product);
  rewrite_stands_for(one, grad);
  for (size_t k = 0; k < grad->control.n; k++) graph_add_control(one, grad->control.at[k]);
  rewrite_redirect(r, (shoal_out){grad, 0}, (shoal_out){last, 0});
  rewrite_redirect_control(r, grad, last);
  graph_remove(r->g, grad); /* an op of our own is not taken for pure: what leads to it alone goes by itself */
}

/* In the order of the graph: what one node reads has become what it will be before it is looked at. */
void rewrite_fuse_gelu_grad(struct rewriting *r) {
  if (!r->o->own_ops) return;
  int n = r->g->n_nodes;
  struct shoal_node **order = mem_zalloc((size_t)n, sizeof *order);
  shoal_status s = graph_topological_order(r->g, order);
  for (int i = 0; !s && i < n; i++)
    if (order[i] && op_is(order[i]->op, "_ShoalGeluGrad")) fuse(r, order[i]);
  shoal_status_free(s);
  free(order);
}
