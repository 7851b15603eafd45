/* How large a graph becomes by lowering, as far as its library tells: sixteen functions of which each calls the next
 * one twice are a few hundred bytes, and 65,536 bodies. Each function's size is found out once, from its own nodes and
 * the sizes of those it calls, so the answer takes as long as reading the library.
 *
 * It is not the last word. Functions named by attributes of the call, and those that call themselves (which is another
 * error), count for nothing here; what they make is met by the graph's effort. */
#include <stdlib.h>
#include <string.h>

#include "graph/lower_internal.h"

enum { MAX_DEPTH = 100 }; /* of calls in calls: beyond, inlining fails for another reason */

struct sizing {
  const struct shoal_graph *g;
  struct strmap sizes; /* function -> its size + 1, once it is known or being found out */
};

static int64_t size_of(struct sizing *z, const char *function, int depth);

static int64_t capped(int64_t n) { return MIN(n, LOWER_MAX_NODES + 1); }

static int64_t attr_size(struct sizing *z, const struct attr *a, int depth) {
  int64_t n = 0;
  if (a->kind == ATTR_FUNC) n = size_of(z, a->func->name, depth);
  for (size_t i = 0; a->kind == ATTR_LIST && a->of == ATTR_FUNC && i < a->list.n; i++)
    n = capped(n + size_of(z, a->list.at[i].func->name, depth));
  return n;
}

/* What a node with this op and these attributes turns into. */
static int64_t node_size(struct sizing *z, const char *op, const struct named_attr *attrs, size_t n_attrs, int depth) {
  if (graph_function(z->g, op)) return size_of(z, op, depth);
  if (!lower_is_call_op(op) && !lower_is_control(op)) return 0;
  int64_t n = 0;
  for (size_t i = 0; i < n_attrs; i++) n = capped(n + attr_size(z, &attrs[i].value, depth));
  return n;
}

static int64_t size_of(struct sizing *z, const char *function, int depth) {
  const struct function_def *f = graph_function(z->g, function);
  intptr_t known = (intptr_t)strmap_get(&z->sizes, function);
  if (!f || depth > MAX_DEPTH) return 0;
  if (known) return known - 1;
  strmap_put(&z->sizes, function, (void *)1); /* whoever meets it again inside has a function that calls itself */
  int64_t n = f->n_nodes;
  for (int i = 0; i < f->n_nodes && n <= LOWER_MAX_NODES; i++) {
    const struct node_def *d = &f->nodes[i];
    char *op = mem_strndup(d->op.at, d->op.n);
    n = capped(n + node_size(z, op, d->attrs.at, d->attrs.n, depth + 1));
    free(op);
  }
  strmap_put(&z->sizes, function, (void *)(intptr_t)(n + 1));
  return n;
}

shoal_status lower_check_size(const struct shoal_graph *g) {
  struct sizing z = {.g = g};
  shoal_status s = NULL;
  int64_t total = 0;
  for (size_t i = 0; i < g->nodes.n && !s; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    int64_t more = node_size(&z, n->op->name, n->attrs, (size_t)n->n_attrs, 0);
    total = capped(total + more);
    if (total > LOWER_MAX_NODES)
      s = STATUS(SHOAL_RESOURCE_EXHAUSTED,
                 "Inlining functions makes more than %d nodes; {{node %s}} (op %s) makes %s%d", LOWER_MAX_NODES,
                 n->name, n->op->name, more > LOWER_MAX_NODES ? "more than " : "", (int)MIN(more, LOWER_MAX_NODES));
  }
  strmap_release(&z.sizes);
  return s;
}
