/* HTTP/2 connections: their life. http2_input.c has what they receive, http2_output.c what they send.
 *
 * Framing by hand was here before, and was where most holes were. With output that is never copied
 * (NGHTTP2_DATA_FLAG_NO_COPY) and input that is read to where it stays, nghttp2's sessions are as fast (docs/design.md
 * has the numbers), and their rules are tried by many. */
#include "rpc/http2/http2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/limits.h"
#include "rpc/room.h"
#include "rpc/turns.h"

/* What is read from a connection before others have their turn is worked through in TURN_NS and is at most TURN bytes,
 * fewer under TLS, where they cost more. But a connection that has something to read is given a GLANCE_NS only: that is
 * all that most need, and as many as the limits allow may be ready at once. Whoever has more to say waits in the line
 * of those who have, of which the loop takes one after each poll: they share the time among themselves, and cannot take
 * it from others. LEAST and FIRST: bytes read at once, however long such take, and when nothing is known of that. */
enum { TURN = 4 << 20, TURN_TLS = 512 << 10, TURN_NS = 2000000, GLANCE_NS = 200000, LEAST = 2048, FIRST = 4 << 10 };

void http2_ref(struct http2 *c) { ref_take(&c->refs); }

void http2_unref(struct http2 *c) {
  if (!ref_drop(&c->refs)) return;
  socket_release(&c->socket);
  nghttp2_session_del(c->session);
  rpc_line_free(c->requests);
  rpc_line_free(c->packed);
  text_release(&c->cause);
  text_release(&c->error);
  text_release(&c->small);
  headers_release(&c->others);
  vec_release(&c->segments);
  pthread_mutex_destroy(&c->lock);
  rpc_address_unref(c->address);
  free(c);
}

void http2_unlock(struct http2 *c) {
  struct rpc_message *dropped = c->dropped;
  c->dropped = NULL;
  pthread_mutex_unlock(&c->lock);
  for (struct rpc_message *m; (m = dropped);) {
    dropped = m->next;
    rpc_message_free(m);
  }
}

/* ---- streams ---- */

void http2_add(struct http2 *c, struct http2_stream *s, uint32_t id) {
  s->id = id;
  s->began = s->heard = clock_ns();
  atomic_store_explicit(&c->quiet_since, 0, memory_order_relaxed);
  s->previous = NULL;
  s->next = c->first;
  if (c->first) c->first->previous = s;
  c->first = s;
  c->streams++;
}

void http2_remove(struct http2 *c, struct http2_stream *s) {
  if (s->next) s->next->previous = s->previous;
  if (s->previous) s->previous->next = s->next;
  else c->first = s->next;
  nghttp2_session_set_stream_user_data(c->session, (int32_t)s->id, NULL);
  room_leave(c, s);
  s->id = 0;
  http2_forget_output(c, s);
  if (--c->streams == 0) atomic_store_explicit(&c->quiet_since, clock_ns(), memory_order_relaxed);
  if (c->role->changed && !c->dead) c->role->changed(c);
}

void http2_reset(struct http2 *c, struct http2_stream *s, uint32_t code) {
  int32_t id = (int32_t)s->id;
  http2_remove(c, s);
  if (nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, id, code)) http2_kill(c, "no memory for a reset");
}

/* ---- output ---- */

static void watch_for(struct http2 *c, uint32_t events) {
  if (c->dead || events == c->watched) return;
  c->watched = events;
  rpc_loop_rewatch(&c->watch, events);
}

/* Does the peer not read what is said of what it sent? Then nothing more is read of it. */
static bool is_full(const struct http2 *c) { return c->small.n - c->small_done > HTTP2_BACKLOG; }

/* The connection waits for its turn; what comes meanwhile does not wake the loop. */
static void stand_in_line(struct http2 *c) {
  c->put_off = false;
  if (c->in_line) return;
  c->in_line = true;
  c->turn.kind = c->state == HTTP2_SHAKING ? RPC_EVENT_GREETING : RPC_EVENT_TURN;
  http2_ref(c);
  rpc_loop_post(&c->turn);
}

void http2_flush(struct http2 *c) {
  if (c->dead || c->state < HTTP2_PREFACE) return;
  bool more = http2_write(c);
  if (c->dead) return;
  if (c->close_when_empty && !c->streams && !c->queued) http2_kill(c, "Socket closed");
  else if (!c->queued && !nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session))
    http2_end(c, "Socket closed");
  bool full = is_full(c);
  if (c->put_off && !full && !c->dead) stand_in_line(c);
  watch_for(c, (full || c->in_line ? 0 : EPOLLIN) | (more ? EPOLLOUT : 0));
}

/* ---- the end ---- */

void http2_drain(struct http2 *c) {
  if (c->dead || c->draining) return;
  c->draining = c->close_when_empty = true;
  if (c->state == HTTP2_OPEN)
    nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(c->session),
                          NGHTTP2_NO_ERROR, NULL, 0);
  if (c->role->changed) c->role->changed(c);
}

void http2_fail(struct http2 *c, uint32_t code, const char *why) {
  if (!c->cause.n) text_adds(&c->cause, why);
  nghttp2_session_terminate_session(c->session, code);
}

static void log_end(struct http2 *c, const char *what, const char *why) {
  struct text peer = {0};
  socket_address(&c->peer, &peer);
  LOGI("%s: %s: %s", text_cstr(&peer), what, why);
  text_release(&peer);
}

void http2_end(struct http2 *c, const char *why) {
  if (c->dead) return;
  if (c->cause.n) {
    log_end(c, "the connection ends", text_cstr(&c->cause));
    why = c->state == HTTP2_OPEN ? text_cstr(&c->cause) : "Socket closed (what it sent is not HTTP/2)";
  }
  http2_write(c);
  http2_kill(c, why);
}

void http2_kill(struct http2 *c, const char *why) {
  if (c->dead) return;
  c->dead = c->draining = true;
  atomic_store(&c->ended, true);
  text_adds(&c->error, why);
  for (struct http2_stream *s; (s = c->first);) {
    http2_remove(c, s);
    c->role->lost(c, s, STATUS(SHOAL_UNAVAILABLE, "%s", why));
  }
  http2_drop_output(c);
  if (c->role->changed) c->role->changed(c);
  rpc_loop_post(&c->closing);
}

static void on_closing(struct rpc_event *e) {
  struct http2 *c = (struct http2 *)((char *)e - offsetof(struct http2, closing));
  rpc_loop_unwatch(&c->watch);
  rpc_timer_clear(&c->timer);
  http2_lock(c);
  socket_release(&c->socket);
  nghttp2_session_del(c->session);
  c->session = NULL;
  http2_unlock(c);
  c->role->closed(c);
  http2_unref(c);
}

/* ---- time ---- */

/* How often a connection is looked at: whatever has a limit is found at most a quarter of it too late. */
static int64_t pace(void) {
  int64_t least = MIN(rpc_limit_ns(RPC_REQUEST_TIMEOUT), rpc_limit_ns(RPC_UNREAD_TIMEOUT));
  return MIN(least, MIN(rpc_limit_ns(RPC_IDLE_TIMEOUT), rpc_limit_ns(RPC_ROOM_TIMEOUT))) / 4;
}

static void set_timer(struct http2 *c, int64_t ns) {
  c->due = clock_ns() + ns;
  rpc_timer_set(&c->timer, c->due);
}

void http2_be_on_time(struct http2 *c) {
  if (c->role->server) set_timer(c, pace());
  else rpc_timer_clear(&c->timer);
}

/* This process stood still for so long (it was stopped, or its machine was): nobody was slow in that time. */
static void forgive(struct http2 *c, int64_t now, int64_t ns) {
  for (struct http2_stream *s = c->first; s; s = s->next) {
    s->began = MIN(s->began + ns, now);
    s->heard = MIN(s->heard + ns, now);
    if (s->room == HTTP2_ROOM_WAITS) s->room_since = MIN(s->room_since + ns, now);
  }
  c->block_since = MIN(c->block_since + ns, now);
  c->taken = MIN(c->taken + ns, now);
  int64_t quiet = atomic_load_explicit(&c->quiet_since, memory_order_relaxed);
  if (quiet) atomic_store_explicit(&c->quiet_since, MIN(quiet + ns, now), memory_order_relaxed);
}

static void look_after(struct http2 *c) {
  int64_t now = clock_ns();
  if (!http2_input_late(c, now, rpc_limit_ns(RPC_REQUEST_TIMEOUT))) return;
  if (c->counted && now - c->taken > rpc_limit_ns(RPC_UNREAD_TIMEOUT)) {
    http2_kill(c, "Timeout occurred: answers that are not read");
    return;
  }
  if (!c->streams && now - c->quiet_since > rpc_limit_ns(RPC_IDLE_TIMEOUT)) http2_drain(c);
  http2_flush(c);
  if (!c->dead) http2_be_on_time(c);
}

static void on_late(struct rpc_timer *t) {
  struct http2 *c = (struct http2 *)((char *)t - offsetof(struct http2, timer));
  const int64_t second = 1000000000;
  http2_lock(c);
  int64_t now = clock_ns(), late = now - c->due;
  if (late > second) forgive(c, now, late);
  if (!c->dead && c->state == HTTP2_OPEN) look_after(c);
  else if (!c->dead && late > second) set_timer(c, second); /* what it has said is read first */
  else http2_kill(c, "Timeout occurred: the connection was not ready in time");
  http2_unlock(c);
}

/* ---- the beginning ---- */

static void greet(struct http2 *c) {
  nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)c->first_window},
                                       {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, HTTP2_FRAME},
                                       {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP2_HEADERS},
                                       {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 0}, /* a server's */
                                       {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};           /* a client's */
  settings[3].value = (uint32_t)rpc_limit(RPC_MAX_CONNECTION_CALLS);
  if (!c->role->server) settings[3] = settings[4];
  c->state = HTTP2_PREFACE;
  if (nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, 4) ||
      nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, HTTP2_CONNECTION_WINDOW))
    http2_kill(c, "no memory for a connection");
}

/* Up to the point where frames are exchanged; false: not yet. */
static bool begin(struct http2 *c) {
  if (c->state == HTTP2_CONNECTING) {
    int err = 0;
    socklen_t size = sizeof err;
    getsockopt(c->socket.fd, SOL_SOCKET, SO_ERROR, &err, &size);
    if (err) {
      char text[128];
      http2_kill(c, strerror_r(err, text, sizeof text));
      return false;
    }
    c->state = HTTP2_SHAKING;
  }
  if (c->state == HTTP2_SHAKING) {
    uint32_t events = EPOLLIN;
    int done = socket_handshake(&c->socket, &events);
    if (done < 0) {
      log_end(c, "the handshake of TLS fails", text_cstr(&c->socket.error)); /* whoever is refused hears little of it */
      http2_kill(c, text_cstr(&c->socket.error));
    }
    if (done == 0) watch_for(c, events);
    if (done <= 0) return false;
    greet(c);
    http2_flush(c);
  }
  return !c->dead;
}

/* A few bytes may be much work (tiny frames, references to large fields): what is read at once follows the time that it
 * took to work through the last. */
static void keep_time(struct http2 *c, int64_t ns) {
  if (ns > TURN_NS) c->gulp = MAX(c->gulp / 2, (size_t)LEAST);
  else if (ns < TURN_NS / 4) c->gulp = MIN(c->gulp * 2, (size_t)RPC_SCRATCH);
}

/* What is there, for so long; false: that was not enough, or nobody knows. */
static bool read_some(struct http2 *c, int64_t ns) {
  size_t turn = c->socket.ssl ? TURN_TLS : TURN;
  int64_t began = clock_ns(), since = began;
  atomic_store_explicit(&c->heard, began, memory_order_relaxed);
  for (size_t taken = 0; taken < turn && since - began < ns && !c->dead;) {
    struct iovec v[2];
    uint8_t *to, *scratch = rpc_loop_scratch();
    size_t direct = http2_direct(c, &to);
    int n = 0;
    if (direct) v[n++] = (struct iovec){to, direct};
    v[n++] = (struct iovec){scratch, direct ? MIN(c->gulp, (size_t)16384) : c->gulp};
    ssize_t got = socket_read(&c->socket, v, n);
    if (got < 0) http2_kill(c, text_cstr(&c->socket.error));
    if (got <= 0) return true;
    size_t first = MIN((size_t)got, direct), rest = (size_t)got - first;
    if (first && !http2_input_direct(c, to, first)) return true;
    if (rest && !http2_input(c, scratch, rest)) return true;
    taken += (size_t)got;
    int64_t now = clock_ns();
    if (!direct) keep_time(c, now - since);
    since = now;
    if (!c->socket.ssl && (size_t)got < v[0].iov_len + (n > 1 ? v[1].iov_len : 0)) return true;
  }
  return c->dead;
}

static void on_turn(struct rpc_event *e) {
  struct http2 *c = (struct http2 *)((char *)e - offsetof(struct http2, turn));
  http2_lock(c);
  c->in_line = false;
  if (!c->dead && begin(c)) {
    c->put_off = is_full(c);
    if (!c->put_off && !read_some(c, e->kind == RPC_EVENT_GREETING ? GLANCE_NS : TURN_NS)) stand_in_line(c);
    http2_flush(c);
  }
  http2_unlock(c);
  http2_unref(c);
}

static void on_socket(struct rpc_watch *w, uint32_t events) {
  struct http2 *c = (struct http2 *)((char *)w - offsetof(struct http2, watch));
  http2_lock(c);
  bool shakes = c->state == HTTP2_SHAKING && c->socket.ssl && c->role->server;
  if (!c->dead && shakes) {
    stand_in_line(c);
    watch_for(c, 0);
  } else if (!c->dead && begin(c)) {
    bool ready = events & (EPOLLIN | EPOLLHUP | EPOLLERR);
    if (ready && !c->in_line && !read_some(c, GLANCE_NS)) stand_in_line(c);
    http2_flush(c);
  }
  http2_unlock(c);
}

static nghttp2_session_callbacks *callbacks;
static nghttp2_option *options;

static void make_callbacks(void) {
  MUST(nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&options) == 0);
  http2_input_callbacks(callbacks);
  http2_output_callbacks(callbacks);
  nghttp2_option_set_no_auto_window_update(options, 1);
  nghttp2_option_set_no_closed_streams(options, 1);
#ifdef SHOAL_NGHTTP2_RESETS /* what is counted in http2_input.c is enough, and knows of clients that cancel much */
  nghttp2_option_set_stream_reset_rate_limit(options, 1000000, 1000000);
#endif
}

static void open_session(struct http2 *c) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_callbacks);
  nghttp2_mem memory = http2_memory(&c->framing);
  int err = c->role->server ? nghttp2_session_server_new3(&c->session, callbacks, c, options, &memory)
                            : nghttp2_session_client_new3(&c->session, callbacks, c, options, &memory);
  if (err) c->session = NULL;
}

struct http2 *http2_new(int fd, const struct http2_role *role, void *owner, const struct http2_options *o) {
  struct http2 *c = mem_zalloc(1, sizeof *c);
  ref_init(&c->refs, 2);
  c->role = role;
  c->owner = owner;
  c->peer = o->peer; /* here: once it is watched, other threads ask */
  c->watch = (struct rpc_watch){.fn = on_socket, .fd = fd};
  c->closing = (struct rpc_event){.fn = on_closing, .kind = RPC_EVENT_QUICK};
  c->turn.fn = on_turn;
  c->timer.fn = on_late;
  if (role->server) {
    c->requests = rpc_line_new(0);
    c->packed = rpc_line_new(0);
  }
  pthread_mutex_init(&c->lock, NULL);
  socket_init(&c->socket, fd, o->tls, role->server, o->name);
  c->state = role->server ? HTTP2_SHAKING : HTTP2_CONNECTING;
  c->max_message = o->max_message;
  c->made = clock_ns();
  atomic_init(&c->heard, c->made);
  c->gulp = FIRST;
  /* The bounds are a server's: what a client asked for it has a use for. */
  struct rpc_address *a = c->address = o->address;
  budget_init(&c->framing, a ? (size_t)rpc_limit(RPC_MAX_CONNECTION_FRAMING_BYTES) : SIZE_MAX, a ? &a->framing : NULL);
  budget_init(&c->held, a ? (size_t)rpc_limit(RPC_MAX_CONNECTION_HELD_BYTES) : SIZE_MAX, a ? &a->held : NULL);
  budget_init(&c->unread, a ? (size_t)rpc_limit(RPC_MAX_CONNECTION_UNREAD_BYTES) : SIZE_MAX, a ? &a->unread : NULL);
  c->first_window = room_first_window(c);
  c->left = role->server ? NGHTTP2_CLIENT_MAGIC_LEN : 0;
  headers_init(&c->others);
  open_session(c);
  http2_lock(c);
  c->watched = role->server ? EPOLLIN : EPOLLOUT;
  if (!rpc_loop_watch(&c->watch, c->watched)) {
    http2_kill(c, "the socket cannot be watched");
  } else if (!c->session) {
    http2_kill(c, "no memory for a connection (--max_framing_bytes)");
  } else {
    set_timer(c, o->ready_ms * 1000000);
    /* A client that speaks TLS to a server that does not shall see that at once. */
    if (role->server && !o->tls) begin(c);
  }
  http2_unlock(c);
  return c;
}
