/* The server half of the RPC layer.
 *
 * A call begins when its headers have arrived, is handed to its method's handler when its request has, and is answered
 * with one write: headers, message and trailers together.
 *
 * A call (invariant 13) has a reference for its stream (from open to sent, or until the loss of its client has been
 * dealt with), one for the handler and one for the answer (both from ended). The cancel function is called after the
 * handler has returned (on_lost's, while it waits, too), and not after reply or fail has. */
#include "rpc/server.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/vec.h"
#include "rpc/door.h"
#include "rpc/http2/http2.h"
#include "rpc/limits.h"
#include "rpc/listener.h"
#include "rpc/room.h"
#include "rpc/rpc_status.h"
#include "rpc/unwanted.h"

/* LAST_MS: how long the answers of a server that is stopping may take to get out. SHOWN: characters of the name of a
 * method that is unknown, in what is answered. */
enum { MAX_METHODS = 64, LAST_MS = 1000, SHOWN = 100 };
/* What a client may always have, whatever others hold: so many calls, and an answer of so many bytes when it has read
 * all before. */
enum { FEW_CALLS = 16, SMALL_ANSWER = 64 << 10 };

struct rpc_call {
  struct http2_stream stream; /* its connection's lock */
  struct rpc_event arrived, closed;
  struct rpc_server *server;
  struct http2 *conn;
  const struct rpc_method *method; /* NULL: unknown */
  atomic_bool lost;                /* the client is gone */
  bool begun;                      /* the connection's lock: all of the request is here, a handler has been asked for */
  struct ref refs;
  pthread_mutex_t lock;
  pthread_cond_t idle;
  bool handled, gone;       /* lock */
  bool waits;               /* lock: its handler does, and is told at once */
  struct unwanted unwanted; /* lock */
  size_t unpacked;          /* taken of what the connection may hold; the handler's */
  rpc_local_done local;     /* instead of a connection */
  void *local_arg;
};

struct rpc_server {
  struct rpc_server_options o;
  SSL_CTX *tls;
  int port;
  uint64_t hashes[MAX_METHODS]; /* of the methods' names */
  struct budget held;           /* by requests, and what they were inflated to */
  struct listener *listener;
  struct door door;
  struct rpc_event stopping;
  pthread_mutex_t lock;
  pthread_cond_t done;
  VEC(struct http2 *) conns; /* lock */
  int calls;                 /* lock: not yet freed */
  bool deaf;                 /* lock: it listens no more */
};

static struct rpc_call *of_stream(struct http2_stream *s) { return (struct rpc_call *)s; }

static struct rpc_call *call_new(struct rpc_server *s) {
  struct rpc_call *c = block_zalloc(sizeof *c);
  c->server = s;
  headers_init(&c->stream.headers);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->idle, NULL);
  return c;
}

static void call_unref(struct rpc_call *c) {
  if (!ref_drop(&c->refs)) return;
  struct rpc_server *s = c->server;
  bool held = c->stream.body.room || c->unpacked;
  rpc_body_release(&c->stream.body);
  if (c->unpacked) budget_give(&c->conn->held, c->unpacked);
  if (held) room_freed();
  headers_release(&c->stream.headers);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->idle);
  if (c->conn) {
    atomic_fetch_sub(&c->conn->calls, 1);
    atomic_fetch_sub(&c->conn->begun, c->begun);
    budget_give(&c->conn->address->calls, 1);
    http2_unref(c->conn);
  }
  block_free(c);
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  if (--s->calls == 0) pthread_cond_broadcast(&s->done);
  pthread_mutex_unlock(&s->lock);
}

/* ---- the client's going away ---- */

/* Call with the call's lock held, after the handler; the lock is given back. */
static void cancel_and_unlock(struct rpc_call *c) {
  unwanted_tell(&c->unwanted, &c->lock, &c->idle);
  pthread_mutex_unlock(&c->lock);
  call_unref(c);
}

static void on_closed(struct rpc_event *e) {
  struct rpc_call *c = (struct rpc_call *)((char *)e - offsetof(struct rpc_call, closed));
  pthread_mutex_lock(&c->lock);
  if (c->waits && !c->handled) unwanted_tell(&c->unwanted, &c->lock, &c->idle);
  c->gone = true;
  if (c->handled) cancel_and_unlock(c);
  else pthread_mutex_unlock(&c->lock); /* the handler's thread will see to it */
}

/* The handler has returned. */
static void after_handler(struct rpc_call *c) {
  pthread_mutex_lock(&c->lock);
  c->handled = true;
  if (c->gone) cancel_and_unlock(c);
  else pthread_mutex_unlock(&c->lock);
  call_unref(c);
}

/* ---- answers ---- */

static void send_answer(struct rpc_call *c, struct rpc_message *m, shoal_status s) {
  struct fields f = {0};
  fields_add(&f, ":status", "200", 3);
  fields_add(&f, "content-type", "application/grpc", 16);
  if (s) {
    static const char encodings[] = "identity, deflate, gzip";
    fields_add(&f, "grpc-accept-encoding", encodings, sizeof encodings - 1);
    fields_add_status(&f, s);
  }
  http2_respond(c->conn, &c->stream, &f, s ? NULL : m);
  fields_release(&f);
}

/* Why m cannot be the answer; NULL: it can. */
static shoal_status unsendable(struct rpc_call *c, const struct rpc_message *m) {
  TRY(rpc_message_check(m, "an answer"));
  if (http2_has_room(c->conn, m->size) || (!c->conn->counted && m->size <= SMALL_ANSWER)) return NULL;
  return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                "there is no room for an answer of %zu bytes beside those that clients have not read "
                "(--max_unread_bytes)",
                m->size);
}

static void answer(struct rpc_call *c, struct rpc_message *m, shoal_status s) {
  pthread_mutex_lock(&c->lock);
  INVARIANT(13, !c->unwanted.answered);
  unwanted_answer(&c->unwanted, &c->lock, &c->idle);
  pthread_mutex_unlock(&c->lock);
  if (c->local) {
    if (!s && m) s = rpc_message_check(m, "an answer");
    c->local(c->local_arg, s, m);
    rpc_message_free(m);
    call_unref(c);
    return;
  }
  if (!s && !m) m = message_from_text(&(struct text){0});
  http2_lock(c->conn);
  bool open = c->stream.id != 0;
  if (open && !s) s = unsendable(c, m);
  bool sent = open && !s;
  if (open) {
    send_answer(c, m, s);
    http2_flush(c->conn);
  }
  http2_unlock(c->conn);
  if (!sent) rpc_message_free(m);
  shoal_status_free(s);
  call_unref(c);
}

void rpc_call_reply(struct rpc_call *c, struct rpc_message *m) { answer(c, m, NULL); }

void rpc_call_fail(struct rpc_call *c, shoal_status s) { answer(c, NULL, s); }

void rpc_call_answer(struct rpc_call *c, shoal_status s, struct text *t) {
  if (s) {
    text_release(t);
    rpc_call_fail(c, s);
  } else rpc_call_reply(c, message_from_text(t));
}

shoal_status rpc_call_request(struct rpc_call *c, const void **data, size_t *size) {
  return rpc_body_flat(&c->stream.body, data, size);
}

bool rpc_call_unpacks(struct rpc_call *c, size_t n) {
  if (!c->conn) return true;
  if (!budget_take(&c->conn->held, n)) return false;
  c->unpacked += n;
  return true;
}

int64_t rpc_call_deadline(const struct rpc_call *c) { return c->stream.headers.deadline; }

char *rpc_call_peer(struct rpc_call *c) {
  struct text t = {0};
  if (c->conn) socket_address(&c->conn->peer, &t);
  else text_adds(&t, "unknown");
  return text_take(&t);
}

void rpc_call_uses(struct rpc_call *c, int opens) {
  if (!c->conn) return;
  atomic_store_explicit(&c->conn->last_used, clock_ns(), memory_order_relaxed);
  if (opens) atomic_fetch_add_explicit(&c->conn->opened, opens, memory_order_relaxed);
}

int rpc_server_connections(struct rpc_server *s) {
  pthread_mutex_lock(&s->lock);
  int n = (int)s->conns.n;
  pthread_mutex_unlock(&s->lock);
  return n;
}

int rpc_server_users(struct rpc_server *s, int64_t idle_ns) {
  int n = 0;
  int64_t after = clock_ns() - idle_ns;
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->conns.n; i++) {
    struct http2 *c = s->conns.at[i];
    int64_t last = atomic_load_explicit(&c->last_used, memory_order_relaxed);
    n += atomic_load_explicit(&c->opened, memory_order_relaxed) > 0 || (last && last > after);
  }
  pthread_mutex_unlock(&s->lock);
  return n;
}

static uint64_t number_of(const struct http2 *c) { return hash_bytes(&c->peer, sizeof c->peer, 0) | 1; }

uint64_t rpc_call_connection(const struct rpc_call *c) { return c->conn ? number_of(c->conn) : 0; }

struct rpc_origin rpc_call_origin(const struct rpc_call *c) {
  return (struct rpc_origin){rpc_call_connection(c), c->conn ? c->conn->address->number : 0};
}

bool rpc_server_connected(struct rpc_server *s, uint64_t connection) {
  bool found = false;
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->conns.n && !found; i++) found = number_of(s->conns.at[i]) == connection;
  pthread_mutex_unlock(&s->lock);
  return found;
}

/* A DNS name of a certificate; NULL for names of other kinds: an e-mail address or a URI says nothing of who someone is
 * in a cluster, whatever it reads like. A name with a NUL inside would end there for whoever compares it. */
static char *name_of(const GENERAL_NAME *g) {
  if (g->type != GEN_DNS || ASN1_STRING_type(g->d.dNSName) != V_ASN1_IA5STRING) return NULL;
  const char *at = (const char *)ASN1_STRING_get0_data(g->d.dNSName);
  int n = ASN1_STRING_length(g->d.dNSName);
  if (n <= 0 || memchr(at, 0, (size_t)n)) return NULL;
  return mem_strndup(at, (size_t)n);
}

bool rpc_call_peer_named(struct rpc_call *c, bool (*match)(const char *name, void *arg), void *arg) {
  const struct rpc_tls *tls = c->server ? c->server->o.tls : NULL;
  if (!tls || !tls->ca) return true;
  http2_lock(c->conn);
  X509 *cert = c->conn->socket.ssl ? SSL_get1_peer_certificate(c->conn->socket.ssl) : NULL;
  http2_unlock(c->conn);
  GENERAL_NAMES *names = cert ? X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL) : NULL;
  bool found = false;
  for (int i = 0; !found && i < sk_GENERAL_NAME_num(names); i++) {
    char *name = name_of(sk_GENERAL_NAME_value(names, i));
    found = name && match(name, arg);
    free(name);
  }
  GENERAL_NAMES_free(names);
  X509_free(cert);
  return found;
}

void rpc_call_on_cancel(struct rpc_call *c, void (*fn)(void *arg), void *arg) {
  pthread_mutex_lock(&c->lock);
  c->unwanted.fn = fn;
  c->unwanted.arg = arg;
  pthread_mutex_unlock(&c->lock);
}

void rpc_call_on_lost(struct rpc_call *c, void (*fn)(void *arg), void *arg) {
  pthread_mutex_lock(&c->lock);
  c->waits = true;
  c->unwanted.fn = fn;
  c->unwanted.arg = arg;
  if (c->gone) unwanted_tell(&c->unwanted, &c->lock, &c->idle);
  pthread_mutex_unlock(&c->lock);
}

/* ---- without a network ---- */

struct rpc_call *rpc_call_local(const struct rpc_method *m, void *server, const void *request, size_t size,
                                rpc_local_done done, void *arg) {
  struct rpc_call *c = call_new(NULL);
  ref_init(&c->refs, 2); /* the answer's, and the client's */
  c->handled = true;
  c->local = done;
  c->local_arg = arg;
  c->stream.body = rpc_body_copy(request, size);
  m->fn(c, server);
  return c;
}

void rpc_call_local_end(struct rpc_call *c) { on_closed(&c->closed); }

/* ---- what a connection tells ---- */

static void refuse_method(struct rpc_call *c) {
  char shown[SHOWN + 1];
  snprintf(shown, sizeof shown, "%s", c->stream.headers.path);
  for (char *p = shown; *p; p++)
    if (*p <= 0x20 || *p >= 0x7f) *p = '?';
  rpc_call_fail(c, UNIMPLEMENTED("%s is not a method of this server", shown));
}

static void on_arrived(struct rpc_event *e) {
  struct rpc_call *c = (struct rpc_call *)((char *)e - offsetof(struct rpc_call, arrived));
  if (atomic_load(&c->lost)) call_unref(c); /* nobody waits for the answer */
  else if (c->method) c->method->fn(c, c->server->o.arg);
  else refuse_method(c);
  after_handler(c);
}

/* The call's handler is next in its connection's line. */
static void post_arrived(struct rpc_call *c) {
  c->arrived = (struct rpc_event){.fn = on_arrived, .line = c->conn->requests, .kind = RPC_EVENT_REQUEST};
  rpc_loop_post(&c->arrived);
}

void rpc_call_goes_on(struct rpc_call *c, struct rpc_event *e) {
  e->kind = c->conn ? RPC_EVENT_REQUEST : RPC_EVENT_NEWS;
  e->line = c->conn ? c->conn->requests : NULL;
  rpc_loop_post(e);
}

/* A compressed request is inflated before its handler has its turn: that takes long, and few may do it at a time. */
static void on_packed(struct rpc_event *e) {
  struct rpc_call *c = (struct rpc_call *)((char *)e - offsetof(struct rpc_call, arrived));
  const void *data;
  size_t size;
  shoal_status s = atomic_load(&c->lost) ? NULL : rpc_body_flat(&c->stream.body, &data, &size);
  if (!s) {
    post_arrived(c);
    return;
  }
  rpc_call_fail(c, s);
  after_handler(c);
}

static const struct rpc_method *find_method(const struct rpc_server *s, const char *path) {
  uint64_t hash = hash_bytes(path, strlen(path), 0);
  for (int i = 0; i < s->o.n_methods; i++)
    if (s->hashes[i] == hash && strcmp(s->o.methods[i].name, path) == 0) return &s->o.methods[i];
  return NULL;
}

static struct http2_stream *open_call(struct http2 *conn, struct headers *headers) {
  struct rpc_server *s = conn->owner;
  int calls = atomic_load(&conn->calls);
  if (!headers->path || calls >= rpc_limit(RPC_MAX_CONNECTION_CALLS) || (conn->counted && !http2_has_room(conn, 0)))
    return NULL;
  if (calls < FEW_CALLS) budget_force(&conn->address->calls, 1);
  else if (!budget_take(&conn->address->calls, 1)) return NULL;
  struct rpc_call *c = call_new(s);
  ref_init(&c->refs, 1);
  c->closed.fn = on_closed;
  c->stream.headers = *headers;
  headers_init(headers);
  c->method = c->stream.headers.odd_path ? NULL : find_method(s, c->stream.headers.path);
  c->conn = conn;
  http2_ref(conn);
  atomic_fetch_add(&conn->calls, 1);
  pthread_mutex_lock(&s->lock);
  s->calls++;
  pthread_mutex_unlock(&s->lock);
  return &c->stream;
}

static void refuse_call(struct http2 *conn, struct http2_stream *stream, shoal_status why) {
  send_answer(of_stream(stream), NULL, why);
  shoal_status_free(why);
}

static void call_ended(struct http2 *conn, struct http2_stream *stream) {
  struct rpc_call *c = of_stream(stream);
  if (stream->headers.too_large) {
    refuse_call(conn, stream, STATUS(SHOAL_RESOURCE_EXHAUSTED, "the call's header fields are too large"));
    return;
  }
  ref_take_n(&c->refs, 2);
  atomic_fetch_add(&conn->begun, 1);
  c->begun = true;
  if (!stream->body.compressed || !c->method) {
    post_arrived(c);
    return;
  }
  c->arrived = (struct rpc_event){.fn = on_packed, .line = conn->packed, .kind = RPC_EVENT_COMPUTE};
  rpc_loop_post(&c->arrived);
}

static void call_lost(struct http2 *conn, struct http2_stream *stream, shoal_status why) {
  struct rpc_call *c = of_stream(stream);
  shoal_status_free(why);
  atomic_store(&c->lost, true);
  /* Without a request, or with one that was refused, there was no handler, and will be none. */
  if (c->begun) rpc_loop_post(&c->closed);
  else call_unref(c);
}

static void call_sent(struct http2 *conn, struct http2_stream *stream) { call_unref(of_stream(stream)); }

static void conn_closed(struct http2 *conn) {
  struct rpc_server *s = conn->owner;
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->conns.n; i++) {
    if (s->conns.at[i] != conn) continue;
    s->conns.at[i] = vec_last(&s->conns);
    s->conns.n--;
    break;
  }
  /* In one go with the above: s may be gone after this. */
  pthread_cond_broadcast(&s->done);
  pthread_mutex_unlock(&s->lock);
  budget_give(&conn->address->connections, 1);
  http2_unref(conn);
}

static const struct http2_role serving = {.server = true,
                                          .open = open_call,
                                          .ended = call_ended,
                                          .refuse = refuse_call,
                                          .lost = call_lost,
                                          .sent = call_sent,
                                          .closed = conn_closed};

/* Does nobody wait for us there? Whose request waits for room is silent because it is held back. */
static bool may_be_ended(const struct http2 *c) { return !atomic_load(&c->begun) && !atomic_load(&c->room.in_turn); }

/* For how long nothing has been done for a connection, beyond what it may take to get there; negative: not yet. */
static int64_t idle_for(struct http2 *c, int64_t now) {
  const int64_t second = 1000000000;
  if (atomic_load(&c->ended)) return -1; /* it makes room already, for another */
  int64_t quiet = atomic_load_explicit(&c->quiet_since, memory_order_relaxed);
  if (quiet) return now - quiet - DOOR_IDLE_S * second;
  if (!atomic_load(&c->greeted)) return now - c->made - DOOR_GREETING_S * second;
  if (!may_be_ended(c)) return -1;
  return now - atomic_load_explicit(&c->heard, memory_order_relaxed) - DOOR_IDLE_S * second; /* half a request */
}

/* The one that has been idle for longest, and for how long; a reference where out is given. */
static int64_t find_idle(struct rpc_server *s, const struct rpc_address *of, struct http2 **out) {
  struct http2 *found = NULL;
  int64_t now = clock_ns(), longest = -1;
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->conns.n; i++) {
    int64_t ns = idle_for(s->conns.at[i], now);
    if (ns <= longest || (of && s->conns.at[i]->address->number != of->number)) continue;
    found = s->conns.at[i];
    longest = ns;
  }
  if (found && out) http2_ref(found);
  pthread_mutex_unlock(&s->lock);
  if (out) *out = found;
  return longest;
}

static struct rpc_server *of_door(struct door *d) {
  return (struct rpc_server *)((char *)d - offsetof(struct rpc_server, door));
}

static int64_t longest_idle(struct door *d, const struct rpc_address *of) { return find_idle(of_door(d), of, NULL); }

static bool end_idle(struct door *d, const struct rpc_address *of) {
  struct http2 *c;
  find_idle(of_door(d), of, &c);
  if (!c) return false;
  http2_lock(c);
  bool idle = !c->dead && may_be_ended(c);
  if (idle) {
    http2_drain(c);
    http2_flush(c);
    http2_kill(c, "idle, and others want its place");
  }
  http2_unlock(c);
  http2_unref(c);
  return idle;
}

static void on_connected(void *arg, int fd) {
  struct rpc_server *s = arg;
  struct sockaddr_storage peer = {0};
  if (fd < 0) door_free_descriptors();
  if (fd < 0) return;
  getpeername(fd, (struct sockaddr *)&peer, &(socklen_t){sizeof peer});
  /* Who may have all that the process holds shares it with the fast path, and an address has one share of both. */
  struct budget *held = s->held.most < s->held.parent->most ? &s->held : s->held.parent;
  struct rpc_address *from = rpc_address_get(rpc_address_number(&peer), held);
  if (!door_lets_in(from, &peer)) {
    rpc_address_unref(from);
    close(fd);
    return;
  }
  struct http2 *c =
      http2_new(fd, &serving, s,
                &(struct http2_options){
                    .tls = s->tls,
                    .peer = peer,
                    .max_message = s->o.max_request_bytes > 0 ? (size_t)MIN(s->o.max_request_bytes, INT_MAX) : INT_MAX,
                    .address = from,
                    .ready_ms = rpc_limit(RPC_GREETING_TIMEOUT) * 1000});
  pthread_mutex_lock(&s->lock);
  vec_push(&s->conns, c);
  pthread_mutex_unlock(&s->lock);
}

/* ---- starting and stopping ---- */

/* What may come in and wait to be taken: a few of the largest requests, in as much as the process may hold. */
static size_t most_held(int64_t max_request_bytes) {
  size_t all = (size_t)rpc_limit(RPC_MAX_HELD_BYTES);
  if (max_request_bytes <= 0 || (uint64_t)max_request_bytes > all / 4) return all;
  return MIN((size_t)max_request_bytes * 4 + ((size_t)64 << 20), all);
}

static void on_stopping(struct rpc_event *e) {
  struct rpc_server *s = (struct rpc_server *)((char *)e - offsetof(struct rpc_server, stopping));
  listener_close(s->listener);
  pthread_mutex_lock(&s->lock);
  s->deaf = true;
  pthread_cond_broadcast(&s->done);
  pthread_mutex_unlock(&s->lock);
}

static void server_free(struct rpc_server *s) {
  SSL_CTX_free(s->tls);
  vec_release(&s->conns);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->done);
  free(s);
  rpc_loop_release();
}

shoal_status rpc_server_start(const struct rpc_server_options *o, struct rpc_server **out) {
  MUST(o->n_methods <= MAX_METHODS);
  TRY(rpc_loop_acquire());
  struct rpc_server *s = mem_zalloc(1, sizeof *s);
  s->o = *o;
  s->port = o->port;
  budget_init(&s->held, most_held(o->max_request_bytes), rpc_budget(RPC_MAX_HELD_BYTES));
  s->stopping = (struct rpc_event){.fn = on_stopping, .kind = RPC_EVENT_QUICK};
  pthread_mutex_init(&s->lock, NULL);
  cond_init(&s->done);
  for (int i = 0; i < o->n_methods; i++) s->hashes[i] = hash_bytes(o->methods[i].name, strlen(o->methods[i].name), 0);
  shoal_status err = rpc_tls_context(o->tls, true, &s->tls);
  if (!err) err = listener_open(o->host ? o->host : "127.0.0.1", &s->port, on_connected, s, &s->listener);
  if (err) {
    server_free(s);
    return err;
  }
  s->door = (struct door){.longest = longest_idle, .end = end_idle};
  door_add(&s->door);
  *out = s;
  return NULL;
}

void rpc_server_accept(struct rpc_server *s) { listener_begin(s->listener); }

int rpc_server_port(const struct rpc_server *s) { return s->port; }

/* Tells all connections that there will be no more calls, or ends them. */
static void end_connections(struct rpc_server *s, bool at_once) {
  VEC(struct http2 *) all = {0};
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->conns.n; i++) {
    http2_ref(s->conns.at[i]);
    vec_push(&all, s->conns.at[i]);
  }
  pthread_mutex_unlock(&s->lock);
  for (size_t i = 0; i < all.n; i++) {
    struct http2 *c = all.at[i];
    http2_lock(c);
    if (at_once || c->state != HTTP2_OPEN) http2_kill(c, "the server is stopping");
    http2_drain(c);
    http2_flush(c);
    http2_unlock(c);
    http2_unref(c);
  }
  vec_release(&all);
}

/* Until all calls (or connections) are gone, or it is too late. */
static void wait_for(struct rpc_server *s, bool connections, int64_t deadline) {
  pthread_mutex_lock(&s->lock);
  while ((s->calls || (connections && s->conns.n)) && cond_wait_until(&s->done, &s->lock, deadline)) continue;
  pthread_mutex_unlock(&s->lock);
}

void rpc_server_stop(struct rpc_server *s, int64_t grace_ms) {
  rpc_loop_post(&s->stopping);
  pthread_mutex_lock(&s->lock);
  while (!s->deaf) pthread_cond_wait(&s->done, &s->lock);
  pthread_mutex_unlock(&s->lock);
  end_connections(s, false);
  wait_for(s, false, clock_ns() + grace_ms * 1000000);
  pthread_mutex_lock(&s->lock);
  bool late = s->calls > 0;
  pthread_mutex_unlock(&s->lock);
  if (!late) wait_for(s, true, clock_ns() + (int64_t)LAST_MS * 1000000);
  end_connections(s, true);
  wait_for(s, true, DEADLINE_NEVER);
  door_remove(&s->door);
  server_free(s);
}
