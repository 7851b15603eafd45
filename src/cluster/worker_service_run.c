/* WorkerService's calls that wait: RunGraph and RecvTensor. Both are objects that live until their answer; neither
 * holds a thread while it waits. Both come by gRPC or by the fast path, which differ only in how one answers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/ref.h"
#include "base/wire.h"
#include "cluster/request_parts.h"
#include "cluster/transfer.h"
#include "cluster/worker_partial.h"
#include "cluster/worker_service.h"
#include "device/gate.h"
#include "graph/node_def.h"
#include "proto/master.wire.h"
#include "proto/shoal.wire.h"
#include "proto/worker.wire.h"
#include "rpc/message.h"
#include "runtime/run_metadata.h"
#include "tensor/tensor_proto.h"

/* ---- RecvTensor ---- */

struct recv {
  struct rpc_call *call; /* one of these two */
  struct fast_request *fast;
  struct worker *worker;
  bool wants_ticket;
  bool is_within;                /* between devices of this task: not for others */
  bool is_buffer;                /* RecvBuf: a message of a collective (collectives.h) */
  struct rendezvous *rendezvous; /* where the value comes from */
  char *key;                     /* when a ticket is wanted */
  struct cancel cancel;
  struct ref refs; /* the answer's, and the starter's */
};

static void recv_unref(struct recv *r) {
  if (!ref_drop(&r->refs)) return;
  cancel_release(&r->cancel);
  steps_request_over(r->worker->steps, r->rendezvous);
  rendezvous_unref(r->rendezvous);
  free(r->key);
  block_free(r);
}

/* Too large for gRPC, but the receiver knows the fast path: the value waits until it asks again. */
static shoal_status send_elsewhere(struct recv *r, struct tensor *value, const struct text *ticket,
                                   struct rpc_message **out) {
  TRY(rendezvous_send(r->rendezvous, r->key, rendezvous_hash(r->key), value, false));
  *out = transfer_elsewhere(ticket);
  return NULL;
}

/* "/job:a/replica:0/task:1/device:GPU:0;INCARNATION;/job:a/replica:0/task:1/device:...": do both ends have one task? */
static bool within_task(const char *key) {
  const char *end = strstr(key, "/device:"), *to = end ? strchr(end, ';') : NULL;
  to = to ? strchr(to + 1, ';') : NULL;
  return to && !strncmp(to + 1, key, (size_t)(end - key) + strlen("/device:"));
}

/* Has the task a device whose memory is not the host's? */
static bool has_cards(const struct worker *w) {
  int i = 0;
  while (i < w->n_devices && w->devices[i]->type->host) i++;
  return i < w->n_devices;
}

/* What devices of this task send to each other is not for others, whatever key they give. */
static shoal_status for_others(shoal_status s, struct tensor *value) {
  if (s || !value || !value->buffer || !value->buffer->device) return s;
  tensor_release(value);
  return INVALID("The value is in the memory of a device, and meant for another of this task");
}

static void recv_value(void *arg, shoal_status s, struct tensor *value, bool is_dead);

struct recv_copy { /* a card's value, which gRPC's answer wants in host memory */
  struct recv *recv;
  struct tensor from, to;
};

static void copied_for_recv(void *arg, shoal_status s) {
  struct recv_copy *c = arg;
  tensor_release(&c->from);
  recv_value(c->recv, s, &c->to, false);
  block_free(c);
}

/* True: the answer follows when the value is there. */
static bool copy_for_recv(struct recv *r, struct tensor *value) {
  if (!value || !value->buffer || !value->buffer->device) return false;
  struct device *d = value->buffer->device;
  struct recv_copy *c = block_zalloc(sizeof *c);
  c->recv = r;
  tensor_move(&c->from, value);
  device_gate_enter(d->gate);
  d->type->ops->to_host(d, &c->from, &c->to, copied_for_recv, c);
  device_gate_leave(d->gate);
  return true;
}

static void recv_value(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct recv *r = arg;
  if (r->is_within) s = for_others(s, value);
  if (!s && !is_dead && !r->fast && copy_for_recv(r, value)) return;
  if (r->fast) {
    fast_answer(r->fast, s, value, is_dead);
  } else {
    struct rpc_message *bytes = NULL;
    struct text ticket = {0};
    if (r->wants_ticket && r->worker->fast) fast_server_ticket(r->worker->fast, &ticket);
    if (!s && r->is_buffer) {
      s = transfer_buffer_response(value, &bytes);
      tensor_release(value);
    } else if (!s && ticket.n && !is_dead && !transfer_fits(value)) {
      s = send_elsewhere(r, value, &ticket, &bytes);
    } else {
      if (!s) s = transfer_response(value, is_dead, &ticket, &bytes);
      tensor_release(value);
    }
    text_release(&ticket);
    if (s) rpc_call_fail(r->call, s);
    else rpc_call_reply(r->call, bytes);
  }
  recv_unref(r);
}

static void recv_cancelled(void *arg) {
  struct recv *r = arg;
  ref_take(&r->refs); /* cancelling may answer on this very thread */
  cancel_start(&r->cancel, STATUS(SHOAL_CANCELLED, "the receiver has gone"));
  recv_unref(r);
}

static shoal_status check_key(struct worker *w, const char *key) {
  struct rendezvous_key k;
  for (int i = 0; i < w->n_devices; i++) /* nearly all keys begin so */
    if (!strncmp(key, w->key_starts[i], strlen(w->key_starts[i]))) return NULL;
  TRY(rendezvous_key_parse(key, &k));
  const struct device *d = worker_device(w, k.src, k.src_n);
  if (!d)
    return INVALID("RecvTensor asks %s for a value of %.*s, a device it does not have", w->task, (int)k.src_n, k.src);
  if (k.incarnation != d->incarnation)
    return status_mark_restarted(
        STATUS(SHOAL_ABORTED,
               "RecvTensor expects a different device incarnation: %" PRIu64 " vs. %" PRIu64
               ". Your worker job (\"%s\") was probably restarted. Check your worker job for the reason why it was "
               "restarted.",
               k.incarnation, d->incarnation, w->task));
  return NULL;
}

/* Waits for the value, for either kind of request; the rendezvous is taken over, key is the caller's. */
static void recv_start(struct recv *r, struct rendezvous *rendezvous, const char *key) {
  ref_init(&r->refs, 2);
  cancel_init(&r->cancel);
  if (r->fast) fast_on_cancel(r->fast, recv_cancelled, r);
  else rpc_call_on_cancel(r->call, recv_cancelled, r);
  r->rendezvous = rendezvous;
  r->is_within = has_cards(r->worker) && within_task(key);
  if (r->wants_ticket) r->key = mem_strdup(key);
  step_rendezvous_recv_local(rendezvous, key, &r->cancel, recv_value, r);
  recv_unref(r);
}

void worker_service_fast_recv(void *arg, struct fast_request *request, int64_t step, const char *key) {
  struct worker *w = arg;
  struct rendezvous *rendezvous = NULL;
  shoal_status s = check_key(w, key);
  if (!s) s = steps_get_for_request(w->steps, step, fast_origin(request), &rendezvous);
  if (s) {
    fast_answer(request, s, NULL, false);
    return;
  }
  struct recv *r = block_zalloc(sizeof *r);
  r->fast = request;
  r->worker = w;
  recv_start(r, rendezvous, key);
}

/* A key is kept beside its request for as long as its value is waited for: one that is longer than names are takes room
 * as requests do. */
static shoal_status take_room_for_key(struct rpc_call *c, const char *key) {
  enum { SHORT = 4096 };
  size_t n = strlen(key);
  if (n <= SHORT || rpc_call_unpacks(c, n)) return NULL;
  return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                "there is no room for a key of %zu bytes beside the requests that are held (--max_held_bytes)", n);
}

/* A request that came by gRPC, as read: s is what was wrong with it. */
struct recv_request {
  const char *method;
  int64_t step_id, id;
  bool wants_ticket, is_buffer;
};

static void recv_by_call(struct worker *w, struct rpc_call *c, const struct recv_request *q, const char *key,
                         shoal_status s) {
  struct rendezvous *rendezvous = NULL;
  if (!s) s = request_ids_track(w->ids, q->method, q->id, q->step_id);
  if (!s) s = check_key(w, key ? key : "");
  if (!s) s = take_room_for_key(c, key);
  if (!s) s = steps_get_for_request(w->steps, q->step_id, rpc_call_origin(c), &rendezvous);
  if (s) {
    rpc_call_fail(c, s);
    return;
  }
  struct recv *r = block_zalloc(sizeof *r);
  r->call = c;
  r->worker = w;
  r->wants_ticket = q->wants_ticket;
  r->is_buffer = q->is_buffer;
  recv_start(r, rendezvous, key);
}

void worker_service_recv_tensor(struct worker *w, struct rpc_call *c) {
  const void *data;
  size_t size;
  struct recv_request q = {.method = "RecvTensor (GrpcWorker)"};
  char *key = NULL;
  shoal_status s = rpc_call_request(c, &data, &size);
  struct wire m = wire_from(s ? "" : data, s ? 0 : size);
  for (struct wire_field f; wire_next(&m, &f) == WIRE_FIELD;) {
    if (f.tag == RecvTensorRequest_step_id) q.step_id = (int64_t)f.value;
    if (f.tag == RecvTensorRequest_rendezvous_key) {
      block_free(key);
      key = block_strndup((const char *)f.data, f.size);
    }
    if (f.tag == RecvTensorRequest_transport_options) q.wants_ticket = transfer_get_fast(wire_inside(&f), NULL);
    if (f.tag == RecvTensorRequest_request_id) q.id = (int64_t)f.value;
  }
  recv_by_call(w, c, &q, key, s);
  block_free(key);
}

/* The parts of the value's key, as collective_wire.c makes it. */
static shoal_status read_buffer_request(struct rpc_call *c, struct recv_request *q, char **key) {
  const void *data;
  size_t size;
  struct chars name = {0}, src = {0}, dst = {0};
  uint64_t incarnation = 0;
  TRY(rpc_call_request(c, &data, &size));
  struct wire m = wire_from(data, size);
  for (struct wire_field f; wire_next(&m, &f) == WIRE_FIELD;) {
    struct chars text = {(const char *)f.data, f.size};
    if (f.tag == RecvBufRequest_step_id) q->step_id = (int64_t)f.value;
    if (f.tag == RecvBufRequest_request_id) q->id = (int64_t)f.value;
    if (f.tag == RecvBufRequest_src_incarnation) incarnation = f.value;
    if (f.tag == RecvBufRequest_buf_rendezvous_key) name = text;
    if (f.tag == RecvBufRequest_src_device) src = text;
    if (f.tag == RecvBufRequest_dst_device) dst = text;
  }
  *key = mem_printf("%.*s;%016" PRIx64 ";%.*s;%.*s;0:0", (int)src.n, src.at ? src.at : "", incarnation, (int)dst.n,
                    dst.at ? dst.at : "", (int)name.n, name.at ? name.at : "");
  return NULL;
}

void worker_service_recv_buf(struct worker *w, struct rpc_call *c) {
  struct recv_request q = {.method = "RecvBuf (GrpcWorker)", .is_buffer = true};
  char *key = NULL;
  shoal_status s = read_buffer_request(c, &q, &key);
  recv_by_call(w, c, &q, key, s);
  free(key);
}

/* ---- RunGraph ---- */

struct run {
  struct rpc_call *call; /* one of these two */
  struct fast_request *fast;
  struct worker *worker;
  struct worker_session *session;
  struct worker_graph *graph;
  struct cancel cancel;
  struct graph_run run;
  bool in_body; /* errors go into the answer */
  bool counted; /* one of the steps under way */
  bool trace;
  bool wants_graphs; /* the partition's, in the answer */
  bool wants_ticket;
  bool partial, last;            /* one of several calls of a step; the last of them */
  struct partial_run *steps_run; /* with partial: the step's run, which outlives this call */
  struct rendezvous *rendezvous; /* when the client's values pass through us */
  VEC(char *) recv_keys;
  struct tensor *received; /* [recv_keys.n] */
  struct join join;        /* the run, each key, and the starter */
};

/* Cancelling may end the run on this very thread, so it counts as a part of it; a run that is over is left alone. */
static void run_cancelled(void *arg) {
  struct run *r = arg;
  if (!join_enter(&r->join)) return;
  cancel_start(&r->cancel, STATUS(SHOAL_CANCELLED, "RunGraph was cancelled by the master"));
  if (r->steps_run) partial_run_cancel(r->steps_run, STATUS(SHOAL_CANCELLED, "RunGraph was cancelled by the master"));
  join_part(&r->join, NULL);
}

static void run_reply(struct run *r, shoal_status s, struct message *m) {
  if (r->fast) {
    struct text bytes = {0};
    if (s) {
      message_release(m);
    } else if (!message_is_empty(m)) {
      struct rpc_message *whole = message_finish(m);
      for (size_t i = 0; i < whole->n_pieces; i++)
        text_add(&bytes, (const char *)whole->pieces[i].at, whole->pieces[i].n);
      rpc_message_free(whole);
    }
    fast_reply(r->fast, s, &bytes);
  } else if (s) {
    message_release(m);
    rpc_call_fail(r->call, s);
  } else {
    rpc_call_reply(r->call, message_finish(m));
  }
}

static void run_answer(void *arg, shoal_status s) {
  struct run *r = arg;
  struct message m;
  message_init(&m);
  for (size_t i = 0; i < r->recv_keys.n && !s; i++)
    s = transfer_put_named(&m, RunGraphResponse_recv, r->recv_keys.at[i], &r->received[i]);
  if (r->trace) {
    struct text stats = {0};
    step_stats_encode(r->run.run.step.stats, &stats);
    message_bytes(&m, RunGraphResponse_step_stats, stats.at, stats.n);
    text_release(&stats);
    step_stats_free(r->run.run.step.stats);
  }
  if (r->wants_graphs && !s) {
    struct text graphs = {0};
    s = worker_graph_export(r->session, r->graph, &graphs);
    if (!s) message_raw(&m, graphs.at, graphs.n);
    text_release(&graphs);
  }
  if (r->wants_ticket && r->worker->fast) {
    struct text ticket = {0};
    fast_server_ticket(r->worker->fast, &ticket);
    transfer_put_fast(&m, RunGraphExtra_fast_path, ticket.at, ticket.n);
    text_release(&ticket);
  }
  /* By the fast path no CleanupGraph follows a run that went well. */
  if (r->fast && !s) steps_finished(r->worker->steps, r->run.run.step.id);
  if (s && r->in_body) {
    message_int(&m, RunGraphResponse_status_code, (uint64_t)shoal_status_code(s));
    message_text(&m, RunGraphResponse_status_error_message, shoal_status_message(s));
    shoal_status_free(s);
    s = NULL;
  }
  for (size_t i = 0; i < r->recv_keys.n; i++) {
    tensor_release(&r->received[i]);
    free(r->recv_keys.at[i]);
  }
  vec_release(&r->recv_keys);
  if (r->counted) account_give(r->session->account, LIMIT_STEPS, 1);
  free(r->received);
  rendezvous_unref(r->rendezvous);
  worker_graph_unref(r->graph);
  worker_session_unref(r->session);
  struct partial_run *steps_run = r->steps_run;
  if (r->call) owed_ended(&r->worker->owed, r->run.run.step.id);
  run_reply(r, s, &m);
  /* After the answer: the call's cancel function is called no more. */
  partial_run_unref(steps_run);
  cancel_release(&r->cancel);
  block_free(r);
}

struct key_wait {
  struct run *run;
  size_t index;
};

static void key_value(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct key_wait *k = arg;
  struct run *r = k->run;
  s = for_others(s, value);
  if (!s && is_dead) s = INVALID("The tensor returned for %s was not valid.", r->recv_keys.at[k->index]);
  if (s) tensor_release(value);
  else tensor_move(&r->received[k->index], value);
  free(k);
  join_part(&r->join, s);
}

/* A NamedTensorProto of the client's, into the step's rendezvous. */
static shoal_status send_value(struct run *r, struct wire m) {
  char *key = NULL;
  struct wire proto = wire_from("", 0);
  struct tensor t;
  for (struct wire_field f; wire_next(&m, &f) == WIRE_FIELD;) {
    if (f.tag == NamedTensorProto_name) {
      free(key);
      key = mem_strndup((const char *)f.data, f.size);
    }
    if (f.tag == NamedTensorProto_tensor) proto = wire_inside(&f);
  }
  shoal_status s = key ? tensor_proto_decode(proto.at, wire_left(&proto), &t) : INVALID("RunGraph.send without a name");
  if (!s) s = rendezvous_send(r->rendezvous, key, rendezvous_hash(key), &t, false);
  free(key);
  return s;
}

static shoal_status read_request(struct run *r, const void *data, size_t size) {
  struct worker *w = r->worker;
  TRY(request_parts(r->call, data, size));
  char *graph = NULL, *session = NULL;
  bool called = false;
  int64_t id = 0;
  struct wire m = wire_from(data, size), sends = m;
  enum wire_step step;
  shoal_status s = NULL;
  bool has_send = false;
  for (struct wire_field f; (step = wire_next(&m, &f)) == WIRE_FIELD;) {
    if (f.type == WIRE_BYTES) {
      if (f.tag == RunGraphRequest_graph_handle) block_free(graph), graph = block_strndup((const char *)f.data, f.size);
      if (f.tag == RunGraphRequest_send) has_send = true;
      if (f.tag == RunGraphRequest_recv_key) vec_push(&r->recv_keys, mem_strndup((const char *)f.data, f.size));
      if (f.tag == RunGraphRequest_session_handle)
        block_free(session), session = block_strndup((const char *)f.data, f.size);
      if (f.tag == RunGraphExtra_fast_path) r->wants_ticket = transfer_get_fast(wire_inside(&f), NULL);
      if (f.tag == RunGraphRequest_exec_opts) {
        struct wire opts = wire_inside(&f);
        for (struct wire_field k; wire_next(&opts, &k) == WIRE_FIELD;)
          if (k.type == WIRE_VARINT) {
            if (k.tag == ExecutorOpts_record_timeline) r->trace = k.value != 0;
            if (k.tag == ExecutorOpts_record_partition_graphs) r->wants_graphs = k.value != 0;
          }
      }
    } else if (f.type == WIRE_VARINT) {
      if (f.tag == RunGraphRequest_step_id) r->run.run.step.id = (int64_t)f.value;
      if (f.tag == RunGraphRequest_is_partial) r->partial = f.value != 0;
      if (f.tag == RunGraphRequest_is_last_partial_run) r->last = f.value != 0;
      if (f.tag == RunGraphRequest_store_errors_in_response_body) r->in_body = f.value != 0;
      if (f.tag == RunGraphRequest_create_worker_session_called) called = f.value != 0;
      if (f.tag == RunGraphRequest_request_id) id = (int64_t)f.value;
    }
  }
  if (!s && step == WIRE_BROKEN) s = INVALID("RunGraphRequest does not parse as a protocol buffer");
  if (!s) s = request_ids_track(w->ids, "RunGraph (GrpcWorker)", id, r->run.run.step.id);
  if (!s) s = worker_find_session(w, session ? session : "", called, &r->session);
  if (!s) s = worker_find_graph(r->session, graph ? graph : "", &r->graph);
  block_free(graph);
  block_free(session);
  TRY(s);
  struct account *account = r->session->account;
  if (!account) return INVALID("RunGraph of a session that this task's own master has");
  if (r->call) atomic_store_explicit(&r->session->connection, rpc_call_connection(r->call), memory_order_relaxed);
  atomic_store_explicit(&r->session->last_used, clock_ns(), memory_order_relaxed);
  TRY(account_take(account, LIMIT_STEPS, 1));
  r->counted = true;
  if (r->partial) r->trace = false; /* no answer would be the one to hold it */
  if (has_send || r->recv_keys.n || r->partial) r->rendezvous = steps_get(w->steps, r->run.run.step.id);
  for (struct wire_field f; has_send && wire_next(&sends, &f) == WIRE_FIELD;)
    if (f.tag == RunGraphRequest_send) TRY(send_value(r, wire_inside(&f)));
  if (r->recv_keys.n) r->received = mem_zalloc(r->recv_keys.n, sizeof *r->received);
  if (r->trace) r->run.run.step.stats = step_stats_new(false);
  if (!r->partial) return NULL;
  return partial_run_join(w, r->run.run.step.id, r->session, r->graph, r->rendezvous, &r->steps_run);
}

/* For either kind of request: s is what reading it came to. */
static void run_start(struct run *r, struct worker *w, const void *data, size_t size, shoal_status s,
                      int64_t deadline) {
  r->worker = w;
  cancel_init(&r->cancel);
  if (!s) s = read_request(r, data, size);
  if (r->call) owed_begin(&w->owed, r->run.run.step.id, rpc_call_connection(r->call)); /* well or not: it tidies up */
  if (s) {
    if (r->rendezvous) steps_not_begun(w->steps, r->rendezvous);
    r->trace = false;
    for (size_t i = 0; i < r->recv_keys.n; i++) free(r->recv_keys.at[i]);
    vec_clear(&r->recv_keys);
    run_answer(r, s);
    return;
  }
  join_init(&r->join, r->recv_keys.n + 2, run_answer, r);
  if (r->fast) fast_on_cancel(r->fast, run_cancelled, r);
  else rpc_call_on_cancel(r->call, run_cancelled, r);
  r->run.run.step.cancel = &r->cancel;
  r->run.run.step.deadline = deadline;
  r->run.run.step.rendezvous = r->rendezvous;
  r->run.done = join_part;
  r->run.arg = &r->join;
  for (size_t i = 0; i < r->recv_keys.n; i++) {
    struct key_wait *k = mem_zalloc(1, sizeof *k);
    *k = (struct key_wait){r, i};
    step_rendezvous_recv_local(r->rendezvous, r->recv_keys.at[i], &r->cancel, key_value, k);
  }
  if (r->partial) {
    if (r->last) partial_run_finish(r->steps_run, join_part, &r->join);
    else join_part(&r->join, NULL);
  } else {
    r->run.session = r->session;
    r->run.graph = r->graph;
    ref_take(&r->session->refs);
    ref_take(&r->graph->refs);
    worker_run_start(&r->run);
  }
  join_part(&r->join, NULL);
}

void worker_service_run_graph(struct worker *w, struct rpc_call *c) {
  struct run *r = block_zalloc(sizeof *r);
  const void *data = NULL;
  size_t size = 0;
  r->call = c;
  shoal_status s = rpc_call_request(c, &data, &size);
  run_start(r, w, data, size, s, rpc_call_deadline(c));
}

void worker_service_fast_run(void *arg, struct fast_request *request, const void *data, size_t n, int64_t deadline) {
  struct run *r = block_zalloc(sizeof *r);
  r->fast = request;
  run_start(r, arg, data, n, NULL, deadline);
}
