/* Updates of all variables of a device become one pass over them: on a card, which takes longer to begin a kernel than
 * a small variable takes, and on the host where gradients are scaled by a number that all of them share.
 *
 *   ResourceApplyAdam(var, m, v, ..., Mul(Cast(g), scale)) of each, perhaps after
 *   AssignSub(var, Mul(read(var), shrink)), becomes _JoinedUpdates(var, m, v, g of each; the scalars, scale, shrink)
 *   AddN(L2Loss(Cast(g)) of each) becomes _L2Losses(g of each)
 *
 * So the gradients, in half precision perhaps, are read where they are: once for their common norm, once to be scaled
 * and applied, and nothing of them is stored in between. What joins must have the same scalars; the decay of weights
 * (shrink) may be of some alone. A decay is taken along when nothing else changes the variable, so that what is read
 * in the update is what would have been read before.
 *
 * The one node waits for all that the many waited for; see rewrite_sweep_updates.c. On the host that is a reason to
 * leave updates alone that nothing scales: each may begin, and let its gradient go, while others are still computed
 * (the small ones have sweep_updates). Where all are clipped by their norm they wait for each other anyway. For the
 * same reason each L2Loss stays by itself there, and reads its gradient while it is in the cache, but as it is. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

enum { MAX_INPUTS = 16 }; /* of an update */

static bool same_out(shoal_out a, shoal_out b) { return a.node == b.node && a.index == b.index; }

static struct shape known(shoal_out o) { return o.node->out_shapes ? o.node->out_shapes[o.index] : shape_unknown(); }

static bool is_scalar(shoal_out o) { return known(o).rank == 0; }

static bool is_half(uint8_t type) { return type == SHOAL_BFLOAT16 || type == SHOAL_FLOAT16; }

/* ---- gradients ---- */

static bool keeps_elements(const struct shoal_node *n) {
  if (n->control.n) return false;
  if (op_is(n->op, "Cast")) return n->out_types[0] == SHOAL_FLOAT32 && is_half(n->in_types[0]);
  return op_is(n->op, "Reshape") || op_is(n->op, "ExpandDims");
}

/* Where the same numbers are, in fewer bits or, if that may be, under another shape. */
static shoal_out source_of(shoal_out o, bool any_shape) {
  const char *where = o.node->assigned;
  while (o.index == 0 && keeps_elements(o.node) && (any_shape || op_is(o.node->op, "Cast")) &&
         str_equal(o.node->in[0].node->assigned, where))
    o = o.node->in[0];
  return o;
}

/* ---- what is joined ---- */

struct update {
  struct shoal_node *node, *decay; /* decay NULL: none */
  shoal_out grad, scale, shrink;   /* node NULL: none */
  bool fits, taken;                /* fits: the gradient is known to be of the variable's shape, whatever grad's is */
};
typedef VEC(struct update) update_list;

static int grad_input(const struct op *op) {
  for (int i = 0; i < op->n_in; i++)
    if (!strcmp(op->in[i].name, "grad") || !strcmp(op->in[i].name, "delta")) return i;
  return -1;
}

static bool fits(const struct shoal_node *n, shoal_out grad) {
  struct shape shape, own = known(grad);
  shoal_status s = node_get_shape(n->in[0].node, "shape", &shape);
  bool equal = !s && shape_known(&shape) && shape_known(&own) && shape_equal(&shape, &own);
  shoal_status_free(s);
  return equal;
}

static bool is_dense_update(const struct shoal_node *n) {
  if (strncmp(n->op->name, "ResourceApply", 13) || n->n_out || n->n_in != n->op->n_in || n->n_in > MAX_INPUTS)
    return false;
  int grad = grad_input(n->op);
  return grad >= 0 && n->in[0].node && op_is(n->in[0].node->op, "VarHandleOp") && n->in_types[grad] == SHOAL_FLOAT32;
}

/* Is it read by n alone, and waited for by nobody but `also` (or NULL)? */
static bool leads_to(const struct rewriting *r, const struct shoal_node *from, const struct shoal_node *n,
                     const struct shoal_node *also) {
  int read = 0;
  FOR_CONSUMERS (c, &r->users, from) {
    if (c->input < 0 ? c->node != also : c->node != n) return false;
    read += c->input >= 0;
  }
  return read == 1;
}

/* Mul(x, scalar), for n alone. */
static bool is_scaled(const struct rewriting *r, shoal_out o, const struct shoal_node *n,
                      const struct shoal_node *also) {
  const struct shoal_node *mul = o.node;
  return op_is(mul->op, "Mul") && !mul->control.n && leads_to(r, mul, n, also) && is_scalar(mul->in[1]) &&
         str_equal(mul->assigned, n->assigned);
}

static bool only_reads(const struct shoal_node *n) {
  return op_is(n->op, "ReadVariableOp") || op_is(n->op, "ResourceGather") || op_is(n->op, "VariableShape");
}

/* AssignSub(var, Mul(read(var), shrink)), which n alone waits for, of a variable that nothing else changes? */
static bool is_decay(const struct rewriting *r, struct shoal_node *d, const struct shoal_node *n) {
  if (!op_is(d->op, "AssignSubVariableOp") || !same_out(d->in[0], n->in[0]) || !is_scaled(r, d->in[1], d, NULL))
    return false;
  const struct shoal_node *read = d->in[1].node->in[0].node;
  if (!op_is(read->op, "ReadVariableOp") || !same_out(read->in[0], n->in[0])) return false;
  FOR_CONSUMERS (c, &r->users, d)
    if (c->node != n) return false;
  FOR_CONSUMERS (c, &r->users, n->in[0].node)
    if (c->node != n && c->node != d && !only_reads(c->node)) return false;
  return true;
}

static bool see_update(const struct rewriting *r, struct shoal_node *n, struct update *u) {
  if (!is_dense_update(n)) return false;
  shoal_out grad = n->in[grad_input(n->op)];
  *u = (struct update){.node = n, .grad = grad, .fits = fits(n, grad)};
  for (size_t i = 0; i < n->control.n && !u->decay; i++)
    if (is_decay(r, n->control.at[i], n)) u->decay = n->control.at[i];
  if (is_scaled(r, grad, n, u->decay)) {
    u->scale = grad.node->in[1];
    u->grad = grad.node->in[0];
  }
  u->grad = source_of(u->grad, u->fits);
  if (u->decay) u->shrink = u->decay->in[1].node->in[1];
  return u->scale.node || !r->o->of_host(n);
}

/* Inputs that each update has for itself: the variable, its slots, the gradient. */
static bool is_own(const struct op *op, int i) { return op->in[i].type == SHOAL_RESOURCE || i == grad_input(op); }

static bool joins(const struct update *a, const struct update *b) {
  if (!rewrite_alike(a->node, b->node) || !same_out(a->scale, b->scale)) return false;
  for (int i = 0; i < a->node->n_in; i++)
    if (!is_own(a->node->op, i) && !same_out(a->node->in[i], b->node->in[i])) return false;
  return true;
}

/* ---- joining ---- */

struct inputs {
  VEC(shoal_out) in;
  struct attr types;
};

static void add(struct inputs *x, shoal_out o) {
  vec_push(&x->in, o);
  attr_list_add(&x->types, attr_type(o.node->out_types[o.index]));
}

/* Those of each in turn, then what they share. */
static void gather(struct inputs *x, const update_list *all, shoal_out shrink) {
  const struct shoal_node *first = all->at[0].node;
  for (size_t m = 0; m < all->n; m++) {
    const struct update *u = &all->at[m];
    for (int i = 0; i < u->node->n_in; i++)
      if (u->node->op->in[i].type == SHOAL_RESOURCE) add(x, u->node->in[i]);
    add(x, u->grad);
  }
  for (int i = 0; i < first->n_in; i++)
    if (!is_own(first->op, i)) add(x, first->in[i]);
  if (all->at[0].scale.node) add(x, all->at[0].scale);
  if (shrink.node) add(x, shrink);
}

static struct shoal_node *joined(struct rewriting *r, const update_list *all, shoal_out shrink) {
  const struct shoal_node *first = all->at[0].node;
  struct inputs x = {.types = attr_list(ATTR_TYPE)};
  struct attr how = attr_list(ATTR_INT); /* as ops/state/joined.h has it */
  gather(&x, all, shrink);
  for (size_t m = 0; m < all->n; m++)
    attr_list_add(&how, attr_int((all->at[m].decay ? 1 : 0) + (all->at[m].fits ? 2 : 0)));
  struct named_attr *attrs = mem_zalloc((size_t)first->n_attrs + 6, sizeof *attrs);
  int n = 0;
  attrs[n++] = (struct named_attr){mem_strdup("op"), attr_string(first->op->name, strlen(first->op->name))};
  attrs[n++] = (struct named_attr){mem_strdup("count"), attr_int((int64_t)all->n)};
  attrs[n++] = (struct named_attr){mem_strdup("scaled"), attr_bool(all->at[0].scale.node != NULL)};
  attrs[n++] = (struct named_attr){mem_strdup("shrunk"), attr_bool(shrink.node != NULL)};
  attrs[n++] = (struct named_attr){mem_strdup("how"), how};
  attrs[n++] = (struct named_attr){mem_strdup("Tin"), x.types};
  for (int i = 0; i < first->n_attrs; i++)
    attrs[n++] = (struct named_attr){mem_strdup(first->attrs[i].name), attr_copy(&first->attrs[i].value)};
  char *base = mem_printf("%s/joined", first->name);
  struct shoal_node *one = rewrite_add(r, first, base, "_JoinedUpdates", x.in.at, (int)x.in.n, attrs, n);
  free(base);
  vec_release(&x.in);
  return one;
}

/* `one` waits for what a member did, but for its decay, and for its gradient, which it reads. */
static void wait_for(struct shoal_node *one, const struct update *u, const struct shoal_node *member) {
  const struct shoal_node *grad = u->node->in[grad_input(u->node->op)].node;
  for (size_t k = 0; k < member->control.n; k++)
    if (member->control.at[k] != u->decay && member->control.at[k] != grad)
      graph_add_control(one, member->control.at[k]);
}

static void replace(struct rewriting *r, const update_list *all, shoal_out shrink, rewrite_nodes *gone) {
  struct shoal_node *one = joined(r, all, shrink);
  for (size_t m = 0; one && m < all->n; m++) {
    const struct update *u = &all->at[m];
    if (u->decay) wait_for(one, u, u->decay);
    wait_for(one, u, u->node);
    if (u->decay) rewrite_stands_for(one, u->decay);
    rewrite_stands_for(one, u->node);
    rewrite_redirect_control(r, u->node, one);
    vec_push(gone, u->node);
    if (u->decay) vec_push(gone, u->decay);
  }
}

static void join_from(struct rewriting *r, update_list *all, size_t first, rewrite_nodes *gone) {
  update_list members = {0};
  rewrite_nodes nodes = {0};
  shoal_out shrink = {0};
  for (size_t i = first; i < all->n; i++) {
    struct update *u = &all->at[i];
    bool other = shrink.node && u->shrink.node && !same_out(shrink, u->shrink);
    if (u->taken || other || !joins(&all->at[first], u)) continue;
    u->taken = true;
    if (u->shrink.node) shrink = u->shrink;
    vec_push(&members, *u);
    vec_push(&nodes, u->node);
  }
  if (members.n > 1 && !rewrite_chained(r, &nodes, gone)) replace(r, &members, shrink, gone);
  vec_release(&members);
  vec_release(&nodes);
}

/* ---- norms ---- */

static bool is_half_square(const struct rewriting *r, const struct shoal_node *n, const struct shoal_node *sum) {
  return op_is(n->op, "L2Loss") && !n->control.n && n->out_types[0] == SHOAL_FLOAT32 &&
         rewrite_only_consumer(r, n) == sum && str_equal(n->assigned, sum->assigned);
}

static bool is_sum_of_squares(const struct rewriting *r, const struct shoal_node *n) {
  if (!op_is(n->op, "AddN") || n->n_in < 2 || r->o->of_host(n)) return false;
  for (int i = 0; i < n->n_in; i++)
    if (!is_half_square(r, n->in[i].node, n)) return false;
  return true;
}

/* L2Loss of numbers that lie in half precision, on the host. */
static bool is_square_of_half(const struct rewriting *r, const struct shoal_node *n) {
  if (!op_is(n->op, "L2Loss") || n->out_types[0] != SHOAL_FLOAT32 || !r->o->of_host(n)) return false;
  shoal_out from = source_of(n->in[0], true);
  return is_half(from.node->out_types[from.index]) && str_equal(from.node->assigned, n->assigned);
}

/* n, a sum of L2Losses or one of them, becomes _L2Losses. */
static void join_norm(struct rewriting *r, struct shoal_node *n) {
  struct inputs x = {.types = attr_list(ATTR_TYPE)};
  if (op_is(n->op, "L2Loss")) add(&x, source_of(n->in[0], true));
  else
    for (int i = 0; i < n->n_in; i++) add(&x, source_of(n->in[i].node->in[0], true));
  struct named_attr *attrs = mem_zalloc(1, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("Tin"), x.types};
  char *base = mem_printf("%s/joined", n->name);
  struct shoal_node *one = rewrite_add(r, n, base, "_L2Losses", x.in.at, (int)x.in.n, attrs, 1);
  free(base);
  vec_release(&x.in);
  if (!one) return;
  for (size_t k = 0; k < n->control.n; k++) graph_add_control(one, n->control.at[k]);
  rewrite_stands_for(one, n);
  rewrite_redirect(r, (shoal_out){n, 0}, (shoal_out){one, 0});
  rewrite_redirect_control(r, n, one);
}

void rewrite_join_updates(struct rewriting *r) {
  if (!r->o->own_ops || !r->o->of_host) return;
  size_t n_nodes = r->g->nodes.n;
  update_list all = {0};
  rewrite_nodes gone = {0}; /* removed at the end: until then r->users speaks of them */
  struct update u;
  for (size_t i = 0; i < n_nodes; i++) {
    struct shoal_node *n = r->g->nodes.at[i];
    if (n && see_update(r, n, &u)) vec_push(&all, u);
    else if (n && (is_sum_of_squares(r, n) || is_square_of_half(r, n))) join_norm(r, n);
  }
  for (size_t i = 0; i < all.n; i++)
    if (!all.at[i].taken) join_from(r, &all, i, &gone);
  for (size_t i = 0; i < gone.n; i++) graph_remove(r->g, gone.at[i]);
  vec_release(&gone);
  vec_release(&all);
}
