/* Products with a bias and an activation: MatMul or Conv2D, then BiasAdd, then perhaps an activation, each read by
 * nothing but the next, become _FusedMatMul or _FusedConv2D: one pass over the output instead of three. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

static const char *const activations[] = {"Relu", "Relu6", "Elu", "Tanh", "Sigmoid", "LeakyRelu"};

static bool is_activation(const struct shoal_node *n) {
  for (size_t i = 0; i < COUNT_OF(activations); i++)
    if (op_is(n->op, activations[i])) return true;
  return false;
}

static bool together(const struct shoal_node *a, const struct shoal_node *b) {
  return str_equal(a->assigned, b->assigned) && (a->assigned || !strcmp(a->device, b->device));
}

/* The attributes of a node that the fused op has too. */
static struct named_attr *shared_attrs(const struct shoal_node *n, const struct op *fused, int extra, int *count) {
  struct named_attr *attrs = mem_zalloc((size_t)(n->n_attrs + extra), sizeof *attrs);
  *count = 0;
  for (int i = 0; i < n->n_attrs; i++)
    if (op_attr_find(fused, n->attrs[i].name))
      attrs[(*count)++] = (struct named_attr){mem_strdup(n->attrs[i].name), attr_copy(&n->attrs[i].value)};
  return attrs;
}

static void add_string(struct attr *list, const char *s) { attr_list_add(list, attr_string(s, strlen(s))); }

static void fuse(struct rewriting *r, struct shoal_node *product, struct shoal_node *bias, struct shoal_node *act) {
  bool conv = op_is(product->op, "Conv2D");
  const struct op *fused = op_find(conv ? "_FusedConv2D" : "_FusedMatMul");
  if (!fused) return;
  struct attr ops = attr_list(ATTR_STRING);
  add_string(&ops, "BiasAdd");
  if (act) add_string(&ops, act->op->name);
  int n;
  struct named_attr *attrs = shared_attrs(product, fused, 4, &n);
  attrs[n++] = (struct named_attr){mem_strdup("num_args"), attr_int(1)};
  attrs[n++] = (struct named_attr){mem_strdup("fused_ops"), ops};
  if (act && op_is(act->op, "LeakyRelu") && op_attr_find(fused, "leakyrelu_alpha"))
    attrs[n++] = (struct named_attr){mem_strdup("leakyrelu_alpha"), attr_copy(node_attr(act, "alpha"))};
  if (op_attr_find(fused, "TArgs")) {
    struct attr types = attr_list(ATTR_TYPE);
    attr_list_add(&types, attr_type(product->out_types[0]));
    attrs[n++] = (struct named_attr){mem_strdup("TArgs"), types};
  }
  shoal_out in[3] = {product->in[0], product->in[1], bias->in[1]};
  struct shoal_node *last = act ? act : bias;
  char *base = mem_printf("%s/fused", last->name);
  struct shoal_node *one = rewrite_add(r, last, base, fused->name, in, 3, attrs, n);
  free(base);
  if (!one) return;
  const struct shoal_node *parts[] = {product, bias, act};
  for (int p = 0; p < 3; p++) {
    rewrite_stands_for(one, parts[p]);
    for (size_t k = 0; parts[p] && k < parts[p]->control.n; k++) graph_add_control(one, parts[p]->control.at[k]);
  }
  rewrite_redirect(r, (shoal_out){last, 0}, (shoal_out){one, 0});
  rewrite_redirect_control(r, last, one);
}

void rewrite_fuse_bias(struct rewriting *r) {
  size_t n_nodes = r->g->nodes.n;
  for (size_t i = 0; i < n_nodes; i++) {
    struct shoal_node *product = r->g->nodes.at[i];
    if (!product || !(op_is(product->op, "MatMul") || op_is(product->op, "Conv2D"))) continue;
    if (product->out_types[0] != SHOAL_FLOAT32 && product->out_types[0] != SHOAL_BFLOAT16) continue;
    struct shoal_node *bias = rewrite_only_consumer(r, product);
    if (!bias || !op_is(bias->op, "BiasAdd") || bias->in[0].node != product || !together(product, bias)) continue;
    const struct attr *a = node_attr(product, "data_format"), *b = node_attr(bias, "data_format");
    if ((a || strcmp(b->s.data, "NHWC")) && !(a && attr_equal(a, b))) continue;
    struct shoal_node *act = rewrite_only_consumer(r, bias);
    if (act && (!is_activation(act) || !together(bias, act))) act = NULL;
    fuse(r, product, bias, act);
  }
}
