/* The server half of the RPC layer.
 *
 * Methods are registered with gRPC together with their first message, so that a call arrives in one event, payload
 * included. A quick call is answered with one batch (headers, message, status, and the notice that the client has it);
 * only a call still open when its handler returns gets a batch of its own that watches for the client's going away.
 *
 * Invariants, by number:
 *   1. grpc_call_start_batch is called for sends by the answering thread alone, for the watch by the handler's thread
 *      alone, and never for the watch once the answer has begun (lock).
 *   2. A call is freed with its last reference: one for the answer's batch, one for the watch.
 *   3. The cancel function is not called after reply or fail has returned. */
#include "rpc/server.h"

#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <limits.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/handover.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/loop.h"
#include "rpc/rpc_status.h"

struct slot; /* one requested call of a method */

struct rpc_call {
  struct rpc_event answered, closed;
  struct rpc_server *server;
  grpc_call *call;
  gpr_timespec deadline;
  grpc_metadata_array metadata;
  struct rpc_body request;
  grpc_byte_buffer *reply;
  int cancelled;
  atomic_int refs;
  pthread_mutex_t lock;
  pthread_cond_t idle;
  bool watching, replied, cancelling; /* lock */
  pthread_t canceller;                /* lock: while cancelling */
  void (*cancel_fn)(void *);          /* lock */
  void *cancel_arg;
  rpc_local_done local; /* instead of a connection */
  void *local_arg;
};

struct slot {
  struct rpc_event arrived;
  struct rpc_server *server;
  const struct rpc_method *method; /* NULL: any method that is not registered */
  void *registered;
  struct rpc_call *next; /* being filled in by gRPC */
  grpc_byte_buffer *payload;
  grpc_call_details details;
};

struct rpc_server {
  struct rpc_server_options o;
  grpc_server *server;
  int port;
  pthread_mutex_t lock;
  pthread_cond_t done;
  int slots;     /* lock: outstanding requests */
  int calls;     /* lock: not yet freed */
  bool stopping; /* lock */
  struct {
    struct rpc_event e;
    bool seen;
  } stopped;
};

static void call_unref(struct rpc_call *c) {
  if (atomic_fetch_sub(&c->refs, 1) != 1) return;
  struct rpc_server *s = c->server;
  rpc_body_release(&c->request);
  if (c->reply) grpc_byte_buffer_destroy(c->reply);
  if (c->call) grpc_call_unref(c->call);
  grpc_metadata_array_destroy(&c->metadata);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->idle);
  free(c);
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  if (--s->calls == 0) pthread_cond_broadcast(&s->done);
  pthread_mutex_unlock(&s->lock);
}

static void on_answered(struct rpc_event *e, bool ok) {
  call_unref((struct rpc_call *)((char *)e - offsetof(struct rpc_call, answered)));
}

/* The watch's batch completes when the client is gone, or when the answer has been sent. */
static void on_closed(struct rpc_event *e, bool ok) {
  struct rpc_call *c = (struct rpc_call *)((char *)e - offsetof(struct rpc_call, closed));
  pthread_mutex_lock(&c->lock);
  if (c->cancelled && !c->replied && c->cancel_fn) {
    void (*fn)(void *) = c->cancel_fn;
    c->cancel_fn = NULL;
    c->cancelling = true;
    c->canceller = pthread_self();
    pthread_mutex_unlock(&c->lock);
    fn(c->cancel_arg);
    pthread_mutex_lock(&c->lock);
    c->cancelling = false;
    pthread_cond_broadcast(&c->idle);
  }
  pthread_mutex_unlock(&c->lock);
  call_unref(c);
}

static void answer(struct rpc_call *c, grpc_byte_buffer *bytes, shoal_status s) {
  pthread_mutex_lock(&c->lock);
  MUST(!c->replied);
  c->replied = true;
  while (c->cancelling && !pthread_equal(c->canceller, pthread_self())) pthread_cond_wait(&c->idle, &c->lock);
  bool watching = c->watching;
  pthread_mutex_unlock(&c->lock);
  if (c->local) {
    c->reply = bytes;
    c->local(c->local_arg, s, bytes);
    call_unref(c);
    return;
  }

  grpc_op ops[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
  size_t n = 1;
  c->reply = bytes;
  if (!s) {
    if (!bytes) c->reply = grpc_raw_byte_buffer_create(NULL, 0);
    ops[n].op = GRPC_OP_SEND_MESSAGE;
    ops[n++].data.send_message.send_message = c->reply;
  }
  struct text message = {0}, payload = {0};
  rpc_status_text(s, &message);
  rpc_status_payload(s, &payload);
  grpc_slice details = grpc_slice_from_copied_buffer(text_cstr(&message), message.n);
  grpc_metadata trailer = {.key = grpc_slice_from_static_string("grpc-status-details-bin")};
  if (payload.n) trailer.value = grpc_slice_from_copied_buffer(payload.at, payload.n);
  ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
  ops[n].data.send_status_from_server.status = (grpc_status_code)shoal_status_code(s);
  ops[n].data.send_status_from_server.status_details = s ? &details : NULL;
  ops[n].data.send_status_from_server.trailing_metadata_count = payload.n ? 1 : 0;
  ops[n++].data.send_status_from_server.trailing_metadata = &trailer;
  if (!watching) {
    ops[n].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    ops[n++].data.recv_close_on_server.cancelled = &c->cancelled;
  }
  grpc_call *call = c->call;
  handover_give(&c->answered);
  grpc_call_error err = grpc_call_start_batch(call, ops, n, &c->answered, NULL);
  MUST(err == GRPC_CALL_OK);
  grpc_slice_unref(details);
  if (payload.n) grpc_slice_unref(trailer.value);
  text_release(&message);
  text_release(&payload);
  shoal_status_free(s);
}

void rpc_call_reply(struct rpc_call *c, grpc_byte_buffer *bytes) { answer(c, bytes, NULL); }

void rpc_call_fail(struct rpc_call *c, shoal_status s) { answer(c, NULL, s); }

shoal_status rpc_call_request(struct rpc_call *c, const void **data, size_t *size) {
  return rpc_body_flat(&c->request, data, size);
}

int64_t rpc_call_deadline(const struct rpc_call *c) { return rpc_deadline_from(c->deadline); }

char *rpc_call_peer(struct rpc_call *c) {
  char *p = c->call ? grpc_call_get_peer(c->call) : NULL, *copy = mem_strdup(p ? p : "unknown");
  if (p) gpr_free(p);
  return copy;
}

bool rpc_call_peer_named(struct rpc_call *c, bool (*match)(const char *name, void *arg), void *arg) {
  const struct rpc_tls *tls = c->server ? c->server->o.tls : NULL;
  if (!tls || !tls->ca) return true;
  grpc_auth_context *auth = grpc_call_auth_context(c->call);
  grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(auth, GRPC_X509_SAN_PROPERTY_NAME);
  bool found = false;
  for (const grpc_auth_property *p; !found && (p = grpc_auth_property_iterator_next(&it));) {
    char *name = mem_strndup(p->value, p->value_length);
    found = match(name, arg);
    free(name);
  }
  grpc_auth_context_release(auth);
  return found;
}

void rpc_call_on_cancel(struct rpc_call *c, void (*fn)(void *arg), void *arg) {
  pthread_mutex_lock(&c->lock);
  c->cancel_fn = fn;
  c->cancel_arg = arg;
  pthread_mutex_unlock(&c->lock);
}

/* After the handler: a call still open is watched from here on. */
static void watch(struct rpc_call *c) {
  pthread_mutex_lock(&c->lock);
  bool open = !c->replied;
  if (open) {
    c->watching = true;
    atomic_fetch_add(&c->refs, 1);
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &c->cancelled};
    grpc_call *call = c->call;
    handover_give(&c->closed);
    grpc_call_error err = grpc_call_start_batch(call, &op, 1, &c->closed, NULL);
    MUST(err == GRPC_CALL_OK);
  }
  pthread_mutex_unlock(&c->lock);
  call_unref(c);
}

/* ---- without a network ---- */

struct rpc_call *rpc_call_local(const struct rpc_method *m, void *server, const void *request, size_t size,
                                rpc_local_done done, void *arg) {
  struct rpc_call *c = mem_zalloc(1, sizeof *c);
  atomic_init(&c->refs, 2); /* the answer's, and the client's */
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->idle, NULL);
  grpc_metadata_array_init(&c->metadata);
  c->deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
  c->local = done;
  c->local_arg = arg;
  grpc_slice slice = grpc_slice_from_copied_buffer(request, size);
  c->request = rpc_body_of(grpc_raw_byte_buffer_create(&slice, 1));
  grpc_slice_unref(slice);
  m->fn(c, server);
  return c;
}

void rpc_call_local_end(struct rpc_call *c) {
  c->cancelled = 1;
  on_closed(&c->closed, true);
}

static void ask(struct slot *slot);

static void slot_free(struct slot *slot) {
  struct rpc_server *s = slot->server;
  grpc_call_details_destroy(&slot->details);
  free(slot);
  pthread_mutex_lock(&s->lock);
  if (--s->slots == 0) pthread_cond_broadcast(&s->done);
  pthread_mutex_unlock(&s->lock);
}

static void refuse_unknown(struct rpc_call *c, struct slot *slot) {
  char *name = grpc_slice_to_c_string(slot->details.method);
  shoal_status s = UNIMPLEMENTED("%s is not a method of this server", name);
  gpr_free(name);
  rpc_call_fail(c, s);
}

static void on_arrived(struct rpc_event *e, bool ok) {
  struct slot *slot = (struct slot *)((char *)e - offsetof(struct slot, arrived));
  struct rpc_call *c = slot->next;
  slot->next = NULL;
  if (!ok) { /* the server is stopping */
    call_unref(c);
    slot_free(slot);
    return;
  }
  const struct rpc_method *m = slot->method;
  c->request = rpc_body_of(slot->payload);
  slot->payload = NULL;
  atomic_fetch_add(&c->refs, 1); /* one for the answer, one for the handler */
  if (m) {
    ask(slot);
    m->fn(c, c->server->o.arg);
  } else {
    refuse_unknown(c, slot);
    grpc_call_details_destroy(&slot->details);
    grpc_call_details_init(&slot->details);
    ask(slot);
  }
  watch(c);
}

static void ask(struct slot *slot) {
  struct rpc_server *s = slot->server;
  struct rpc_call *c = mem_zalloc(1, sizeof *c);
  c->server = s;
  c->answered.fn = on_answered;
  c->closed.fn = on_closed;
  atomic_init(&c->refs, 1);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->idle, NULL);
  grpc_metadata_array_init(&c->metadata);
  c->deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
  pthread_mutex_lock(&s->lock);
  s->calls++;
  bool stopping = s->stopping;
  pthread_mutex_unlock(&s->lock);
  slot->next = c;
  slot->payload = NULL;
  grpc_call_error err = GRPC_CALL_ERROR;
  if (!stopping) {
    grpc_completion_queue *q = rpc_loop_queue();
    handover_give(&slot->arrived);
    err = slot->method
              ? grpc_server_request_registered_call(s->server, slot->registered, &c->call, &c->deadline, &c->metadata,
                                                    &slot->payload, q, q, &slot->arrived)
              : grpc_server_request_call(s->server, &c->call, &slot->details, &c->metadata, q, q, &slot->arrived);
  }
  if (err != GRPC_CALL_OK) {
    slot->next = NULL;
    call_unref(c);
    slot_free(slot);
  }
}

static void add_slot(struct rpc_server *s, const struct rpc_method *m, void *registered) {
  struct slot *slot = mem_zalloc(1, sizeof *slot);
  slot->arrived.fn = on_arrived;
  slot->server = s;
  slot->method = m;
  slot->registered = registered;
  grpc_call_details_init(&slot->details);
  pthread_mutex_lock(&s->lock);
  s->slots++;
  pthread_mutex_unlock(&s->lock);
  ask(slot);
}

static void on_stopped(struct rpc_event *e, bool ok) {
  struct rpc_server *s = (struct rpc_server *)((char *)e - offsetof(struct rpc_server, stopped.e));
  pthread_mutex_lock(&s->lock);
  s->stopped.seen = true;
  pthread_cond_broadcast(&s->done);
  pthread_mutex_unlock(&s->lock);
}

/* gRPC says only that it could not bind; a plain socket says why. */
static shoal_status bind_error(const char *host, int port, bool tls) {
  shoal_status s = STATUS(SHOAL_UNKNOWN, "Could not start gRPC server");
  char bare[256], service[16];
  snprintf(bare, sizeof bare, "%s", host[0] == '[' ? host + 1 : host);
  bare[strcspn(bare, "]")] = 0;
  snprintf(service, sizeof service, "%d", port);
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  int err = getaddrinfo(bare, service, &hints, &found);
  if (err) return status_suffix(s, ": the address %s:%d cannot be resolved (%s)", host, port, gai_strerror(err));
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, 1) < 0)
    s = status_suffix(s, ": %s:%d: %m (is another server running there? choose another port or stop it)", host, port);
  else if (tls)
    s = status_suffix(s,
                      ": the certificate and key of --tls_cert and --tls_key cannot be used: do they belong together?");
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return s;
}

static grpc_arg int_arg(const char *key, int v) {
  return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = v};
}

/* gRPC measures a message only when it has taken it in; what keeps a flood of large ones out of memory is a quota on
 * all that has come in and is not taken yet. Beyond it streams are reset, which their clients see as
 * RESOURCE_EXHAUSTED. */
static grpc_resource_quota *make_quota(int64_t max_request_bytes) {
  size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  size_t most = max_request_bytes > 0 ? (size_t)max_request_bytes * 4 + ((size_t)64 << 20) : memory / 2;
  grpc_resource_quota *q = grpc_resource_quota_create("shoal");
  grpc_resource_quota_resize(q, MIN(most, memory / 2));
  return q;
}

shoal_status rpc_server_start(const struct rpc_server_options *o, struct rpc_server **out) {
  rpc_loop_acquire();
  struct rpc_server *s = mem_zalloc(1, sizeof *s);
  s->o = *o;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->done, NULL);
  s->stopped.e.fn = on_stopped;
  grpc_arg args[] = {
      {0}, /* the quota */
      int_arg(GRPC_ARG_ALLOW_REUSEPORT, 0),
      int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
              o->max_request_bytes && o->max_request_bytes < INT_MAX ? (int)o->max_request_bytes : INT_MAX),
      int_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, INT_MAX),
      int_arg(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 4 << 20),
      int_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20),
      int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500),
      int_arg(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0),
      int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
      int_arg(GRPC_ARG_MAX_METADATA_SIZE, 16384),
      /* What costs each call something and is not used: a deadline is kept by who waits, nothing is compressed. */
      int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
      int_arg(GRPC_ARG_ENABLE_CENSUS, 0),
      int_arg(GRPC_ARG_ENABLE_DEADLINE_CHECKS, 0),
      int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0),
  };
  grpc_resource_quota *quota = make_quota(o->max_request_bytes);
  args[0] = (grpc_arg){.type = GRPC_ARG_POINTER,
                       .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
                       .value.pointer = {quota, grpc_resource_quota_arg_vtable()}};
  grpc_channel_args channel_args = {COUNT_OF(args), args};
  s->server = grpc_server_create(&channel_args, NULL);
  grpc_resource_quota_unref(quota);
  grpc_server_register_completion_queue(s->server, rpc_loop_queue(), NULL);
  void *registered[64];
  MUST(o->n_methods <= (int)COUNT_OF(registered));
  for (int i = 0; i < o->n_methods; i++) {
    registered[i] =
        grpc_server_register_method(s->server, o->methods[i].name, NULL, GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
    MUST(registered[i]);
  }
  const char *host = o->host ? o->host : "127.0.0.1";
  char address[300];
  snprintf(address, sizeof address, "%s:%d", host, o->port);
  grpc_server_credentials *creds = rpc_tls_server(o->tls);
  s->port = creds ? grpc_server_add_http2_port(s->server, address, creds) : 0;
  if (creds) grpc_server_credentials_release(creds);
  shoal_status err = NULL;
  if (!creds) err = INVALID("the certificate or key given with --tls_cert, --tls_key cannot be used");
  else if (s->port <= 0) err = bind_error(host, o->port, o->tls != NULL);
  grpc_server_start(s->server);
  if (err) {
    rpc_server_stop(s, 0);
    return err;
  }
  for (int i = 0; i < o->n_methods; i++)
    for (int k = 0; k < MAX(o->methods[i].waiting, 1); k++) add_slot(s, &o->methods[i], registered[i]);
  for (int k = 0; k < 2; k++) add_slot(s, NULL, NULL);
  *out = s;
  return NULL;
}

int rpc_server_port(const struct rpc_server *s) { return s->port; }

void rpc_server_stop(struct rpc_server *s, int64_t grace_ms) {
  pthread_mutex_lock(&s->lock);
  s->stopping = true;
  pthread_mutex_unlock(&s->lock);
  handover_give(&s->stopped.e);
  grpc_server_shutdown_and_notify(s->server, rpc_loop_queue(), &s->stopped.e);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += grace_ms / 1000;
  until.tv_nsec += grace_ms % 1000 * 1000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&s->lock);
  int err = 0;
  while (!s->stopped.seen && !err) err = pthread_cond_timedwait(&s->done, &s->lock, &until);
  bool late = !s->stopped.seen;
  pthread_mutex_unlock(&s->lock);
  if (late) grpc_server_cancel_all_calls(s->server);
  pthread_mutex_lock(&s->lock);
  while (!s->stopped.seen || s->slots || s->calls) pthread_cond_wait(&s->done, &s->lock);
  pthread_mutex_unlock(&s->lock);
  grpc_server_destroy(s->server);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->done);
  free(s);
  rpc_loop_release();
}
