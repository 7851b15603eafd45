/* Whose turn it is; see turns.h. */
#include "rpc/turns.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/status.h"
#include "rpc/loop.h"

void event_list_init(struct event_list *l) { *l = (struct event_list){NULL, &l->first}; }

void event_list_add(struct event_list *l, struct rpc_event *e) {
  e->next = NULL;
  *l->last = e;
  l->last = &e->next;
}

struct rpc_event *event_list_pop(struct event_list *l) {
  struct rpc_event *e = l->first;
  if (!e) return NULL;
  l->first = e->next;
  if (!l->first) l->last = &l->first;
  return e;
}

void turns_init(struct turns *t) {
  t->first = NULL;
  t->last = &t->first;
  atomic_store(&t->under_way, 0);
}

/* At the end of those in turn, if it has anything that may be begun. */
static void enter(struct turns *t, struct rpc_line *l, int each) {
  if (l->in_turn || !l->waiting.first || l->under_way >= (l->most ? l->most : each)) return;
  l->in_turn = true;
  l->next = NULL;
  *t->last = l;
  t->last = &l->next;
}

void turns_add(struct turns *t, struct rpc_line *l, struct rpc_event *e, int each) {
  event_list_add(&l->waiting, e);
  enter(t, l, each);
}

struct rpc_event *turns_next(struct turns *t, int all, int each) {
  int under_way = atomic_load_explicit(&t->under_way, memory_order_relaxed);
  struct rpc_line **at = &t->first;
  if (under_way >= 2 * all) return NULL;
  while (*at && under_way >= all && (*at)->under_way) at = &(*at)->next;
  struct rpc_line *l = *at;
  if (!l) return NULL;
  *at = l->next;
  if (!*at) t->last = at;
  struct rpc_event *e = event_list_pop(&l->waiting);
  l->in_turn = false;
  l->under_way++;
  int before = atomic_fetch_add_explicit(&t->under_way, 1, memory_order_relaxed);
  INVARIANT(12, before < 2 * all && (before < all || l->under_way == 1));
  enter(t, l, each);
  return e;
}

void turns_end(struct turns *t, struct rpc_line *l, int each) {
  int before = atomic_fetch_sub_explicit(&t->under_way, 1, memory_order_relaxed);
  INVARIANT(12, before > 0 && l->under_way > 0);
  l->under_way--;
  if (l->left && !l->under_way) free(l);
  else enter(t, l, each);
}

struct rpc_line *rpc_line_new(int most) {
  struct rpc_line *l = mem_zalloc(1, sizeof *l);
  l->most = most;
  event_list_init(&l->waiting);
  return l;
}

void line_leave(struct rpc_line *l) {
  MUST(!l->waiting.first);
  if (l->under_way) l->left = true;
  else free(l);
}
