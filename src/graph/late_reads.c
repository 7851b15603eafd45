/* From each variable that is both read and updated: forward from the updates, marking what comes after; readers'
 * consumers among the marked take the variable itself. */
#include "graph/late_reads.h"

#include <stdlib.h>
#include <string.h>

static const char *place(const struct node *n) { return n->assigned ? n->assigned : n->device; }

static bool is_read(const struct consumer *c) {
  return c->input == 0 && op_is(c->node->op, "Identity") && !dtype_is_ref(c->node->in_types[0]);
}

/* Takes the variable by reference: may change it. */
static bool is_update(const struct consumer *c) { return c->input >= 0 && dtype_is_ref(c->node->in_types[c->input]); }

struct pass {
  struct graph *g;
  struct consumers users;
  int *mark; /* by node id: the number of the variable whose updates come before it */
  VEC(struct node *) todo;
};

static void mark_after(struct pass *p, const struct node *variable, int number) {
  FOR_CONSUMERS (c, &p->users, variable)
    if (is_update(c)) vec_push(&p->todo, c->node);
  while (p->todo.n) {
    struct node *n = vec_pop(&p->todo);
    FOR_CONSUMERS (c, &p->users, n) {
      if (p->mark[c->node->id] == number) continue;
      p->mark[c->node->id] = number;
      vec_push(&p->todo, c->node);
    }
  }
}

static void redirect(struct pass *p, struct node *variable, int number) {
  FOR_CONSUMERS (r, &p->users, variable) {
    if (!is_read(r)) continue;
    FOR_CONSUMERS (c, &p->users, r->node) {
      struct node *n = c->node;
      if (c->input < 0 || p->mark[n->id] != number || strcmp(place(n), place(variable))) continue;
      n->in[c->input] = (struct out){variable, r->index};
      graph_add_control(n, r->node);
    }
  }
}

void graph_late_reads(struct graph *g) {
  struct pass p = {.g = g};
  consumers_init(&p.users, g);
  p.mark = mem_zalloc(g->nodes.n, sizeof *p.mark);
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct node *v = g->nodes.at[i];
    if (!v || !v->n_out || !dtype_is_ref(v->out_types[0]) || v->n_in) continue;
    bool read = false, updated = false;
    FOR_CONSUMERS (c, &p.users, v) {
      read = read || is_read(c);
      updated = updated || is_update(c);
    }
    if (!read || !updated) continue;
    mark_after(&p, v, (int)i + 1);
    redirect(&p, v, (int)i + 1);
  }
  vec_release(&p.todo);
  free(p.mark);
  consumers_release(&p.users);
}
