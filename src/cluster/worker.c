/* The worker's sessions and graphs; running them is worker_run.c. */
#include "cluster/worker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/log.h"
#include "base/wire.h"
#include "graph/import.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"
#include "runtime/plan_rewrite.h"
#include "runtime/step_ends.h"

enum { MAX_BUILDERS = 4 };

struct worker *worker_new(const struct worker_options *o) {
  struct worker *w = mem_zalloc(1, sizeof *w);
  w->task = mem_strdup(o->task);
  w->spec = o->spec;
  w->peers = o->peers;
  w->inter = pool_new(o->inter_threads, "shoal-inter");
  w->intra = pool_new(o->intra_threads, "shoal-intra");
  w->builders = pool_new(MAX(2, MIN(cpu_count(), MAX_BUILDERS)), "shoal-build");
  w->devices = devices_new(w->task, o->devices, o->n_devices, o->device_options, w->intra, &w->n_devices);
  w->resources = mem_zalloc((size_t)w->n_devices, sizeof *w->resources);
  w->key_starts = mem_zalloc((size_t)w->n_devices, sizeof *w->key_starts);
  for (int i = 0; i < w->n_devices; i++) {
    w->devices[i]->files = o->files;
    w->resources[i] = resource_mgr_new(NULL);
    w->key_starts[i] = mem_printf("%s;%016" PRIx64 ";", w->devices[i]->name, w->devices[i]->incarnation);
  }
  w->max_graph_nodes = o->max_graph_nodes > 0 ? (int)MIN(o->max_graph_nodes, INT32_MAX) : DEFAULT_GRAPH_NODES;
  w->client_clusters = o->client_clusters;
  w->limits = limits_new(o->task);
  limits_change(w->limits, LIMIT_SESSIONS, o->max_sessions);
  limits_change(w->limits, LIMIT_STEPS, o->max_steps);
  limits_change(w->limits, LIMIT_CALLABLES, o->max_callables);
  limits_change(w->limits, LIMIT_PARTIAL_RUNS, o->max_partial_runs);
  w->steps = steps_new(limits_most(w->limits, LIMIT_STEPS), limits_most_of_one(LIMIT_STEPS));
  owed_init(&w->owed);
  w->ids = request_ids_new();
  collectives_init(&w->collectives, o->collective_leader, o->collective_timeout_ms, o->shares_memory);
  no_part_init(&w->no_part);
  same_group_init(&w->group);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->idle, NULL);
  worker_expect(w, o->spec);
  return w;
}

void worker_free(struct worker *w) {
  if (!w) return;
  pool_free(w->builders);
  INVARIANT(10, !w->runs && !w->partials);
  const char *handle;
  void *session;
  for (size_t i = 0; strmap_next(&w->sessions, &i, &handle, &session);) worker_session_unref(session);
  strmap_release(&w->sessions);
  strmap_release(&w->absent);
  worker_session_unref(w->legacy);
  steps_free(w->steps);
  owed_release(&w->owed);
  limits_free(w->limits);
  request_ids_free(w->ids);
  collectives_release(&w->collectives);
  no_part_release(&w->no_part);
  same_group_release(&w->group);
  for (int i = 0; i < w->n_devices; i++) {
    resource_mgr_close(w->resources[i]);
    device_free(w->devices[i]);
    free(w->key_starts[i]);
  }
  free(w->key_starts);
  free(w->devices);
  free(w->resources);
  pool_free(w->inter);
  pool_free(w->intra);
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->idle);
  free(w->task);
  free(w);
}

/* A name out of a request, as text that ends and by its parts; false: it is none. */
static bool read_name(const char *name, size_t n, char text[256], struct device_spec *spec) {
  if (n >= 256) return false;
  memcpy(text, name, n);
  text[n] = 0;
  shoal_status s = device_spec_parse(text, spec);
  shoal_status_free(s);
  return !s;
}

struct device *worker_device(const struct worker *w, const char *name, size_t n) {
  char text[256];
  struct device_spec spec;
  if (!read_name(name, n, text, &spec) || !spec.has_id || !spec.has_type) return NULL;
  for (int i = 0; i < w->n_devices; i++)
    if (!strcmp(w->devices[i]->type->name, spec.type) && w->devices[i]->ordinal == spec.id) return w->devices[i];
  return NULL;
}

/* As TensorFlow has it: nothing is said of a CPU's, and a card's bus is the first, with no links to others. */
static void put_locality(const struct device *d, struct text *out) {
  size_t at = begin_DeviceAttributes_locality(out);
  if (!d->type->host) put_DeviceLocality_bus_id(out, 1);
  if (!d->type->host) put_DeviceLocality_links_n(out, "", 0);
  wire_end(out, at);
}

void worker_device_attributes(const struct worker *w, int i, const char *name, struct text *out) {
  const struct device *d = w->devices[i];
  put_DeviceAttributes_name(out, name);
  put_DeviceAttributes_device_type(out, d->type->name);
  put_DeviceAttributes_memory_limit(out, d->memory_limit);
  put_locality(d, out);
  put_DeviceAttributes_incarnation(out, d->incarnation);
  if (d->description) put_DeviceAttributes_physical_device_desc(out, d->description);
  put_DeviceAttributes_xla_global_id(out, -1);
}

void worker_cleanup_all(struct worker *w, char *const *containers, int n) {
  for (int i = 0; i < w->n_devices; i++) {
    if (n == 0) resource_clear(w->resources[i], "");
    for (int k = 0; k < n; k++) resource_clear(w->resources[i], containers[k]);
  }
}

/* ---- sessions ---- */

/* The peer behind a task's name, in the session's cluster; the session keeps it. */
static struct peer *find_peer(void *arg, const char *task, size_t n) {
  struct worker_session *s = arg;
  char text[256];
  struct device_spec spec;
  pthread_mutex_lock(&s->lock);
  struct peer *p = strmap_getn(&s->peers, task, n);
  if (!p && read_name(task, n, text, &spec) && spec.has_job && spec.has_task) {
    bool own = !s->spec.jobs.n;
    const char *address = cluster_spec_find(own ? s->worker->spec : &s->spec, spec.job, spec.task);
    if (address) p = peers_get(s->worker->peers, text, address, own);
    if (p) strmap_put(&s->peers, text, p);
  }
  pthread_mutex_unlock(&s->lock);
  return p;
}

static struct worker_session *session_new(struct worker *w, const struct worker_session_options *o) {
  struct worker_session *s = mem_zalloc(1, sizeof *s);
  ref_init(&s->refs, 1);
  s->worker = w;
  s->handle = mem_strdup(o->handle);
  s->number = ++w->made;
  s->task = o->job ? mem_printf("/job:%s/replica:0/task:%d", o->job, o->task) : mem_strdup(w->task);
  if (o->spec) cluster_spec_copy(&s->spec, o->spec);
  if (o->leader) s->leader = mem_strdup(o->leader);
  if (o->leader && !strcmp(o->leader, s->task)) atomic_store(&w->collectives.named, true);
  s->isolated = o->isolated;
  s->master = mem_strdup(o->master ? o->master : "");
  s->master_incarnation = o->master_incarnation;
  s->resources = mem_zalloc((size_t)w->n_devices, sizeof *s->resources);
  s->kernels = kernel_cache_new();
  s->device_names = mem_zalloc((size_t)w->n_devices, sizeof *s->device_names);
  for (int i = 0; i < w->n_devices; i++) {
    s->resources[i] = o->isolated ? resource_mgr_new(NULL) : resource_mgr_ref(w->resources[i]);
    s->device_names[i] = mem_printf("%s/device:%s:%d", s->task, w->devices[i]->type->name, w->devices[i]->ordinal);
  }
  s->names = (struct step_names){s->task, find_peer, s, s->number};
  session_collectives_init(&s->collectives, s);
  atomic_init(&s->connection, o->from.connection);
  atomic_init(&s->last_used, clock_ns());
  pthread_mutex_init(&s->lock, NULL);
  return s;
}

void worker_session_unref(struct worker_session *s) {
  if (!s || !ref_drop(&s->refs)) return;
  void *graph;
  for (size_t i = 0; strmap_next(&s->graphs, &i, NULL, &graph);) worker_graph_unref(graph);
  strmap_release(&s->graphs);
  steps_forget_session(s->worker->steps, s->number);
  for (size_t i = 0; strmap_next(&s->peers, &i, NULL, &graph);) peer_unref(graph);
  strmap_release(&s->peers);
  if (s->account && *s->handle) account_give(s->account, LIMIT_SESSIONS, 1); /* the legacy one has no handle */
  if (s->account) account_give(s->account, LIMIT_PEERS, s->n_peers);
  account_unref(s->account);
  for (int i = 0; i < s->worker->n_devices; i++) {
    if (s->isolated) resource_mgr_close(s->resources[i]);
    else resource_mgr_unref(s->resources[i]);
    free(s->device_names[i]);
  }
  kernel_cache_free(s->kernels);
  session_collectives_release(&s->collectives);
  free(s->resources);
  free(s->device_names);
  cluster_spec_release(&s->spec);
  pthread_mutex_destroy(&s->lock);
  free(s->handle);
  free(s->task);
  free(s->leader);
  free(s->master);
  free(s);
}

shoal_status worker_create_session(struct worker *w, const struct worker_session_options *o) {
  if (!*o->handle) return INVALID("CreateWorkerSession needs a session handle");
  VEC(struct worker_session *) old = {0};
  pthread_mutex_lock(&w->lock);
  if (o->master) worker_came(w, o->master);
  const char *handle;
  void *value;
  for (size_t i = 0; o->master && *o->master && strmap_next(&w->sessions, &i, &handle, &value);) {
    struct worker_session *s = value;
    if (!strcmp(s->master, o->master) && s->master_incarnation != o->master_incarnation) vec_push(&old, s);
  }
  for (size_t i = 0; i < old.n; i++) strmap_remove(&w->sessions, old.at[i]->handle);
  shoal_status full = NULL;
  if (!strmap_has(&w->sessions, o->handle)) {
    size_t peers = o->remote && o->spec ? cluster_spec_count(o->spec) : 0;
    struct account *a = o->remote ? account_get(w->limits, o->from) : NULL;
    if (a) full = account_take(a, LIMIT_SESSIONS, 1);
    if (a && !full && (full = account_take(a, LIMIT_PEERS, peers))) account_give(a, LIMIT_SESSIONS, 1);
    if (full) {
      account_unref(a);
    } else {
      struct worker_session *s = session_new(w, o);
      s->account = a;
      s->n_peers = peers;
      strmap_put(&w->sessions, o->handle, s);
    }
  }
  pthread_mutex_unlock(&w->lock);
  if (old.n) LOGW("%s was restarted: %zu of its sessions are dropped", o->master, old.n);
  for (size_t i = 0; i < old.n; i++) worker_session_unref(old.at[i]);
  vec_release(&old);
  return full;
}

void worker_delete_session(struct worker *w, const char *handle) {
  pthread_mutex_lock(&w->lock);
  struct worker_session *s = strmap_remove(&w->sessions, handle);
  pthread_mutex_unlock(&w->lock);
  worker_session_unref(s);
}

void worker_sweep(struct worker *w, bool (*connected)(void *arg, uint64_t connection), void *arg) {
  enum { GONE_MS = 60000 }; /* steps come by other connections too */
  VEC(struct worker_session *) old = {0};
  void *value;
  int64_t before = clock_ns() - GONE_MS * 1000000ll;
  pthread_mutex_lock(&w->lock);
  for (size_t i = 0; strmap_next(&w->sessions, &i, NULL, &value);) {
    struct worker_session *s = value;
    if (s->account && atomic_load(&s->last_used) < before && !connected(arg, atomic_load(&s->connection)))
      vec_push(&old, s);
  }
  for (size_t i = 0; i < old.n; i++) strmap_remove(&w->sessions, old.at[i]->handle);
  pthread_mutex_unlock(&w->lock);
  if (old.n) LOGW("%zu sessions are dropped to make room: the masters that opened them have gone", old.n);
  for (size_t i = 0; i < old.n; i++) worker_session_unref(old.at[i]);
  vec_release(&old);
}

shoal_status worker_find_session(struct worker *w, const char *handle, bool called, struct worker_session **out) {
  pthread_mutex_lock(&w->lock);
  struct worker_session *s = NULL;
  if (!called) {
    if (!w->legacy) {
      w->legacy = session_new(w, &(struct worker_session_options){.handle = ""});
      w->legacy->account = account_get(w->limits, (struct rpc_origin){0});
    }
    s = w->legacy;
  } else {
    s = strmap_get(&w->sessions, handle);
  }
  if (s) ref_take(&s->refs);
  pthread_mutex_unlock(&w->lock);
  *out = s;
  if (s) return NULL;
  return status_mark_restarted(STATUS(SHOAL_ABORTED,
                                      "Session handle is not found: %s. Possibly this worker (\"%s\") just restarted.",
                                      handle, w->task));
}

/* ---- graphs ---- */

void worker_graph_unref(struct worker_graph *g) {
  if (!g || !ref_drop(&g->refs)) return;
  plan_set_release(&g->set);
  function_runtime_unref(g->functions);
  if (g->kept) graph_free(g->kept);
  if (g->account) account_give(g->account, LIMIT_NODES, g->n_nodes);
  if (g->account) account_give(g->account, LIMIT_GRAPH_BYTES, g->n_bytes);
  if (g->account) account_give(g->account, LIMIT_GRAPHS, 1);
  account_unref(g->account);
  free(g->handle);
  free(g);
}

static int device_index(const struct worker_session *s, const char *name) {
  for (int i = 0; i < s->worker->n_devices; i++)
    if (!strcmp(s->device_names[i], name)) return i;
  const struct device *d = worker_device(s->worker, name, strlen(name));
  size_t n = strlen(s->task);
  bool ours = !strncmp(name, s->task, n) || str_starts(name, "/device:");
  for (int i = 0; d && ours && i < s->worker->n_devices; i++)
    if (s->worker->devices[i] == d) return i;
  return -1;
}

static int place_of(void *arg, const char *device) { return device_index(arg, device); }

/* counter: of the names that cutting gives. */
static struct plan_places places_of(struct worker_session *s, struct function_runtime *functions, int64_t *counter) {
  return (struct plan_places){.devices = s->worker->devices,
                              .resources = s->resources,
                              .n_devices = s->worker->n_devices,
                              .functions = functions,
                              .kernels = s->kernels,
                              .place_of = place_of,
                              .arg = s,
                              .next_name = counter,
                              .steps = true};
}

static const char *node_device(const struct shoal_node *n) { return n->assigned ? n->assigned : n->device; }

/* Every node on a device of this task? Does anything meet in the rendezvous? What came by the network has its devices
 * as asked for, which is where they were assigned. */
static shoal_status survey(struct worker_session *s, const struct shoal_graph *g, bool *meets) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    int d = device_index(s, node_device(n));
    if (d < 0)
      return INVALID("{{node %s}} is on the device \"%s\", which %s does not have: unknown device.", n->name,
                     node_device(n), s->task);
    if (!n->assigned) n->assigned = mem_strdup(s->device_names[d]);
    *meets = *meets || op_is(n->op, "_Send") || op_is(n->op, "_Recv") || op_is(n->op, "_HostSend") ||
             op_is(n->op, "_HostRecv");
  }
  return NULL;
}

/* What other masters register counts here; what this task's own does counts there. */
static shoal_status count_graph(struct worker_session *s, const struct shoal_graph *g, size_t bytes,
                                struct worker_graph *wg) {
  if (!s->account) return NULL;
  TRY(account_take(s->account, LIMIT_GRAPHS, 1));
  wg->account = account_ref(s->account); /* what is taken from here on is given back with the graph */
  TRY(account_take(s->account, LIMIT_NODES, g->nodes.n));
  wg->n_nodes = g->nodes.n;
  TRY(account_take(s->account, LIMIT_GRAPH_BYTES, bytes));
  wg->n_bytes = bytes;
  return NULL;
}

static shoal_status export_one(const struct shoal_graph *g, struct text *out) {
  size_t at = begin_RunGraphResponse_partition_graph(out);
  TRY(graph_export(g, &(struct export_options){.assigned = true}, out));
  wire_end(out, at);
  return NULL;
}

shoal_status worker_graph_export(struct worker_session *s, const struct worker_graph *g, struct text *out) {
  if (!g->kept || g->set.n <= 1) return g->kept ? export_one(g->kept, out) : NULL;
  struct shoal_graph **parts = mem_zalloc((size_t)s->worker->n_devices, sizeof *parts);
  int64_t counter = 0;
  struct plan_places places = places_of(s, NULL, &counter);
  shoal_status err = plan_places_cut(&places, g->kept, parts);
  for (int i = 0; i < s->worker->n_devices; i++) {
    if (!parts[i]) continue;
    if (!err) err = export_one(parts[i], out);
    graph_free(parts[i]);
  }
  free(parts);
  return err;
}

/* The device that all of a graph is on; -1: there are several. An empty one is on the first. */
static int only_device(const struct worker_session *s, const struct shoal_graph *g) {
  int only = -1;
  for (size_t i = 0; i < g->nodes.n; i++) {
    if (!g->nodes.at[i]) continue;
    int d = device_index(s, node_device(g->nodes.at[i]));
    if (only >= 0 && d != only) return -1;
    only = d;
  }
  return MAX(only, 0);
}

static shoal_status compile(struct worker_session *s, struct shoal_graph *g, struct worker_graph *wg) {
  int64_t counter = 0;
  struct plan_places places = places_of(s, wg->functions, &counter);
  step_ends_follow(&places, g);
  int only = only_device(s, g);
  if (only >= 0) return plan_set_add(&wg->set, &places, only, g);
  wg->meets = true;
  struct shoal_graph **parts = mem_zalloc((size_t)places.n_devices, sizeof *parts);
  shoal_status err = plan_set_compile(&wg->set, &places, g, parts);
  for (int i = 0; i < places.n_devices; i++)
    if (parts[i]) graph_free(parts[i]);
  free(parts);
  return err;
}

shoal_status worker_register_graph(struct worker_session *s, struct shoal_graph *g,
                                   const struct worker_graph_options *o, struct worker_graph **out) {
  int n = s->worker->n_devices;
  bool meets = false;
  struct worker_graph *wg = mem_zalloc(1, sizeof *wg);
  ref_init(&wg->refs, 1);
  if (o->keep) wg->kept = g;
  shoal_status err = count_graph(s, g, o->bytes, wg);
  if (!err) err = survey(s, g, &meets);
  if (!err && meets) worker_graph_came(s->worker, g);
  struct collective_survey c = {.whole = true};
  if (!err) c = collective_survey(g, NULL);
  if (c.whole && !err) err = c.wrong;
  else shoal_status_free(c.wrong);
  wg->spans = !c.whole && cluster_spec_count(s->spec.jobs.n ? &s->spec : s->worker->spec) > 1;
  wg->meets = meets || wg->spans;
  if (!err) {
    struct shoal_graph *own = graph_copy(g, NULL);
    if (g->functions.n) {
      wg->functions = function_runtime_new(own);
      function_runtime_place(wg->functions, s->worker->devices, s->device_names, s->resources, n,
                             o->as_is ? "all" : NULL);
    }
    err = plan_rewrite_step(own, plan_rewrites_off(o->as_is), NULL); /* the master has folded */
    if (c.any) collective_order(own);
    if (!err) err = compile(s, own, wg);
    graph_free(own);
  }
  if (err) {
    worker_graph_unref(wg);
    return err;
  }
  pthread_mutex_lock(&s->lock);
  wg->handle = mem_printf("%016" PRIx64, (uint64_t)++s->next_graph);
  ref_take(&wg->refs);
  strmap_put(&s->graphs, wg->handle, wg);
  pthread_mutex_unlock(&s->lock);
  *out = wg;
  return NULL;
}

shoal_status worker_deregister_graph(struct worker_session *s, const char *handle) {
  pthread_mutex_lock(&s->lock);
  struct worker_graph *g = strmap_remove(&s->graphs, handle);
  pthread_mutex_unlock(&s->lock);
  if (!g) return STATUS(SHOAL_ABORTED, "Graph handle is not found: %s. Possibly, this worker just restarted.", handle);
  worker_graph_unref(g);
  return NULL;
}

shoal_status worker_find_graph(struct worker_session *s, const char *handle, struct worker_graph **out) {
  pthread_mutex_lock(&s->lock);
  struct worker_graph *g = strmap_get(&s->graphs, handle);
  if (g) ref_take(&g->refs);
  pthread_mutex_unlock(&s->lock);
  *out = g;
  return g ? NULL : STATUS(SHOAL_ABORTED, "Graph handle is not found: %s", handle);
}
