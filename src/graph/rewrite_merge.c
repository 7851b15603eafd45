/* Common subexpressions: of pure nodes with the same op, attributes, inputs, control inputs and device, one stays. */
#include <stdlib.h>
#include <string.h>

#include "base/keyed_hash.h"
#include "base/mem.h"
#include "graph/rewrite.h"

enum { MANY_CONTROLS = 64 };

/* Of all that same() looks at, but for devices: what differs in nothing else is compared one by one. */
static uint64_t hash_node(const struct shoal_node *n) {
  uint64_t h = hash_keyed(&n->op, sizeof n->op, 0), controls = 0;
  for (int i = 0; i < n->n_in; i++) {
    int64_t in[2] = {n->in[i].node->id, n->in[i].index};
    h = hash_keyed(in, sizeof in, h);
  }
  for (size_t i = 0; i < n->control.n; i++) controls += hash_keyed(&n->control.at[i], sizeof n->control.at[i], 0);
  h ^= controls;
  for (int i = 0; i < n->n_attrs; i++)
    if (n->attrs[i].name[0] != '_') h = attr_hash(&n->attrs[i].value, h);
  return h;
}

static bool same_attrs(const struct shoal_node *a, const struct shoal_node *b) {
  for (int i = 0; i < a->op->n_attrs; i++)
    if (!attr_equal(&a->attrs[i].value, &b->attrs[i].value)) return false;
  return true;
}

/* In whatever order, if they are few; of many in another order nobody finds out. */
static bool same_controls(const struct shoal_node *a, const struct shoal_node *b) {
  size_t n = a->control.n;
  for (size_t i = 0; i < n; i++) {
    bool found = a->control.at[i] == b->control.at[i];
    for (size_t k = 0; k < n && n <= MANY_CONTROLS && !found; k++) found = a->control.at[i] == b->control.at[k];
    if (!found) return false;
  }
  return true;
}

static bool same(const struct shoal_node *a, const struct shoal_node *b) {
  if (a->op != b->op || a->n_in != b->n_in || a->control.n != b->control.n) return false;
  if (!str_equal(a->assigned, b->assigned) || (!a->assigned && strcmp(a->device, b->device))) return false;
  for (int i = 0; i < a->n_in; i++)
    if (a->in[i].node != b->in[i].node || a->in[i].index != b->in[i].index) return false;
  return same_controls(a, b) && same_attrs(a, b);
}

void rewrite_merge(struct rewriting *r) {
  struct shoal_graph *g = r->g;
  struct shoal_node **order = mem_zalloc((size_t)g->n_nodes, sizeof *order);
  shoal_status s = graph_topological_order(g, order);
  size_t cap = 16;
  while (cap < (size_t)g->n_nodes * 2) cap *= 2;
  struct shoal_node **table = mem_zalloc(cap, sizeof *table);
  for (int i = 0; !s && i < g->n_nodes; i++) {
    struct shoal_node *n = order[i];
    if (!node_is_pure(n) || n->n_out == 0) continue;
    size_t at = hash_node(n) & (cap - 1);
    while (table[at] && !same(table[at], n)) at = (at + 1) & (cap - 1);
    if (!table[at]) {
      table[at] = n;
      continue;
    }
    for (int k = 0; k < n->n_out; k++) rewrite_redirect(r, (shoal_out){n, k}, (shoal_out){table[at], k});
    rewrite_redirect_control(r, n, table[at]);
  }
  shoal_status_free(s);
  free(table);
  free(order);
}
