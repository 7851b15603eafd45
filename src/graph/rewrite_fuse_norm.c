/* Batch normalisation with what stands behind it. Forward, FusedBatchNormV3, perhaps a sum with another tensor, and
 * Relu, each read by the next alone, become _FusedBatchNormEx, TensorFlow's own: memory is read and written once
 * instead of two or three times, and what lies between is never stored. Backward, ReluGrad and FusedBatchNormGradV3
 * become _BatchNormReluGrad, which has what goes to the other addend as one more output. (TensorFlow's
 * _FusedBatchNormGradEx is the same, but not for bfloat16.) Where such a gradient is a sum of two, as behind a block
 * that goes on in two ways, the sum is taken along too: _BatchNormReluGradOfSum.
 *
 * Between them there may be Identity: a layer lets its result wait there for its moving averages, which are made of the
 * normalisation's other outputs. So the fused node cannot wait; an Identity behind it does, for all that any of the
 * parts waited for. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/frames.h"
#include "graph/rewrite.h"

enum { NORM_INPUTS = 5, NORM_OUTPUTS = 6, SIDE = 5, BACK_OUTPUTS = 5, MOST_PARTS = 8 };

struct norm_chain {
  struct shoal_node *norm, *relu;
  shoal_out side; /* no node: none */
  struct shoal_node *parts[MOST_PARTS];
  int n_parts; /* behind the normalisation: the last is Relu */
};

static bool together(const struct shoal_node *a, const struct shoal_node *b) {
  return str_equal(a->assigned, b->assigned) && (a->assigned || !strcmp(a->device, b->device));
}

/* Who alone reads output 0; others may read the rest. */
static struct shoal_node *reader(const struct rewriting *r, const struct shoal_node *n) {
  struct shoal_node *one = NULL;
  FOR_CONSUMERS (c, &r->users, n) {
    if (c->input < 0 || c->index != 0) continue;
    if (one) return NULL;
    one = c->node;
  }
  return one;
}

static bool same_shape(shoal_out a, shoal_out b) {
  if (!a.node->out_shapes || !b.node->out_shapes) return false;
  const struct shape *x = &a.node->out_shapes[a.index], *y = &b.node->out_shapes[b.index];
  return shape_known(x) && shape_equal(x, y);
}

/* ---- forward ---- */

/* The other addend, where this is a sum of two of one shape. */
static bool is_sum(const struct shoal_node *n, const struct shoal_node *of, shoal_out *side) {
  if (!(op_is(n->op, "AddV2") || op_is(n->op, "Add")) || !same_shape(n->in[0], n->in[1])) return false;
  if (n->in[0].node == n->in[1].node) return false;
  *side = n->in[n->in[0].node == of];
  return true;
}

static bool find_chain(const struct rewriting *r, struct shoal_node *norm, struct norm_chain *c) {
  struct shoal_node *at = norm, *next = reader(r, norm);
  *c = (struct norm_chain){.norm = norm};
  for (; next && c->n_parts < MOST_PARTS && together(norm, next); next = rewrite_only_consumer(r, at)) {
    c->parts[c->n_parts++] = next;
    if (op_is(next->op, "Relu")) {
      c->relu = next;
      return true;
    }
    if (!op_is(next->op, "Identity") && (c->side.node || !is_sum(next, at, &c->side))) return false;
    at = next;
  }
  return false;
}

/* Is the side input made of the normalisation's other outputs, or does it wait for them? Where a branch may have been
 * taken before it, those outputs must not share its fate. */
static bool side_comes_after(const struct rewriting *r, const struct norm_chain *c) {
  VEC(struct shoal_node *) todo = {0};
  size_t n = r->g->nodes.n;
  bool *seen = mem_zalloc(n, sizeof *seen), found = false;
  if (c->side.node) vec_push(&todo, c->side.node);
  while (todo.n && !found) {
    struct shoal_node *at = vec_pop(&todo);
    found = at == c->norm || node_is_switch(at);
    for (int i = 0; i < at->n_in; i++)
      if (at->in[i].node && !seen[at->in[i].node->id]) {
        seen[at->in[i].node->id] = true;
        vec_push(&todo, at->in[i].node);
      }
    for (size_t i = 0; i < at->control.n; i++)
      if (!seen[at->control.at[i]->id]) {
        seen[at->control.at[i]->id] = true;
        vec_push(&todo, at->control.at[i]);
      }
  }
  vec_release(&todo);
  free(seen);
  return found;
}

/* The attributes that the fused op has too, and those that say what is fused. */
static struct named_attr *fused_attrs(const struct shoal_node *n, const struct op *fused, bool side, int *count) {
  struct named_attr *attrs = mem_zalloc((size_t)n->n_attrs + 2, sizeof *attrs);
  *count = 0;
  for (int i = 0; i < n->n_attrs; i++)
    if (op_attr_find(fused, n->attrs[i].name))
      attrs[(*count)++] = (struct named_attr){mem_strdup(n->attrs[i].name), attr_copy(&n->attrs[i].value)};
  if (op_attr_find(fused, "num_side_inputs"))
    attrs[(*count)++] = (struct named_attr){mem_strdup("num_side_inputs"), attr_int(side)};
  if (op_attr_find(fused, "activation_mode"))
    attrs[(*count)++] = (struct named_attr){mem_strdup("activation_mode"), attr_string("Relu", 4)};
  return attrs;
}

static struct shoal_node *add_fused(struct rewriting *r, const struct shoal_node *like, const char *op,
                                    const shoal_out *in, int n_in, bool side) {
  const struct op *fused = op_find(op);
  int n;
  if (!fused) return NULL;
  struct named_attr *attrs = fused_attrs(like, fused, side, &n);
  char *base = mem_printf("%s/fused", like->name);
  struct shoal_node *one = rewrite_add(r, like, base, op, in, n_in, attrs, n);
  free(base);
  return one;
}

static bool waits(const struct norm_chain *c) {
  for (int i = 0; i < c->n_parts; i++)
    if (c->parts[i]->control.n) return true;
  return false;
}

/* What stands for Relu: the fused node, or an Identity behind it that waits for all that its parts waited for. */
static struct shoal_node *add_end(struct rewriting *r, const struct norm_chain *c, struct shoal_node *one) {
  if (!waits(c)) return one;
  struct named_attr *type = mem_zalloc(1, sizeof *type);
  char *base = mem_printf("%s/waited", one->name);
  *type = (struct named_attr){mem_strdup("T"), attr_type(c->relu->out_types[0])};
  struct shoal_node *end = rewrite_add(r, c->relu, base, "Identity", &(shoal_out){one, 0}, 1, type, 1);
  free(base);
  for (int i = 0; end && i < c->n_parts; i++)
    for (size_t k = 0; k < c->parts[i]->control.n; k++) graph_add_control(end, c->parts[i]->control.at[k]);
  return end;
}

static void fuse_forward(struct rewriting *r, const struct norm_chain *c) {
  shoal_out in[NORM_INPUTS + 1];
  bool side = c->side.node != NULL;
  for (int i = 0; i < NORM_INPUTS; i++) in[i] = c->norm->in[i];
  if (side) in[SIDE] = c->side;
  struct shoal_node *one = add_fused(r, c->norm, "_FusedBatchNormEx", in, NORM_INPUTS + side, side);
  struct shoal_node *end = one ? add_end(r, c, one) : NULL;
  if (!end) {
    if (one) graph_remove(r->g, one);
    return;
  }
  rewrite_stands_for(one, c->norm);
  for (int i = 0; i < c->n_parts; i++) rewrite_stands_for(one, c->parts[i]);
  for (size_t k = 0; k < c->norm->control.n; k++) graph_add_control(one, c->norm->control.at[k]);
  for (int i = 1; i < NORM_OUTPUTS; i++) rewrite_redirect(r, (shoal_out){c->norm, i}, (shoal_out){one, i});
  rewrite_redirect_control(r, c->norm, one);
  rewrite_redirect(r, (shoal_out){c->relu, 0}, (shoal_out){end, 0});
  rewrite_redirect_control(r, c->relu, end);
}

/* ---- backward ---- */

/* The fused node whose result this is. */
static struct shoal_node *fused_behind(shoal_out y) {
  while (op_is(y.node->op, "Identity")) y = y.node->in[0];
  return op_is(y.node->op, "_FusedBatchNormEx") && y.index == 0 ? y.node : NULL;
}

static bool is_out(shoal_out a, const struct shoal_node *n, int i) { return a.node == n && a.index == i; }
static bool is_same(shoal_out a, shoal_out b) { return a.node == b.node && a.index == b.index; }

static bool same_attr(const struct shoal_node *a, const struct shoal_node *b, const char *name) {
  const struct attr *x = node_attr(a, name), *y = node_attr(b, name);
  return x && y && attr_equal(x, y);
}

static bool is_gradient_of(const struct shoal_node *back, const struct shoal_node *norm) {
  const struct attr *training = node_attr(back, "is_training");
  return training && training->b && same_attr(back, norm, "is_training") && same_attr(back, norm, "epsilon") &&
         same_attr(back, norm, "data_format") && is_same(back->in[1], norm->in[0]) &&
         is_same(back->in[2], norm->in[1]) && is_out(back->in[3], norm, 3) && is_out(back->in[4], norm, 4) &&
         is_out(back->in[5], norm, 5);
}

/* Without another addend nobody else may read what Relu lets through. With one, others may come before what the
 * gradient waits for: it waits for nothing. */
static bool may_fuse(const struct rewriting *r, const struct shoal_node *back, const struct shoal_node *gate,
                     bool side) {
  return side ? !back->control.n : rewrite_only_consumer(r, gate) == back;
}

/* A sum of two that is taken along. */
static bool takes_sum(const struct rewriting *r, const struct shoal_node *sum, const struct shoal_node *gate) {
  return op_is(sum->op, "AddN") && sum->n_in == 2 && together(sum, gate) && rewrite_only_consumer(r, sum) == gate &&
         same_shape(sum->in[0], sum->in[1]);
}

enum { BACK_INPUTS = 8 };
static struct shoal_node *add_backward(struct rewriting *r, const struct shoal_node *back,
                                       const struct shoal_node *gate, const struct shoal_node *norm, bool side) {
  shoal_out in[BACK_INPUTS + 1] = {gate->in[0], back->in[1], back->in[2], back->in[3],
                                   back->in[4], back->in[5], norm->in[2], gate->in[1]};
  struct shoal_node *sum = gate->in[0].node, *one = NULL;
  if (side && takes_sum(r, sum, gate)) {
    in[0] = sum->in[0];
    in[BACK_INPUTS] = sum->in[1];
    one = add_fused(r, back, "_BatchNormReluGradOfSum", in, BACK_INPUTS + 1, side);
    for (size_t k = 0; one && k < sum->control.n; k++) graph_add_control(one, sum->control.at[k]);
    if (one) rewrite_stands_for(one, sum);
    in[0] = gate->in[0];
  }
  return one ? one : add_fused(r, back, "_BatchNormReluGrad", in, BACK_INPUTS, side);
}

static void replace_backward(struct rewriting *r, struct shoal_node *back, struct shoal_node *gate,
                             struct shoal_node *one, bool side) {
  rewrite_stands_for(one, back);
  rewrite_stands_for(one, gate);
  for (size_t k = 0; k < back->control.n; k++) graph_add_control(one, back->control.at[k]);
  for (size_t k = 0; k < gate->control.n; k++) graph_add_control(one, gate->control.at[k]);
  if (side) rewrite_redirect(r, (shoal_out){gate, 0}, (shoal_out){one, BACK_OUTPUTS});
  for (int i = 0; i < BACK_OUTPUTS; i++) rewrite_redirect(r, (shoal_out){back, i}, (shoal_out){one, i});
  rewrite_redirect_control(r, back, one);
  if (side) rewrite_redirect_control(r, gate, one);
}

static void fuse_backward(struct rewriting *r, struct shoal_node *back) {
  struct shoal_node *gate = back->in[0].node;
  if (!op_is(gate->op, "ReluGrad") || !together(gate, back)) return;
  const struct shoal_node *norm = fused_behind(gate->in[1]);
  if (!norm || !together(norm, back) || !is_gradient_of(back, norm)) return;
  bool side = norm->n_in > SIDE;
  if (!may_fuse(r, back, gate, side)) return;
  struct shoal_node *one = add_backward(r, back, gate, norm, side);
  if (one) replace_backward(r, back, gate, one, side);
}

/* Of a sum of two normalisations the first takes the rest along. */
static void fuse_all_forward(struct rewriting *r, struct shoal_node *const *order, int n) {
  bool *taken = mem_zalloc(r->g->nodes.n, sizeof *taken); /* by id of Relu */
  for (int i = 0; i < n; i++) {
    struct norm_chain c;
    if (!op_is(order[i]->op, "FusedBatchNormV3") || !find_chain(r, order[i], &c)) continue;
    if (taken[c.relu->id] || side_comes_after(r, &c)) continue;
    fuse_forward(r, &c);
    taken[c.relu->id] = true;
  }
  free(taken);
}

/* In the order of the graph: what a node reads is rewritten before it. */
void rewrite_fuse_norm(struct rewriting *r) {
  struct shoal_graph *g = r->g;
  int n = g->n_nodes;
  struct shoal_node **order = mem_zalloc((size_t)n, sizeof *order);
  shoal_status s = graph_topological_order(g, order);
  if (!s) fuse_all_forward(r, order, n);
  for (int i = 0; !s && r->o->own_ops && i < n; i++)
    if (op_is(order[i]->op, "FusedBatchNormGradV3")) fuse_backward(r, order[i]);
  shoal_status_free(s);
  free(order);
}
