/* From each variable that is both read and updated: forward from the updates, marking what comes after; readers'
 * consumers among the marked take the variable itself. A read may go through a Switch or into a loop as its constant
 * before it is used; then a second chain of the same nodes carries the variable beside it. */
#include "graph/late_reads.h"

#include <stdlib.h>
#include <string.h>

static const char *place(const struct shoal_node *n) { return n->assigned ? n->assigned : n->device; }

static bool is_read(const struct consumer *c) {
  return c->input == 0 && op_is(c->node->op, "Identity") && !dtype_is_ref(c->node->in_types[0]);
}

/* Takes the variable by reference: may change it. */
static bool is_update(const struct consumer *c) { return c->input >= 0 && dtype_is_ref(c->node->in_types[c->input]); }

struct pass {
  struct shoal_graph *g;
  struct consumers users;
  int *mark; /* by node id: the number of the variable whose updates come before it */
  VEC(struct shoal_node *) todo;
};

static void mark_after(struct pass *p, const struct shoal_node *variable, int number) {
  FOR_CONSUMERS (c, &p->users, variable)
    if (is_update(c)) vec_push(&p->todo, c->node);
  while (p->todo.n) {
    struct shoal_node *n = vec_pop(&p->todo);
    FOR_CONSUMERS (c, &p->users, n) {
      if (p->mark[c->node->id] == number) continue;
      p->mark[c->node->id] = number;
      vec_push(&p->todo, c->node);
    }
  }
}

/* Hands its first input on as it is; gives the op that does so with a reference. */
static const char *reference_op(const struct consumer *c) {
  bool constant;
  if (c->input != 0) return NULL;
  if (op_is(c->node->op, "Identity")) return "RefIdentity";
  if (op_is(c->node->op, "Switch")) return "RefSwitch";
  if (!op_is(c->node->op, "Enter")) return NULL;
  shoal_status s = node_get_bool(c->node, "is_constant", &constant);
  shoal_status_free(s);
  return !s && constant ? "RefEnter" : NULL;
}

/* What `n` does with a value, done with the reference `from`. */
static struct shoal_node *twin_of(struct pass *p, const struct shoal_node *n, const char *op, shoal_out from) {
  struct named_attr *attrs = mem_zalloc((size_t)n->n_attrs, sizeof *attrs);
  for (int i = 0; i < n->n_attrs; i++)
    attrs[i] = (struct named_attr){.name = mem_strdup(n->attrs[i].name), .value = attr_copy(&n->attrs[i].value)};
  shoal_out in[2] = {from, n->n_in > 1 ? n->in[1] : (shoal_out){0}};
  char *name = graph_unique_name(p->g, n->name);
  struct shoal_node *twin = NULL;
  shoal_status s = graph_add(p->g, name, op_find(op), in, n->n_in, attrs, n->n_attrs, &twin);
  free(name);
  shoal_status_free(s); /* without a twin the read stays a snapshot */
  if (s) return NULL;
  graph_set_device(twin, n->device);
  if (n->assigned) twin->assigned = mem_strdup(n->assigned);
  for (size_t i = 0; i < n->control.n; i++) graph_add_control(twin, n->control.at[i]);
  return twin;
}

enum { MAX_CHAIN = 32 };

/* Does anything after an update use this value, be it through others that only hand it on? */
static bool is_used_late(struct pass *p, const struct shoal_node *value, int number, int depth) {
  FOR_CONSUMERS (c, &p->users, value) {
    if (c->input < 0) continue;
    if (!reference_op(c)) {
      if (p->mark[c->node->id] == number) return true;
    } else if (depth < MAX_CHAIN && is_used_late(p, c->node, number, depth + 1)) {
      return true;
    }
  }
  return false;
}

/* Consumers of `value` after an update take the same output of `twin` (the variable, at the beginning). */
static void redirect(struct pass *p, struct shoal_node *value, struct shoal_node *twin, int number, int depth) {
  FOR_CONSUMERS (c, &p->users, value) {
    struct shoal_node *n = c->node;
    if (c->input < 0) continue;
    bool together = !strcmp(place(n), place(value)); /* elsewhere it can have a value only, which is read late */
    shoal_out from = {twin, c->index};
    const char *op = together && depth < MAX_CHAIN && is_used_late(p, n, number, depth) ? reference_op(c) : NULL;
    struct shoal_node *next = op ? twin_of(p, n, op, from) : NULL;
    if (next) redirect(p, n, next, number, depth + 1);
    /* Which input a Merge takes is said by which is alive; a variable always is. */
    if (p->mark[n->id] != number || op_is(n->op, "Merge")) continue;
    n->in[c->input] = from;
    graph_add_control(n, value);
  }
}

void graph_late_reads(struct shoal_graph *g) {
  struct pass p = {.g = g};
  consumers_init(&p.users, g);
  p.mark = mem_zalloc(g->nodes.n, sizeof *p.mark);
  size_t n = g->nodes.n; /* those of now */
  for (size_t i = 0; i < n; i++) {
    struct shoal_node *v = g->nodes.at[i];
    if (!v || !v->n_out || !dtype_is_ref(v->out_types[0]) || v->n_in) continue;
    bool read = false, updated = false;
    FOR_CONSUMERS (c, &p.users, v) {
      read = read || is_read(c);
      updated = updated || is_update(c);
    }
    if (!read || !updated) continue;
    mark_after(&p, v, (int)i + 1);
    FOR_CONSUMERS (r, &p.users, v)
      if (is_read(r) && !strcmp(place(r->node), place(v))) redirect(&p, r->node, v, (int)i + 1, 0);
  }
  vec_release(&p.todo);
  free(p.mark);
  consumers_release(&p.users);
}
