/* Constant folding: a pure node whose inputs are all constants is run now, and constants take its place. The shape of a
 * tensor is a constant too, where inference knows it, and so are as many ones or zeros: the gradient of a mean comes to
 * one number for each example that way.
 *
 * A folded constant keeps the control inputs of what it replaces (in a loop they tell it when to run). */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/frames.h"
#include "graph/rewrite.h"

enum { MAX_BYTES = 10 << 20 }; /* a larger result is not worth keeping */
enum { MAX_LIKE = 1 << 14 };   /* elements of ones and zeros: more are made as fast as they are read */

static const struct tensor *constant(shoal_out o) {
  if (!o.node || !op_is(o.node->op, "Const")) return NULL;
  const struct attr *v = node_attr(o.node, "value");
  return v && v->kind == ATTR_TENSOR ? v->tensor : NULL;
}

static bool small_outputs(const struct shoal_node *n) {
  for (int i = 0; i < n->n_out; i++) {
    int64_t elements;
    if (!dtype_plain(dtype_base(n->out_types[i])) && n->out_types[i] != SHOAL_STRING) return false;
    if (!n->out_shapes || !shape_known(&n->out_shapes[i])) continue;
    shoal_status s = shape_elements(&n->out_shapes[i], &elements);
    bool fits = !s && elements <= MAX_BYTES / 8;
    shoal_status_free(s);
    if (!fits) return false;
  }
  return n->n_out > 0;
}

/* Shape, Size and Rank of what is known without running. */
static shoal_status known_shape(const struct shoal_node *n, struct tensor *out) {
  bool shape = op_is(n->op, "Shape"), size = op_is(n->op, "Size"), rank = op_is(n->op, "Rank");
  if (!(shape || size || rank) || !n->in[0].node || !n->in[0].node->out_shapes) return NOT_FOUND("no shape");
  /* A reference must have a value to have a shape, and an assignment may change it. */
  if (dtype_is_ref(n->in[0].node->out_types[n->in[0].index])) return NOT_FOUND("a reference");
  const struct shape *s = &n->in[0].node->out_shapes[n->in[0].index];
  if (s->rank < 0 || (!rank && !shape_known(s))) return NOT_FOUND("unknown");
  int64_t values[SHOAL_MAX_RANK] = {s->rank};
  int count = 1;
  if (shape)
    for (count = 0; count < s->rank; count++) values[count] = s->dims[count];
  if (size) TRY(shape_elements(s, &values[0]));
  shoal_dtype type = dtype_base(n->out_types[0]);
  TRY(tensor_new_dims(out, type, shape ? 1 : 0, (int64_t[]){count}));
  for (int i = 0; i < count; i++) {
    if (type == SHOAL_INT32) T_DATA(out, int32_t)[i] = (int32_t)values[i];
    else T_DATA(out, int64_t)[i] = values[i];
  }
  return NULL;
}

/* OnesLike and ZerosLike of what has a known shape: made of zeros of that shape. */
static shoal_status known_like(struct rewriting *r, const struct shoal_node *n, struct tensor *out) {
  if (!(op_is(n->op, "OnesLike") || op_is(n->op, "ZerosLike")) || !r->o->evaluate) return NOT_FOUND("not like");
  const struct shoal_node *from = n->in[0].node;
  if (!from || !from->out_shapes || !shape_known(&from->out_shapes[n->in[0].index])) return NOT_FOUND("no shape");
  shoal_dtype type = (shoal_dtype)from->out_types[n->in[0].index];
  int64_t elements;
  TRY(shape_elements(&from->out_shapes[n->in[0].index], &elements));
  if (dtype_is_ref(type) || !dtype_plain(type) || elements > MAX_LIKE) return NOT_FOUND("too large");
  struct tensor zeros;
  TRY(tensor_new(&zeros, type, &from->out_shapes[n->in[0].index]));
  tensor_zero(&zeros);
  shoal_status s = r->o->evaluate(r->o->arg, n, (const struct tensor *[]){&zeros}, out);
  tensor_release(&zeros);
  return s;
}

/* A switch's outputs are alive or dead each by itself, which no control edge from it could tell: what is made of one
 * stays as it is. */
static bool is_of_switch(const struct shoal_node *n) {
  return n->n_in && n->in[0].node && node_is_switch(n->in[0].node);
}

static shoal_status compute(struct rewriting *r, const struct shoal_node *n, struct tensor *out) {
  if (is_of_switch(n)) return NOT_FOUND("alive or dead");
  shoal_status s = known_shape(n, &out[0]);
  if (!s) return NULL;
  shoal_status_free(s);
  s = known_like(r, n, &out[0]);
  if (!s) return NULL;
  shoal_status_free(s);
  if (!r->o->evaluate || n->n_in == 0 || n->n_in > 64) return NOT_FOUND("not constant");
  const struct tensor *in[64];
  size_t bytes = 0;
  for (int i = 0; i < n->n_in; i++) {
    in[i] = constant(n->in[i]);
    if (!in[i]) return NOT_FOUND("not constant");
    bytes += tensor_bytes(in[i]);
  }
  if (bytes > MAX_BYTES || !small_outputs(n)) return NOT_FOUND("too large");
  return r->o->evaluate(r->o->arg, n, in, out);
}

/* A read of a ref variable, which fails while the variable has no value. */
static bool is_read(const struct shoal_node *n) {
  return op_is(n->op, "Identity") && n->in[0].node && dtype_is_ref(n->in[0].node->out_types[n->in[0].index]);
}

static struct shoal_node *add_constant(struct rewriting *r, const struct shoal_node *n, int i,
                                       const struct tensor *value, bool control_flow) {
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("value"), attr_tensor(value)};
  attrs[1] = (struct named_attr){mem_strdup("dtype"), attr_type(value->dtype)};
  char *base = mem_printf("%s/folded_%d", n->name, i);
  struct shoal_node *c = rewrite_add(r, n, base, "Const", NULL, 0, attrs, 2);
  free(base);
  if (!c) return NULL;
  for (size_t k = 0; k < n->control.n; k++) graph_add_control(c, n->control.at[k]);
  for (int k = 0; k < n->n_in; k++) {
    struct shoal_node *from = n->in[k].node;
    for (size_t j = 0; constant(n->in[k]) && j < from->control.n; j++) graph_add_control(c, from->control.at[j]);
    /* Only its shape was looked at: it need not run, but in a loop or a branch it tells when this one does; and the
     * shape of a variable's value is asked for to learn whether it has one. */
    if (!constant(n->in[k]) && (control_flow || is_read(from))) graph_add_control(c, from);
  }
  return c;
}

void rewrite_fold(struct rewriting *r) {
  struct shoal_graph *g = r->g;
  struct shoal_node **order = mem_zalloc((size_t)g->n_nodes, sizeof *order);
  int n_order = g->n_nodes;
  shoal_status s = graph_topological_order(g, order);
  bool control_flow = false;
  for (int i = 0; !s && i < n_order; i++) control_flow |= node_is_switch(order[i]) || node_is_enter(order[i]);
  for (int i = 0; !s && i < n_order; i++) {
    struct shoal_node *n = order[i];
    if (!node_is_pure(n) || op_is(n->op, "Const") || n->n_out == 0) continue;
    struct tensor *out = mem_zalloc((size_t)n->n_out, sizeof *out);
    shoal_status not_now = compute(r, n, out);
    bool done = !not_now;
    shoal_status_free(not_now);
    size_t bytes = 0;
    for (int k = 0; done && k < n->n_out; k++) bytes += tensor_bytes(&out[k]);
    if (done && bytes <= MAX_BYTES) {
      struct shoal_node *last = NULL;
      for (int k = 0; k < n->n_out; k++) {
        struct shoal_node *c = add_constant(r, n, k, &out[k], control_flow);
        if (c) rewrite_redirect(r, (shoal_out){n, k}, (shoal_out){c, 0});
        if (c) last = c;
      }
      if (last) rewrite_redirect_control(r, n, last);
    }
    for (int k = 0; k < n->n_out; k++) tensor_release(&out[k]);
    free(out);
  }
  shoal_status_free(s);
  free(order);
}
