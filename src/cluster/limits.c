/* The limits of a server; see limits.h. */
#include "cluster/limits.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/strmap.h"

const struct limit_row limit_rows[LIMITS] = {
    [LIMIT_SESSIONS] = {"max_sessions", "max_connection_sessions", "sessions",
                        "sessions at a time, as master and as worker (default 10000)",
                        "of these, opened over one connection (default 5000)", 10000, 5000},
    [LIMIT_CREATIONS] = {"max_creations", "max_connection_creations", "sessions in the making",
                         "sessions in the making at a time (default 2000)",
                         "of these, over one connection (default 1000)", 2000, 1000},
    [LIMIT_NODES] = {"max_nodes", "max_connection_nodes", "nodes of graphs",
                     "nodes of all graphs held (default 20000000)",
                     "of these, of one connection's sessions (default 10000000)", 20000000, 10000000},
    [LIMIT_GRAPH_BYTES] = {"max_graph_bytes", "max_connection_graph_bytes", "bytes of graphs",
                           "bytes of GraphDefs held, repeated values written out (default: half the memory)",
                           "of these, of one connection's sessions (default: a third of the memory)", 2, 3,
                           .share = true},
    [LIMIT_GRAPHS] = {"max_graphs", "max_connection_graphs", "compiled steps and registered graphs",
                      "compiled steps and registered graphs (default 200000)",
                      "of these, of one connection's sessions (default 100000)", 200000, 100000},
    [LIMIT_STEPS] = {"max_steps", "max_connection_steps", "steps under way",
                     "steps under way at a time (default 100000)",
                     "of these, of one connection's sessions (default 50000)", 100000, 50000},
    [LIMIT_CALLABLES] = {"max_callables", "max_connection_callables", "callables",
                         "callables of all sessions (default 100000)",
                         "of these, of one connection's sessions (default 50000)", 100000, 50000},
    [LIMIT_PARTIAL_RUNS] = {"max_partial_runs", "max_connection_partial_runs", "partial runs under way",
                            "partial runs under way at a time (default 10000)",
                            "of these, of one connection's sessions (default 5000)", 10000, 5000},
    [LIMIT_PEERS] = {"max_peers", "max_connection_peers", "tasks that clients named",
                     "tasks of clusters that clients name (default 10000)",
                     "of these, of one connection's sessions (default 5000)", 10000, 5000},
    [LIMIT_COORDINATION_BYTES] = {"max_coordination_bytes", "max_connection_coordination_bytes",
                                  "bytes of coordination",
                                  "bytes of the coordination service's values, barriers and devices (default 256 MiB)",
                                  "of these, that came over one connection (default 128 MiB)", 256 << 20, 128 << 20},
};

enum { ADDRESS = 'a', CONNECTION = 'c' }; /* keys of accounts begin so */

static int64_t chosen[LIMITS][2];

void limit_set(enum limit which, int64_t server, int64_t connection) {
  chosen[which][0] = server;
  chosen[which][1] = connection;
}

/* In force for servers (0) and connections (1) that are made now. */
static size_t in_force(int which, int of) {
  const struct limit_row *row = &limit_rows[which];
  if (chosen[which][of] > 0) return (size_t)chosen[which][of];
  int64_t usual = of ? row->connection : row->usual;
  return row->share ? machine_memory() / (size_t)usual : (size_t)usual;
}

struct limits {
  char *task;
  struct budget all[LIMITS];
  pthread_mutex_t lock;
  struct strmap accounts; /* lock: connections' and addresses', by key */
};

struct account {
  struct ref refs; /* taken and dropped with of->lock held */
  struct limits *of;
  struct account *address; /* a reference; NULL: it is one, or has none */
  char key[18];
  struct budget own[LIMITS];
};

struct limits *limits_new(const char *task) {
  struct limits *l = mem_zalloc(1, sizeof *l);
  l->task = mem_strdup(task);
  pthread_mutex_init(&l->lock, NULL);
  for (int i = 0; i < LIMITS; i++) budget_init(&l->all[i], in_force(i, 0), NULL);
  return l;
}

void limits_free(struct limits *l) {
  if (!l) return;
  strmap_release(&l->accounts); /* nobody has one any more */
  pthread_mutex_destroy(&l->lock);
  free(l->task);
  free(l);
}

void limits_change(struct limits *l, enum limit which, int64_t most) {
  if (most > 0) l->all[which].most = (size_t)most;
}

/* Of what is given back with sessions: those of clients that have gone are closed then. */
static bool are_near(const struct budget *b) {
  for (int i = 0; i < LIMITS; i++)
    if (i != LIMIT_COORDINATION_BYTES && budget_used(&b[i]) > b[i].most / 4 * 3) return true;
  return false;
}

bool limits_are_near(struct limits *l) {
  bool near = are_near(l->all);
  void *value;
  pthread_mutex_lock(&l->lock);
  for (size_t i = 0; !near && strmap_next(&l->accounts, &i, NULL, &value);) {
    const struct account *a = value;
    near = *a->key == ADDRESS && are_near(a->own);
  }
  pthread_mutex_unlock(&l->lock);
  return near;
}

int64_t limits_most(const struct limits *l, enum limit which) { return (int64_t)l->all[which].most; }

int64_t limits_most_of_one(enum limit which) { return (int64_t)in_force(which, 1); }

int64_t limits_used(const struct limits *l, enum limit which) { return (int64_t)budget_used(&l->all[which]); }

/* With the lock held; a reference. */
static struct account *find_or_make(struct limits *l, char kind, uint64_t number, struct account *address) {
  char key[18];
  snprintf(key, sizeof key, "%c%016" PRIx64, kind, number);
  struct account *a = strmap_get(&l->accounts, key);
  if (!a) {
    a = mem_zalloc(1, sizeof *a);
    ref_init(&a->refs, 1);
    a->of = l;
    a->address = address;
    if (address) ref_take(&address->refs);
    memcpy(a->key, key, sizeof key);
    for (int i = 0; i < LIMITS; i++) {
      size_t most = kind == ADDRESS ? rpc_address_share(l->all[i].most) : in_force(i, 1);
      budget_init(&a->own[i], number ? most : SIZE_MAX, address ? &address->own[i] : &l->all[i]);
    }
    strmap_put(&l->accounts, key, a);
  } else ref_take(&a->refs);
  return a;
}

static void let_go(struct account *a) {
  for (struct account *address; a && ref_drop(&a->refs); a = address) {
    address = a->address;
    strmap_remove(&a->of->accounts, a->key);
    free(a);
  }
}

struct account *account_get(struct limits *l, struct rpc_origin from) {
  pthread_mutex_lock(&l->lock);
  struct account *address = from.address ? find_or_make(l, ADDRESS, from.address, NULL) : NULL;
  struct account *a = find_or_make(l, CONNECTION, from.connection, address);
  let_go(address);
  pthread_mutex_unlock(&l->lock);
  return a;
}

struct account *account_ref(struct account *a) {
  pthread_mutex_lock(&a->of->lock);
  ref_take(&a->refs);
  pthread_mutex_unlock(&a->of->lock);
  return a;
}

void account_unref(struct account *a) {
  if (!a) return;
  struct limits *l = a->of;
  pthread_mutex_lock(&l->lock);
  let_go(a);
  pthread_mutex_unlock(&l->lock);
}

shoal_status account_take(struct account *a, enum limit which, size_t n) {
  if (budget_take(&a->own[which], n)) return NULL;
  const struct limit_row *row = &limit_rows[which];
  const struct budget *all = &a->of->all[which], *address = a->address ? &a->address->own[which] : NULL;
  if (!budget_has_room(all, n, 0))
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s has %zu %s, as many as --%s allows", a->of->task, budget_used(all),
                  row->what, row->name);
  if (address && !budget_has_room(address, n, 0))
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s has %zu %s of one address, three quarters of what --%s allows",
                  a->of->task, budget_used(address), row->what, row->name);
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s has %zu %s of one connection, as many as --%s allows", a->of->task,
                budget_used(&a->own[which]), row->what, row->connection_name);
}

size_t account_room(const struct account *a, enum limit which) {
  size_t room = SIZE_MAX;
  for (const struct budget *b = &a->own[which]; b; b = b->parent)
    room = MIN(room, b->most - MIN(b->most, budget_used(b)));
  return room;
}

void account_give(struct account *a, enum limit which, size_t n) { budget_give(&a->own[which], n); }
