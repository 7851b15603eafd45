/* The client in C: a session on a server, ours or TensorFlow's, behind the same calls as the session in this process.
 *
 * Every call is one of MasterService's. The server is watched while a call waits (peer.h): one that is killed, stopped
 * or cut off ends the call with UNAVAILABLE; none waits for ever. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/numbered.h"
#include "base/wire.h"
#include "cluster/cluster_spec.h"
#include "cluster/in_process.h"
#include "cluster/peer.h"
#include "cluster/request_ids.h"
#include "cluster/transfer.h"
#include "graph/import.h"
#include "proto/config.wire.h"
#include "proto/graph.wire.h"
#include "proto/master.wire.h"
#include "proto/shoal.wire.h"
#include "proto/step_stats.wire.h"
#include "proto/types.wire.h"
#include "rpc/message.h"
#include "runtime/run_cancel.h"
#include "runtime/session_config.h"
#include "runtime/session_ops.h"
#include "tensor/tensor_proto.h"

#define SERVICE "/tensorflow.MasterService/"
enum { CONNECT_MS = 60000 }; /* how long a server may take to come up when the session has no time-out */

shoal_status remote_session_open(struct shoal_graph *g, const shoal_session_options *o, shoal_session **out);

struct remote_session {
  shoal_session head;
  struct rpc_tls *tls;
  struct peers *peers;
  struct peer *master;
  char *target, *handle;
  int64_t timeout_ms;
  bool (*give_up)(void);   /* while the session is being made; NULL then */
  atomic_bool interrupted; /* nothing is asked of the server any more */
  pthread_mutex_t lock;
  int64_t version;           /* lock */
  size_t known;              /* lock: nodes of the graph that the server has */
  struct numbered callables; /* lock: struct callable * */
};

static struct remote_session *self(shoal_session *s) { return (struct remote_session *)s; }

static void remote_free(shoal_session *base) {
  struct remote_session *s = self(base);
  peer_unref(s->master);
  peers_free(s->peers);
  rpc_tls_free(s->tls);
  pthread_mutex_destroy(&s->lock);
  void *callable;
  for (size_t i = 0; (callable = numbered_next(&s->callables, &i));) free(callable);
  numbered_release(&s->callables);
  free(s->target);
  free(s->handle);
  free(s);
}

static int64_t deadline_of(const struct remote_session *s, const shoal_run_options *o) {
  return deadline_after_ms(o && o->timeout_ms > 0 ? o->timeout_ms : s->timeout_ms);
}

/* One call; its answer in one piece, to be released. */
static shoal_status ask(struct remote_session *s, const char *method, struct rpc_message *request, int64_t deadline,
                        struct rpc_body *body, struct wire *answer) {
  const void *data;
  size_t size;
  *body = (struct rpc_body){0};
  TRY(peer_wait(s->master, method, request, deadline, 0, s->give_up ? s->give_up : run_cancel_asks(), body));
  shoal_status err = rpc_body_flat(body, &data, &size);
  if (err) rpc_body_release(body);
  else *answer = wire_from(data, size);
  return err;
}

static shoal_status ask_nothing(struct remote_session *s, const char *method, struct text *request, int64_t deadline) {
  struct rpc_body body;
  struct wire answer;
  TRY(ask(s, method, message_from_text(request), deadline, &body, &answer));
  rpc_body_release(&body);
  return NULL;
}

/* ---- graphs ---- */

/* A GraphDef of the nodes from `from` on, with all functions. */
static shoal_status export_since(const struct shoal_graph *g, size_t from, struct text *out) {
  for (size_t i = from; i < g->nodes.n; i++) {
    if (!g->nodes.at[i]) continue;
    size_t at = begin_GraphDef_node(out);
    TRY(node_export(g->nodes.at[i], &(struct export_options){0}, out));
    wire_end(out, at);
  }
  graph_export_library(g, out);
  size_t versions = begin_GraphDef_versions(out);
  put_VersionDef_producer(out, GRAPH_VERSION);
  wire_end(out, versions);
  return NULL;
}

/* The error of a wait that was given up says for what it was. */
static shoal_status told(const struct remote_session *s, int64_t began, const char *doing, shoal_status err) {
  shoal_code code = shoal_status_code(err);
  bool waited = code == SHOAL_CANCELLED || code == SHOAL_UNAVAILABLE || code == SHOAL_DEADLINE_EXCEEDED;
  if (!waited || !s->give_up || !s->give_up()) return err;
  shoal_status said = STATUS(SHOAL_CANCELLED, "given up after %.1f s while making a session on %s: %s",
                             (double)(clock_ns() - began) * 1e-9, s->target, doing);
  shoal_status_free(err);
  return said;
}

static shoal_status create(struct remote_session *s, const struct shoal_graph *g, const shoal_session_options *o) {
  if (o->rewrites_off && *o->rewrites_off && strcmp(o->rewrites_off, "all") != 0)
    return INVALID("rewrites_off is '%s': a cluster does all rewrites, or none (\"all\")", o->rewrites_off);
  struct text request = {0};
  size_t at = begin_CreateSessionRequest_graph_def(&request);
  shoal_status err = export_since(g, 0, &request);
  if (err) {
    text_release(&request);
    return err;
  }
  wire_end(&request, at);
  at = begin_CreateSessionRequest_config(&request);
  session_config_write(o, &request);
  wire_end(&request, at);
  put_CreateSessionRequest_target(&request, o->target);
  s->known = g->nodes.n;
  struct rpc_body body;
  struct wire answer;
  int64_t limit = o->create_timeout_ms > 0 ? deadline_after_ms(o->create_timeout_ms) : deadline_of(s, NULL);
  int64_t began = clock_ns();
  TRY(told(s, began, "CreateSession was under way: not all tasks are there, or the graph takes long",
           ask(s, SERVICE "CreateSession", message_from_text(&request), limit, &body, &answer)));
  for (struct wire_field f; wire_next(&answer, &f) == WIRE_FIELD;) {
    if (f.tag == CreateSessionResponse_session_handle) {
      free(s->handle);
      s->handle = mem_strndup((const char *)f.data, f.size);
    }
    if (f.tag == CreateSessionResponse_graph_version) s->version = (int64_t)f.value;
  }
  rpc_body_release(&body);
  return s->handle && *s->handle ? NULL : INTERNAL("%s answered CreateSession without a session handle", o->target);
}

static shoal_status remote_extend(shoal_session *base, struct shoal_graph *g) {
  struct remote_session *s = self(base);
  pthread_mutex_lock(&s->lock);
  shoal_status err = NULL;
  struct text request = {0};
  if (g->nodes.n > s->known) {
    put_ExtendSessionRequest_session_handle(&request, s->handle);
    size_t at = begin_ExtendSessionRequest_graph_def(&request);
    err = export_since(g, s->known, &request);
    if (!err) {
      wire_end(&request, at);
      put_ExtendSessionRequest_current_graph_version(&request, s->version);
      struct rpc_body body;
      struct wire answer;
      err = ask(s, SERVICE "ExtendSession", message_from_text(&request), deadline_of(s, NULL), &body, &answer);
      if (!err) {
        for (struct wire_field f; wire_next(&answer, &f) == WIRE_FIELD;)
          if (f.tag == ExtendSessionResponse_new_graph_version) s->version = (int64_t)f.value;
        s->known = g->nodes.n;
        rpc_body_release(&body);
      }
    }
    text_release(&request);
  }
  pthread_mutex_unlock(&s->lock);
  return err;
}

/* ---- steps ---- */

static void put_options(struct message *m, uint32_t tag, const shoal_run_options *o) {
  struct text t = {0};
  if (o && o->trace_level) put_RunOptions_trace_level(&t, o->trace_level);
  if (o && o->timeout_ms > 0) put_RunOptions_timeout_in_ms(&t, o->timeout_ms);
  if (o && o->inter_op_thread_pool) put_RunOptions_inter_op_thread_pool(&t, o->inter_op_thread_pool);
  if (o && o->output_partition_graphs) put_RunOptions_output_partition_graphs(&t, 1);
  message_bytes(m, tag, t.at, t.n);
  text_release(&t);
}

/* "x" is "x:0": a TensorFlow server would wait for ever for the former. */
static char *tensor_name(const char *name) {
  size_t n = strlen(name);
  char *whole = block_alloc(n + sizeof ":0");
  strcpy(stpcpy(whole, name), strchr(name, ':') ? "" : ":0");
  return whole;
}

static shoal_status step_request(struct remote_session *s, const shoal_run_options *o, const char *partial,
                                 const struct step_signature *sig, shoal_tensor *const *feeds,
                                 struct rpc_message **out) {
  struct message m;
  message_init(&m);
  message_string(&m, RunStepRequest_session_handle, s->handle);
  for (int i = 0; i < sig->n_feeds; i++) {
    shoal_status err = NULL;
    char *name = tensor_name(sig->feeds[i]);
    if (feeds[i]) err = transfer_put_named(&m, RunStepRequest_feed, name, &feeds[i]->t);
    else err = INVALID("the value fed to %s is NULL", name);
    block_free(name);
    if (err) {
      message_release(&m);
      return err;
    }
  }
  for (int i = 0; i < sig->n_fetches; i++) {
    char *name = tensor_name(sig->fetches[i]);
    message_string(&m, RunStepRequest_fetch, name);
    block_free(name);
  }
  for (int i = 0; i < sig->n_targets; i++) message_string(&m, RunStepRequest_target, sig->targets[i]);
  put_options(&m, RunStepRequest_options, o);
  if (partial) message_string(&m, RunStepRequest_partial_run_handle, partial);
  message_int(&m, RunStepRequest_store_errors_in_response_body, 1);
  message_int(&m, RunStepRequest_request_id, (uint64_t)request_id_new());
  *out = message_finish(&m);
  return NULL;
}

/* A NamedTensorProto, to every place in the fetches that asked for it. */
static shoal_status take_fetch(const struct step_signature *sig, struct wire w, shoal_tensor **fetches) {
  char *name = NULL;
  struct wire proto = wire_from("", 0);
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == NamedTensorProto_name) {
      block_free(name);
      name = block_strndup((const char *)f.data, f.size);
    }
    if (f.tag == NamedTensorProto_tensor) proto = wire_inside(&f);
  }
  struct tensor t = tensor_none();
  shoal_status err =
      name ? tensor_proto_decode(proto.at, wire_left(&proto), &t) : INTERNAL("a fetched value has no name");
  shoal_tensor *handle = err ? NULL : tensor_handle_take(&t);
  for (int i = 0; i < sig->n_fetches && handle; i++) {
    char *want = tensor_name(sig->fetches[i]);
    if (!strcmp(want, name) && !fetches[i]) fetches[i] = shoal_tensor_ref(handle);
    block_free(want);
  }
  shoal_tensor_unref(handle);
  block_free(name);
  return err;
}

static shoal_status read_step(const struct step_signature *sig, struct wire answer, shoal_tensor **fetches,
                              shoal_bytes *metadata) {
  int64_t code = 0;
  struct wire message = wire_from("", 0);
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&answer, &f)) == WIRE_FIELD;) {
    if (f.tag == RunStepResponse_tensor) TRY(take_fetch(sig, wire_inside(&f), fetches));
    if (f.tag == RunStepResponse_metadata && metadata && f.size) {
      free(metadata->data);
      *metadata = (shoal_bytes){mem_alloc(f.size), f.size};
      memcpy(metadata->data, f.data, f.size);
    }
    if (f.tag == RunStepResponse_status_code) code = (int64_t)f.value;
    if (f.tag == RunStepResponse_status_error_message) message = wire_inside(&f);
  }
  if (step == WIRE_BROKEN) return INTERNAL("the server's answer does not parse");
  if (code)
    return STATUS((shoal_code)(code > 0 && code <= SHOAL_UNAUTHENTICATED ? code : SHOAL_UNKNOWN), "%.*s",
                  (int)wire_left(&message), (const char *)message.at);
  for (int i = 0; i < sig->n_fetches; i++)
    if (!fetches[i]) return INTERNAL("the server's answer lacks the fetched value %s", sig->fetches[i]);
  return NULL;
}

static void drop_fetches(shoal_tensor **fetches, int n) {
  for (int i = 0; i < n; i++) {
    shoal_tensor_unref(fetches[i]);
    fetches[i] = NULL;
  }
}

static shoal_status run_named(struct remote_session *s, const shoal_run_options *o, const char *partial,
                              const struct step_signature *sig, shoal_tensor *const *feeds, shoal_tensor **fetches,
                              shoal_bytes *metadata) {
  struct rpc_message *request;
  struct rpc_body body;
  struct wire answer;
  for (int i = 0; i < sig->n_fetches; i++) fetches[i] = NULL;
  TRY(step_request(s, o, partial, sig, feeds, &request));
  TRY(ask(s, SERVICE "RunStep", request, deadline_of(s, o), &body, &answer));
  shoal_status err = read_step(sig, answer, fetches, metadata);
  rpc_body_release(&body);
  if (err) drop_fetches(fetches, sig->n_fetches);
  return err;
}

static shoal_status remote_run(shoal_session *base, const shoal_run_options *o, const struct step_signature *sig,
                               shoal_tensor *const *feeds, shoal_tensor **fetches, shoal_bytes *metadata) {
  struct remote_session *s = self(base);
  struct master *m = in_process_enter(s->target);
  if (!m) return run_named(s, o, NULL, sig, feeds, fetches, metadata);
  shoal_status err = in_process_run(m, s->handle, o, deadline_of(s, o), sig, feeds, fetches, metadata);
  in_process_leave(m);
  return err;
}

struct name_tags {
  uint32_t feed, fetch, target;
};

static void put_names(struct text *t, const struct name_tags *tags, const struct step_signature *sig) {
  for (int i = 0; i < sig->n_feeds + sig->n_fetches; i++) {
    bool feed = i < sig->n_feeds;
    char *name = tensor_name(feed ? sig->feeds[i] : sig->fetches[i - sig->n_feeds]);
    wire_add_str(t, feed ? tags->feed : tags->fetch, name);
    block_free(name);
  }
  for (int i = 0; i < sig->n_targets; i++) wire_add_str(t, tags->target, sig->targets[i]);
}

static shoal_status remote_partial_setup(shoal_session *base, const struct step_signature *sig, char **handle) {
  struct remote_session *s = self(base);
  struct text request = {0};
  put_PartialRunSetupRequest_session_handle(&request, s->handle);
  static const struct name_tags tags = {PartialRunSetupRequest_feed, PartialRunSetupRequest_fetch,
                                        PartialRunSetupRequest_target};
  put_names(&request, &tags, sig);
  put_PartialRunSetupRequest_request_id(&request, request_id_new());
  struct rpc_body body;
  struct wire answer;
  TRY(ask(s, SERVICE "PartialRunSetup", message_from_text(&request), deadline_of(s, NULL), &body, &answer));
  *handle = NULL;
  for (struct wire_field f; wire_next(&answer, &f) == WIRE_FIELD;)
    if (f.tag == PartialRunSetupResponse_partial_run_handle) {
      free(*handle);
      *handle = mem_strndup((const char *)f.data, f.size);
    }
  rpc_body_release(&body);
  return *handle ? NULL : INTERNAL("the server answered PartialRunSetup without a handle");
}

static shoal_status remote_partial_run(shoal_session *base, const char *handle, const struct step_signature *sig,
                                       shoal_tensor *const *feeds, shoal_tensor **fetches) {
  return run_named(self(base), NULL, handle, sig, feeds, fetches, NULL);
}

/* ---- callables ---- */

/* Known to the program by a number of our own: what a server says is no measure for a table. */
struct callable {
  int64_t handle;            /* the server's */
  struct step_signature sig; /* its names are one block with it */
};

static size_t names_size(const char *const *names, int n) {
  size_t size = 0;
  for (int i = 0; i < n; i++) size += sizeof *names + strlen(names[i]) + 1;
  return size;
}

/* Pointers at *at, the names themselves at *text; both go on behind them. */
static const char *const *copy_names(const char *const *names, int n, const char ***at, char **text) {
  const char **copy = *at;
  for (int i = 0; i < n; i++) {
    *(*at)++ = *text;
    *text = stpcpy(*text, names[i]) + 1;
  }
  return copy;
}

static struct callable *callable_new(int64_t handle, const struct step_signature *sig) {
  struct callable *c = mem_alloc(sizeof *c + names_size(sig->feeds, sig->n_feeds) +
                                 names_size(sig->fetches, sig->n_fetches) + names_size(sig->targets, sig->n_targets));
  *c = (struct callable){handle, *sig};
  const char **at = (const char **)(c + 1);
  char *text = (char *)(at + sig->n_feeds + sig->n_fetches + sig->n_targets);
  c->sig.feeds = copy_names(sig->feeds, sig->n_feeds, &at, &text);
  c->sig.fetches = copy_names(sig->fetches, sig->n_fetches, &at, &text);
  c->sig.targets = copy_names(sig->targets, sig->n_targets, &at, &text);
  return c;
}

static shoal_status remote_make_callable(shoal_session *base, const struct step_signature *sig, int64_t *callable) {
  struct remote_session *s = self(base);
  struct text request = {0};
  put_MakeCallableRequest_session_handle(&request, s->handle);
  size_t at = begin_MakeCallableRequest_options(&request);
  static const struct name_tags tags = {CallableOptions_feed, CallableOptions_fetch, CallableOptions_target};
  put_names(&request, &tags, sig);
  wire_end(&request, at);
  put_MakeCallableRequest_request_id(&request, request_id_new());
  struct rpc_body body;
  struct wire answer;
  TRY(ask(s, SERVICE "MakeCallable", message_from_text(&request), deadline_of(s, NULL), &body, &answer));
  struct callable *made = callable_new(0, sig);
  for (struct wire_field f; wire_next(&answer, &f) == WIRE_FIELD;)
    if (f.tag == MakeCallableResponse_handle) made->handle = (int64_t)f.value;
  rpc_body_release(&body);
  pthread_mutex_lock(&s->lock);
  *callable = numbered_add(&s->callables, made);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* names (optional): a copy with its names, to be freed; out's are not to be used. */
static shoal_status find_callable(struct remote_session *s, int64_t number, struct callable *out,
                                  struct callable **names) {
  pthread_mutex_lock(&s->lock);
  const struct callable *found = numbered_get(&s->callables, number);
  if (found) *out = *found;
  if (found && names) *names = callable_new(found->handle, &found->sig);
  pthread_mutex_unlock(&s->lock);
  return found ? NULL : INVALID("No such callable handle: %" PRId64, number);
}

static shoal_status remote_run_callable(shoal_session *base, int64_t callable, const shoal_run_options *o,
                                        shoal_tensor *const *feeds, int n_feeds, shoal_tensor **fetches, int n_fetches,
                                        shoal_bytes *metadata) {
  struct remote_session *s = self(base);
  struct callable called, *named = NULL;
  /* A server's callable has its options from when it was made: with others the step is run by its names. */
  TRY(find_callable(s, callable, &called, o && (o->trace_level || o->output_partition_graphs) ? &named : NULL));
  shoal_status err = NULL;
  if (n_feeds != called.sig.n_feeds || n_fetches != called.sig.n_fetches) /* TensorFlow's server ends of too few */
    err = INVALID("Expected %d feed tensors and %d fetches, but got %d and %d", called.sig.n_feeds,
                  called.sig.n_fetches, n_feeds, n_fetches);
  else if (named) err = remote_run(base, o, &named->sig, feeds, fetches, metadata);
  bool done = err || named;
  free(named);
  if (done) return err;
  struct message m;
  message_init(&m);
  message_string(&m, RunCallableRequest_session_handle, s->handle);
  message_int(&m, RunCallableRequest_handle, (uint64_t)called.handle);
  for (int i = 0; i < n_feeds && !err; i++)
    err = feeds[i] ? transfer_put(&m, RunCallableRequest_feed, &feeds[i]->t)
                   : INVALID("feed %d of the callable is NULL", i);
  if (err) {
    message_release(&m);
    return err;
  }
  message_int(&m, RunCallableRequest_request_id, (uint64_t)request_id_new());
  struct rpc_body body;
  struct wire answer;
  for (int i = 0; i < n_fetches; i++) fetches[i] = NULL;
  TRY(ask(s, SERVICE "RunCallable", message_finish(&m), deadline_of(s, o), &body, &answer));
  int got = 0;
  for (struct wire_field f; !err && wire_next(&answer, &f) == WIRE_FIELD;) {
    struct tensor t;
    if (f.tag == RunCallableResponse_fetch && got < n_fetches) {
      err = tensor_proto_decode(f.data, f.size, &t);
      if (!err) fetches[got++] = tensor_handle_take(&t);
    }
    if (f.tag == RunCallableResponse_metadata && metadata && f.size && !metadata->data) {
      *metadata = (shoal_bytes){mem_alloc(f.size), f.size};
      memcpy(metadata->data, f.data, f.size);
    }
  }
  if (!err && got < n_fetches) err = INTERNAL("the server answered %d of %d fetches", got, n_fetches);
  rpc_body_release(&body);
  if (err) drop_fetches(fetches, n_fetches);
  return err;
}

static shoal_status remote_release_callable(shoal_session *base, int64_t callable) {
  struct remote_session *s = self(base);
  struct text request = {0};
  pthread_mutex_lock(&s->lock);
  struct callable *released = numbered_remove(&s->callables, callable);
  pthread_mutex_unlock(&s->lock);
  if (!released) return INVALID("No such callable handle: %" PRId64, callable);
  put_ReleaseCallableRequest_session_handle(&request, s->handle);
  put_ReleaseCallableRequest_handle(&request, released->handle);
  free(released);
  return ask_nothing(s, SERVICE "ReleaseCallable", &request, deadline_of(s, NULL));
}

/* ---- the rest ---- */

static shoal_status remote_list_devices(shoal_session *base, char **names) {
  struct remote_session *s = self(base);
  struct text request = {0}, lines = {0};
  put_ListDevicesRequest_session_handle(&request, s->handle);
  struct rpc_body body;
  struct wire answer;
  TRY(ask(s, SERVICE "ListDevices", message_from_text(&request), deadline_of(s, NULL), &body, &answer));
  for (struct wire_field f; wire_next(&answer, &f) == WIRE_FIELD;) {
    if (f.tag != ListDevicesResponse_local_device && f.tag != ListDevicesResponse_remote_device) continue;
    struct wire device = wire_inside(&f);
    char name[256] = "", type[64] = "";
    shoal_device d = {.name = name, .type = type};
    for (struct wire_field k; wire_next(&device, &k) == WIRE_FIELD;) {
      if (k.tag == DeviceAttributes_name)
        snprintf(name, sizeof name, "%.*s", (int)MIN(k.size, sizeof name), (const char *)k.data);
      if (k.tag == DeviceAttributes_device_type)
        snprintf(type, sizeof type, "%.*s", (int)MIN(k.size, sizeof type), (const char *)k.data);
      if (k.tag == DeviceAttributes_memory_limit) d.memory = (int64_t)k.value;
      if (k.tag == DeviceAttributes_incarnation) d.incarnation = k.value;
    }
    session_device_line(&lines, &d);
  }
  rpc_body_release(&body);
  *names = text_take(&lines);
  return NULL;
}

static shoal_status close_there(struct remote_session *s, int64_t deadline) {
  struct text request = {0};
  put_CloseSessionRequest_session_handle(&request, s->handle);
  if (s->head.gives_up) put_CloseSessionExtra_gives_up(&request, s->head.gives_up);
  return ask_nothing(s, SERVICE "CloseSession", &request, deadline);
}

/* A server that does not answer at once keeps nobody: what waits for it ends here. */
static void remote_interrupt(shoal_session *base) {
  enum { INTERRUPT_MS = 500 };
  struct remote_session *s = self(base);
  if (atomic_exchange(&s->interrupted, true)) return;
  shoal_status_free(close_there(s, deadline_after_ms(INTERRUPT_MS)));
  peer_cancel_all(s->master, STATUS(SHOAL_CANCELLED, "the session was interrupted"));
}

/* The server ends the steps of a session that is closed; what it has not answered by then ends here. */
static shoal_status remote_end(shoal_session *base) {
  struct remote_session *s = self(base);
  shoal_status err = atomic_load(&s->interrupted) ? NULL : close_there(s, deadline_of(s, NULL));
  if (inside_has_any(&base->calls)) peer_cancel_all(s->master, run_closed_status());
  return err;
}

static const struct session_ops remote_ops = {.extend = remote_extend,
                                              .end = remote_end,
                                              .free = remote_free,
                                              .interrupt = remote_interrupt,
                                              .run = remote_run,
                                              .partial_setup = remote_partial_setup,
                                              .partial_run = remote_partial_run,
                                              .make_callable = remote_make_callable,
                                              .run_callable = remote_run_callable,
                                              .release_callable = remote_release_callable,
                                              .list_devices = remote_list_devices};

/* Asks until the server is there, and now and then says so (a caller with a time of its own does that itself). One that
 * hangs up on us for seconds, or whose certificate will not do, is there, and does not want us. */
static shoal_status meet(const struct remote_session *s, int64_t limit_ms, bool say) {
  enum { PAUSE_MS = 50, REFUSED_MS = 3000, SAY_MS = 5000 };
  char why[512] = "it has not answered yet";
  int64_t began = clock_ns(), limit = deadline_after_ms(limit_ms), next = deadline_after_ms(SAY_MS);
  for (int64_t refused = 0;;) { /* since when */
    /* A try ends when there is something to say. */
    int64_t until = say ? MIN(limit, MAX(next, deadline_after_ms(1000))) : limit;
    shoal_status err =
        peer_wait(s->master, "/tensorflow.WorkerService/GetStatus", NULL, until, PEER_UNWATCHED, s->give_up, NULL);
    bool silent = shoal_status_code(err) == SHOAL_DEADLINE_EXCEEDED && until < limit;
    bool away = silent || shoal_status_code(err) == SHOAL_UNAVAILABLE;
    const char *now = silent ? "what listens there does not answer" : shoal_status_message(err);
    if (away) snprintf(why, sizeof why, "%.*s", (int)strcspn(now, "\n"), now);
    if (!away || (s->give_up && s->give_up())) return told(s, began, why, err);
    if (say && clock_ns() >= next) {
      LOGW("%s: waiting since %.0f s for this server: %s", s->target, (double)(clock_ns() - began) * 1e-9, why);
      next = deadline_after_ms(SAY_MS);
    }
    if (!strstr(shoal_status_message(err), "it hung up")) refused = 0;
    else if (!refused) refused = clock_ns();
    else if (clock_ns() - refused > REFUSED_MS * 1000000ll) return err;
    if (clock_ns() + PAUSE_MS * 1000000ll > limit) {
      shoal_status late =
          STATUS(SHOAL_DEADLINE_EXCEEDED, "no answer within %" PRId64 " ms: %s", limit_ms, shoal_status_message(err));
      shoal_status_free(err);
      return late;
    }
    shoal_status_free(err);
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL);
  }
}

shoal_status remote_session_open(struct shoal_graph *g, const shoal_session_options *o, shoal_session **out) {
  char host[256];
  int port;
  const char *address = o->target + strlen("grpc://");
  TRY(address_parse("target", address, host, &port));
  struct remote_session *s = mem_zalloc(1, sizeof *s);
  session_init(&s->head, &remote_ops);
  s->target = mem_strdup(o->target);
  s->timeout_ms = o->operation_timeout_ms;
  pthread_mutex_init(&s->lock, NULL);
  bool told = o->tls_cert || o->tls_key || o->tls_ca;
  shoal_status err =
      told ? rpc_tls_load(o->tls_cert, o->tls_key, o->tls_ca, &s->tls) : rpc_tls_from_environment(&s->tls);
  if (!err) err = peers_new(s->tls, 0, false, &s->peers);
  if (!err) {
    s->master = peers_get(s->peers, o->target, address, true);
    s->give_up = o->give_up;
    err = meet(s,
               o->create_timeout_ms > 0 ? o->create_timeout_ms
               : s->timeout_ms > 0      ? s->timeout_ms
                                        : CONNECT_MS,
               o->create_timeout_ms <= 0);
  }
  if (!err) err = create(s, g, o);
  if (err) {
    session_release(&s->head);
    remote_free(&s->head);
    return err;
  }
  s->give_up = NULL;
  *out = &s->head;
  return NULL;
}
