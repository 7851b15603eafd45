/* A channel's connections; see connect.h.
 *
 *   idle --call--> connecting --SETTINGS--> ready --lost--> idle
 *                      |  ^
 *              no address answers: paused (100 ms, growing to 1 s), then idle, or connecting when calls wait
 *
 * While it is paused a call fails at once, unless it is patient. A connection tells of changes under its own lock,
 * which comes after the channel's; so the channel is told by an event. */
#include "rpc/connect.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum { ATTEMPT_MS = 5000, FIRST_PAUSE_MS = 100, LONGEST_PAUSE_MS = 1000 };

static void start_connecting(struct rpc_channel *c);

static void let_go(struct rpc_channel *c) {
  if (!ref_drop(&c->holds)) return;
  if (c->addresses) freeaddrinfo(c->addresses);
  SSL_CTX_free(c->tls);
  shoal_status_free(c->unusable);
  free(c->error);
  free(c->address);
  free(c->host);
  free(c->port);
  free(c->name);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

/* ---- calls that wait ---- */

static void append(struct rpc_channel *c, struct channel_waiting *w) {
  w->next = NULL;
  w->at = c->last;
  *c->last = w;
  c->last = &w->next;
}

bool channel_forget(struct rpc_channel *c, struct channel_waiting *w) {
  if (!w->at) return false;
  *w->at = w->next;
  if (w->next) w->next->at = w->at;
  else c->last = w->at;
  w->at = NULL;
  return true;
}

static shoal_status failure(const struct rpc_channel *c) { return STATUS(SHOAL_UNAVAILABLE, "%s", c->error); }

void channel_enter(struct rpc_channel *c, struct channel_waiting *w) {
  if (c->unusable) {
    channel_call_fail(w, status_copy(c->unusable));
    return;
  }
  if (c->state == CHANNEL_PAUSED && !w->patient) {
    channel_call_fail(w, failure(c));
    return;
  }
  if (c->state == CHANNEL_READY && !c->first && channel_call_send(c, w)) return;
  append(c, w);
  if (c->state == CHANNEL_IDLE) start_connecting(c);
}

static void send_waiting(struct rpc_channel *c) {
  for (struct channel_waiting *w; c->state == CHANNEL_READY && (w = c->first);) {
    channel_forget(c, w);
    if (channel_call_send(c, w)) continue;
    w->next = c->first; /* back to where it was */
    w->at = &c->first;
    if (w->next) w->next->at = &w->next;
    else c->last = &w->next;
    c->first = w;
    return;
  }
}

/* ---- connections ---- */

static void say_changed(struct http2 *conn) {
  struct rpc_channel *c = conn->owner;
  if (atomic_exchange(&c->is_changed, true)) return;
  ref_take(&c->holds);
  rpc_loop_post(&c->changed);
}

static void on_conn_closed(struct http2 *conn);

static const struct http2_role calling = {.ready = say_changed,
                                          .ended = channel_call_ended,
                                          .refuse = channel_call_refused,
                                          .lost = channel_call_lost,
                                          .changed = say_changed,
                                          .closed = on_conn_closed};

static void give_up(struct rpc_channel *c) {
  if (c->addresses) freeaddrinfo(c->addresses);
  c->addresses = c->next_address = NULL;
  c->state = CHANNEL_PAUSED;
  for (struct channel_waiting *w = c->first, *next; w; w = next) {
    next = w->next;
    if (w->patient) continue;
    channel_forget(c, w);
    channel_call_fail(w, failure(c));
  }
  /* Many that lost the same peer shall not all come back at the same moment. */
  int64_t jitter = (int64_t)(hash_bytes(&c, sizeof c, (uint64_t)clock_ns()) % 400) - 200;
  int64_t ns = c->pause_ms * (1000 + jitter) * 1000;
  c->pause_ms = MIN(c->pause_ms * 8 / 5, LONGEST_PAUSE_MS);
  ref_take(&c->holds);
  rpc_timer_set(&c->pause, clock_ns() + ns);
}

static void note_failure(struct rpc_channel *c, const struct sockaddr_storage *at, const char *why) {
  struct text t = {0};
  text_adds(&t, "failed to connect to all addresses; last error: UNKNOWN: ");
  socket_address(at, &t);
  text_addf(&t, ": Failed to connect to remote host: %s", why);
  free(c->error);
  c->error = text_take(&t);
}

/* Tries the next address; call while there is no connection. */
static void try_next(struct rpc_channel *c) {
  for (struct addrinfo *a; (a = c->next_address);) {
    c->next_address = a->ai_next;
    struct sockaddr_storage at = {0};
    memcpy(&at, a->ai_addr, MIN(a->ai_addrlen, sizeof at));
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS)) {
      ref_take(&c->holds);
      c->conn = http2_new(fd, &calling, c,
                          &(struct http2_options){.tls = c->tls,
                                                  .name = c->name ? c->name : c->host,
                                                  .peer = at,
                                                  .max_message = INT_MAX,
                                                  .ready_ms = ATTEMPT_MS});
      return;
    }
    char text[128];
    note_failure(c, &at, strerror_r(errno, text, sizeof text));
    if (fd >= 0) close(fd);
  }
  give_up(c);
}

static void drop_conn(struct rpc_channel *c) {
  struct http2 *conn = c->conn;
  c->conn = NULL;
  c->state = CHANNEL_IDLE;
  http2_unref(conn);
  if (c->first && !c->closed) start_connecting(c);
}

static void on_changed(struct rpc_event *e) {
  struct rpc_channel *c = (struct rpc_channel *)((char *)e - offsetof(struct rpc_channel, changed));
  atomic_store(&c->is_changed, false);
  pthread_mutex_lock(&c->lock);
  if (c->conn && !c->closed) {
    http2_lock(c->conn);
    bool dead = c->conn->dead, open = c->conn->state == HTTP2_OPEN, draining = c->conn->draining;
    http2_unlock(c->conn);
    if (c->state == CHANNEL_CONNECTING && open && !dead) {
      c->state = CHANNEL_READY;
      c->pause_ms = FIRST_PAUSE_MS;
    }
    /* One that died before it was ready is on_conn_closed's. */
    if (c->state == CHANNEL_READY && draining) drop_conn(c);
    else send_waiting(c);
  } else if (c->state == CHANNEL_CONNECTING && !c->conn && !c->resolving && !c->closed) {
    try_next(c);
  }
  pthread_mutex_unlock(&c->lock);
  let_go(c);
}

static void on_conn_closed(struct http2 *conn) {
  struct rpc_channel *c = conn->owner;
  pthread_mutex_lock(&c->lock);
  if (c->conn == conn && c->state == CHANNEL_READY) {
    drop_conn(c);
  } else if (c->conn == conn) {
    c->conn = NULL;
    note_failure(c, &conn->peer, text_cstr(&conn->error));
    http2_unref(conn);
    if (!c->closed) try_next(c);
  }
  pthread_mutex_unlock(&c->lock);
  let_go(c);
}

static void on_pause_over(struct rpc_timer *t) {
  struct rpc_channel *c = (struct rpc_channel *)((char *)t - offsetof(struct rpc_channel, pause));
  pthread_mutex_lock(&c->lock);
  if (c->state == CHANNEL_PAUSED && !c->closed) {
    c->state = CHANNEL_IDLE;
    if (c->first) start_connecting(c);
  }
  pthread_mutex_unlock(&c->lock);
  let_go(c);
}

/* ---- names ---- */

static int look_up(const struct rpc_channel *c, int flags, struct addrinfo **found) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
  return getaddrinfo(c->host, c->port, &hints, found);
}

/* With the lock held. */
static void take_addresses(struct rpc_channel *c, int err, struct addrinfo *found) {
  if (c->addresses) freeaddrinfo(c->addresses); /* of the connection before */
  c->addresses = c->next_address = found;
  if (!err) return;
  free(c->error);
  c->error = mem_printf("failed to connect to all addresses; last error: DNS resolution failed for %s: %s", c->address,
                        gai_strerror(err));
}

/* A name server may take seconds to answer. */
static void *resolve(void *arg) {
  struct rpc_channel *c = arg;
  struct addrinfo *found = NULL;
  int err = look_up(c, 0, &found);
  pthread_mutex_lock(&c->lock);
  take_addresses(c, err, err ? NULL : found);
  c->resolving = false;
  pthread_mutex_unlock(&c->lock);
  if (atomic_exchange(&c->is_changed, true)) {
    let_go(c);
  } else {
    rpc_loop_post(&c->changed); /* with this thread's hold */
  }
  rpc_loop_release();
  return NULL;
}

static void start_connecting(struct rpc_channel *c) {
  c->state = CHANNEL_CONNECTING;
  struct addrinfo *found = NULL;
  int err = look_up(c, AI_NUMERICHOST, &found);
  if (!err) {
    take_addresses(c, 0, found);
    try_next(c);
    return;
  }
  pthread_t t;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  ref_take(&c->holds);
  rpc_loop_hold();
  c->resolving = true;
  err = pthread_create(&t, &attr, resolve, c);
  pthread_attr_destroy(&attr);
  if (!err) return;
  c->resolving = false;
  ref_drop(&c->holds);
  take_addresses(c, EAI_SYSTEM, NULL);
  give_up(c);
  rpc_loop_release(); /* the channel has one of its own: this is not the last */
  LOGW("no thread to look up %s", c->address);
}

/* ---- channels ---- */

struct rpc_channel *rpc_channel_new(const char *address, const struct rpc_tls *tls, const char *name) {
  rpc_loop_hold();
  struct rpc_channel *c = mem_zalloc(1, sizeof *c);
  ref_init(&c->refs, 1);
  ref_init(&c->holds, 1);
  c->address = mem_strdup(address);
  c->name = name ? mem_strdup(name) : NULL;
  const char *colon = strrchr(address, ':');
  size_t n = colon ? (size_t)(colon - address) : strlen(address);
  bool bracketed = n > 1 && address[0] == '[' && address[n - 1] == ']';
  c->host = bracketed ? mem_strndup(address + 1, n - 2) : mem_strndup(address, n);
  c->port = mem_strdup(colon ? colon + 1 : "443");
  c->changed = (struct rpc_event){.fn = on_changed, .kind = RPC_EVENT_QUICK};
  c->pause.fn = on_pause_over;
  c->pause_ms = FIRST_PAUSE_MS;
  c->last = &c->first;
  pthread_mutex_init(&c->lock, NULL);
  shoal_status s = rpc_tls_context(tls, false, &c->tls);
  if (s) c->unusable = STATUS(SHOAL_UNAUTHENTICATED, "%s", shoal_status_message(s));
  shoal_status_free(s);
  return c;
}

struct rpc_channel *rpc_channel_ref(struct rpc_channel *c) {
  ref_take(&c->refs);
  return c;
}

void rpc_channel_unref(struct rpc_channel *c) {
  if (!c || !ref_drop(&c->refs)) return;
  pthread_mutex_lock(&c->lock);
  c->closed = true;
  struct http2 *conn = c->conn;
  if (conn) http2_ref(conn);
  pthread_mutex_unlock(&c->lock);
  if (rpc_timer_clear(&c->pause)) let_go(c);
  if (conn) {
    http2_lock(conn);
    http2_drain(conn);
    http2_flush(conn);
    http2_kill(conn, "the channel is closed");
    http2_unlock(conn);
    http2_unref(conn);
  }
  let_go(c);
  rpc_loop_release();
}
