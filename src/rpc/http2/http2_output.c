/* What an HTTP/2 connection sends.
 *
 * nghttp2 says which frame is next; the bytes go into a queue of segments: frames and small messages are copied into
 * one buffer (small), large pieces of messages are referred to where they are (NGHTTP2_DATA_FLAG_NO_COPY), and the
 * socket takes them from there. Frames of data are made no sooner than they can be sent, so that streams take turns and
 * a reset takes effect at once.
 *
 * What is queued or waits for a window is counted: by connection and process, and by the clock. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/http2/http2.h"

/* FILL: bytes made into frames ahead of need. TURN: bytes written before others have their turn. COPY: pieces of a
 * message up to this size are copied rather than referred to. FRAME: the largest frame sent. */
enum { FILL = 1 << 20, TURN = 4 << 20, COPY = 4096, SEGMENTS = 64, PREFIX = 5, FRAME = 256 << 10 };

static void drop(struct http2 *c, struct rpc_message *m) {
  if (!m || !ref_drop(&m->refs)) return;
  m->next = c->dropped;
  c->dropped = m;
}

void http2_forget_output(struct http2 *c, struct http2_stream *s) {
  c->unsent -= s->out_left;
  s->out_left = 0;
  drop(c, s->out);
  s->out = NULL;
}

/* ---- segments ---- */

static void put_small(struct http2 *c, const void *data, size_t n) {
  if (!n) return;
  text_add(&c->small, data, n);
  c->queued += n;
  if (c->segments.n > c->segments_done && !vec_last(&c->segments).at) vec_last(&c->segments).n += n;
  else vec_push(&c->segments, (struct http2_segment){.n = n});
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
      ref_take(&s->out->refs);
      c->queued += here;
    }
    n -= here;
    s->out_at += here;
    if (s->out_at < p->n) continue;
    s->out_piece++;
    s->out_at = 0;
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
    if (c->small.cap > HTTP2_BACKLOG) text_release(&c->small);
  } else if (c->segments_done > SEGMENTS) {
    c->segments.n -= c->segments_done;
    memmove(c->segments.at, c->segments.at + c->segments_done, c->segments.n * sizeof *c->segments.at);
    c->segments_done = 0;
    c->small.n -= c->small_done;
    memmove(c->small.at, c->small.at + c->small_done, c->small.n);
    c->small_done = 0;
  }
}

void http2_put_reset(struct http2 *c, uint32_t id, uint32_t code) {
  uint8_t frame[13] = {0, 0, 4, NGHTTP2_RST_STREAM, 0};
  for (int i = 0; i < 4; i++) {
    frame[5 + i] = (uint8_t)(id >> (24 - 8 * i));
    frame[9 + i] = (uint8_t)(code >> (24 - 8 * i));
  }
  put_small(c, frame, sizeof frame);
}

void http2_drop_output(struct http2 *c) {
  for (size_t i = c->segments_done; i < c->segments.n; i++)
    if (c->segments.at[i].owner) drop(c, c->segments.at[i].owner);
  c->segments.n = c->segments_done = c->queued = 0;
  budget_give(&c->unread, c->counted);
  c->counted = 0;
}

/* ---- nghttp2 asks ---- */

static struct http2_stream *stream_of(nghttp2_session *session, int32_t id) {
  return nghttp2_session_get_stream_user_data(session, id);
}

static ssize_t frame_room(nghttp2_session *session, uint8_t type, int32_t id, int32_t connection, int32_t stream,
                          uint32_t most, void *user) {
  return MIN(MIN((int64_t)connection, (int64_t)stream), MIN((int64_t)most, (int64_t)FRAME));
}

/* How much of the message goes into the next frame. */
static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                       nghttp2_data_source *source, void *user) {
  struct http2_stream *s = stream_of(session, id);
  if (!s || !s->out) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  size_t n = MIN(room, s->out_left);
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (n < s->out_left) return (ssize_t)n;
  *flags |= NGHTTP2_DATA_FLAG_EOF;
  if (!((struct http2 *)user)->role->server) return (ssize_t)n;
  *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
  struct fields f = {0};
  fields_add_status(&f, NULL);
  return nghttp2_submit_trailer(session, id, f.at, f.n) ? NGHTTP2_ERR_CALLBACK_FAILURE : (ssize_t)n;
}

/* A frame of data: head and n bytes. */
static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n,
                        nghttp2_data_source *source, void *user) {
  struct http2 *c = user;
  struct http2_stream *s = stream_of(session, frame->hd.stream_id);
  if (!s || !s->out) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* it was reset meanwhile */
  if (c->queued >= FILL) return NGHTTP2_ERR_WOULDBLOCK;
  put_small(c, head, 9);
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
  if (s->out_left) return 0;
  drop(c, s->out);
  s->out = NULL;
  return 0;
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  struct http2 *c = user;
  if (frame->hd.type == NGHTTP2_GOAWAY) c->draining = true;
  /* nghttp2 resets streams whose windows SETTINGS lift too far; the fault is the connection's (RFC 9113, 6.9.2). */
  if (frame->hd.type == NGHTTP2_RST_STREAM && c->lifted && frame->rst_stream.error_code == NGHTTP2_FLOW_CONTROL_ERROR)
    http2_fail(c, NGHTTP2_FLOW_CONTROL_ERROR, "a window that is lifted past 2^31-1");
  bool last = frame->hd.type <= NGHTTP2_HEADERS && frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
  struct http2_stream *s = last ? stream_of(session, frame->hd.stream_id) : NULL;
  if (!s) return 0;
  s->local_done = true;
  if (!c->role->server) return 0;
  bool rest = !s->remote_done;
  http2_remove(c, s);
  /* What else the client has to say of it is of no interest. */
  if (rest && nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR))
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  c->role->sent(c, s);
  return 0;
}

void http2_output_callbacks(nghttp2_session_callbacks *k) {
  nghttp2_session_callbacks_set_data_source_read_length_callback(k, frame_room);
  nghttp2_session_callbacks_set_send_data_callback(k, on_send_data);
  nghttp2_session_callbacks_set_on_frame_send_callback(k, on_sent);
}

/* ---- what is said ---- */

static void begin_output(struct http2 *c, struct http2_stream *s, struct rpc_message *m) {
  s->out = m;
  s->out_left = m->size + PREFIX;
  c->unsent += s->out_left;
}

bool http2_has_room(const struct http2 *c, size_t n) { return budget_has_room(&c->unread, n, 0); }

bool http2_request(struct http2 *c, struct http2_stream *s, const struct fields *f, struct rpc_message *m) {
  if (c->dead || c->draining || c->state != HTTP2_OPEN ||
      c->streams >= nghttp2_session_get_remote_settings(c->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS))
    return false;
  nghttp2_data_provider body = {.read_callback = on_read};
  int32_t id = nghttp2_submit_request(c->session, NULL, f->at, f->n, &body, s);
  if (id < 0) {
    if (id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE) http2_drain(c);
    else http2_kill(c, nghttp2_strerror(id));
    return false;
  }
  http2_add(c, s, (uint32_t)id);
  begin_output(c, s, m);
  return true;
}

void http2_respond(struct http2 *c, struct http2_stream *s, const struct fields *f, struct rpc_message *m) {
  INVARIANT(13, s->id);
  nghttp2_data_provider body = {.read_callback = on_read};
  if (m) begin_output(c, s, m);
  int err = nghttp2_submit_response(c->session, (int32_t)s->id, f->at, f->n, m ? &body : NULL);
  if (err) http2_kill(c, nghttp2_strerror(err));
}

/* ---- the socket ---- */

/* Makes frames, as many as are worth it; false: the connection is dead. */
static bool fill(struct http2 *c) {
  while (c->queued < FILL) {
    const uint8_t *bytes;
    ssize_t n = nghttp2_session_mem_send(c->session, &bytes);
    if (n > 0) put_small(c, bytes, (size_t)n);
    if (n < 0) http2_kill(c, nghttp2_strerror((int)n));
    if (n == 0) c->lifted = false;
    if (n <= 0) break;
  }
  return !c->dead;
}

static void count(struct http2 *c) {
  size_t all = c->queued + c->unsent;
  if (all > c->counted) budget_force(&c->unread, all - c->counted);
  else budget_give(&c->unread, c->counted - all);
  c->counted = all;
}

bool http2_write(struct http2 *c) {
  bool more = false;
  if (!c->counted) c->taken = clock_ns();
  for (size_t written = 0; fill(c) && c->queued;) {
    if (written >= TURN) {
      more = true;
      break;
    }
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
      break;
    }
    if (out) c->taken = clock_ns();
    consume(c, (size_t)out);
    written += (size_t)out;
    more = (size_t)out < asked;
    if (more) break;
  }
  if (!c->dead) count(c);
  return more && !c->dead;
}
