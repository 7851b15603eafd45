/* Sessions of a master: found, extended, closed; see master.h. */
#include "cluster/master.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/latch.h"
#include "base/log.h"
#include "graph/import.h"
#include "graph/lower.h"
#include "rpc/loop.h"
#include "runtime/run_cancel.h"

enum { GOODBYE_MS = 1000 }; /* how long a server that stops waits for other tasks to forget its sessions */

static void listed(void *arg, shoal_status s) { shoal_status_free(s); }

void master_init(struct master *m, const struct master_options *o, const struct worker_link *own) {
  *m = (struct master){.server = *o, .own = *own};
  m->own.ops->get_status(&m->own, &(struct status_asker){.task = m->server.task}, DEADLINE_NEVER, NULL, listed, NULL);
  pthread_mutex_init(&m->lock, NULL);
  inside_init(&m->alive);
  cancel_init(&m->ending);
  rpc_loop_hold(); /* compiled steps are begun on its threads */
}

void master_close(struct master *m) {
  VEC(char *) handles = {0};
  pthread_mutex_lock(&m->lock);
  m->closing = true;
  const char *handle;
  void *s;
  for (size_t i = 0; strmap_next(&m->sessions, &i, &handle, &s);) vec_push(&handles, mem_strdup(handle));
  pthread_mutex_unlock(&m->lock);
  struct latch closed;
  latch_init(&closed, (int)handles.n);
  for (size_t i = 0; i < handles.n; i++) {
    master_close_session(m, handles.at[i], latch_done, &closed);
    free(handles.at[i]);
  }
  vec_release(&handles);
  creations_stop(m);
  rpc_loop_hand_over();
  latch_wait_until(&closed, deadline_after_ms(GOODBYE_MS));
  cancel_start(&m->ending, STATUS(SHOAL_CANCELLED, "%s is stopping", m->server.task));
  shoal_status_free(latch_finish(&closed));
}

void master_release(struct master *m) {
  master_close(m);
  inside_wait(&m->alive);
  rpc_loop_release();
  strmap_release(&m->sessions);
  worker_link_release(&m->own);
  cancel_release(&m->ending);
  pthread_mutex_destroy(&m->lock);
}

/* ---- sessions ---- */

/* Whoever has a session's handle has the session: nobody can guess it, and nobody but its client is shown it. */
static char *draw_handle(void) {
  uint64_t bits[2];
  MUST(getrandom(bits, sizeof bits, 0) == sizeof bits);
  return mem_printf("%016" PRIx64 "%016" PRIx64, bits[0], bits[1]);
}

struct master_session *master_session_new(struct master *m, struct account *account) {
  struct master_session *s = mem_zalloc(1, sizeof *s);
  ref_init(&s->refs, 1);
  s->master = m;
  s->account = account_ref(account);
  s->handle = draw_handle();
  s->half = draw_handle();
  s->graph = graph_new();
  s->unprepared = true;
  s->effort = LOWER_MAX_WORK;
  strand_init(&s->strand, m->server.builders, master_session_ref, master_session_let_go, s);
  master_compiled_init(s);
  pthread_mutex_init(&s->lock, NULL);
  cancel_init(&s->ending);
  pthread_mutex_lock(&m->lock);
  s->number = ++m->made;
  s->began = clock_ns();
  pthread_mutex_unlock(&m->lock);
  bool open = inside_enter(&m->alive);
  INVARIANT(10, open);
  return s;
}

shoal_status master_find_session(struct master *m, const char *handle, struct master_session **out) {
  pthread_mutex_lock(&m->lock);
  struct master_session *s = strmap_get(&m->sessions, handle);
  if (s) ref_take(&s->refs);
  pthread_mutex_unlock(&m->lock);
  *out = s;
  return s ? NULL : STATUS(SHOAL_ABORTED, "Session %s is not found.", handle);
}

void master_session_ref(void *session) { ref_take(&((struct master_session *)session)->refs); }

void master_session_let_go(void *session) { master_session_unref(session); }

void master_session_unref(struct master_session *s) {
  if (!s || !ref_drop(&s->refs)) return;
  INVARIANT(10, !s->running);
  struct master *m = s->master;
  void *value;
  for (size_t i = 0; strmap_next(&s->partials, &i, NULL, &value);) partial_unref(value);
  strmap_release(&s->partials);
  master_compiled_release(s);
  account_give(s->account, LIMIT_CALLABLES, atomic_load(&s->n_callables));
  for (size_t i = 0; i < s->workers.n; i++) worker_link_release(&s->workers.at[i]);
  vec_release(&s->workers);
  vec_release(&s->devices);
  vec_release(&s->places);
  strmap_release(&s->device_numbers);
  graph_free(s->graph);
  account_give(s->account, LIMIT_NODES, s->n_nodes);
  account_give(s->account, LIMIT_GRAPH_BYTES, s->n_bytes);
  account_give(s->account, LIMIT_PEERS, s->n_peers);
  account_unref(s->account);
  master_config_release(&s->config);
  strand_release(&s->strand);
  cancel_release(&s->ending);
  pthread_mutex_destroy(&s->lock);
  free(s->handle);
  free(s->half);
  free(s->task);
  free(s);
  inside_leave(&m->alive);
}

/* ---- extending ---- */

static shoal_status admit(void *session, size_t nodes, size_t bytes) {
  struct master_session *s = session;
  TRY(account_take(s->account, LIMIT_GRAPH_BYTES, bytes));
  shoal_status full = account_take(s->account, LIMIT_NODES, nodes);
  if (full) {
    account_give(s->account, LIMIT_GRAPH_BYTES, bytes);
    return full;
  }
  s->n_bytes += bytes;
  s->n_nodes += nodes;
  return NULL;
}

shoal_status master_session_import(struct master_session *s, struct wire graph_def, bool opens_session,
                                   bool (*over)(void *arg), void *arg) {
  struct effort effort = {.left = EFFORT_UNBOUNDED, .over = over, .arg = arg};
  return graph_import(s->graph, graph_def.at, wire_left(&graph_def),
                      &(struct import_options){.opens_session = opens_session,
                                               .max_nodes = s->master->server.max_graph_nodes,
                                               .effort = &effort,
                                               .max_repeated = MAX(1, account_room(s->account, LIMIT_GRAPH_BYTES)),
                                               .admit = admit,
                                               .arg = s},
                      NULL);
}

struct extension {
  struct strand_task task;
  struct master_session *session;
  struct wire graph_def;
  int64_t expected;
  const atomic_bool *gone;
  void (*done)(void *arg, shoal_status s, int64_t version);
  void *arg;
};

static bool is_set(void *flag) { return atomic_load((atomic_bool *)flag); }

static void extend(struct strand_task *t) {
  struct extension *e = (struct extension *)t;
  struct master_session *s = e->session;
  shoal_status err = NULL;
  if (s->version != e->expected)
    err = STATUS(SHOAL_ABORTED, "Current version is %" PRId64 " but caller expected %" PRId64 ".", s->version,
                 e->expected);
  else err = master_session_import(s, e->graph_def, false, is_set, (void *)(uintptr_t)e->gone);
  if (!err) {
    s->unprepared = true;
    s->version++;
  }
  e->done(e->arg, err, s->version);
  free(e);
}

void master_extend(struct master_session *s, struct wire graph_def, int64_t expected, const atomic_bool *gone,
                   void (*done)(void *arg, shoal_status s, int64_t version), void *arg) {
  struct extension *e = mem_alloc(sizeof *e);
  *e = (struct extension){{extend, NULL}, s, graph_def, expected, gone, done, arg}; /* the strand keeps the session */
  strand_run(&s->strand, &e->task);
}

/* ---- closing ---- */

struct goodbye {
  struct join join;
  master_done next;
  void *arg;
};

static void half_deleted(void *arg, shoal_status s) {
  if (s) LOGI("a worker's half of a session could not be freed: %s", shoal_status_message(s));
  shoal_status_free(s);
  join_part(arg, NULL);
}

static void halves_deleted(void *arg, shoal_status s) {
  struct goodbye g = *(struct goodbye *)arg;
  free(arg);
  g.next(g.arg, s);
}

void master_delete_halves(struct master_session *s, master_done next, void *arg) {
  struct goodbye *g = mem_zalloc(1, sizeof *g);
  g->next = next;
  g->arg = arg;
  join_init(&g->join, s->workers.n + 1, halves_deleted, g);
  for (size_t i = 0; i < s->workers.n; i++)
    s->workers.at[i].ops->delete_session(&s->workers.at[i], s->half, &s->master->ending, half_deleted, &g->join);
  join_part(&g->join, NULL);
}

struct closing {
  struct master_session *session;
  master_done done;
  void *arg;
};

static void closed(void *arg, shoal_status s) {
  struct closing k = *(struct closing *)arg;
  free(arg);
  account_give(k.session->account, LIMIT_SESSIONS, 1); /* however long a late call keeps the rest */
  master_session_unref(k.session);
  k.done(k.arg, s);
}

static void steps_ended(struct master_session *s, void *arg) { master_delete_halves(s, closed, arg); }

void master_give_up_session(struct master *m, const char *handle, const char *why) {
  struct master_session *s = NULL;
  shoal_status unknown = master_find_session(m, handle, &s);
  if (s) home_session_given_up(m->server.home, s->number, why);
  shoal_status_free(unknown);
  master_session_unref(s);
}

void master_close_session(struct master *m, const char *handle, master_done done, void *arg) {
  pthread_mutex_lock(&m->lock);
  struct master_session *s = strmap_remove(&m->sessions, handle);
  bool stopping = m->closing;
  pthread_mutex_unlock(&m->lock);
  if (!s) {
    done(arg, STATUS(SHOAL_ABORTED, "Session %s is not found. Possibly, this master has restarted.", handle));
    return;
  }
  struct closing *k = mem_alloc(sizeof *k);
  *k = (struct closing){s, done, arg};
  shoal_status why =
      stopping ? STATUS(SHOAL_UNAVAILABLE, "the server %s is stopping", m->server.task) : run_closed_status();
  step_runs_stop(s, why, steps_ended, k);
}

static void swept(void *arg, shoal_status s) { shoal_status_free(s); }

void master_sweep(struct master *m, bool (*connected)(void *arg, uint64_t connection), void *arg) {
  VEC(char *) handles = {0};
  const char *handle;
  void *value;
  pthread_mutex_lock(&m->lock);
  for (size_t i = 0; strmap_next(&m->sessions, &i, &handle, &value);) {
    struct master_session *s = value;
    uint64_t connection = atomic_load(&s->connection);
    if (connection && !connected(arg, connection)) vec_push(&handles, mem_strdup(handle));
  }
  pthread_mutex_unlock(&m->lock);
  if (handles.n) LOGW("%zu sessions are closed to make room: the clients that opened them have gone", handles.n);
  for (size_t i = 0; i < handles.n; i++) {
    master_close_session(m, handles.at[i], swept, NULL);
    free(handles.at[i]);
  }
  vec_release(&handles);
}

/* ---- resetting ---- */

struct reset {
  struct master *master;
  VEC(struct worker_link) workers;
  struct join join;
  shoal_status status;
  master_done done;
  void *arg;
};

static void reset_over(void *arg, shoal_status s) {
  struct reset r = *(struct reset *)arg;
  free(arg);
  status_merge(&r.status, s);
  r.done(r.arg, r.status);
}

static void session_reset(void *arg, shoal_status s) {
  shoal_status_free(s); /* somebody else has closed it */
  join_part(arg, NULL);
}

static void emptied(void *arg, shoal_status s) {
  struct reset *r = arg;
  r->status = s;
  for (size_t i = 0; i < r->workers.n; i++) worker_link_release(&r->workers.at[i]);
  vec_release(&r->workers);
  VEC(char *) handles = {0};
  pthread_mutex_lock(&r->master->lock);
  const char *handle;
  void *session;
  for (size_t i = 0; strmap_next(&r->master->sessions, &i, &handle, &session);) vec_push(&handles, mem_strdup(handle));
  pthread_mutex_unlock(&r->master->lock);
  join_init(&r->join, handles.n + 1, reset_over, r);
  for (size_t i = 0; i < handles.n; i++) {
    master_close_session(r->master, handles.at[i], session_reset, &r->join);
    free(handles.at[i]);
  }
  vec_release(&handles);
  join_part(&r->join, NULL);
}

void master_reset(struct master *m, char *const *containers, int n, char *const *filters, int n_filters,
                  master_done done, void *arg) {
  struct reset *r = mem_zalloc(1, sizeof *r);
  r->master = m;
  r->done = done;
  r->arg = arg;
  struct worker_link own;
  worker_link_again(&own, &m->own, m->server.task);
  vec_push(&r->workers, own);
  for (size_t i = 0; i < m->server.spec->jobs.n; i++)
    for (size_t k = 0; k < m->server.spec->jobs.at[i].tasks.n; k++) {
      const struct cluster_job *j = &m->server.spec->jobs.at[i];
      int index = j->tasks.at[k].index;
      char *task = mem_printf("/job:%s/replica:0/task:%d", j->name, index);
      struct worker_link w;
      if (strcmp(task, m->server.task) && device_filters_pass(filters, (size_t)n_filters, j->name, index)) {
        worker_link_remote(&w, peers_get(m->server.peers, task, j->tasks.at[k].address, true), task);
        vec_push(&r->workers, w);
      }
      free(task);
    }
  join_init(&r->join, r->workers.n + 1, emptied, r);
  for (size_t i = 0; i < r->workers.n; i++)
    r->workers.at[i].ops->cleanup_all(&r->workers.at[i], containers, n, &m->ending, join_part, &r->join);
  join_part(&r->join, NULL);
}
