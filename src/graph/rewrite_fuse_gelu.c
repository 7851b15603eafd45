/* A product with its bias, and the GELU behind it, become one node.
 *
 *   x = _FusedMatMul(a, b, bias)    with BiasAdd alone, and perhaps a Reshape of it
 *   y = _ShoalGelu(x)
 *
 * becomes y, x = _MatMulGelu(a, b, bias): x is read by the way back. A Reshape stands behind y as it does behind x. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

static bool has_bias_alone(const struct shoal_node *n) {
  const struct attr *ops = node_attr(n, "fused_ops"), *args = node_attr(n, "num_args");
  return op_is(n->op, "_FusedMatMul") && n->n_in == 3 && args && args->i == 1 && ops && ops->kind == ATTR_LIST &&
         ops->list.n == 1 && !strcmp(ops->list.at[0].s.data, "BiasAdd");
}

static struct shoal_node *fused(struct rewriting *r, const struct shoal_node *product, const struct shoal_node *gelu,
                                int64_t columns) {
  static const char *const kept[] = {"T", "transpose_a", "transpose_b"};
  struct named_attr *attrs = mem_zalloc(4, sizeof *attrs);
  for (int i = 0; i < 3; i++)
    attrs[i] = (struct named_attr){mem_strdup(kept[i]), attr_copy(node_attr(product, kept[i]))};
  attrs[3] = (struct named_attr){mem_strdup("columns"), attr_int(columns)};
  char *base = mem_printf("%s/fused", gelu->name);
  struct shoal_node *one = rewrite_add(r, gelu, base, "_MatMulGelu", product->in, 3, attrs, 4);
  free(base);
  return one;
}

/* The same Reshape of y. */
static struct shoal_node *reshaped(struct rewriting *r, const struct shoal_node *like, shoal_out y) {
  struct named_attr *attrs = mem_zalloc((size_t)like->n_attrs, sizeof *attrs);
  for (int i = 0; i < like->n_attrs; i++)
    attrs[i] = (struct named_attr){mem_strdup(like->attrs[i].name), attr_copy(&like->attrs[i].value)};
  char *base = mem_printf("%s/shape", y.node->name);
  shoal_out in[] = {y, like->in[1]};
  struct shoal_node *n = rewrite_add(r, like, base, "Reshape", in, 2, attrs, like->n_attrs);
  free(base);
  return n;
}

static void fuse(struct rewriting *r, struct shoal_node *gelu, rewrite_nodes *gone) {
  struct shoal_node *product = gelu->in[0].node, *shape = NULL;
  if (op_is(product->op, "Reshape") && !product->control.n) {
    shape = product;
    product = shape->in[0].node;
  }
  struct shape known = product->out_shapes ? product->out_shapes[0] : shape_unknown();
  if (gelu->control.n || !has_bias_alone(product) || !str_equal(product->assigned, gelu->assigned) || known.rank != 2 ||
      known.dims[1] < 1)
    return;
  struct shoal_node *one = fused(r, product, gelu, known.dims[1]), *last = one;
  if (one && shape) last = reshaped(r, shape, (shoal_out){one, 0});
  if (one && !last) graph_remove(r->g, one);
  if (!last) return;
  for (size_t k = 0; k < product->control.n; k++) graph_add_control(one, product->control.at[k]);
  for (size_t k = 0; k < product->original_names.n; k++)
    vec_push(&one->original_names, mem_strdup(product->original_names.at[k]));
  rewrite_stands_for(one, gelu);
  rewrite_redirect(r, (shoal_out){product, 0}, (shoal_out){one, 1});
  rewrite_redirect(r, (shoal_out){gelu, 0}, (shoal_out){last, 0});
  rewrite_redirect_control(r, product, one);
  rewrite_redirect_control(r, gelu, last);
  vec_push(gone, gelu);
  vec_push(gone, product);
}

/* Those behind a product, or behind a Reshape of it: the first that can be becomes one with it. */
static void fuse_behind(struct rewriting *r, const struct shoal_node *n, rewrite_nodes *gone) {
  FOR_CONSUMERS (u, &r->users, n) {
    if (u->input != 0) continue;
    if (op_is(u->node->op, "_ShoalGelu")) fuse(r, u->node, gone);
    else if (op_is(n->op, "_FusedMatMul") && op_is(u->node->op, "Reshape")) fuse_behind(r, u->node, gone);
  }
}

/* By the products, in the order of the graph: what one reads, be it another product whose GELU comes later, has become
 * what it will be before it is looked at. */
void rewrite_fuse_gelu(struct rewriting *r) {
  rewrite_nodes gone = {0}; /* removed at the end: until then r->users speaks of them */
  if (!r->o->own_ops) return;
  int n = r->g->n_nodes;
  struct shoal_node **order = mem_zalloc((size_t)n, sizeof *order);
  shoal_status s = graph_topological_order(r->g, order);
  for (int i = 0; !s && i < n; i++)
    if (op_is(order[i]->op, "_FusedMatMul")) fuse_behind(r, order[i], &gone);
  shoal_status_free(s);
  free(order);
  for (size_t i = 0; i < gone.n; i++) graph_remove(r->g, gone.at[i]);
  vec_release(&gone);
}
