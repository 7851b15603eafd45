/* In which order a task comes to its collectives, as far as its graph alone decides that.
 *
 * A member that waits may hold others back: what comes after it on its device, by data or by control, is not come to
 * before it has ended. Told of that, a leader sees when members hold back each other, each what another one waits for,
 * and no step need wait for its deadline to learn of it (collective/orders.h). Every word of it must be certain, for
 * collectives that nothing orders may be come to in any order: so nothing is said of graphs with branches and loops,
 * of instances that a device comes to more than once, of what comes after a function's call, whose results may come
 * before its arguments, or after an op that looks at a shape alone, and nothing of what is not constant. What is left
 * unsaid is told as before, by the deadline.
 *
 * The graph is walked from each collective on, over as many edges as MOST_WALKED says: many are found near. */
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "cluster/collectives.h"
#include "collective/orders.h"
#include "graph/graph.h"

enum { MOST_WALKED = 1 << 14, MOST_WALKED_IN_ALL = 1 << 24 };

struct ordered {
  struct shoal_node *node;
  int64_t key;
};

struct order_walk {
  const struct shoal_graph *graph;
  VEC(struct ordered) members;
  int *first, *next; /* [nodes + 1], [edges]: of each node those behind it, first[id] to first[id + 1] */
  int *seen;         /* [nodes]: which walk has come there */
  int64_t *keys;     /* [nodes] of what may be held back; NO_KEY: it is nothing of that */
  bool *stops;       /* [nodes]: what comes after it may begin before it has ended */
  int walked;        /* edges, in all walks */
};

static const int64_t NO_KEY = INT64_MIN;

static bool may_be_passed(const struct shoal_graph *g, const struct shoal_node *n) {
  static const char *const early[] = {
      "Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", "BroadcastGradientArgs"};
  for (size_t i = 0; i < COUNT_OF(early); i++)
    if (op_is(n->op, early[i])) return true;
  if (strmap_has(&g->functions, n->op->name)) return true;
  for (int i = 0; i < n->n_attrs; i++) {
    const struct attr *a = &n->attrs[i].value;
    if (a->kind == ATTR_FUNC || (a->kind == ATTR_LIST && a->of == ATTR_FUNC)) return true;
  }
  return false;
}

/* False: nothing is sure in this graph. */
static bool find_members(struct order_walk *w) {
  for (size_t i = 0; i < w->graph->nodes.n; i++) {
    struct shoal_node *n = w->graph->nodes.at[i];
    int64_t group, instance;
    w->keys[i] = NO_KEY;
    if (n && collective_may_be_dead(n)) return false;
    if (!n || !collective_keys(n, &group, &instance)) continue;
    w->keys[i] = orders_key((int)group, (int)instance);
    vec_push(&w->members, ((struct ordered){n, w->keys[i]}));
  }
  return w->members.n > 1;
}

static const char *device_of(const struct shoal_node *n) { return n->assigned ? n->assigned : n->device; }

static int by_device(const void *a, const void *b) {
  const struct ordered *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return strcmp(device_of(x->node), device_of(y->node));
}

/* What a device comes to more than once may be come to though one of its nodes is held back. */
static void forget_repeated(struct order_walk *w) {
  qsort(w->members.at, w->members.n, sizeof *w->members.at, by_device);
  for (size_t i = 1; i < w->members.n; i++) {
    const struct ordered *m = &w->members.at[i];
    if (!by_device(m - 1, m)) w->keys[m->node->id] = w->keys[m[-1].node->id] = NO_KEY;
  }
}

static void each_before(const struct shoal_node *n, void (*see)(void *arg, int from, int to), void *arg) {
  for (int i = 0; i < n->n_in; i++)
    if (n->in[i].node) see(arg, n->in[i].node->id, n->id);
  for (size_t i = 0; i < n->control.n; i++) see(arg, n->control.at[i]->id, n->id);
}

/* Two places on: while edges are added first[id + 1] is where the next of id goes, and in the end where they end. */
static void count_edge(void *arg, int from, int to) { ((struct order_walk *)arg)->first[from + 2]++; }

static void add_edge(void *arg, int from, int to) {
  struct order_walk *w = arg;
  w->next[w->first[from + 1]++] = to;
}

static void turn_edges(struct order_walk *w) {
  const struct shoal_graph *g = w->graph;
  size_t n = g->nodes.n;
  w->first = mem_zalloc(n + 2, sizeof *w->first);
  for (size_t i = 0; i < n; i++)
    if (g->nodes.at[i]) each_before(g->nodes.at[i], count_edge, w);
  for (size_t i = 0; i <= n; i++) w->first[i + 1] += w->first[i];
  w->next = mem_zalloc((size_t)w->first[n + 1] + 1, sizeof *w->next);
  for (size_t i = 0; i < n; i++)
    if (g->nodes.at[i]) each_before(g->nodes.at[i], add_edge, w);
}

static int by_key(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* What one holds back: sorted, in an attribute of its node. */
static void walk(struct order_walk *w, const struct ordered *m, int turn) {
  VEC(int) todo = {0};
  VEC(int64_t) held = {0};
  int walked = 1;
  vec_push(&todo, m->node->id);
  w->seen[m->node->id] = turn;
  for (size_t at = 0; at < todo.n && walked < MOST_WALKED && held.n < MOST_HELD; at++) {
    const struct shoal_node *n = w->graph->nodes.at[todo.at[at]];
    int64_t key = w->keys[n->id];
    if (key != NO_KEY && key != m->key && !strcmp(device_of(n), device_of(m->node))) vec_push(&held, key);
    if (w->stops[n->id]) continue;
    for (int i = w->first[n->id]; i < w->first[n->id + 1] && walked < MOST_WALKED; i++) {
      walked++;
      int to = w->next[i];
      if (w->seen[to] == turn) continue;
      w->seen[to] = turn;
      vec_push(&todo, to);
    }
  }
  w->walked += walked;
  if (held.n) {
    qsort(held.at, held.n, sizeof *held.at, by_key);
    struct attr list = attr_list(ATTR_INT);
    for (size_t i = 0; i < held.n; i++) attr_list_add(&list, attr_int(held.at[i]));
    node_set_attr(m->node, HOLDS_BACK_ATTR, list);
  }
  vec_release(&todo);
  vec_release(&held);
}

void collective_order(struct shoal_graph *g) {
  struct order_walk w = {.graph = g, .keys = mem_zalloc(g->nodes.n + 1, sizeof *w.keys)};
  if (find_members(&w)) {
    forget_repeated(&w);
    w.stops = mem_zalloc(g->nodes.n + 1, sizeof *w.stops);
    for (size_t i = 0; i < g->nodes.n; i++) w.stops[i] = g->nodes.at[i] && may_be_passed(g, g->nodes.at[i]);
    turn_edges(&w);
    w.seen = mem_zalloc(g->nodes.n + 1, sizeof *w.seen);
    for (size_t i = 0; i < w.members.n && w.walked < MOST_WALKED_IN_ALL; i++) walk(&w, &w.members.at[i], (int)i + 1);
  }
  free(w.first);
  free(w.next);
  free(w.seen);
  free(w.stops);
  free(w.keys);
  vec_release(&w.members);
}
