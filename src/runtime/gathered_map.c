/* Which parts of steps can be run between their receives and their sends; see gathered.h. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/gathered.h"
#include "runtime/memory_edges.h"
#include "runtime/rendezvous.h"

enum { MOST_WORDS = 1 << 20 }; /* of the sets of receives that nodes wait for: 8 MB */

static bool is_recv(const struct shoal_node *n) { return op_is(n->op, "_Recv") || op_is(n->op, "_HostRecv"); }
static bool is_send(const struct shoal_node *n) { return op_is(n->op, "_Send") || op_is(n->op, "_HostSend"); }

static char *said_of(const struct shoal_node *n, const char *what) {
  return mem_printf("%s (%s) %s", n->name, n->op->name, what);
}

/* ---- what waits for what ---- */

struct reach {
  struct shoal_node **order; /* [n_nodes], topological */
  int words;                 /* of one set */
  uint64_t *sets;            /* [node ids][words] the receives that lead to a node */
  struct shoal_node **recvs; /* by number */
  int n_recvs;
};

static uint64_t *set_of(const struct reach *r, const struct shoal_node *n) {
  return r->sets + (size_t)n->id * (size_t)r->words;
}

static void join_sets(const struct reach *r, struct shoal_node *n) {
  for (int k = 0; k < n->n_in + (int)n->control.n; k++) {
    const struct shoal_node *from = k < n->n_in ? n->in[k].node : n->control.at[k - n->n_in];
    for (int w = 0; from && w < r->words; w++) set_of(r, n)[w] |= set_of(r, from)[w];
  }
}

/* A receive that a send does not come after, or NULL. */
static const struct shoal_node *not_before(const struct reach *r, const struct shoal_node *send) {
  for (int i = 0; i < r->n_recvs; i++)
    if (!(set_of(r, send)[i / 64] >> i % 64 & 1)) return r->recvs[i];
  return NULL;
}

static char *look(struct reach *r, const struct shoal_graph *g) {
  int next = 0;
  for (int i = 0; i < g->n_nodes; i++) {
    struct shoal_node *n = r->order[i];
    join_sets(r, n);
    if (is_recv(n)) {
      if (n->control.n) return said_of(n, "waits for what is computed here");
      r->recvs[next] = n;
      set_of(r, n)[next / 64] |= 1ull << next % 64;
      next++;
    }
  }
  for (int i = 0; i < g->n_nodes; i++) {
    const struct shoal_node *n = r->order[i], *recv = is_send(n) ? not_before(r, n) : NULL;
    if (recv) return mem_printf("%s (%s) does not wait for %s (%s)", n->name, n->op->name, recv->name, recv->op->name);
  }
  return NULL;
}

/* NULL: all sends come after all receives. */
static char *why_not(const struct shoal_graph *g, int n_recvs) {
  struct reach r = {.words = n_recvs / 64 + 1, .n_recvs = n_recvs};
  if (g->nodes.n * (size_t)r.words > MOST_WORDS) return mem_strdup("it receives too many values");
  r.order = mem_zalloc((size_t)g->n_nodes + 1, sizeof *r.order);
  r.recvs = mem_zalloc((size_t)n_recvs + 1, sizeof *r.recvs);
  r.sets = mem_zalloc(g->nodes.n * (size_t)r.words + 1, sizeof *r.sets);
  shoal_status s = graph_topological_order(g, r.order);
  char *why = s ? mem_strdup("it has a loop") : look(&r, g);
  shoal_status_free(s);
  free(r.order);
  free(r.recvs);
  free(r.sets);
  return why;
}

/* ---- the ends ---- */

static shoal_status edge_of(const struct shoal_node *n, struct gathered_edge *e) {
  const char *src, *dst, *name;
  int64_t incarnation;
  TRY(node_get_string(n, "send_device", &src));
  TRY(node_get_string(n, "recv_device", &dst));
  TRY(node_get_string(n, "tensor_name", &name));
  TRY(node_get_int(n, "send_device_incarnation", &incarnation));
  e->key = rendezvous_key_make(src, (uint64_t)incarnation, dst, name, 0, 0);
  e->hash = rendezvous_hash(e->key);
  e->node = mem_strdup(n->name);
  e->dtype = dtype_base(is_recv(n) ? n->out_types[0] : n->in_types[0]);
  return NULL;
}

static int index_of(const struct shoal_node *n) {
  const struct attr *a = node_attr(n, "index");
  return a && a->kind == ATTR_INT && a->i >= 0 && a->i < 1 << 20 ? (int)a->i : -1;
}

/* How many there are of all. */
static char *count(struct gathered_map *m, const struct shoal_graph *g, const struct device *d) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    bool recv = is_recv(n), send = is_send(n), arg = op_is(n->op, "_Arg"), ret = op_is(n->op, "_Retval");
    m->n_recvs += recv;
    m->n_sends += send;
    if (arg) m->n_args = MAX(m->n_args, index_of(n) + 1);
    if (ret) m->n_rets = MAX(m->n_rets, index_of(n) + 1);
    if ((arg || ret) && index_of(n) < 0) return said_of(n, "has no place");
    if ((recv || send) && memory_edges_stay(n, d)) return said_of(n, "is a transfer in devices' memory");
  }
  return NULL;
}

/* An argument or a result in the place of a receive or a send. */
static void make_end(struct shoal_node *n, const struct gathered_edge *e, int index) {
  n->op = op_find(is_recv(n) ? "_Arg" : "_Retval");
  node_set_attr(n, "T", attr_type(e->dtype));
  node_set_attr(n, "index", attr_int(index));
}

static char *make_inner(struct gathered_map *m, const struct shoal_graph *g) {
  int recvs = 0, sends = 0;
  m->inner = graph_copy(g, NULL);
  m->recvs = mem_zalloc((size_t)m->n_recvs + 1, sizeof *m->recvs);
  m->sends = mem_zalloc((size_t)m->n_sends + 1, sizeof *m->sends);
  for (size_t i = 0; i < m->inner->nodes.n; i++) {
    struct shoal_node *n = m->inner->nodes.at[i];
    if (!n || (!is_recv(n) && !is_send(n))) continue;
    bool recv = is_recv(n);
    int at = recv ? recvs++ : sends++;
    struct gathered_edge *e = recv ? &m->recvs[at] : &m->sends[at];
    shoal_status s = edge_of(n, e);
    if (s) {
      shoal_status_free(s);
      return said_of(n, "has no key");
    }
    make_end(n, e, at + (recv ? m->n_args : m->n_rets));
  }
  return NULL;
}

bool gathered_map_init(struct gathered_map *m, const struct shoal_graph *g, const struct device *d, char **why) {
  *m = (struct gathered_map){0};
  *why = count(m, g, d);
  if (!m->n_recvs && !m->n_sends) {
    free(*why);
    *why = NULL;
    return false;
  }
  if (!*why) *why = why_not(g, m->n_recvs);
  if (!*why) *why = make_inner(m, g);
  return !*why;
}

static void edges_release(struct gathered_edge *e, int n) {
  for (int i = 0; e && i < n; i++) {
    free(e[i].key);
    free(e[i].node);
  }
  free(e);
}

void gathered_map_release(struct gathered_map *m) {
  edges_release(m->recvs, m->n_recvs);
  edges_release(m->sends, m->n_sends);
  if (m->inner) graph_free(m->inner);
  m->inner = NULL;
}
