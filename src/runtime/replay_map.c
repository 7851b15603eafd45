/* Which plans can be captured, and where their ends are; see replay.h.
 *
 * Values are followed from slot to slot. In host memory they are the same in every step (constants, and what is made of
 * them and of shapes), or they are arguments, or fetched at the end; all else is the device's. A kernel that reads an
 * argument in host memory would do something else in the next step: such plans are left alone. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/plan_internal.h"
#include "runtime/replay.h"

enum slot_kind { SLOT_SAME, SLOT_ARG, SLOT_FETCHED, SLOT_DEVICE };
struct slot {
  enum slot_kind kind;
  int i; /* the argument, or the fetch */
};

struct mapping {
  const struct plan *p;
  struct replay_map *m;
  struct slot *slots;
  char *why;
};

static void refuse(struct mapping *x, const struct shoal_node *n, const char *why) {
  if (!x->why) x->why = mem_printf("%s (%s) %s", n->name, n->op->name, why);
}

static int index_of(const struct shoal_node *n) {
  const struct attr *a = node_attr(n, "index");
  return a && a->kind == ATTR_INT && a->i >= 0 && a->i < 1 << 20 ? (int)a->i : -1;
}

static struct slot *slot_in(struct mapping *x, const struct plan_node *pn, int k) {
  return &x->slots[x->p->in_slots[pn->first_in + k]];
}

static void see_copy_in(struct mapping *x, const struct shoal_node *n, const struct plan_node *pn) {
  const struct attr *constant = node_attr(n, "constant");
  const struct slot *from = slot_in(x, pn, 0);
  x->slots[pn->out_slot].kind = SLOT_DEVICE;
  if (constant && constant->kind == ATTR_BOOL && constant->b) return; /* copied once, and kept */
  if (from->kind != SLOT_ARG && from->kind != SLOT_SAME) refuse(x, n, "copies what was computed");
  struct replay_map *m = x->m;
  m->feed_args = mem_realloc(m->feed_args, (size_t)m->n_feeds + 1, sizeof *m->feed_args);
  m->feed_args[m->n_feeds++] = from->kind == SLOT_ARG ? from->i : -1;
}

static void see_ret(struct mapping *x, const struct shoal_node *n, const struct plan_node *pn) {
  struct replay_map *m = x->m;
  int i = index_of(n);
  const struct slot *from = slot_in(x, pn, 0);
  if (i < 0 || from->kind == SLOT_DEVICE) {
    refuse(x, n, "is no result that can be fetched");
    return;
  }
  if (i >= m->n_rets) {
    m->rets = mem_realloc(m->rets, (size_t)i + 1, sizeof *m->rets);
    for (; m->n_rets <= i; m->n_rets++) m->rets[m->n_rets] = (struct replay_ret){REPLAY_KEPT, 0};
  }
  m->rets[i] = (struct replay_ret){from->kind == SLOT_ARG       ? REPLAY_ARG
                                   : from->kind == SLOT_FETCHED ? REPLAY_FETCH
                                                                : REPLAY_KEPT,
                                   from->i};
}

static bool has_state(const struct shoal_node *n) {
  for (int i = 0; i < n->n_in; i++)
    if (dtype_is_ref(n->in_types[i]) || dtype_base(n->in_types[i]) == SHOAL_RESOURCE) return true;
  for (int i = 0; i < n->n_out; i++)
    if (dtype_is_ref(n->out_types[i])) return true;
  return n->op->flags & OP_STATEFUL;
}

static void see_kernel(struct mapping *x, const struct shoal_node *n, const struct plan_node *pn) {
  const struct kernel *k = pn->kernel;
  if (has_state(n) && !(k->def->flags & KERNEL_REPLAYS)) refuse(x, n, "keeps state");
  if (k->def->flags & KERNEL_OF_STEP) refuse(x, n, "queues what belongs to one step");
  for (int i = 0; i < n->n_in; i++) {
    enum slot_kind kind = slot_in(x, pn, i)->kind;
    if (kind == SLOT_ARG || kind == SLOT_FETCHED) refuse(x, n, "reads a value in host memory that is fed");
  }
  for (int i = 0; i < n->n_out; i++)
    x->slots[pn->out_slot + i].kind = k->host_out && k->host_out[i] ? SLOT_SAME : SLOT_DEVICE;
}

static void see(struct mapping *x, const struct shoal_node *n, const struct plan_node *pn) {
  if (op_is(n->op, "_Arg")) {
    x->slots[pn->out_slot] = (struct slot){SLOT_ARG, index_of(n)};
    if (index_of(n) < 0) refuse(x, n, "has no place");
  } else if (op_is(n->op, "_ToHostAtEnd")) {
    x->slots[pn->out_slot] = (struct slot){SLOT_FETCHED, x->m->n_fetches++};
  } else if (op_is(n->op, "_ToDevice")) {
    see_copy_in(x, n, pn);
  } else if (op_is(n->op, "_Retval")) {
    see_ret(x, n, pn);
  } else if (op_is(n->op, "_Send") || op_is(n->op, "_HostSend")) {
    x->why = mem_strdup(""); /* gathered.h says what becomes of it */
  } else {
    see_kernel(x, n, pn);
  }
}

bool replay_map_init(struct replay_map *m, const struct plan *p, struct shoal_node *const *nodes, char **why) {
  struct mapping x = {.p = p, .m = m};
  *m = (struct replay_map){0};
  x.slots = mem_zalloc((size_t)p->frames[0].n_slots + 1, sizeof *x.slots);
  for (int i = p->n_once; i < p->n_nodes && !x.why; i++) see(&x, nodes[i], &p->nodes[i]);
  free(x.slots);
  *why = x.why;
  return !x.why;
}

void replay_map_release(struct replay_map *m) {
  free(m->feed_args);
  free(m->rets);
}
