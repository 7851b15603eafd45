/* The limits of a server; see limits.h. */
#include "cluster/limits.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/machine.h"
#include "base/mem.h"
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
};

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
  struct strmap accounts; /* lock: number in hexadecimal -> struct account * */
};

struct account {
  int refs; /* of->lock */
  struct limits *of;
  char key[17];
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

bool limits_are_near(const struct limits *l) {
  for (int i = 0; i < LIMITS; i++)
    if (budget_used(&l->all[i]) > l->all[i].most / 4 * 3) return true;
  return false;
}

int64_t limits_most(const struct limits *l, enum limit which) { return (int64_t)l->all[which].most; }

int64_t limits_most_of_one(enum limit which) { return (int64_t)in_force(which, 1); }

int64_t limits_used(const struct limits *l, enum limit which) { return (int64_t)budget_used(&l->all[which]); }

struct account *account_get(struct limits *l, uint64_t connection) {
  char key[17];
  snprintf(key, sizeof key, "%016" PRIx64, connection);
  pthread_mutex_lock(&l->lock);
  struct account *a = strmap_get(&l->accounts, key);
  if (!a) {
    a = mem_zalloc(1, sizeof *a);
    a->of = l;
    snprintf(a->key, sizeof a->key, "%s", key);
    for (int i = 0; i < LIMITS; i++) budget_init(&a->own[i], connection ? in_force(i, 1) : SIZE_MAX, &l->all[i]);
    strmap_put(&l->accounts, key, a);
  }
  a->refs++;
  pthread_mutex_unlock(&l->lock);
  return a;
}

struct account *account_ref(struct account *a) {
  pthread_mutex_lock(&a->of->lock);
  a->refs++;
  pthread_mutex_unlock(&a->of->lock);
  return a;
}

void account_unref(struct account *a) {
  if (!a) return;
  struct limits *l = a->of;
  pthread_mutex_lock(&l->lock);
  bool last = --a->refs == 0;
  if (last) strmap_remove(&l->accounts, a->key);
  pthread_mutex_unlock(&l->lock);
  if (last) free(a);
}

shoal_status account_take(struct account *a, enum limit which, size_t n) {
  if (budget_take(&a->own[which], n)) return NULL;
  const struct limit_row *row = &limit_rows[which];
  bool all = !budget_has_room(&a->of->all[which], n, 0);
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s has %zu %s%s, as many as --%s allows", a->of->task,
                budget_used(all ? &a->of->all[which] : &a->own[which]), row->what, all ? "" : " of one connection",
                all ? row->name : row->connection_name);
}

size_t account_room(const struct account *a, enum limit which) {
  size_t room = SIZE_MAX;
  for (const struct budget *b = &a->own[which]; b; b = b->parent)
    room = MIN(room, b->most - MIN(b->most, budget_used(b)));
  return room;
}

void account_give(struct account *a, enum limit which, size_t n) { budget_give(&a->own[which], n); }
