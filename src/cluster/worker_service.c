/* WorkerService: requests taken apart, answers put together; the work is worker.c's. RunGraph and RecvTensor, which
 * wait, are in worker_service_run.c. */
#include "cluster/worker_service.h"

#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "cluster/identity.h"
#include "cluster/request_parts.h"
#include "cluster/worker_ops.h"
#include "cluster/worker_partial.h"
#include "graph/import.h"
#include "proto/config.wire.h"
#include "proto/shoal.wire.h"
#include "proto/worker.wire.h"
#include "runtime/session_config.h"

static void set_string(char **to, const struct wire_field *f) {
  free(*to);
  *to = mem_strndup((const char *)f->data, f->size);
}

static shoal_status check_end(enum wire_step step, const char *message) {
  return step == WIRE_BROKEN ? INVALID("%s does not parse as a protocol buffer", message) : NULL;
}

/* A master that makes a session says whose it is. */
static shoal_status check_part(struct worker *w, struct rpc_call *c) {
  enum { LONGEST = 2000 };
  char *asker = NULL, *group = NULL, *address = mem_strdup("");
  struct wire m;
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && wire_next(&m, &f) == WIRE_FIELD;) {
    if (f.tag == GetStatusAsk_task) set_string(&asker, &f);
    if (f.tag == GetStatusAsk_group && f.size < LONGEST) set_string(&group, &f);
    if (f.tag == GetStatusAsk_address && f.size < LONGEST) set_string(&address, &f);
  }
  if (!s && asker) s = identity_check_task(c, asker);
  if (!s && asker) s = no_part_why(&w->no_part, asker);
  if (!s && asker && group && strlen(asker) < LONGEST)
    s = same_group_heard(&w->group, w->task, asker, group, address, 2 * cluster_spec_count(w->spec));
  free(asker);
  free(group);
  free(address);
  return s;
}

void worker_service_get_status(struct worker *w, struct rpc_call *c) {
  struct text t = {0};
  shoal_status s = check_part(w, c);
  if (s) {
    rpc_call_fail(c, s);
    return;
  }
  for (int i = 0; i < w->n_devices; i++) {
    size_t at = begin_GetStatusResponse_device_attributes(&t);
    worker_device_attributes(w, i, w->devices[i]->name, &t);
    wire_end(&t, at);
  }
  size_t told, unheard = leader_left(w->collectives.tables, NULL, 0, &told);
  if (unheard) put_GetStatusExtra_unheard(&t, (int64_t)unheard);
  rpc_call_answer(c, NULL, &t);
}

shoal_status debug_options_check(struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == DebugOptions_debug_tensor_watch_opts)
      return UNIMPLEMENTED("RunOptions.debug_options: watching tensors (debug_tensor_watch_opts) is not implemented");
  return NULL;
}

/* ServerDef: a propagated cluster, what this task is called in it, and who leads collectives. */
static shoal_status read_server_def(struct wire w, int64_t max_tasks, struct cluster_spec *spec, char **job, int *task,
                                    char **leader) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == ServerDef_cluster) TRY(cluster_spec_from_proto(spec, f.data, f.size, max_tasks));
    if (f.tag == ServerDef_job_name) set_string(job, &f);
    if (f.tag == ServerDef_task_index) *task = (int)f.value;
    if (f.tag == ServerDef_default_session_config) {
      free(*leader);
      *leader = session_config_leader(wire_inside(&f));
    }
  }
  return NULL;
}

void worker_service_create_session(struct worker *w, struct rpc_call *c) {
  struct wire m;
  char *handle = mem_strdup(""), *master = mem_strdup(""), *job = NULL, *named = NULL, *leader = NULL;
  struct cluster_spec spec = {0};
  struct worker_session_options o = {0};
  enum wire_step step = WIRE_END;
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && (step = wire_next(&m, &f)) == WIRE_FIELD;) {
    if (f.tag == CreateWorkerSessionRequest_session_handle) set_string(&handle, &f);
    if (f.tag == CreateWorkerSessionRequest_server_def)
      s = read_server_def(wire_inside(&f), limits_most(w->limits, LIMIT_PEERS), &spec, &job, &o.task, &named);
    if (f.tag == CreateWorkerSessionRequest_isolate_session_state) o.isolated = f.value != 0;
    if (f.tag == CreateWorkerSessionRequest_master_task) set_string(&master, &f);
    if (f.tag == CreateWorkerSessionRequest_master_incarnation) o.master_incarnation = (int64_t)f.value;
  }
  if (!s) s = check_end(step, "CreateWorkerSessionRequest");
  if (!s && *master) s = identity_check_task(c, master);
  if (!s && *master && strcmp(master, w->task)) s = no_part_why(&w->no_part, master);
  if (!s) {
    o.handle = handle;
    o.master = master;
    o.remote = true;
    o.from = rpc_call_origin(c);
    if (spec.jobs.n) {
      o.spec = &spec;
      o.job = job;
      const char *self = job ? cluster_spec_find(&spec, job, o.task) : NULL;
      if (!w->client_clusters) s = cluster_spec_admit(w->spec, &spec, self, w->task);
    }
    if (!s && named)
      s = collectives_check_leader("collective_group_leader", named, spec.jobs.n ? &spec : w->spec, &leader);
    o.leader = leader;
    if (!s) s = worker_create_session(w, &o);
  }
  cluster_spec_release(&spec);
  free(handle);
  free(master);
  free(job);
  free(named);
  free(leader);
  rpc_call_fail(c, s);
}

/* Requests that hold a graph handle, a session handle and whether the master made the session. */
struct names {
  char *session, *graph;
  bool called;
};

static void names_release(struct names *n) {
  free(n->session);
  free(n->graph);
}

void worker_service_delete_session(struct worker *w, struct rpc_call *c) {
  struct wire m;
  char *handle = mem_strdup("");
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && wire_next(&m, &f) == WIRE_FIELD;)
    if (f.tag == DeleteWorkerSessionRequest_session_handle) set_string(&handle, &f);
  if (!s) worker_delete_session(w, handle);
  free(handle);
  rpc_call_fail(c, s);
}

/* A graph to be registered: imported and compiled by a builder. */
struct registration {
  struct worker *worker;
  struct rpc_call *call; /* which holds what def is in */
  struct worker_session *session;
  struct wire def;
  struct worker_graph_options options;
  atomic_bool gone;
};

static void registrar_gone(void *arg) { atomic_store(&((struct registration *)arg)->gone, true); }

static bool is_gone(void *arg) { return atomic_load(&((struct registration *)arg)->gone); }

static shoal_status note_bytes(void *arg, size_t nodes, size_t bytes) {
  ((struct registration *)arg)->options.bytes = bytes;
  return NULL;
}

static void register_graph(void *arg) {
  struct registration *r = arg;
  struct worker_graph *wg = NULL;
  struct shoal_graph *g = graph_new();
  struct text out = {0};
  struct effort effort = {.left = EFFORT_UNBOUNDED, .over = is_gone, .arg = r};
  struct account *a = r->session->account;
  shoal_status s =
      graph_import(g, r->def.at, wire_left(&r->def),
                   &(struct import_options){.internal = true,
                                            .max_nodes = r->worker->max_graph_nodes,
                                            .effort = &effort,
                                            .max_repeated = a ? MAX(1, account_room(a, LIMIT_GRAPH_BYTES)) : 0,
                                            .admit = note_bytes,
                                            .arg = r},
                   NULL);
  if (s) graph_free(g);
  else s = worker_register_graph(r->session, g, &r->options, &wg);
  if (!s) put_RegisterGraphResponse_graph_handle(&out, wg->handle);
  worker_graph_unref(wg);
  worker_session_unref(r->session);
  rpc_call_answer(r->call, s, &out);
  free(r); /* after the answer nobody cancels */
}

void worker_service_register_graph(struct worker *w, struct rpc_call *c) {
  struct wire m, def = wire_from("", 0);
  struct names n = {mem_strdup(""), NULL, false};
  struct worker_session *session = NULL;
  struct session_config config = {0};
  enum wire_step step = WIRE_END;
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && (step = wire_next(&m, &f)) == WIRE_FIELD;) {
    if (f.tag == RegisterGraphRequest_session_handle) set_string(&n.session, &f);
    if (f.tag == RegisterGraphRequest_graph_def) def = wire_inside(&f);
    if (f.tag == RegisterGraphRequest_graph_options) graph_options_read(&config, wire_inside(&f));
    if (f.tag == RegisterGraphRequest_debug_options) s = debug_options_check(wire_inside(&f));
    if (f.tag == RegisterGraphRequest_create_worker_session_called) n.called = f.value != 0;
    if (f.tag == RegisterGraphRequest_config_proto) s = session_config_read(&config, wire_inside(&f));
  }
  if (!s) s = check_end(step, "RegisterGraphRequest");
  if (!s) s = worker_find_session(w, n.session, n.called, &session);
  names_release(&n);
  session_config_release(&config);
  if (s) {
    rpc_call_fail(c, s);
    return;
  }
  struct registration *r = mem_zalloc(1, sizeof *r);
  r->worker = w;
  r->call = c;
  r->session = session;
  r->def = def;
  r->options = (struct worker_graph_options){.keep = true, .as_is = config.as_is};
  rpc_call_on_cancel(c, registrar_gone, r);
  pool_submit(w->builders, register_graph, r);
}

void worker_service_deregister_graph(struct worker *w, struct rpc_call *c) {
  struct wire m;
  struct names n = {mem_strdup(""), mem_strdup(""), false};
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && wire_next(&m, &f) == WIRE_FIELD;) {
    if (f.tag == DeregisterGraphRequest_graph_handle) set_string(&n.graph, &f);
    if (f.tag == DeregisterGraphRequest_session_handle) set_string(&n.session, &f);
    if (f.tag == DeregisterGraphRequest_create_worker_session_called) n.called = f.value != 0;
  }
  struct worker_session *session = NULL;
  if (!s) s = worker_find_session(w, n.session, n.called, &session);
  if (!s) s = worker_deregister_graph(session, n.graph);
  worker_session_unref(session);
  names_release(&n);
  rpc_call_fail(c, s);
}

void worker_service_cleanup_graph(struct worker *w, struct rpc_call *c) {
  struct wire m;
  int64_t id = 0;
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && wire_next(&m, &f) == WIRE_FIELD;)
    if (f.tag == CleanupGraphRequest_step_id) id = (int64_t)f.value;
  if (!s) partial_run_forget(w, id);
  if (!s) steps_cleanup(w->steps, id);
  owed_paid(&w->owed, id); /* before the answer, after which the worker may be no more */
  rpc_call_fail(c, s);
}

void worker_service_cleanup_all(struct worker *w, struct rpc_call *c) {
  struct wire m;
  VEC(char *) containers = {0};
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && wire_next(&m, &f) == WIRE_FIELD;)
    if (f.tag == CleanupAllRequest_container) vec_push(&containers, mem_strndup((const char *)f.data, f.size));
  if (!s) worker_cleanup_all(w, containers.at, (int)containers.n);
  for (size_t i = 0; i < containers.n; i++) free(containers.at[i]);
  vec_release(&containers);
  rpc_call_fail(c, s);
}

void worker_service_mark_recv_finished(struct worker *w, struct rpc_call *c) { rpc_call_reply(c, NULL); }

/* Spans of received tensors are part of each traced RunGraph's own answer: there is nothing to keep between calls. */
void worker_service_logging(struct worker *w, struct rpc_call *c) { rpc_call_reply(c, NULL); }
