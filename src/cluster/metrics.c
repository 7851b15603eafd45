/* What a server tells of itself in numbers: beside the text of `shoal status`, and on its pages.
 *
 *   /healthz   200 "ok", or 503 and why: it is stopping, or the network's loop does not turn
 *   /metrics   for Prometheus
 *
 * Who is answered by the loop knows that it turns; while it does not, the thread that looks after it says so
 * (rpc/http1/http1_stall.c). */
#include "cluster/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/latch.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/wire.h"
#include "cluster/limits.h"
#include "device/device.h"
#include "rpc/fast/fast.h"
#include "rpc/limits.h"
#include "rpc/socket.h"
#include "runtime/variable.h"
#include "tensor/buffer.h"

enum { FETCH_MS = 1000 };

/* ---- gathering ---- */

struct gathered {
  struct server_numbers *n;
  struct tensor step; /* the variable global_step: its value, wherever that is */
};

static void count(void *arg, const char *container, const char *name, struct resource *r) {
  struct gathered *g = arg;
  if (r->type != &variable_type && r->type != &variable_ref_type) return;
  struct variable *v = (struct variable *)r;
  struct tensor t;
  if (pthread_rwlock_tryrdlock(&v->lock) != 0) { /* being changed: counted without its bytes */
    g->n->variables++;
    return;
  }
  bool there = tensor_valid(&v->value);
  if (there) tensor_ref(&t, &v->value);
  pthread_rwlock_unlock(&v->lock);
  if (!there) return;
  g->n->variables++;
  g->n->variable_bytes += (int64_t)tensor_bytes(&t);
  if (!strcmp(name, "global_step") && t.dtype == SHOAL_INT64 && t.n == 1) {
    tensor_release(&g->step);
    tensor_move(&g->step, &t);
  } else {
    tensor_release(&t);
  }
}

/* A number on its way out of a device's memory. */
struct number_fetch {
  struct ref refs; /* who asked, and the device */
  struct tensor from, number;
  struct latch come;
};

static void fetch_unref(struct number_fetch *f) {
  if (!ref_drop(&f->refs)) return;
  tensor_release(&f->from);
  tensor_release(&f->number);
  shoal_status_free(latch_release(&f->come));
  free(f);
}

static void fetched(void *arg, shoal_status s) {
  struct number_fetch *f = arg;
  latch_done(&f->come, s);
  fetch_unref(f);
}

/* Who asks how a server does is not kept waiting by a device that does not do well: -1 where it takes too long. */
static int64_t fetch_number(const struct tensor *t) {
  struct device *d = t->buffer->device;
  struct number_fetch *f = mem_zalloc(1, sizeof *f);
  ref_init(&f->refs, 2);
  latch_init(&f->come, 1);
  tensor_ref(&f->from, t);
  rpc_loop_hand_over();
  d->type->ops->to_host(d, &f->from, &f->number, fetched, f);
  bool come = latch_wait_until(&f->come, clock_ns() + FETCH_MS * 1000000ll);
  int64_t number = come && !f->come.status ? *T_DATA(&f->number, int64_t) : -1;
  fetch_unref(f);
  return number;
}

static int64_t resident_bytes(void) {
  long size = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "re");
  if (f && fscanf(f, "%ld %ld", &size, &resident) != 2) resident = 0;
  if (f) fclose(f);
  return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

void server_numbers_get(struct shoal_server *s, struct server_numbers *n) {
  struct worker *w = s->worker;
  *n = (struct server_numbers){.pid = getpid(),
                               .up_ms = (clock_ns() - s->started) / 1000000,
                               .tensor_bytes = (int64_t)buffer_bytes_in_use(),
                               .global_step = -1,
                               .memory_bytes = resident_bytes(),
                               .steps = atomic_load(&w->runs_started)};
  struct gathered g = {.n = n, .step = tensor_none()};
  for (int i = 0; i < w->n_devices; i++) resource_each(w->resources[i], count, &g);
  if (tensor_valid(&g.step)) n->global_step = g.step.buffer->device ? fetch_number(&g.step) : *T_DATA(&g.step, int64_t);
  tensor_release(&g.step);
  pthread_mutex_lock(&w->lock);
  n->sessions = (int64_t)w->sessions.n;
  for (struct graph_run *r = w->runs; r; r = r->next) n->running++;
  pthread_mutex_unlock(&w->lock);
  pthread_mutex_lock(&s->master.lock);
  n->master_sessions = (int64_t)s->master.sessions.n;
  pthread_mutex_unlock(&s->master.lock);
}

/* ---- /healthz ---- */

static int healthz(void *arg, struct text *out) {
  struct shoal_server *s = arg;
  pthread_mutex_lock(&s->lock);
  bool stopping = s->quit || atomic_load(&s->draining);
  pthread_mutex_unlock(&s->lock);
  text_adds(out, stopping ? "stopping\n" : "ok\n");
  return stopping ? 503 : 200;
}

/* ---- /metrics ---- */

static void put(struct text *out, const char *name, const char *type, const char *help, double value) {
  text_addf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name, value);
}

static int64_t open_descriptors(void) {
  int64_t n = 0;
  DIR *d = opendir("/proc/self/fd");
  while (d && readdir(d)) n++;
  if (d) closedir(d);
  return n > 3 ? n - 3 : 0; /* ".", "..", and the folder's own */
}

static void put_process(struct text *out, const struct server_numbers *n) {
  struct rusage u = {0};
  struct rlimit files = {0};
  struct timespec now = {0};
  getrusage(RUSAGE_SELF, &u);
  getrlimit(RLIMIT_NOFILE, &files);
  clock_gettime(CLOCK_REALTIME, &now);
  double cpu =
      (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
  put(out, "process_cpu_seconds_total", "counter", "Processor time.", cpu);
  put(out, "process_resident_memory_bytes", "gauge", "Memory of the process.", (double)n->memory_bytes);
  put(out, "process_open_fds", "gauge", "Open descriptors.", (double)open_descriptors());
  put(out, "process_max_fds", "gauge", "Most descriptors that may be open.", (double)files.rlim_cur);
  put(out, "process_start_time_seconds", "gauge", "When the server started, since 1970.",
      (double)now.tv_sec - (double)n->up_ms * 1e-3);
}

/* Used and allowed, of all that peers can make the server hold: both tables of limits. used: what of a row is held. */
static void put_limits(struct text *out, const struct limits *l, bool used) {
  const char *name = used ? "shoal_limit_used" : "shoal_limit_max";
  text_addf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, used ? "What is held of what a flag limits." : "The limit.",
            name);
  for (int i = 0; i < LIMITS; i++)
    text_addf(out, "%s{flag=\"%s\"} %" PRId64 "\n", name, limit_rows[i].name,
              used ? limits_used(l, (enum limit)i) : limits_most(l, (enum limit)i));
  for (int i = 0; i < RPC_LIMITS; i++) {
    if (!rpc_limit_rows[i].counted) continue;
    const struct budget *b = rpc_budget((enum rpc_limit)i);
    text_addf(out, "%s{flag=\"%s\"} %zu\n", name, rpc_limit_rows[i].flag, used ? budget_used(b) : b->most);
  }
}

static int metrics(void *arg, struct text *out) {
  struct shoal_server *s = arg;
  struct server_numbers n;
  int64_t in, sent;
  server_numbers_get(s, &n);
  socket_bytes(&in, &sent);
  text_addf(out, "# HELP shoal_info Which task this is.\n# TYPE shoal_info gauge\nshoal_info{task=\"%s\"} 1\n",
            s->task);
  put(out, "shoal_uptime_seconds", "gauge", "Since the server started.", (double)n.up_ms * 1e-3);
  put(out, "shoal_master_sessions", "gauge", "Sessions of clients.", (double)n.master_sessions);
  put(out, "shoal_worker_sessions", "gauge", "Sessions of masters.", (double)n.sessions);
  put(out, "shoal_steps_total", "counter", "Parts of steps that were started here.", (double)n.steps);
  put(out, "shoal_steps_running", "gauge", "Parts of steps that run here now.", (double)n.running);
  put(out, "shoal_connections", "gauge", "Open connections to this server.", (double)rpc_server_connections(s->rpc));
  put(out, "shoal_loop_stalls_total", "counter", "Times that the network's loop did not turn for too long.",
      (double)rpc_loop_stalls());
  put(out, "shoal_grpc_received_bytes_total", "counter", "Bytes read from connections of gRPC and HTTP.", (double)in);
  put(out, "shoal_grpc_sent_bytes_total", "counter", "Bytes written to connections of gRPC and HTTP.", (double)sent);
  fast_bytes(&in, &sent);
  put(out, "shoal_fast_connections", "gauge", "Open connections of the fast path to this server.",
      (double)budget_used(rpc_budget(RPC_MAX_FAST_CONNECTIONS)));
  put(out, "shoal_fast_received_bytes_total", "counter", "Bytes that came by the fast path, sockets and memory.",
      (double)in);
  put(out, "shoal_fast_sent_bytes_total", "counter", "Bytes that left by the fast path, sockets and memory.",
      (double)sent);
  text_addf(out,
            "# HELP shoal_collectives_total Parts of collectives between tasks that were begun here.\n"
            "# TYPE shoal_collectives_total counter\n");
  text_addf(out, "shoal_collectives_total{by=\"memory\"} %" PRId64 "\n",
            (int64_t)atomic_load(&s->worker->collectives.in_memory));
  text_addf(out, "shoal_collectives_total{by=\"windows\"} %" PRId64 "\n",
            (int64_t)atomic_load(&s->worker->collectives.in_windows));
  text_addf(out, "shoal_collectives_total{by=\"messages\"} %" PRId64 "\n",
            (int64_t)atomic_load(&s->worker->collectives.by_messages));
  put(out, "shoal_collective_parties_total", "counter",
      "How often such were begun in memory or in parcels, one or several at once.",
      (double)atomic_load(&s->worker->collectives.parties));
  put(out, "shoal_tensor_bytes", "gauge", "Bytes in tensors.", (double)n.tensor_bytes);
  put(out, "shoal_tensor_cached_bytes", "gauge", "Bytes kept for tensors to come.", (double)buffer_bytes_cached());
  put(out, "shoal_variables", "gauge", "Variables on this task.", (double)n.variables);
  put(out, "shoal_variable_bytes", "gauge", "Their bytes.", (double)n.variable_bytes);
  if (n.global_step >= 0)
    put(out, "shoal_global_step", "gauge", "The variable global_step, where it is.", (double)n.global_step);
  put_limits(out, s->worker->limits, true);
  put_limits(out, s->worker->limits, false);
  put_process(out, &n);
  return 200;
}

static const struct page rows[] = {{"/healthz", "text/plain; charset=utf-8", healthz},
                                   {"/metrics", "text/plain; version=0.0.4; charset=utf-8", metrics}};

shoal_status server_pages_start(struct shoal_server *s, const char *host, int port) {
  return pages_start(host ? host : "127.0.0.1", port > 0 ? port : 0, rows, (int)COUNT_OF(rows), s, &s->pages);
}
