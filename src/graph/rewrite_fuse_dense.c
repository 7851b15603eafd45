/* Small dense layers, where the device has kernels for them: a card, which takes longer to begin a kernel than such a
 * layer takes. Two rewrites:
 *
 * fuse_dense: the last layer of a classifier, whose losses and gradients are already one node (fuse_layers)
 *
 *   l = _FusedMatMul(x, w, bias)       with BiasAdd alone, read by nothing but
 *   loss, g = _ShoalCrossEntropy(l, labels, each)
 *   back = MatMul(g, w')               and perhaps, of what x is the Relu,
 *   back = ReluGrad(back, x)
 *   mean = Mean(loss)
 *
 * becomes loss, g, back, mean = _DenseCrossEntropy(x, w, bias, labels, each). Nothing between waits for anything else,
 * and l is read nowhere else, so what the one node reads cannot come of it.
 *
 * join_gradients: products x' g and sums over g's rows that are gradients of one _JoinedUpdates, and nothing else,
 * become one _DenseGrads. The updates come after all of them anyway, so none of them comes after another. Only small
 * products join: large ones are the library's. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

static bool same_out(shoal_out a, shoal_out b) { return a.node == b.node && a.index == b.index; }

static struct shape known(shoal_out o) { return o.node->out_shapes ? o.node->out_shapes[o.index] : shape_unknown(); }

static bool flag(const struct shoal_node *n, const char *name) {
  const struct attr *a = node_attr(n, name);
  return a && a->kind == ATTR_BOOL && a->b;
}

static bool is_product(const struct shoal_node *n, bool trans_a, bool trans_b) {
  return op_is(n->op, "MatMul") && n->out_types[0] == SHOAL_FLOAT32 && flag(n, "transpose_a") == trans_a &&
         flag(n, "transpose_b") == trans_b;
}

/* ---- a classifier ---- */

struct classifier {
  struct shoal_node *layer, *losses, *back, *relu, *mean; /* relu, mean NULL: none */
};

static bool has_bias_alone(const struct shoal_node *n) {
  const struct attr *ops = node_attr(n, "fused_ops"), *args = node_attr(n, "num_args");
  return op_is(n->op, "_FusedMatMul") && n->out_types[0] == SHOAL_FLOAT32 && !flag(n, "transpose_a") &&
         !flag(n, "transpose_b") && n->n_in == 3 && args && args->i == 1 && ops && ops->kind == ATTR_LIST &&
         ops->list.n == 1 && !strcmp(ops->list.at[0].s.data, "BiasAdd");
}

static bool is_mean_of_all(const struct shoal_node *n) {
  const struct shoal_node *axes = n->n_in == 2 ? n->in[1].node : NULL;
  const struct attr *v = axes && op_is(axes->op, "Const") ? node_attr(axes, "value") : NULL;
  if (!op_is(n->op, "Mean") || flag(n, "keep_dims") || !v || v->kind != ATTR_TENSOR || v->tensor->n != 1) return false;
  const struct tensor *t = v->tensor;
  int64_t axis = t->dtype == SHOAL_INT64 ? *T_DATA(t, const int64_t) : *T_DATA(t, const int32_t);
  return axis == 0 || axis == -1;
}

/* Does it wait for nothing, on the layer's device? */
static bool is_part(const struct shoal_node *n, const struct classifier *c) {
  return !n->control.n && str_equal(n->assigned, c->layer->assigned);
}

static void see_reader(struct classifier *c, struct shoal_node *n, int input, int index) {
  if (!is_part(n, c)) return;
  if (index == 0 && input == 0 && is_mean_of_all(n)) c->mean = n;
  if (index == 1 && input == 0 && is_product(n, false, true) && same_out(n->in[1], c->layer->in[1])) c->back = n;
}

static bool see_classifier(const struct rewriting *r, struct shoal_node *losses, struct classifier *c) {
  *c = (struct classifier){.layer = losses->in[0].node, .losses = losses};
  if (!has_bias_alone(c->layer) || rewrite_only_consumer(r, c->layer) != losses || !is_part(losses, c)) return false;
  FOR_CONSUMERS (u, &r->users, losses)
    if (u->input >= 0) see_reader(c, u->node, u->input, u->index);
  if (!c->back) return false;
  struct shoal_node *next = rewrite_only_consumer(r, c->back);
  if (next && op_is(next->op, "ReluGrad") && next->in[0].node == c->back && same_out(next->in[1], c->layer->in[0]) &&
      is_part(next, c))
    c->relu = next;
  struct shape w = known(c->layer->in[1]);
  return shape_known(&w) && w.rank == 2;
}

static void fuse_classifier(struct rewriting *r, const struct classifier *c, rewrite_nodes *gone) {
  const struct shoal_node *layer = c->layer, *losses = c->losses;
  struct shape w = known(layer->in[1]);
  shoal_out in[] = {layer->in[0], layer->in[1], layer->in[2], losses->in[1], losses->in[2]};
  struct named_attr *attrs = mem_zalloc(4, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("relu"), attr_bool(c->relu != NULL)};
  attrs[1] = (struct named_attr){mem_strdup("width"), attr_int(w.dims[0])};
  attrs[2] = (struct named_attr){mem_strdup("classes"), attr_int(w.dims[1])};
  attrs[3] = (struct named_attr){mem_strdup("Tlabels"), attr_type(losses->in_types[1])};
  char *base = mem_printf("%s/dense", losses->name);
  struct shoal_node *one = rewrite_add(r, losses, base, "_DenseCrossEntropy", in, 5, attrs, 4);
  free(base);
  if (!one) return;
  struct shoal_node *const parts[] = {c->layer, c->losses, c->back, c->relu, c->mean};
  const struct shoal_node *back = c->relu ? c->relu : c->back;
  for (size_t k = 0; k < layer->control.n; k++) graph_add_control(one, layer->control.at[k]);
  rewrite_redirect(r, (shoal_out){c->losses, 0}, (shoal_out){one, 0});
  rewrite_redirect(r, (shoal_out){c->losses, 1}, (shoal_out){one, 1});
  rewrite_redirect(r, (shoal_out){(struct shoal_node *)(uintptr_t)back, 0}, (shoal_out){one, 2});
  if (c->mean) rewrite_redirect(r, (shoal_out){c->mean, 0}, (shoal_out){one, 3});
  for (size_t i = 0; i < COUNT_OF(parts); i++) {
    if (!parts[i]) continue;
    rewrite_stands_for(one, parts[i]);
    rewrite_redirect_control(r, parts[i], one);
  }
  vec_push(gone, c->losses);
  vec_push(gone, c->layer);
}

/* In the order of the graph: what one node reads has become what it will be before it is looked at. */
void rewrite_fuse_dense(struct rewriting *r) {
  struct classifier c;
  rewrite_nodes gone = {0}; /* removed at the end: until then r->users speaks of them */
  if (!r->o->own_ops || !r->o->of_host) return;
  int n = r->g->n_nodes;
  struct shoal_node **order = mem_zalloc((size_t)n, sizeof *order);
  shoal_status s = graph_topological_order(r->g, order);
  for (int i = 0; !s && i < n; i++) {
    struct shoal_node *at = order[i];
    if (at && op_is(at->op, "_ShoalCrossEntropy") && at->in_types[0] == SHOAL_FLOAT32 && !r->o->of_host(at) &&
        see_classifier(r, at, &c))
      fuse_classifier(r, &c, &gone);
  }
  shoal_status_free(s);
  free(order);
  for (size_t i = 0; i < gone.n; i++) graph_remove(r->g, gone.at[i]);
  vec_release(&gone);
}

/* ---- gradients ---- */

enum { MOST_PAIRS = 24, MOST_ELEMENTS = 1 << 18 }; /* MOST_ELEMENTS: of a variable whose gradient is a small product */

struct layer_grads {
  struct shoal_node *product, *sum; /* sum NULL: none */
  shoal_out x, g;
};
typedef VEC(struct layer_grads) pair_list;

/* Of the variable that gradient number i of the updates is for: it comes before its slots, which come before that. */
static bool is_small(const struct shoal_node *updates, int i) {
  struct shape shape;
  while (i > 0 && updates->in_types[i - 1] == SHOAL_RESOURCE) i--;
  const struct shoal_node *variable = updates->in[i].node;
  if (!variable || !op_is(variable->op, "VarHandleOp")) return false;
  int64_t n = -1;
  shoal_status s = node_get_shape(variable, "shape", &shape);
  if (!s && shape_known(&shape)) s = shape_elements(&shape, &n);
  shoal_status_free(s);
  return n >= 0 && n <= MOST_ELEMENTS;
}

static bool is_gradient(const struct rewriting *r, const struct shoal_node *n, const struct shoal_node *updates) {
  return rewrite_only_consumer(r, n) == updates && str_equal(n->assigned, updates->assigned);
}

static void see_products(const struct rewriting *r, const struct shoal_node *updates, pair_list *out) {
  for (int i = 0; i < updates->n_in && out->n < MOST_PAIRS; i++) {
    struct shoal_node *n = updates->in[i].node;
    if (n && is_product(n, true, false) && is_gradient(r, n, updates) && is_small(updates, i))
      vec_push(out, ((struct layer_grads){.product = n, .x = n->in[0], .g = n->in[1]}));
  }
}

static bool is_sum(const struct shoal_node *n) {
  const struct attr *format = node_attr(n, "data_format");
  return op_is(n->op, "BiasAddGrad") && n->out_types[0] == SHOAL_FLOAT32 && format && format->kind == ATTR_STRING &&
         !strcmp(format->s.data, "NHWC");
}

static void see_sums(const struct rewriting *r, const struct shoal_node *updates, pair_list *pairs) {
  for (int i = 0; i < updates->n_in; i++) {
    struct shoal_node *n = updates->in[i].node;
    if (!n || !is_sum(n) || !is_gradient(r, n, updates)) continue;
    for (size_t k = 0; k < pairs->n; k++)
      if (!pairs->at[k].sum && same_out(pairs->at[k].g, n->in[0])) {
        pairs->at[k].sum = n;
        break;
      }
  }
}

static void take_over(struct rewriting *r, struct shoal_node *one, struct shoal_node *part, int output) {
  if (!part) return;
  for (size_t k = 0; k < part->control.n; k++) graph_add_control(one, part->control.at[k]);
  rewrite_stands_for(one, part);
  rewrite_redirect(r, (shoal_out){part, 0}, (shoal_out){one, output});
}

static void join_pairs(struct rewriting *r, const struct shoal_node *updates, const pair_list *pairs) {
  shoal_out in[2 * MOST_PAIRS];
  int n = (int)pairs->n;
  for (int i = 0; i < n; i++) {
    in[i] = pairs->at[i].x;
    in[n + i] = pairs->at[i].g;
  }
  struct named_attr *attrs = mem_zalloc(1, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("N"), attr_int(n)};
  char *base = mem_printf("%s/gradients", updates->name);
  struct shoal_node *one = rewrite_add(r, updates, base, "_DenseGrads", in, 2 * n, attrs, 1);
  free(base);
  for (int i = 0; one && i < n; i++) {
    take_over(r, one, pairs->at[i].product, i);
    take_over(r, one, pairs->at[i].sum, n + i);
  }
}

void rewrite_join_gradients(struct rewriting *r) {
  size_t n_nodes = r->g->nodes.n;
  if (!r->o->own_ops || !r->o->of_host) return;
  for (size_t i = 0; i < n_nodes; i++) {
    struct shoal_node *n = r->g->nodes.at[i];
    if (!n || !op_is(n->op, "_JoinedUpdates") || r->o->of_host(n)) continue;
    pair_list pairs = {0};
    see_products(r, n, &pairs);
    see_sums(r, n, &pairs);
    if (pairs.n) join_pairs(r, n, &pairs);
    vec_release(&pairs);
  }
}
