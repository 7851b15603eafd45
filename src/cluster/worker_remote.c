/* A worker behind a connection, ours or TensorFlow's: every call is one of WorkerService's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/wire.h"
#include "cluster/request_ids.h"
#include "cluster/transfer.h"
#include "cluster/worker_ops.h"
#include "graph/import.h"
#include "proto/config.wire.h"
#include "proto/shoal.wire.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"
#include "runtime/session_config.h"
#include "rpc/message.h"

#define SERVICE "/tensorflow.WorkerService/"

/* Calls that are more or less alike: asked, perhaps cancelled, and answered. */
struct worker_call {
  struct worker_link *w;
  worker_done done;
  void *arg;
  struct cancel *cancel; /* NULL: none */
  struct cancellable call;
  char *handle;       /* RegisterGraph's answer */
  struct text *stats; /* Logging's */
};

static struct worker_call *call_new(struct worker_link *w, struct cancel *cancel, worker_done done, void *arg) {
  struct worker_call *s = block_zalloc(sizeof *s);
  s->w = w;
  s->cancel = cancel;
  s->done = done;
  s->arg = arg;
  return s;
}

static void call_end(struct worker_call *s, shoal_status st) {
  worker_done done = s->done;
  void *arg = s->arg;
  block_free(s);
  done(arg, st);
}

static void call_start(struct worker_call *s, const char *method, struct rpc_message *request, int64_t deadline,
                       unsigned flags, int64_t step, rpc_done done) {
  static const char why[] = "nobody waits for the answer any more";
  struct task_question q = {.peer = s->w->peer,
                            .method = method,
                            .request = request,
                            .deadline = deadline,
                            .flags = flags,
                            .step = step,
                            .done = done,
                            .arg = s};
  if (!cancellable_start(&s->call, s->cancel, why, &q)) call_end(s, STATUS(SHOAL_CANCELLED, "%s", why));
}

/* The call is over; what it was answered, if it was. */
static shoal_status call_answer(struct worker_call *c, shoal_status s, struct rpc_body *body, struct wire *out) {
  const void *data;
  size_t size;
  cancellable_end(&c->call);
  if (s) return s;
  TRY(rpc_body_flat(body, &data, &size));
  *out = wire_from(data, size);
  return NULL;
}

static void call_done(void *arg, shoal_status st, struct rpc_body *body) {
  struct worker_call *s = arg;
  cancellable_end(&s->call);
  call_end(s, st);
}

/* ---- GetStatus ---- */

/* The propagated name of a device that the worker knows by the name it was started with. */
static shoal_status take_device(struct worker_link *w, struct wire message) {
  struct remote_device d = {0};
  struct text rest = {0};
  const uint8_t *before = message.at;
  for (struct wire_field f; wire_next(&message, &f) == WIRE_FIELD; before = message.at) {
    if (f.tag == DeviceAttributes_name) {
      const char *at = memmem(f.data, f.size, "/device:", 8);
      free(d.name);
      d.name = at ? mem_printf("%s%.*s", w->task, (int)(f.size - (size_t)((const uint8_t *)at - f.data)), at)
                  : mem_strndup((const char *)f.data, f.size);
      continue;
    }
    if (f.tag == DeviceAttributes_device_type) {
      free(d.type);
      d.type = mem_strndup((const char *)f.data, f.size);
    }
    if (f.tag == DeviceAttributes_incarnation) d.incarnation = f.value;
    text_add(&rest, (const char *)before, (size_t)(message.at - before));
  }
  if (!d.name || !d.type) {
    free(d.name);
    free(d.type);
    text_release(&rest);
    return INTERNAL("%s at %s tells of a device without name or type", w->task, peer_address(w->peer));
  }
  put_DeviceAttributes_name(&d.attributes, d.name);
  text_add(&d.attributes, text_cstr(&rest), rest.n);
  text_release(&rest);
  vec_push(&w->devices, d);
  return NULL;
}

static void status_done(void *arg, shoal_status s, struct rpc_body *body) {
  struct worker_call *c = arg;
  struct wire w;
  s = call_answer(c, s, body, &w);
  if (!s) {
    peer_learn(c->w->peer, w.at, wire_left(&w));
    s = peer_check_name(c->w->peer);
  }
  for (struct wire_field f; !s && wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == GetStatusResponse_device_attributes) s = take_device(c->w, wire_inside(&f));
  call_end(c, s);
}

static void get_status(struct worker_link *w, const struct status_asker *asker, int64_t deadline, struct cancel *cancel,
                       worker_done done, void *arg) {
  struct text m = {0};
  put_GetStatusAsk_task(&m, asker->task);
  if (asker->group) put_GetStatusAsk_group(&m, asker->group);
  if (asker->address) put_GetStatusAsk_address(&m, asker->address);
  call_start(call_new(w, cancel, done, arg), SERVICE "GetStatus", message_from_text(&m), deadline,
             RPC_WAIT_FOR_READY | PEER_UNWATCHED, 0, status_done);
}

/* ---- sessions ---- */

/* Where TensorFlow has it, whose workers look for it in their servers' own. */
static void put_leader(struct text *m, const char *leader) {
  size_t config = begin_ServerDef_default_session_config(m);
  session_config_write_leader(leader, m);
  wire_end(m, config);
}

static void create_session(struct worker_link *w, const struct worker_session_options *o, int64_t deadline,
                           struct cancel *cancel, worker_done done, void *arg) {
  struct text m = {0};
  put_CreateWorkerSessionRequest_session_handle(&m, o->handle);
  size_t def = begin_CreateWorkerSessionRequest_server_def(&m);
  if (o->spec) {
    size_t cluster = begin_ServerDef_cluster(&m);
    cluster_spec_to_proto(o->spec, &m);
    wire_end(&m, cluster);
  }
  if (o->job) put_ServerDef_job_name(&m, o->job);
  if (o->job) put_ServerDef_task_index(&m, o->task);
  put_ServerDef_protocol(&m, "grpc");
  if (o->leader) put_leader(&m, o->leader);
  wire_end(&m, def);
  if (o->isolated) put_CreateWorkerSessionRequest_isolate_session_state(&m, 1);
  put_CreateWorkerSessionRequest_master_task(&m, o->master);
  put_CreateWorkerSessionRequest_master_incarnation(&m, o->master_incarnation);
  call_start(call_new(w, cancel, done, arg), SERVICE "CreateWorkerSession", message_from_text(&m), deadline, 0, 0,
             call_done);
}

static void delete_session(struct worker_link *w, const char *session, struct cancel *cancel, worker_done done,
                           void *arg) {
  struct text m = {0};
  put_DeleteWorkerSessionRequest_session_handle(&m, session);
  call_start(call_new(w, cancel, done, arg), SERVICE "DeleteWorkerSession", message_from_text(&m),
             deadline_after_ms(peer_is_silent(w->peer) ? 500 : 10000), 0, 0, call_done);
}

/* ---- graphs ---- */

static void register_done(void *arg, shoal_status s, struct rpc_body *body) {
  struct worker_call *c = arg;
  struct wire w;
  bool found = false;
  s = call_answer(c, s, body, &w);
  for (struct wire_field f; !s && wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == RegisterGraphResponse_graph_handle && f.size <= 16) {
      snprintf(c->handle, 17, "%.*s", (int)f.size, (const char *)f.data);
      found = true;
    }
  if (!s && !found) s = INTERNAL("%s answered RegisterGraph without a graph handle", c->w->task);
  call_end(c, s);
}

static void register_graph(struct worker_link *w, const struct graph_registration *r, struct cancel *cancel,
                           worker_done done, void *arg) {
  struct text m = {0};
  put_RegisterGraphRequest_session_handle(&m, r->session);
  size_t def = begin_RegisterGraphRequest_graph_def(&m);
  shoal_status s = graph_export(r->graph, &(struct export_options){.strip_defaults = true, .assigned = true}, &m);
  if (s) {
    text_release(&m);
    done(arg, s);
    return;
  }
  wire_end(&m, def);
  put_RegisterGraphRequest_create_worker_session_called(&m, 1);
  if (r->collective_key) put_RegisterGraphRequest_collective_graph_key(&m, r->collective_key);
  if (r->config->n) put_RegisterGraphRequest_config_proto_n(&m, r->config->at, r->config->n);
  struct worker_call *c = call_new(w, cancel, done, arg);
  c->handle = r->handle;
  call_start(c, SERVICE "RegisterGraph", message_from_text(&m), DEADLINE_NEVER, 0, 0, register_done);
}

static void ignore(void *arg, shoal_status s) { shoal_status_free(s); }

static void deregister_graph(struct worker_link *w, const char *session, const char *handle) {
  struct text m = {0};
  put_DeregisterGraphRequest_graph_handle(&m, handle);
  put_DeregisterGraphRequest_session_handle(&m, session);
  put_DeregisterGraphRequest_create_worker_session_called(&m, 1);
  call_start(call_new(w, NULL, ignore, NULL), SERVICE "DeregisterGraph", message_from_text(&m),
             deadline_after_ms(10000), 0, 0, call_done);
}

/* ---- running ---- */

static shoal_status read_response(struct graph_run *r, struct rpc_body *body, struct text *ticket) {
  const void *data;
  size_t size;
  TRY(rpc_body_flat(body, &data, &size));
  struct wire w = wire_from(data, size);
  int64_t code = 0;
  struct wire message = wire_from("", 0);
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.tag == RunGraphResponse_step_stats) text_add(&r->step_stats, (const char *)f.data, f.size);
    if (f.tag == RunGraphExtra_fast_path) transfer_get_fast(wire_inside(&f), ticket);
    if (f.tag == RunGraphResponse_status_code) code = (int64_t)f.value;
    if (f.tag == RunGraphResponse_status_error_message) message = wire_inside(&f);
  }
  if (step == WIRE_BROKEN) return INTERNAL("a RunGraph response does not parse");
  if (!code) return NULL;
  return STATUS((shoal_code)(code > 0 && code <= SHOAL_UNAUTHENTICATED ? code : SHOAL_UNKNOWN), "%.*s",
                (int)wire_left(&message), (const char *)message.at);
}

static void run_done(void *arg, shoal_status s, struct rpc_body *body) {
  struct graph_run *r = arg;
  cancellable_end(&r->call);
  struct peer *peer = r->peer;
  struct text ticket = {0};
  if (!s) s = read_response(r, body, &ticket);
  r->done(r->arg, s);
  if (ticket.n) peer_take_ticket(peer, &ticket);
  text_release(&ticket);
}

static void run_graph(struct worker_link *w, struct graph_run *r) {
  static const char why[] = "the step was cancelled";
  const struct step *step = &r->run.step;
  struct message m;
  message_init(&m);
  message_string(&m, RunGraphRequest_graph_handle, r->graph_handle);
  message_int(&m, RunGraphRequest_step_id, (uint64_t)step->id);
  if (step->stats)
    message_bytes(&m, RunGraphRequest_exec_opts, (const uint8_t[]){ExecutorOpts_record_timeline, true}, 2);
  else message_bytes(&m, RunGraphRequest_exec_opts, "", 0);
  message_string(&m, RunGraphRequest_session_handle, r->session_handle);
  message_int(&m, RunGraphRequest_store_errors_in_response_body, 1);
  message_int(&m, RunGraphRequest_create_worker_session_called, 1);
  message_int(&m, RunGraphRequest_request_id, (uint64_t)request_id_new());
  if (peer_wants_ticket(w->peer)) transfer_put_fast(&m, RunGraphExtra_fast_path, "", 0);
  r->peer = w->peer;
  struct rpc_message *bytes = message_finish(&m);
  if (!cancellable_begin(&r->call, step->cancel, why)) {
    rpc_message_free(bytes);
    r->done(r->arg, status_mark_derived(STATUS(SHOAL_CANCELLED, "%s", why)));
    return;
  }
  r->cleans_up = peer_start(w->peer, SERVICE "RunGraph", bytes, step->deadline, PEER_FAST, step->id, w->task, run_done,
                            r, &r->call.call);
  cancellable_begun(&r->call);
}

static void cleanup_graph(struct worker_link *w, int64_t step_id) {
  struct message m;
  message_init(&m);
  message_int(&m, CleanupGraphRequest_step_id, (uint64_t)step_id);
  call_start(call_new(w, NULL, ignore, NULL), SERVICE "CleanupGraph", message_finish(&m), deadline_after_ms(10000), 0,
             step_id, call_done);
}

static void logging_done(void *arg, shoal_status s, struct rpc_body *body) {
  struct worker_call *c = arg;
  struct wire w;
  s = call_answer(c, s, body, &w);
  for (struct wire_field f; !s && c->stats && wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag != LoggingResponse_step) continue;
    struct wire step = wire_inside(&f);
    for (struct wire_field k; wire_next(&step, &k) == WIRE_FIELD;)
      if (k.tag == LabeledStepStats_step_stats) text_add(c->stats, (const char *)k.data, k.size);
  }
  call_end(c, s);
}

static void log_transfers(struct worker_link *w, bool on, int64_t step_id, int64_t deadline, struct text *stats,
                          worker_done done, void *arg) {
  struct text m = {0};
  if (on) put_LoggingRequest_enable_rpc_logging(&m, 1);
  else put_LoggingRequest_disable_rpc_logging(&m, 1);
  if (!on) put_LoggingRequest_fetch_step_id(&m, step_id);
  struct worker_call *c = call_new(w, NULL, done, arg);
  c->stats = stats;
  call_start(c, SERVICE "Logging", message_from_text(&m), deadline, 0, step_id, logging_done);
}

static void cleanup_all(struct worker_link *w, char *const *containers, int n, struct cancel *cancel, worker_done done,
                        void *arg) {
  struct text m = {0};
  for (int i = 0; i < n; i++) put_CleanupAllRequest_container(&m, containers[i]);
  call_start(call_new(w, cancel, done, arg), SERVICE "CleanupAll", message_from_text(&m), deadline_after_ms(10000), 0,
             0, call_done);
}

static void enroll(const struct worker_link *w, struct roll *roll) {
  roll_add(roll, w->task, peer_address(w->peer), rpc_channel_ref(peer_channel(w->peer)));
}

static const struct worker_ops remote_ops = {.get_status = get_status,
                                             .create_session = create_session,
                                             .delete_session = delete_session,
                                             .register_graph = register_graph,
                                             .deregister_graph = deregister_graph,
                                             .run_graph = run_graph,
                                             .cleanup_graph = cleanup_graph,
                                             .log_transfers = log_transfers,
                                             .cleanup_all = cleanup_all,
                                             .enroll = enroll};

void worker_link_remote(struct worker_link *w, struct peer *peer, const char *task) {
  *w = (struct worker_link){.ops = &remote_ops, .peer = peer, .task = mem_strdup(task)};
}
