/* Softmax of scores with a mask added, and the way back through softmax, become one pass each over the scores, where
 * the device has a kernel for that: a card. Elsewhere they stay the ops they are.
 *
 *   Softmax(AddV2(x, mask)) becomes _MaskedSoftmax(x, mask): the mask is what x's last dimensions are, for all before
 *   Mul(Sub(dy, Sum(Mul(dy, y), -1)), y) becomes _SoftmaxGrad(y, dy): what the gradient of y = Softmax(x) is made of;
 *   dy has y's shape then, known beforehand or not */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

static bool same_out(shoal_out a, shoal_out b) { return a.node == b.node && a.index == b.index; }

static struct shape known(shoal_out o) { return o.node->out_shapes ? o.node->out_shapes[o.index] : shape_unknown(); }

/* Read by `next` alone, on its device, and waiting for nothing. */
static bool leads_to(const struct rewriting *r, shoal_out o, const char *op, const struct shoal_node *next) {
  const struct shoal_node *n = o.node;
  return op_is(n->op, op) && !n->control.n && rewrite_only_consumer(r, n) == next &&
         str_equal(n->assigned, next->assigned);
}

static void replace(struct rewriting *r, struct shoal_node *last, const char *op, shoal_out a, shoal_out b,
                    const struct shoal_node *const *parts, int n_parts) {
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  struct shape x = known(a);
  attrs[0] = (struct named_attr){mem_strdup("T"), attr_type(last->out_types[0])};
  attrs[1] = (struct named_attr){mem_strdup("columns"), attr_int(x.dims[x.rank - 1])};
  char *base = mem_printf("%s/fused", last->name);
  struct shoal_node *one = rewrite_add(r, last, base, op, (shoal_out[]){a, b}, 2, attrs, 2);
  free(base);
  if (!one) return;
  for (int i = 0; i < n_parts; i++) rewrite_stands_for(one, parts[i]);
  for (size_t k = 0; k < last->control.n; k++) graph_add_control(one, last->control.at[k]);
  rewrite_redirect(r, (shoal_out){last, 0}, (shoal_out){one, 0});
  rewrite_redirect_control(r, last, one);
}

/* ---- forward ---- */

/* Are these the last dimensions of x, whatever comes before? */
static bool repeats(const struct shape *mask, const struct shape *x) {
  if (!shape_known(mask) || !shape_known(x) || mask->rank < 1 || mask->rank > x->rank) return false;
  return !memcmp(mask->dims, x->dims + x->rank - mask->rank, (size_t)mask->rank * sizeof *mask->dims);
}

static void fuse_mask(struct rewriting *r, struct shoal_node *softmax) {
  if (!leads_to(r, softmax->in[0], "AddV2", softmax)) return;
  const struct shoal_node *add = softmax->in[0].node;
  struct shape x = known(add->in[0]), mask = known(add->in[1]);
  if (repeats(&mask, &x))
    replace(r, softmax, "_MaskedSoftmax", add->in[0], add->in[1], (const struct shoal_node *const[]){add, softmax}, 2);
}

/* ---- back ---- */

/* Sum(Mul(dy, y)) over the last dimension, which stays. */
static bool is_row_sum(const struct rewriting *r, shoal_out o, const struct shoal_node *next, shoal_out dy,
                       shoal_out y) {
  const struct tensor *axis;
  bool keep = false;
  if (!leads_to(r, o, "Sum", next)) return false;
  const struct shoal_node *sum = o.node, *from = sum->in[1].node, *mul = sum->in[0].node;
  if (!op_is(from->op, "Const") || !leads_to(r, sum->in[0], "Mul", sum)) return false;
  shoal_status s = node_get_tensor(from, "value", &axis);
  if (!s) s = node_get_bool(sum, "keep_dims", &keep);
  bool good = !s && keep && axis->n == 1 && axis->dtype == SHOAL_INT32;
  shoal_status_free(s);
  int64_t at = good ? *T_DATA(axis, const int32_t) : 0;
  bool both = same_out(mul->in[0], dy) && same_out(mul->in[1], y);
  return good && both && (at == -1 || at == known(y).rank - 1);
}

static void fuse_back(struct rewriting *r, struct shoal_node *last) {
  shoal_out y = last->in[1];
  if (!leads_to(r, last->in[0], "Sub", last)) return;
  const struct shoal_node *sub = last->in[0].node;
  shoal_out dy = sub->in[0];
  struct shape a = known(y), b = known(dy);
  bool softmax = op_is(y.node->op, "Softmax") || op_is(y.node->op, "_MaskedSoftmax");
  if (!softmax || !shape_known(&a) || a.rank < 1 || !shape_compatible(&a, &b)) return;
  if (!is_row_sum(r, sub->in[1], sub, dy, y)) return;
  const struct shoal_node *sum = sub->in[1].node;
  replace(r, last, "_SoftmaxGrad", y, dy, (const struct shoal_node *const[]){sum->in[0].node, sum, sub, last}, 4);
}

void rewrite_fuse_softmax(struct rewriting *r) {
  size_t n_nodes = r->g->nodes.n;
  if (!r->o->own_ops || !r->o->of_host) return;
  for (size_t i = 0; i < n_nodes; i++) {
    struct shoal_node *n = r->g->nodes.at[i];
    bool softmax = n && op_is(n->op, "Softmax"), mul = n && op_is(n->op, "Mul");
    if ((!softmax && !mul) || r->o->of_host(n)) continue;
    if (softmax) fuse_mask(r, n);
    else fuse_back(r, n);
  }
}
