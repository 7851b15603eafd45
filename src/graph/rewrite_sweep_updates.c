/* Updates of many small variables become one node: optimizer updates (ResourceApplyAdam and its like) of one kind on
 * one device, with the same scalars, each of a variable too small to be worth a thread. _SweepUpdates runs them as they
 * were, one after another or shared out to threads, so the bits stay the same; what goes is the cost of a node each.
 *
 * The one node waits for all that the many waited for. Where one of them comes after another that would be a circle,
 * and they stay as they are. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/rewrite.h"

enum { SMALL = 1 << 14, MAX_INPUTS = 32 }; /* elements; inputs of an update */

static bool is_small_update(const struct shoal_node *n) {
  if (strncmp(n->op->name, "ResourceApply", 13) || n->n_out || n->n_in != n->op->n_in || n->n_in > MAX_INPUTS)
    return false;
  if (n->n_in < 1 || !n->in[0].node || !op_is(n->in[0].node->op, "VarHandleOp")) return false;
  struct shape shape;
  int64_t elements = 0;
  shoal_status s = node_get_shape(n->in[0].node, "shape", &shape);
  bool known = !s && shape_known(&shape);
  if (known) s = shape_elements(&shape, &elements);
  bool small = known && !s && elements <= SMALL;
  shoal_status_free(s);
  return small;
}

bool rewrite_alike(const struct shoal_node *a, const struct shoal_node *b) {
  if (a->op != b->op || !str_equal(a->assigned, b->assigned) || strcmp(a->device, b->device)) return false;
  for (int i = 0; i < a->op->n_attrs; i++)
    if (!attr_equal(&a->attrs[i].value, &b->attrs[i].value)) return false;
  return true;
}

/* Does each of the members have this input for itself? The others are scalars that all share. */
static bool is_own(const rewrite_nodes *members, int input) {
  shoal_out first = members->at[0]->in[input];
  for (size_t m = 1; m < members->n; m++)
    if (members->at[m]->in[input].node != first.node || members->at[m]->in[input].index != first.index) return true;
  return false;
}

bool rewrite_chained(struct rewriting *r, const rewrite_nodes *members, const rewrite_nodes *gone) {
  char *state = mem_zalloc(r->g->nodes.n, 1); /* 1: member or gone, 2: seen */
  rewrite_nodes todo = {0};
  bool found = false;
  for (size_t i = 0; i < gone->n; i++) state[gone->at[i]->id] = 1;
  for (size_t i = 0; i < members->n; i++) {
    state[members->at[i]->id] = 1;
    vec_push(&todo, members->at[i]);
  }
  while (todo.n && !found) {
    struct shoal_node *n = vec_pop(&todo);
    FOR_CONSUMERS (c, &r->users, n) {
      found |= state[c->node->id] == 1;
      if (state[c->node->id]) continue;
      state[c->node->id] = 2;
      vec_push(&todo, c->node);
    }
  }
  vec_release(&todo);
  free(state);
  return found;
}

void rewrite_takes_over(struct rewriting *r, struct shoal_node *one, struct shoal_node *member) {
  rewrite_stands_for(one, member);
  for (size_t k = 0; k < member->control.n; k++) graph_add_control(one, member->control.at[k]);
  rewrite_redirect_control(r, member, one);
}

static void sweep(struct rewriting *r, const rewrite_nodes *members, rewrite_nodes *swept) {
  const struct shoal_node *first = members->at[0];
  VEC(shoal_out) in = {0};
  struct attr own = attr_list(ATTR_INT), types = attr_list(ATTR_TYPE);
  for (size_t m = 0; m <= members->n; m++) { /* what each has for itself, then what they share */
    const struct shoal_node *n = m < members->n ? members->at[m] : first;
    for (int i = 0; i < n->n_in; i++) {
      if (is_own(members, i) != (m < members->n)) continue;
      vec_push(&in, n->in[i]);
      attr_list_add(&types, attr_type(n->in_types[i]));
    }
  }
  for (int i = 0; i < first->n_in; i++) attr_list_add(&own, attr_int(is_own(members, i)));
  struct named_attr *attrs = mem_zalloc((size_t)first->n_attrs + 4, sizeof *attrs);
  int n = 0;
  attrs[n++] = (struct named_attr){mem_strdup("op"), attr_string(first->op->name, strlen(first->op->name))};
  attrs[n++] = (struct named_attr){mem_strdup("count"), attr_int((int64_t)members->n)};
  attrs[n++] = (struct named_attr){mem_strdup("own"), own};
  attrs[n++] = (struct named_attr){mem_strdup("Tin"), types};
  for (int i = 0; i < first->n_attrs; i++)
    attrs[n++] = (struct named_attr){mem_strdup(first->attrs[i].name), attr_copy(&first->attrs[i].value)};
  char *base = mem_printf("%s/sweep", first->name);
  struct shoal_node *one = rewrite_add(r, first, base, "_SweepUpdates", in.at, (int)in.n, attrs, n);
  free(base);
  vec_release(&in);
  if (!one) return;
  for (size_t m = 0; m < members->n; m++) {
    rewrite_takes_over(r, one, members->at[m]);
    vec_push(swept, members->at[m]);
  }
}

void rewrite_sweep_updates(struct rewriting *r) {
  if (!r->o->own_ops) return;
  size_t n_nodes = r->g->nodes.n;
  bool *seen = mem_zalloc(n_nodes, sizeof *seen);
  rewrite_nodes swept = {0}; /* removed at the end: until then r->users speaks of them */
  for (size_t i = 0; i < n_nodes; i++) {
    const struct shoal_node *first = r->g->nodes.at[i];
    if (!first || seen[i] || !is_small_update(first)) continue;
    rewrite_nodes members = {0};
    for (size_t k = i; k < n_nodes; k++) {
      struct shoal_node *n = r->g->nodes.at[k];
      if (!n || seen[k] || !is_small_update(n) || !rewrite_alike(first, n)) continue;
      seen[k] = true;
      vec_push(&members, n);
    }
    if (members.n > 1 && !rewrite_chained(r, &members, &swept)) sweep(r, &members, &swept);
    vec_release(&members);
  }
  for (size_t i = 0; i < swept.n; i++) graph_remove(r->g, swept.at[i]);
  vec_release(&swept);
  free(seen);
}
