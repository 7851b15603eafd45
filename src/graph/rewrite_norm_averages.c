/* Moving averages of batch normalisation, on devices that take longer to begin a kernel than to go through a vector:
 *
 *   FusedBatchNormV3(x, scale, offset, nothing, nothing) of factor 1 (or with what fuse_norm has put behind it), and
 * for its mean and its variance AssignSub(average, Mul(Sub(read(average), what it found), share))
 *
 * becomes the normalisation with the averages as its inputs and share as its factor, and Assign(average, what it
 * found), which is the blend. TensorFlow's op knows that, its layers in graphs do not use it: where several workers
 * change one average at a time, a difference is added and a blend would undo what came between. So it is done only
 * where nothing else in the step changes the average; steps that run at the same time may undo each other's. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

enum { FOUND_MEAN = 1, FOUND_VARIANCE = 2, OLD_MEAN = 3, OLD_VARIANCE = 4 };

struct average { /* one of the two */
  struct shoal_node *update;
  shoal_out read, share;
};

/* Who alone reads that output. */
static struct shoal_node *reader(const struct rewriting *r, const struct shoal_node *n, int index) {
  struct shoal_node *one = NULL;
  FOR_CONSUMERS (c, &r->users, n) {
    if (c->input < 0 || c->index != index) continue;
    if (one) return NULL;
    one = c->node;
  }
  return one;
}

static bool is_scalar_const(shoal_out o) {
  return op_is(o.node->op, "Const") && o.node->out_shapes && o.node->out_shapes[0].rank == 0 &&
         o.node->out_types[0] == SHOAL_FLOAT32;
}

/* Do others in this graph change what the handle names? */
static bool is_changed_elsewhere(const struct rewriting *r, const struct shoal_node *handle,
                                 const struct shoal_node *update) {
  FOR_CONSUMERS (c, &r->users, handle)
    if (c->input >= 0 && c->node != update && !op_is(c->node->op, "ReadVariableOp")) return true;
  return false;
}

static bool find_average(const struct rewriting *r, const struct shoal_node *norm, int found, struct average *a) {
  struct shoal_node *off = reader(r, norm, found);
  if (!off || !op_is(off->op, "Sub") || off->in[1].node != norm) return false;
  struct shoal_node *by = rewrite_only_consumer(r, off);
  if (!by || !op_is(by->op, "Mul") || by->in[0].node != off || !is_scalar_const(by->in[1])) return false;
  a->update = rewrite_only_consumer(r, by);
  a->read = off->in[0];
  a->share = by->in[1];
  if (!a->update || !op_is(a->update->op, "AssignSubVariableOp") || a->update->in[1].node != by) return false;
  const struct shoal_node *read = a->read.node, *handle = a->update->in[0].node;
  return op_is(read->op, "ReadVariableOp") && !read->control.n && op_is(handle->op, "VarHandleOp") &&
         read->in[0].node == handle && str_equal(read->assigned, norm->assigned) &&
         !is_changed_elsewhere(r, handle, a->update);
}

static bool same_share(shoal_out a, shoal_out b) {
  return a.node == b.node || attr_equal(node_attr(a.node, "value"), node_attr(b.node, "value"));
}

static bool takes_averages(const struct rewriting *r, const struct shoal_node *n) {
  const struct attr *training = node_attr(n, "is_training"), *factor = node_attr(n, "exponential_avg_factor");
  return (op_is(n->op, "FusedBatchNormV3") || op_is(n->op, "_FusedBatchNormEx")) && r->o->of_host &&
         !r->o->of_host(n) && training && training->b && factor && factor->f == 1;
}

static float share_of(shoal_out o) {
  const struct tensor *t = NULL;
  shoal_status s = node_get_tensor(o.node, "value", &t);
  float share = s ? 0 : *T_DATA(t, const float);
  shoal_status_free(s);
  return share;
}

static struct shoal_node *add_assign(struct rewriting *r, struct shoal_node *norm, int found, const struct average *a) {
  struct named_attr *attrs = mem_zalloc(1, sizeof *attrs);
  const shoal_out in[2] = {a->update->in[0], {norm, found}};
  char *base = mem_printf("%s/blended", a->update->name);
  *attrs = (struct named_attr){mem_strdup("dtype"), attr_type(SHOAL_FLOAT32)};
  struct shoal_node *n = rewrite_add(r, a->update, base, "AssignVariableOp", in, 2, attrs, 1);
  free(base);
  return n;
}

static void take(struct rewriting *r, struct shoal_node *norm, const struct average a[2], rewrite_nodes *gone) {
  struct shoal_node *assign[2] = {add_assign(r, norm, FOUND_MEAN, &a[0]), add_assign(r, norm, FOUND_VARIANCE, &a[1])};
  if (!assign[0] || !assign[1]) {
    for (int i = 0; i < 2; i++)
      if (assign[i]) graph_remove(r->g, assign[i]);
    return;
  }
  norm->in[OLD_MEAN] = a[0].read;
  norm->in[OLD_VARIANCE] = a[1].read;
  node_set_attr(norm, "exponential_avg_factor", attr_float(share_of(a[0].share)));
  for (int i = 0; i < 2; i++) {
    rewrite_takes_over(r, assign[i], a[i].update);
    vec_push(gone, a[i].update);
  }
}

void rewrite_norm_averages(struct rewriting *r) {
  size_t n_nodes = r->g->nodes.n;
  rewrite_nodes gone = {0}; /* removed at the end: until then r->users speaks of them */
  for (size_t i = 0; i < n_nodes; i++) {
    struct shoal_node *n = r->g->nodes.at[i];
    struct average a[2];
    if (!n || !takes_averages(r, n) || !find_average(r, n, FOUND_MEAN, &a[0]) ||
        !find_average(r, n, FOUND_VARIANCE, &a[1]) || !same_share(a[0].share, a[1].share))
      continue;
    take(r, n, a, &gone);
  }
  for (size_t i = 0; i < gone.n; i++) graph_remove(r->g, gone.at[i]);
  vec_release(&gone);
}
