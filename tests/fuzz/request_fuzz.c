/* Requests from anyone: every method of a server, called with any bytes, in any order. No call may crash the server,
 * leak, or stay unanswered once its client has gone.
 *
 * An input is a list of calls: method (index into the server's table), length (u16, little-endian), request. So that
 * inputs can speak of what the server made up, "$SESSION$SESSION$SESSION$SESSION" and "$GRAPH$GRAPH$GRA" (as long as
 * handles are) stand for the handles in the latest answers of CreateSession and RegisterGraph.
 *
 * The server is real, with its port, threads and one device; the calls come over no network. It may touch no files: its
 * root is an empty directory. Calls of the coordination service go to a second one, which leads two tasks that are not
 * there. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "base/wire.h"
#include "cluster/coordination_agent.h"
#include "cluster/server.h"
#include "proto/master.wire.h"
#include "rpc/message.h"
#include "tensor/buffer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Looking for leaks stops all threads, and a server always has some at work: after every input it would take most of
 * the time. The soaks (tests/cluster/soak_test.py) watch memory instead. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

/* Of calls: most are answered within PATIENCE_MS; the coordination service answers at once what it can. */
enum { MAX_CALLS = 8, SESSION = 32, GRAPH = 16, PATIENCE_MS = 50, LIMIT_S = 20 };

static struct shoal_server *server, *leader;
static char session[SESSION + 1], graph[GRAPH + 1];

static void start(void) {
  static char root[] = "/tmp/shoal_request_fuzz.XXXXXX";
  if (!mkdtemp(root)) abort();
  log_set_level(LOG_NONE);
  shoal_status s = shoal_server_start(&(shoal_server_options){.cluster = "{\"w\": [\"127.0.0.1:0\"]}",
                                                              .job = "w",
                                                              .inter_op_threads = 2,
                                                              .intra_op_threads = 1,
                                                              .file_root = root,
                                                              .max_graph_nodes = 10000,
                                                              .max_sessions = 64,
                                                              .max_tensor_bytes = 64 << 20},
                                      &server);
  if (s) abort();
  s = shoal_server_start(
      &(shoal_server_options){.size = sizeof(shoal_server_options),
                              .cluster = "{\"worker\": [\"127.0.0.1:0\", \"127.0.0.1:1\", \"127.0.0.1:2\"]}",
                              .job = "worker",
                              .inter_op_threads = 1,
                              .intra_op_threads = 1,
                              .file_root = root,
                              .coordination_service = true},
      &leader);
  if (s) abort();
  rmdir(root); /* held open by the server, and now nobody can make anything in it */
}

struct waiting {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool answered;
  char *keep; /* where the first field's text goes, if it is so long; NULL: nowhere */
  size_t keep_n;
  int refs;
};

static void unref(struct waiting *w) {
  pthread_mutex_lock(&w->lock);
  bool last = --w->refs == 0;
  pthread_mutex_unlock(&w->lock);
  if (!last) return;
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->changed);
  free(w);
}

static void take(void *arg, shoal_status s, struct rpc_message *m) {
  struct waiting *w = arg;
  if (s && !shoal_status_message(s)[0]) abort(); /* every error says something */
  if (!s && w->keep && m) {
    const void *data;
    size_t size;
    rpc_message_flat(m, &data, &size);
    struct wire fields = wire_from(data, size);
    for (struct wire_field f; wire_next(&fields, &f) == WIRE_FIELD;)
      if (f.tag == CreateSessionResponse_session_handle && f.size == w->keep_n) memcpy(w->keep, f.data, f.size);
  }
  shoal_status_free(s);
  pthread_mutex_lock(&w->lock);
  w->answered = true;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
  unref(w);
}

static bool wait_ms(struct waiting *w, int64_t ms) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += ms / 1000;
  until.tv_nsec += ms % 1000 * 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_mutex_lock(&w->lock);
  int err = 0;
  while (!w->answered && !err) err = pthread_cond_timedwait(&w->changed, &w->lock, &until);
  bool answered = w->answered;
  pthread_mutex_unlock(&w->lock);
  return answered;
}

static void put_handle(uint8_t *data, size_t size, const char *mark, const char *handle) {
  size_t n = strlen(mark);
  for (uint8_t *at = data; *handle && (at = memmem(at, size - (size_t)(at - data), mark, n)); at += n)
    memcpy(at, handle, n);
}

struct open_call {
  struct rpc_call *call;
  struct waiting *waiting;
};

static struct open_call begin(const struct rpc_method *m, const uint8_t *data, size_t size) {
  struct waiting *w = mem_zalloc(1, sizeof *w);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->changed, NULL);
  w->refs = 2;
  w->keep = strstr(m->name, "/CreateSession") ? session : strstr(m->name, "RegisterGraph") ? graph : NULL;
  w->keep_n = w->keep == session ? SESSION : GRAPH;
  uint8_t *copy = mem_alloc(size + 1);
  memcpy(copy, data, size);
  put_handle(copy, size, "$SESSION$SESSION$SESSION$SESSION", session);
  put_handle(copy, size, "$GRAPH$GRAPH$GRA", graph);
  bool coordinates = strstr(m->name, ".CoordinationService/");
  struct rpc_call *c = rpc_call_local(m, coordinates ? leader : server, copy, size, take, w);
  free(copy);
  if (!coordinates) wait_ms(w, PATIENCE_MS); /* most are answered; those that wait for later calls go on */
  return (struct open_call){c, w};
}

static void end(struct open_call *o) {
  rpc_call_local_end(o->call);
  if (!wait_ms(o->waiting, LIMIT_S * 1000)) abort(); /* the client has gone, and the call goes on */
  unref(o->waiting);
}

/* What one input made is not the next one's: tasks, values, barriers. */
static void forget_coordination(void) {
  struct coordination *c = coordination_agent_service(leader->coordination);
  struct coordination_wait *told = NULL;
  for (size_t i = 0; i < c->tasks.n; i++) {
    shoal_status_free(coordination_disconnect(c, c->tasks.at[i].name));
    c->tasks.at[i].grace_until = 0;
  }
  pthread_mutex_lock(&c->lock);
  coordination_forget_values(c, &told);
  coordination_forget_barriers(c, &told);
  coordination_unlock(c, told);
}

/* Sessions, steps, variables. */
static void forget(void) {
  struct worker *w = server->worker;
  master_close(&server->master);
  server->master.closing = false;
  for (;;) {
    size_t i = 0;
    const char *handle = NULL;
    void *value;
    pthread_mutex_lock(&w->lock);
    char *copy = strmap_next(&w->sessions, &i, &handle, &value) ? mem_strdup(handle) : NULL;
    pthread_mutex_unlock(&w->lock);
    if (!copy) break;
    worker_delete_session(w, copy);
    free(copy);
  }
  worker_cleanup_all(w, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!server) start();
  int n_methods;
  const struct rpc_method *methods = server_methods(&n_methods);
  VEC(struct open_call) open = {0};
  memset(session, 0, sizeof session);
  memset(graph, 0, sizeof graph);
  while (size >= 3 && open.n < MAX_CALLS) {
    const struct rpc_method *m = &methods[data[0] % n_methods];
    size_t n = MIN((size_t)data[1] | (size_t)data[2] << 8, size - 3);
    data += 3;
    size -= 3;
    if (!strstr(m->name, "/Stop")) vec_push(&open, begin(m, data, n));
    data += n;
    size -= n;
  }
  for (size_t i = 0; i < open.n; i++) end(&open.at[i]);
  vec_release(&open);
  forget();
  forget_coordination();
  return 0;
}
