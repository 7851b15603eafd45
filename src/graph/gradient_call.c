/* Calls of functions that have a gradient of their own (GradientDef). They are not inlined when gradients are asked
 * for: the gradient of such a call is a call of the other function, with the inputs and the gradients of the outputs.
 */
#include "graph/function.h"
#include "graph/gradient_internal.h"

const char *call_own_gradient(const struct shoal_graph *g, const struct shoal_node *n) {
  if (!g->gradient_functions.n) return NULL;
  const char *name = n->op->name;
  if (op_is(n->op, "PartitionedCall") || op_is(n->op, "StatefulPartitionedCall")) {
    const struct attr *f = node_attr(n, "f");
    if (!f || f->kind != ATTR_FUNC || f->func->n_attrs) return NULL;
    name = f->func->name;
  } else if (!graph_function(g, name) || n->n_attrs) {
    return NULL;
  }
  const char *own = strmap_get(&g->gradient_functions, name);
  return own && graph_function(g, own) ? own : NULL;
}

shoal_status call_differentiate(struct grad_ctx *c, const char *own) {
  bool stateful = graph_function(c->g, own)->sig->flags & OP_STATEFUL;
  struct build b = build_begin(c->g, stateful ? "StatefulPartitionedCall" : "PartitionedCall", own);
  struct attr in = attr_list(ATTR_TYPE), out = attr_list(ATTR_TYPE);
  for (int i = 0; i < c->node->n_in; i++) {
    build_in(&b, gin(c, i));
    attr_list_add(&in, attr_type(out_type(gin(c, i))));
    attr_list_add(&out, attr_type(out_type(gin(c, i))));
  }
  for (int i = 0; i < c->node->n_out; i++) {
    build_in(&b, grad_dy(c, i));
    attr_list_add(&in, attr_type(out_type(gout(c, i))));
  }
  build_attr(&b, "Tin", in);
  build_attr(&b, "Tout", out);
  build_attr(&b, "f", attr_func(own));
  struct shoal_node *call = build_end(&b);
  for (int i = 0; call && i < c->node->n_in; i++) {
    shoal_dtype t = out_type(gin(c, i));
    if (dtype_floating(t) || dtype_complex(t)) grad_set(c, i, node_out(call, i));
  }
  return graph_error(c->g) ? status_copy(graph_error(c->g)) : NULL;
}
