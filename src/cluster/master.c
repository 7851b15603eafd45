/* Sessions of a master; see master.h. */
#include "cluster/master.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "cluster/latch.h"
#include "graph/import.h"

void master_init(struct master *m, struct worker *w, const struct cluster_spec *spec, struct peers *peers) {
  *m = (struct master){.worker = w, .spec = spec, .peers = peers, .ids = w->ids};
  pthread_mutex_init(&m->lock, NULL);
}

void master_close(struct master *m) {
  for (;;) {
    const char *handle = NULL;
    void *s;
    size_t i = 0;
    pthread_mutex_lock(&m->lock);
    m->closing = true;
    char *copy = strmap_next(&m->sessions, &i, &handle, &s) ? mem_strdup(handle) : NULL;
    pthread_mutex_unlock(&m->lock);
    if (!copy) break;
    shoal_status_free(master_close_session(m, copy));
    free(copy);
  }
}

void master_release(struct master *m) {
  master_close(m);
  strmap_release(&m->sessions);
  pthread_mutex_destroy(&m->lock);
}

bool master_has_peers(const struct master *m) {
  return m->spec->jobs.n > 1 || (m->spec->jobs.n == 1 && m->spec->jobs.at[0].tasks.n > 1);
}

/* ---- configuration ---- */

static void config_release(struct master_config *c) {
  for (size_t i = 0; i < c->filters.n; i++) free(c->filters.at[i]);
  vec_release(&c->filters);
  cluster_spec_release(&c->spec);
  text_release(&c->bytes);
}

static void read_graph_options(struct master_config *c, struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.number == 4 && f.type == WIRE_VARINT) c->cost_every = (int64_t)f.value;
    if (f.number != 10 || f.type != WIRE_BYTES) continue;
    struct wire rewriter = wire_inside(&f);
    for (struct wire_field k; wire_next(&rewriter, &k) == WIRE_FIELD;)
      if (k.number == 19 && k.type == WIRE_VARINT && k.value) c->rewrites_off = "all"; /* disable_meta_optimizer */
  }
}

static shoal_status config_read(struct master_config *c, struct wire w) {
  text_add(&c->bytes, (const char *)w.at, wire_left(&w));
  enum wire_step step;
  bool shared = false; /* experimental.share_session_state_in_clusterspec_propagation */
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    bool varint = f.type == WIRE_VARINT, bytes = f.type == WIRE_BYTES;
    if (f.number == 4 && bytes) vec_push(&c->filters, mem_strndup((const char *)f.data, f.size));
    if (f.number == 7 && varint) c->soft_placement = f.value != 0;
    if (f.number == 8 && varint) c->log_placement = f.value != 0;
    if (f.number == 9 && varint && f.value)
      return INVALID("Distributed session does not support session thread pool options.");
    if (f.number == 10 && bytes) read_graph_options(c, wire_inside(&f));
    if (f.number == 11 && varint) c->operation_timeout_ms = (int64_t)f.value;
    if (f.number == 12) return INVALID("Distributed session does not support session thread pool options.");
    if (f.number == 14 && bytes && f.size) {
      c->propagated = true;
      TRY(cluster_spec_from_proto(&c->spec, f.data, f.size));
    }
    if (f.number == 15 && varint) c->isolated = f.value != 0;
    if (f.number == 16 && bytes) {
      struct wire experimental = wire_inside(&f);
      for (struct wire_field k; wire_next(&experimental, &k) == WIRE_FIELD;)
        if (k.number == 8 && k.type == WIRE_VARINT) shared = k.value != 0;
    }
  }
  if (step == WIRE_BROKEN) return INVALID("ConfigProto does not parse as a protocol buffer");
  if (c->propagated && !shared) c->isolated = true;
  for (size_t i = 0; i < c->filters.n; i++) {
    struct device_spec spec;
    shoal_status s = device_spec_parse(c->filters.at[i], &spec);
    if (s) return status_prefix(s, "device_filters: ");
  }
  return NULL;
}

/* Does a task pass any of the filters? Parts that either leaves open match anything. */
static bool passes(char *const *filters, size_t n, const char *job, int task) {
  for (size_t i = 0; i < n; i++) {
    struct device_spec f;
    shoal_status s = device_spec_parse(filters[i], &f);
    shoal_status_free(s);
    if (s) continue;
    if ((!f.has_job || !strcmp(f.job, job)) && (!f.has_task || f.task == task) && (!f.has_replica || f.replica == 0))
      return true;
  }
  return n == 0;
}

/* ---- making a session ---- */

/* With a propagated cluster: which of its tasks is this server? By the target's text, and by the port. */
static shoal_status find_self(const struct master *m, const struct cluster_spec *spec, const char *target,
                              const char **job, int *task) {
  const char *address = str_starts(target, "grpc://") ? target + 7 : target;
  int found = 0;
  for (size_t i = 0; i < spec->jobs.n; i++)
    for (size_t k = 0; k < spec->jobs.at[i].tasks.n; k++)
      if (!strcmp(spec->jobs.at[i].tasks.at[k].address, address)) {
        *job = spec->jobs.at[i].name;
        *task = spec->jobs.at[i].tasks.at[k].index;
        found++;
      }
  if (found == 1) return NULL;
  if (found > 1) return INVALID("The master at %s appears in more than one place of the propagated cluster", target);
  return INVALID("The propagated cluster does not hold the master itself (%s): add its address, written alike", target);
}

static void add_remote(struct master_session *s, const char *job, int index, const char *address) {
  char task[128];
  snprintf(task, sizeof task, "/job:%s/replica:0/task:%d", job, index);
  if (!strcmp(task, s->task)) return;
  struct worker_link w;
  worker_link_remote(&w, peers_get(s->master->peers, task, address), task);
  vec_push(&s->workers, w);
}

static void log_ignored(void *arg, shoal_status s) {
  if (s) LOGI("a worker's half of a session could not be freed: %s", shoal_status_message(s));
  shoal_status_free(s);
  latch_done(arg, NULL);
}

static void delete_halves(struct master_session *s) {
  struct latch l;
  latch_init(&l, (int)s->workers.n);
  for (size_t i = 0; i < s->workers.n; i++)
    s->workers.at[i].ops->delete_session(&s->workers.at[i], s->handle, log_ignored, &l);
  shoal_status_free(latch_finish(&l));
}

static shoal_status create_halves(struct master_session *s, int64_t deadline) {
  struct latch l;
  latch_init(&l, (int)s->workers.n);
  for (size_t i = 0; i < s->workers.n; i++) {
    struct worker_link *w = &s->workers.at[i];
    struct device_spec name;
    shoal_status bad = device_spec_parse(w->task, &name);
    shoal_status_free(bad);
    struct worker_session_options o = {.handle = s->handle,
                                       .isolated = s->config.isolated,
                                       .master = s->task,
                                       .master_incarnation = (int64_t)s->workers.at[0].devices.at[0].incarnation,
                                       .job = name.job,
                                       .task = name.task,
                                       .spec = s->config.propagated ? &s->config.spec : NULL};
    w->ops->create_session(w, &o, deadline, latch_done, &l);
  }
  shoal_status err = latch_finish(&l);
  if (err) delete_halves(s); /* of those that could be made */
  return err;
}

static void list_devices(struct master_session *s) {
  for (size_t i = 0; i < s->workers.n; i++)
    for (size_t k = 0; k < s->workers.at[i].devices.n; k++) {
      struct remote_device *d = &s->workers.at[i].devices.at[k];
      struct place_device p = {.name = d->name};
      shoal_status err = device_spec_parse(d->name, &p.spec);
      if (err) {
        LOGW("a device of %s is left out: %s", s->workers.at[i].task, shoal_status_message(err));
        shoal_status_free(err);
        continue;
      }
      vec_push(&s->places, p);
      vec_push(&s->devices, (struct master_device){d->name, &d->attributes, d->incarnation, (int)i});
    }
}

static shoal_status make(struct master_session *s, struct wire graph_def, const char *target, int64_t deadline,
                         struct cancel *cancel) {
  struct master *m = s->master;
  const struct cluster_spec *spec = s->config.propagated ? &s->config.spec : m->spec;
  s->task = mem_strdup(m->worker->task);
  if (s->config.propagated) {
    const char *job;
    int task;
    TRY(find_self(m, spec, target, &job, &task));
    free(s->task);
    s->task = mem_printf("/job:%s/replica:0/task:%d", job, task);
  }
  struct worker_link own;
  worker_link_local(&own, m->worker, s->task);
  vec_push(&s->workers, own);
  for (size_t i = 0; i < spec->jobs.n; i++)
    for (size_t k = 0; k < spec->jobs.at[i].tasks.n; k++) {
      const struct cluster_job *j = &spec->jobs.at[i];
      if (passes(s->config.filters.at, s->config.filters.n, j->name, j->tasks.at[k].index))
        add_remote(s, j->name, j->tasks.at[k].index, j->tasks.at[k].address);
    }
  TRY(graph_import(s->graph, graph_def.at, wire_left(&graph_def),
                   &(struct import_options){.opens_session = true, .max_nodes = m->worker->max_graph_nodes}, NULL));
  TRY(master_meet_workers(s, deadline, cancel));
  list_devices(s);
  TRY(create_halves(s, deadline));
  return NULL;
}

shoal_status master_create_session(struct master *m, struct wire config, struct wire graph_def, const char *target,
                                   int64_t deadline, struct cancel *cancel, char handle[17]) {
  struct master_session *s = mem_zalloc(1, sizeof *s);
  atomic_init(&s->refs, 1);
  s->master = m;
  s->handle = mem_printf("%016" PRIx64, random_bits());
  s->graph = graph_new();
  s->unprepared = true;
  pthread_mutex_init(&s->graph_lock, NULL);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->idle, NULL);
  pthread_mutex_lock(&m->lock);
  shoal_status err = worker_check_sessions(m->worker, m->sessions.n);
  pthread_mutex_unlock(&m->lock);
  if (!err) err = config_read(&s->config, config);
  if (!err) err = make(s, graph_def, target, deadline, cancel);
  if (err) {
    master_session_unref(s);
    return err;
  }
  memcpy(handle, s->handle, 17);
  startup_over(m->startup);
  pthread_mutex_lock(&m->lock);
  err = m->closing ? STATUS(SHOAL_UNAVAILABLE, "the server %s is stopping", m->worker->task)
                   : worker_check_sessions(m->worker, m->sessions.n);
  if (!err) strmap_put(&m->sessions, s->handle, s);
  pthread_mutex_unlock(&m->lock);
  if (!err) return NULL;
  delete_halves(s);
  master_session_unref(s);
  return err;
}

shoal_status master_find_session(struct master *m, const char *handle, struct master_session **out) {
  pthread_mutex_lock(&m->lock);
  struct master_session *s = strmap_get(&m->sessions, handle);
  if (s) atomic_fetch_add(&s->refs, 1);
  pthread_mutex_unlock(&m->lock);
  *out = s;
  return s ? NULL : STATUS(SHOAL_ABORTED, "Session %s is not found.", handle);
}

void master_session_unref(struct master_session *s) {
  if (!s || atomic_fetch_sub(&s->refs, 1) != 1) return;
  void *value;
  for (size_t i = 0; strmap_next(&s->partials, &i, NULL, &value);) partial_free(value);
  strmap_release(&s->partials);
  for (size_t i = 0; strmap_next(&s->compiled, &i, NULL, &value);) compiled_unref(value);
  strmap_release(&s->compiled);
  for (size_t i = 0; i < s->callables.n; i++) {
    if (s->callables.at[i]) quota_give(&s->master->worker->callables, 1);
    compiled_unref(s->callables.at[i]);
  }
  vec_release(&s->callables);
  for (size_t i = 0; i < s->workers.n; i++) worker_link_release(&s->workers.at[i]);
  vec_release(&s->workers);
  vec_release(&s->devices);
  vec_release(&s->places);
  graph_free(s->graph);
  config_release(&s->config);
  pthread_mutex_destroy(&s->graph_lock);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->idle);
  free(s->handle);
  free(s->task);
  free(s);
}

shoal_status master_extend(struct master_session *s, struct wire graph_def, int64_t expected, int64_t *version) {
  pthread_mutex_lock(&s->graph_lock);
  shoal_status err = NULL;
  if (s->version != expected)
    err =
        STATUS(SHOAL_ABORTED, "Current version is %" PRId64 " but caller expected %" PRId64 ".", s->version, expected);
  else
    err = graph_import(s->graph, graph_def.at, wire_left(&graph_def),
                       &(struct import_options){.max_nodes = s->master->worker->max_graph_nodes}, NULL);
  if (!err) {
    s->unprepared = true;
    *version = ++s->version;
  }
  pthread_mutex_unlock(&s->graph_lock);
  return err;
}

shoal_status master_close_session(struct master *m, const char *handle) {
  pthread_mutex_lock(&m->lock);
  struct master_session *s = strmap_remove(&m->sessions, handle);
  pthread_mutex_unlock(&m->lock);
  if (!s) return STATUS(SHOAL_ABORTED, "Session %s is not found. Possibly, this master has restarted.", handle);
  step_runs_stop(s);
  delete_halves(s);
  master_session_unref(s);
  return NULL;
}

shoal_status master_reset(struct master *m, char *const *containers, int n, char *const *filters, int n_filters) {
  VEC(struct worker_link) workers = {0};
  struct worker_link own;
  worker_link_local(&own, m->worker, m->worker->task);
  vec_push(&workers, own);
  for (size_t i = 0; i < m->spec->jobs.n; i++)
    for (size_t k = 0; k < m->spec->jobs.at[i].tasks.n; k++) {
      const struct cluster_job *j = &m->spec->jobs.at[i];
      int index = j->tasks.at[k].index;
      char *task = mem_printf("/job:%s/replica:0/task:%d", j->name, index);
      struct worker_link w;
      if (strcmp(task, m->worker->task) && passes(filters, (size_t)n_filters, j->name, index)) {
        worker_link_remote(&w, peers_get(m->peers, task, j->tasks.at[k].address), task);
        vec_push(&workers, w);
      }
      free(task);
    }
  struct latch l;
  latch_init(&l, (int)workers.n);
  for (size_t i = 0; i < workers.n; i++) workers.at[i].ops->cleanup_all(&workers.at[i], containers, n, latch_done, &l);
  shoal_status err = latch_finish(&l);
  for (size_t i = 0; i < workers.n; i++) worker_link_release(&workers.at[i]);
  vec_release(&workers);
  VEC(char *) handles = {0};
  pthread_mutex_lock(&m->lock);
  const char *handle;
  void *s;
  for (size_t i = 0; strmap_next(&m->sessions, &i, &handle, &s);) vec_push(&handles, mem_strdup(handle));
  pthread_mutex_unlock(&m->lock);
  for (size_t i = 0; i < handles.n; i++) {
    shoal_status_free(master_close_session(m, handles.at[i]));
    free(handles.at[i]);
  }
  vec_release(&handles);
  return err;
}
