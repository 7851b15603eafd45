/* The worker of this process behind the master's table: every call is a function call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/worker.h"

static void get_status(struct worker_link *w, const struct status_asker *asker, int64_t deadline, struct cancel *cancel,
                       worker_done done, void *arg) {
  for (int i = 0; i < w->local->n_devices; i++) {
    const struct device *d = w->local->devices[i];
    struct remote_device r = {.name = mem_printf("%s/device:%s:%d", w->task, d->type->name, d->ordinal),
                              .type = mem_strdup(d->type->name),
                              .incarnation = d->incarnation};
    worker_device_attributes(w->local, i, r.name, &r.attributes);
    vec_push(&w->devices, r);
  }
  done(arg, NULL);
}

static void create_session(struct worker_link *w, const struct worker_session_options *o, int64_t deadline,
                           struct cancel *cancel, worker_done done, void *arg) {
  done(arg, worker_create_session(w->local, o));
}

static void delete_session(struct worker_link *w, const char *session, struct cancel *cancel, worker_done done,
                           void *arg) {
  worker_delete_session(w->local, session);
  done(arg, NULL);
}

static void register_graph(struct worker_link *w, const struct graph_registration *r, struct cancel *cancel,
                           worker_done done, void *arg) {
  struct worker_session *s = NULL;
  struct worker_graph *g = NULL;
  shoal_status err = worker_find_session(w->local, r->session, true, &s);
  if (!err) err = worker_register_graph(s, r->graph, &(struct worker_graph_options){.as_is = r->as_is}, &g);
  if (!err) snprintf(r->handle, 17, "%s", g->handle);
  worker_graph_unref(g);
  worker_session_unref(s);
  done(arg, err);
}

static void deregister_graph(struct worker_link *w, const char *session, const char *handle) {
  struct worker_session *s = NULL;
  shoal_status err = worker_find_session(w->local, session, true, &s);
  if (!err) err = worker_deregister_graph(s, handle);
  worker_session_unref(s);
  shoal_status_free(err);
}

static void run_graph(struct worker_link *w, struct graph_run *r) {
  r->leaves_step = r->run.step.rendezvous;
  shoal_status err = worker_find_session(w->local, r->session_handle, true, &r->session);
  if (!err) err = worker_find_graph(r->session, r->graph_handle, &r->graph);
  if (!err) {
    worker_run_start(r);
    return;
  }
  worker_session_unref(r->session);
  r->done(r->arg, err);
}

static void cleanup_graph(struct worker_link *w, int64_t step_id) { steps_cleanup(w->local->steps, step_id); }

static void cleanup_all(struct worker_link *w, char *const *containers, int n, struct cancel *cancel, worker_done done,
                        void *arg) {
  worker_cleanup_all(w->local, containers, n);
  done(arg, NULL);
}

static void log_transfers(struct worker_link *w, bool on, int64_t step_id, int64_t deadline, struct text *stats,
                          worker_done done, void *arg) {
  done(arg, NULL);
}

static void enroll(const struct worker_link *w, struct roll *roll) {}

static const struct worker_ops local_ops = {.get_status = get_status,
                                            .create_session = create_session,
                                            .delete_session = delete_session,
                                            .register_graph = register_graph,
                                            .deregister_graph = deregister_graph,
                                            .run_graph = run_graph,
                                            .cleanup_graph = cleanup_graph,
                                            .log_transfers = log_transfers,
                                            .cleanup_all = cleanup_all,
                                            .enroll = enroll};

void worker_link_local(struct worker_link *w, struct worker *local, const char *task) {
  *w = (struct worker_link){.ops = &local_ops, .local = local, .task = mem_strdup(task)};
}

void worker_link_again(struct worker_link *w, const struct worker_link *of, const char *task) {
  *w = (struct worker_link){.ops = of->ops, .local = of->local, .task = mem_strdup(task)};
}

void worker_link_release(struct worker_link *w) {
  for (size_t i = 0; i < w->devices.n; i++) {
    free(w->devices.at[i].name);
    free(w->devices.at[i].type);
    text_release(&w->devices.at[i].attributes);
  }
  vec_release(&w->devices);
  peer_unref(w->peer);
  free(w->task);
}
