/* Reads of many small variables become one node: _ReadVariablesOp, which finds them all at once and so waits for memory
 * once, not for each; and what goes is the cost of a node each.
 *
 * Those of a device that wait for nothing but their handles, which are there from the start: so a step could always
 * have begun with them, and the one node is in no circle. Large ones stay alone: where a read is a copy (variables with
 * sparse updates) all of them would be held at the same time. */
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

enum { SMALL = 1 << 14, FEWEST = 4 }; /* elements; reads that are worth a node for all */

static bool may_be_first(const struct shoal_node *n) {
  if (!op_is(n->op, "ReadVariableOp") || n->control.n || n->n_in != 1 || n->n_out != 1) return false;
  const struct shoal_node *handle = n->in[0].node;
  if (!handle || !op_is(handle->op, "VarHandleOp") || handle->control.n) return false;
  struct shape shape;
  int64_t elements = 0;
  shoal_status s = node_get_shape(handle, "shape", &shape);
  bool small = !s && shape_known(&shape);
  if (small) s = shape_elements(&shape, &elements);
  small = small && !s && elements <= SMALL;
  shoal_status_free(s);
  return small;
}

static bool on_one_device(const struct shoal_node *a, const struct shoal_node *b) {
  return str_equal(a->assigned, b->assigned) && !strcmp(a->device, b->device);
}

static void read_together(struct rewriting *r, const rewrite_nodes *reads) {
  const struct shoal_node *first = reads->at[0];
  VEC(shoal_out) handles = {0};
  struct attr types = attr_list(ATTR_TYPE);
  for (size_t i = 0; i < reads->n; i++) {
    vec_push(&handles, reads->at[i]->in[0]);
    attr_list_add(&types, attr_type(reads->at[i]->out_types[0]));
  }
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("N"), attr_int((int64_t)reads->n)};
  attrs[1] = (struct named_attr){mem_strdup("dtypes"), types};
  char *base = mem_printf("%s/together", first->name);
  struct shoal_node *one = rewrite_add(r, first, base, "_ReadVariablesOp", handles.at, (int)handles.n, attrs, 2);
  free(base);
  vec_release(&handles);
  for (size_t i = 0; one && i < reads->n; i++) {
    rewrite_redirect(r, (shoal_out){reads->at[i], 0}, (shoal_out){one, (int)i});
    rewrite_takes_over(r, one, reads->at[i]);
    graph_remove(r->g, reads->at[i]);
  }
}

void rewrite_read_together(struct rewriting *r) {
  if (!r->o->own_ops) return;
  size_t n_nodes = r->g->nodes.n;
  bool *seen = mem_zalloc(n_nodes, sizeof *seen);
  for (size_t i = 0; i < n_nodes; i++) {
    const struct shoal_node *first = r->g->nodes.at[i];
    if (!first || seen[i] || !may_be_first(first) || (r->o->of_host && !r->o->of_host(first))) continue;
    rewrite_nodes reads = {0};
    for (size_t k = i; k < n_nodes; k++) {
      struct shoal_node *n = r->g->nodes.at[k];
      if (!n || seen[k] || !may_be_first(n) || !on_one_device(first, n)) continue;
      seen[k] = true;
      vec_push(&reads, n);
    }
    if (reads.n >= FEWEST) read_together(r, &reads);
    vec_release(&reads);
  }
  free(seen);
}
