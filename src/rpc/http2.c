/* HTTP/2 connections: their life, their streams, and what they send. http2_input.c has what they receive.
 *
 * nghttp2's own connections were measured and rejected: they copy each byte of a message twice on the way in and once
 * on the way out, and know streams that outlive, depend on and promise each other. Its HPACK decoder is used.
 *
 * Output is a queue of segments: frames and small messages in one buffer (small), large ones by reference. Frames of
 * data are made no sooner than they can be sent, so that streams take turns and a reset takes effect at once. */
#include "rpc/http2.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

/* FILL: bytes made into frames ahead of need. TURN: bytes written or read before others have their turn. COPY: pieces
 * of a message up to this size are copied rather than referred to. BACKLOG: with more small bytes unsent nothing is
 * read: a peer that only asks, and does not read the answers, waits. */
enum { FILL = 1 << 20, TURN = 4 << 20, COPY = 4096, BACKLOG = 1 << 20, SEGMENTS = 64, PREFIX = 5 };

static void on_socket(struct rpc_watch *w, uint32_t events);

void http2_ref(struct http2 *c) { atomic_fetch_add(&c->refs, 1); }

void http2_unref(struct http2 *c) {
  if (atomic_fetch_sub(&c->refs, 1) != 1) return;
  socket_release(&c->socket);
  if (c->inflater) nghttp2_hd_inflate_del(c->inflater);
  text_release(&c->error);
  text_release(&c->small);
  text_release(&c->part);
  headers_release(&c->others);
  vec_release(&c->segments);
  free(c->table);
  pthread_mutex_destroy(&c->lock);
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

static void drop(struct http2 *c, struct rpc_message *m) {
  if (!m || --m->refs) return;
  m->next = c->dropped;
  c->dropped = m;
}

void http2_address(const struct sockaddr_storage *a, struct text *out) {
  char host[INET6_ADDRSTRLEN] = "";
  const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
  const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
  if (a->ss_family == AF_INET) {
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    text_addf(out, "ipv4:%s:%d", host, ntohs(v4->sin_port));
  } else if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
    inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], host, sizeof host);
    text_addf(out, "ipv4:%s:%d", host, ntohs(v6->sin6_port));
  } else if (a->ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
    text_addf(out, "ipv6:[%s]:%d", host, ntohs(v6->sin6_port));
  } else {
    text_adds(out, "unknown");
  }
}

/* ---- streams ---- */

struct http2_stream *http2_find(const struct http2 *c, uint32_t id) {
  struct http2_stream *s = c->table[id / 2 & (c->table_size - 1)];
  while (s && s->id != id) s = s->next;
  return s;
}

static void grow_table(struct http2 *c) {
  uint32_t size = c->table_size * 2;
  struct http2_stream **table = mem_zalloc(size, sizeof(struct http2_stream *));
  for (uint32_t i = 0; i < c->table_size; i++)
    for (struct http2_stream *s; (s = c->table[i]);) {
      c->table[i] = s->next;
      struct http2_stream **to = &table[s->id / 2 & (size - 1)];
      s->next = *to;
      *to = s;
    }
  free(c->table);
  c->table = table;
  c->table_size = size;
}

void http2_add(struct http2 *c, struct http2_stream *s, uint32_t id) {
  if (c->streams >= c->table_size) grow_table(c);
  s->id = id;
  s->send_window = c->peer_window;
  s->receive_window = HTTP2_WINDOW;
  struct http2_stream **to = &c->table[id / 2 & (c->table_size - 1)];
  s->next = *to;
  *to = s;
  c->streams++;
}

static void forget_output(struct http2 *c, struct http2_stream *s) {
  if (s->queued) {
    struct http2_stream **at = &c->first_out;
    while (*at != s) at = &(*at)->next_out;
    *at = s->next_out;
    if (!*at) c->last_out = at;
    s->queued = false;
  }
  c->unsent -= s->out_left;
  s->out_left = 0;
  drop(c, s->out);
  s->out = NULL;
  text_release(&s->tail);
}

void http2_remove(struct http2 *c, struct http2_stream *s) {
  struct http2_stream **at = &c->table[s->id / 2 & (c->table_size - 1)];
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  s->id = 0;
  if (c->to == s) c->to = NULL;
  if (c->block == &s->headers) c->block = &c->others;
  forget_output(c, s);
  c->streams--;
  if (c->role->changed && !c->dead) c->role->changed(c);
}

bool http2_open(struct http2 *c, struct http2_stream *s) {
  if (c->dead || c->draining || c->state != HTTP2_OPEN || c->streams >= c->peer_streams) return false;
  c->last_id += c->last_id ? 2 : 1;
  if (c->last_id > INT32_MAX - 2) http2_drain(c);
  http2_add(c, s, c->last_id);
  return true;
}

/* ---- output ---- */

static void put_small(struct http2 *c, const void *data, size_t n) {
  if (!n) return;
  text_add(&c->small, data, n);
  c->queued += n;
  if (c->segments.n > c->segments_done && !vec_last(&c->segments).at) vec_last(&c->segments).n += n;
  else vec_push(&c->segments, (struct http2_segment){.n = n});
}

static void put_head(struct http2 *c, enum http2_type type, int flags, uint32_t id, size_t n) {
  uint8_t head[9] = {(uint8_t)(n >> 16),  (uint8_t)(n >> 8),   (uint8_t)n,         (uint8_t)type, (uint8_t)flags,
                     (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};
  put_small(c, head, sizeof head);
}

void http2_frame(struct http2 *c, enum http2_type type, int flags, uint32_t id, const void *payload, size_t n) {
  put_head(c, type, flags, id, n);
  put_small(c, payload, n);
}

void http2_frame_u32(struct http2 *c, enum http2_type type, uint32_t id, uint32_t value) {
  uint32_t big = htonl(value);
  http2_frame(c, type, 0, id, &big, sizeof big);
}

/* s has said all that it will. */
static void finish_local(struct http2 *c, struct http2_stream *s) {
  s->local_done = true;
  if (!c->role->server) return;
  if (!s->remote_done) http2_frame_u32(c, FRAME_RST_STREAM, s->id, HTTP2_NO_ERROR);
  http2_remove(c, s);
  c->role->sent(c, s);
}

/* The next n bytes of s's message, from its pieces. */
static void put_pieces(struct http2 *c, struct http2_stream *s, size_t n) {
  while (n) {
    struct rpc_piece *p = &s->out->pieces[s->out_piece];
    size_t here = MIN(n, p->n - s->out_at);
    if (here <= COPY) {
      put_small(c, p->at + s->out_at, here);
    } else {
      vec_push(&c->segments, (struct http2_segment){p->at + s->out_at, here, s->out});
      s->out->refs++;
      c->queued += here;
    }
    n -= here;
    s->out_at += here;
    if (s->out_at < p->n) continue;
    s->out_piece++;
    s->out_at = 0;
  }
}

/* One frame of s's message. */
static void put_data(struct http2 *c, struct http2_stream *s) {
  size_t n = MIN(MIN(s->out_left, (size_t)c->peer_frame), (size_t)MIN(s->send_window, c->send_window));
  n = MIN(n, FILL);
  bool last = n == s->out_left;
  put_head(c, FRAME_DATA, last && !s->has_tail ? FLAG_END_STREAM : 0, s->id, n);
  size_t size = s->out->size, body = n;
  if (s->out_left > size) { /* the prefix is not out yet */
    uint8_t prefix[PREFIX] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size};
    size_t have = s->out_left - size, some = MIN(have, n);
    put_small(c, prefix + PREFIX - have, some);
    body -= some;
  }
  put_pieces(c, s, body);
  s->out_left -= n;
  c->unsent -= n;
  s->send_window -= (int64_t)n;
  c->send_window -= (int64_t)n;
  if (!last) return;
  if (s->has_tail) http2_frame(c, FRAME_HEADERS, FLAG_END_STREAM | FLAG_END_HEADERS, s->id, s->tail.at, s->tail.n);
  drop(c, s->out);
  s->out = NULL;
  finish_local(c, s);
}

void http2_resume(struct http2 *c, struct http2_stream *s) {
  if (s->queued || !s->out_left || s->send_window <= 0) return;
  s->queued = true;
  s->next_out = NULL;
  *c->last_out = s;
  c->last_out = &s->next_out;
}

static void fill(struct http2 *c) {
  while (c->first_out && c->queued < FILL && c->send_window > 0) {
    struct http2_stream *s = c->first_out;
    c->first_out = s->next_out;
    if (!c->first_out) c->last_out = &c->first_out;
    s->queued = false;
    if (s->send_window <= 0) continue; /* the peer has made it smaller since */
    uint32_t id = s->id;
    put_data(c, s);
    if (c->dead) return;
    if (http2_find(c, id) == s) http2_resume(c, s);
  }
}

/* n bytes of the segments are out. */
static void consume(struct http2 *c, size_t n) {
  c->queued -= n;
  while (n) {
    struct http2_segment *g = &c->segments.at[c->segments_done];
    size_t here = MIN(n, g->n);
    if (g->at) g->at += here;
    else c->small_done += here;
    g->n -= here;
    n -= here;
    if (g->n) break;
    if (g->owner) drop(c, g->owner);
    c->segments_done++;
  }
  if (c->segments_done == c->segments.n) {
    c->segments_done = c->segments.n = c->small_done = c->small.n = 0;
    c->unasked = 0;
    if (c->small.cap > BACKLOG) text_release(&c->small);
  } else if (c->segments_done > SEGMENTS) {
    c->segments.n -= c->segments_done;
    memmove(c->segments.at, c->segments.at + c->segments_done, c->segments.n * sizeof *c->segments.at);
    c->segments_done = 0;
    c->small.n -= c->small_done;
    memmove(c->small.at, c->small.at + c->small_done, c->small.n);
    c->small_done = 0;
  }
}

/* True: more could be written, but others have their turn first, or the socket is full. */
static bool write_some(struct http2 *c) {
  for (size_t written = 0; written < TURN;) {
    fill(c);
    if (c->dead || !c->queued) return false;
    struct iovec v[SEGMENTS];
    int n = 0;
    size_t asked = 0, small = c->small_done;
    for (size_t i = c->segments_done; i < c->segments.n && n < SEGMENTS; i++) {
      struct http2_segment *g = &c->segments.at[i];
      v[n++] = (struct iovec){(void *)(uintptr_t)(g->at ? g->at : (uint8_t *)c->small.at + small), g->n};
      if (!g->at) small += g->n;
      asked += g->n;
    }
    ssize_t out = socket_write(&c->socket, v, n);
    if (out < 0) {
      http2_kill(c, text_cstr(&c->socket.error));
      return false;
    }
    consume(c, (size_t)out);
    if ((size_t)out < asked) return true;
    written += (size_t)out;
  }
  return true;
}

static void watch_for(struct http2 *c, uint32_t events) {
  if (c->dead || events == c->watched) return;
  c->watched = events;
  rpc_loop_rewatch(&c->watch, events);
}

void http2_flush(struct http2 *c) {
  if (c->dead || c->state < HTTP2_PREFACE) return;
  bool more = write_some(c);
  if (!c->dead && c->close_when_empty && !c->streams && !c->queued) http2_kill(c, "Socket closed");
  bool full = c->small.n - c->small_done > BACKLOG;
  watch_for(c, (full ? 0 : EPOLLIN) | (more ? EPOLLOUT : 0));
}

void http2_send(struct http2 *c, struct http2_stream *s, const struct text *headers, struct rpc_message *m,
                struct text *tail) {
  http2_frame(c, FRAME_HEADERS, FLAG_END_HEADERS | (m ? 0 : FLAG_END_STREAM), s->id, headers->at, headers->n);
  if (!m) {
    finish_local(c, s);
    return;
  }
  s->out = m;
  s->out_left = m->size + PREFIX;
  c->unsent += s->out_left;
  if (tail) {
    s->has_tail = true;
    s->tail = *tail;
    *tail = (struct text){0};
  }
  http2_resume(c, s);
}

void http2_reset(struct http2 *c, struct http2_stream *s, enum http2_error code) {
  http2_frame_u32(c, FRAME_RST_STREAM, s->id, code);
  http2_remove(c, s);
}

/* ---- the end ---- */

static void put_goaway(struct http2 *c, enum http2_error code) {
  uint32_t last = c->role->server ? c->last_id : 0;
  uint32_t payload[2] = {htonl(last), htonl(code)};
  http2_frame(c, FRAME_GOAWAY, 0, 0, payload, sizeof payload);
}

void http2_drain(struct http2 *c) {
  if (c->dead || c->draining) return;
  c->draining = c->close_when_empty = true;
  if (c->state == HTTP2_OPEN) put_goaway(c, HTTP2_NO_ERROR);
  if (c->role->changed) c->role->changed(c);
}

void http2_fail(struct http2 *c, enum http2_error code, const char *why) {
  if (c->dead) return;
  struct text peer = {0};
  http2_address(&c->peer, &peer);
  LOGI("%s: the connection ends: %s", text_cstr(&peer), why);
  text_release(&peer);
  put_goaway(c, code);
  write_some(c);
  http2_kill(c, why);
}

void http2_kill(struct http2 *c, const char *why) {
  if (c->dead) return;
  c->dead = c->draining = true;
  text_adds(&c->error, why);
  for (uint32_t i = 0; i < c->table_size; i++)
    for (struct http2_stream *s; (s = c->table[i]);) {
      http2_remove(c, s);
      c->role->lost(c, s, STATUS(SHOAL_UNAVAILABLE, "%s", why));
    }
  for (size_t i = c->segments_done; i < c->segments.n; i++)
    if (c->segments.at[i].owner) drop(c, c->segments.at[i].owner);
  c->segments.n = c->segments_done = c->queued = 0;
  if (c->role->changed) c->role->changed(c);
  rpc_loop_post(&c->closing);
}

static void on_closing(struct rpc_event *e) {
  struct http2 *c = (struct http2 *)((char *)e - offsetof(struct http2, closing));
  rpc_loop_unwatch(&c->watch);
  rpc_timer_clear(&c->timer);
  rpc_timer_clear(&c->more);
  http2_lock(c);
  socket_release(&c->socket);
  http2_unlock(c);
  c->role->closed(c);
  http2_unref(c);
}

static void on_late(struct rpc_timer *t) {
  struct http2 *c = (struct http2 *)((char *)t - offsetof(struct http2, timer));
  http2_lock(c);
  http2_kill(c, "Timeout occurred: the connection was not ready in time");
  http2_unlock(c);
}

/* ---- the beginning ---- */

static void greet(struct http2 *c) {
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  static const struct {
    uint16_t id;
    uint32_t value;
  } settings[] = {{SETTING_STREAMS, HTTP2_MAX_STREAMS},
                  {SETTING_WINDOW, HTTP2_WINDOW},
                  {SETTING_FRAME, HTTP2_FRAME},
                  {SETTING_HEADERS, HTTP2_HEADERS}};
  uint8_t payload[6 * COUNT_OF(settings)], *p = payload;
  for (size_t i = 0; i < COUNT_OF(settings); i++, p += 6) {
    memcpy(p, &(uint16_t){htons(settings[i].id)}, 2);
    memcpy(p + 2, &(uint32_t){htonl(settings[i].value)}, 4);
  }
  if (!c->role->server) put_small(c, preface, sizeof preface - 1);
  http2_frame(c, FRAME_SETTINGS, 0, 0, payload, sizeof payload);
  http2_frame_u32(c, FRAME_WINDOW_UPDATE, 0, HTTP2_CONNECTION_WINDOW - 65535);
  c->state = HTTP2_PREFACE;
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
    if (done < 0) http2_kill(c, text_cstr(&c->socket.error));
    if (done == 0) watch_for(c, events);
    if (done <= 0) return false;
    greet(c);
    http2_flush(c);
  }
  return !c->dead;
}

static void read_some(struct http2 *c) {
  for (size_t taken = 0; taken < TURN && !c->dead;) {
    struct iovec v[2];
    uint8_t *to, *scratch = rpc_loop_scratch();
    size_t direct = http2_direct(c, &to);
    int n = 0;
    if (direct) v[n++] = (struct iovec){to, direct};
    v[n++] = (struct iovec){scratch, direct ? 16384 : RPC_SCRATCH};
    ssize_t got = socket_read(&c->socket, v, n);
    if (got < 0) http2_kill(c, text_cstr(&c->socket.error));
    if (got <= 0) return;
    size_t first = MIN((size_t)got, direct), rest = (size_t)got - first;
    if (first && !http2_data(c, to, first)) return;
    if (rest && !http2_input(c, scratch, rest)) return;
    taken += (size_t)got;
    if (!c->socket.ssl && (size_t)got < v[0].iov_len + (n > 1 ? v[1].iov_len : 0)) return;
  }
  /* Under TLS bytes may be left that no poll tells of. */
  if (!c->dead && c->socket.ssl) rpc_timer_set(&c->more, 0);
}

static void on_more(struct rpc_timer *t) {
  on_socket(&((struct http2 *)((char *)t - offsetof(struct http2, more)))->watch, EPOLLIN);
}

static void on_socket(struct rpc_watch *w, uint32_t events) {
  struct http2 *c = (struct http2 *)((char *)w - offsetof(struct http2, watch));
  http2_lock(c);
  if (!c->dead && begin(c)) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_some(c);
    http2_flush(c);
  }
  http2_unlock(c);
}

struct http2 *http2_new(int fd, SSL_CTX *ctx, const char *name, const struct http2_role *role, void *owner,
                        size_t max_message, struct rpc_tally *tally, int64_t ready_ms) {
  struct http2 *c = mem_zalloc(1, sizeof *c);
  atomic_init(&c->refs, 2);
  c->role = role;
  c->owner = owner;
  c->watch = (struct rpc_watch){.fn = on_socket, .fd = fd};
  c->closing = (struct rpc_event){.fn = on_closing, .quick = true};
  c->timer.fn = on_late;
  c->more.fn = on_more;
  pthread_mutex_init(&c->lock, NULL);
  socket_init(&c->socket, fd, ctx, role->server, name);
  c->state = role->server ? HTTP2_SHAKING : HTTP2_CONNECTING;
  c->table_size = 16;
  c->table = mem_zalloc(c->table_size, sizeof(struct http2_stream *));
  c->last_out = &c->first_out;
  c->max_message = max_message;
  c->tally = tally;
  c->send_window = c->peer_window = 65535;
  c->receive_window = HTTP2_CONNECTION_WINDOW;
  c->peer_frame = 16384;
  c->peer_streams = role->server ? 0 : UINT32_MAX;
  headers_init(&c->others);
  c->block = &c->others;
  MUST(nghttp2_hd_inflate_new(&c->inflater) == 0);
  http2_lock(c);
  c->watched = role->server ? EPOLLIN : EPOLLOUT;
  if (rpc_loop_watch(&c->watch, c->watched)) {
    rpc_timer_set(&c->timer, clock_ns() + ready_ms * 1000000);
    /* A client that speaks TLS to a server that does not shall see that at once. */
    if (role->server && !ctx) begin(c);
  } else {
    http2_kill(c, "the socket cannot be watched");
  }
  http2_unlock(c);
  return c;
}
