/* A product with its bias that is added to something else, as layers of Transformers are to what goes past them,
 * becomes one node, where the device begins its sums with that: a card.
 *
 *   AddV2(x, Reshape(_FusedMatMul(a, b, bias))) becomes _MatMulOnto(a, b, bias, x), of the Reshape's shape
 *
 * That shape must be known; x's need not be: where it turns out to be another, the kernel adds as AddV2 does. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

static bool leads_to(const struct rewriting *r, const struct shoal_node *n, const char *op,
                     const struct shoal_node *next) {
  return op_is(n->op, op) && !n->control.n && rewrite_only_consumer(r, n) == next &&
         str_equal(n->assigned, next->assigned);
}

static bool has_bias_alone(const struct shoal_node *product) {
  const struct attr *ops = node_attr(product, "fused_ops"), *args = node_attr(product, "num_args");
  return ops && ops->kind == ATTR_LIST && ops->list.n == 1 && !strcmp(ops->list.at[0].s.data, "BiasAdd") && args &&
         args->i == 1;
}

/* The Reshape of such a product, read by the sum alone; NULL: there is none. */
static struct shoal_node *reshape_of(const struct rewriting *r, const struct shoal_node *sum, int input) {
  struct shoal_node *shape = sum->in[input].node;
  if (!leads_to(r, shape, "Reshape", sum) || !shape->out_shapes || !shape_known(&shape->out_shapes[0])) return NULL;
  const struct shoal_node *product = shape->in[0].node;
  return leads_to(r, product, "_FusedMatMul", shape) && has_bias_alone(product) ? shape : NULL;
}

static struct shoal_node *joined(struct rewriting *r, const struct shoal_node *sum, const struct shoal_node *shape,
                                 shoal_out onto) {
  static const char *const kept[] = {"T", "transpose_a", "transpose_b"};
  const struct shoal_node *product = shape->in[0].node;
  struct named_attr *attrs = mem_zalloc(4, sizeof *attrs);
  for (int i = 0; i < 3; i++)
    attrs[i] = (struct named_attr){mem_strdup(kept[i]), attr_copy(node_attr(product, kept[i]))};
  attrs[3] = (struct named_attr){mem_strdup("shape"), attr_shape(&shape->out_shapes[0])};
  char *base = mem_printf("%s/fused", sum->name);
  shoal_out in[] = {product->in[0], product->in[1], product->in[2], onto};
  struct shoal_node *one = rewrite_add(r, sum, base, "_MatMulOnto", in, 4, attrs, 4);
  free(base);
  return one;
}

static void fuse(struct rewriting *r, struct shoal_node *sum) {
  struct shoal_node *shape = reshape_of(r, sum, 1);
  shoal_out onto = sum->in[0];
  if (!shape) {
    shape = reshape_of(r, sum, 0);
    onto = sum->in[1];
  }
  if (!shape || shape == onto.node) return;
  struct shoal_node *one = joined(r, sum, shape, onto), *product = shape->in[0].node;
  if (!one) return;
  rewrite_stands_for(one, product);
  rewrite_stands_for(one, sum);
  for (size_t k = 0; k < sum->control.n; k++) graph_add_control(one, sum->control.at[k]);
  rewrite_redirect(r, (shoal_out){sum, 0}, (shoal_out){one, 0});
  rewrite_redirect_control(r, sum, one);
  graph_remove(r->g, sum);
  graph_remove(r->g, shape);
  graph_remove(r->g, product); /* an op of our own is not taken for pure, and would stay */
}

/* In the order of the graph: what one node reads has become what it will be before it is looked at. */
void rewrite_fuse_residual(struct rewriting *r) {
  if (!r->o->own_ops || !r->o->of_host) return;
  int n = r->g->n_nodes;
  struct shoal_node **order = mem_zalloc((size_t)n, sizeof *order);
  shoal_status s = graph_topological_order(r->g, order);
  for (int i = 0; !s && i < n; i++)
    if (order[i] && op_is(order[i]->op, "AddV2") && !r->o->of_host(order[i])) fuse(r, order[i]);
  shoal_status_free(s);
  free(order);
}
