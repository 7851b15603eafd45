/* What an HTTP/2 connection receives.
 *
 * Bytes come in pieces of any size and go to nghttp2, which tells what they mean; a large message is read from the
 * socket straight to where it stays (http2_direct), and shown to nghttp2 there. Here is what a session leaves to its
 * user: gRPC's messages inside DATA, and a bound on all that costs us more than the peer: header fields, streams that
 * are reset as soon as they are open, SETTINGS that move every window, requests that begin and never end.
 *
 *   message   compressed (8 bits) length (32) bytes */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/http2/http2.h"
#include "rpc/limits.h"
#include "rpc/room.h"

/* MAX_BLOCK: bytes of a header block, in so many frames.
 * PLACED: a part of larger messages may go to a place of its own, told by their first HEAD bytes. PATIENCE: what a
 * burst of frames that only cost may cost, and REFILL a second; so does each KiB of a call's fields beyond FEW_FIELDS.
 * A block has at most MOST_FIELDS of them, however it says them.
 */
enum {
  MAX_BLOCK = 60 << 10,
  MAX_BLOCK_FRAMES = 8,
  PREFIX = 5,
  DIRECT = 4096,
  PLACED = 64 << 10,
  HEAD = 1024,
  PATIENCE = 40000,
  REFILL = 2000,
  SLOWEST = 16 << 10,
  FEW_FIELDS = 4 << 10,
  MOST_FIELDS = 8 * HTTP2_HEADERS
};

static struct http2_stream *stream_of(const struct http2 *c, int32_t id) {
  return id > 0 ? nghttp2_session_get_stream_user_data(c->session, id) : NULL;
}

/* Ends the connection from inside a callback. */
static int fail(struct http2 *c, uint32_t code, const char *why) {
  http2_fail(c, code, why);
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* ---- messages ---- */

void http2_refuse(struct http2 *c, struct http2_stream *s, shoal_status why) {
  room_leave(c, s);
  rpc_body_release(&s->body);
  room_freed();
  s->whole = s->refused = true; /* what else comes of it is of no interest */
  c->role->refuse(c, s, why);
}

/* The prefix of a message is complete; false: it is refused. */
static bool start_message(struct http2 *c, struct http2_stream *s) {
  const uint8_t *p = s->prefix;
  s->want = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
  s->body.budget = c->held.parent ? &c->held : NULL;
  s->body.most = c->max_message;
  shoal_status why = NULL;
  if (s->want > c->max_message)
    why = STATUS(SHOAL_RESOURCE_EXHAUSTED, "Received message larger than max (%zu vs. %zu)", s->want, c->max_message);
  else if (!room_can_be(c, s->want))
    why = STATUS(SHOAL_RESOURCE_EXHAUSTED,
                 "a message of %zu bytes is larger than all that may be held at a time (--max_held_bytes, "
                 "--max_connection_held_bytes)",
                 s->want);
  else if (p[0] > 1 || (p[0] && s->headers.identity))
    why = INTERNAL("a message is marked as compressed in an unknown way");
  else if (p[0] && !s->headers.compression)
    why = UNIMPLEMENTED("the message's compression is not supported: identity, deflate and gzip are");
  if (why) {
    http2_refuse(c, s, why);
    return false;
  }
  s->body.compressed = p[0];
  s->whole = s->want == 0;
  return true;
}

/* The first bytes of a large message are here: where does the rest go? */
static void place(struct http2_stream *s) {
  rpc_place fn = s->place;
  s->place = NULL;
  struct rpc_body *b = &s->body;
  size_t at, size;
  uint8_t *to;
  if (!fn(s->place_arg, b->data, b->size, s->want, &at, &size, &to)) return;
  MUST(at <= b->size && size <= s->want - at && size >= b->size - at);
  memcpy(to, b->data + at, b->size - at);
  b->placed = to;
  b->placed_at = at;
  b->placed_size = size;
}

/* Is more to come than the stream's first window, with no room for it yet? */
static bool lacks_room(const struct http2 *c, const struct http2_stream *s) {
  return c->held.parent && s->want > c->first_window && s->room != HTTP2_ROOM_HAS && !s->whole;
}

void http2_open_window(struct http2 *c, struct http2_stream *s) {
  int32_t id = (int32_t)s->id, wide = (int32_t)MIN(s->want + PREFIX, (size_t)HTTP2_WINDOW);
  size_t back = s->held_back;
  s->began = s->heard = clock_ns();
  atomic_store_explicit(&c->heard, s->heard, memory_order_relaxed); /* until now it could not say anything */
  s->held_back = 0;
  if (nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, id, wide) ||
      nghttp2_session_consume_stream(c->session, id, back))
    http2_kill(c, "no memory for a window"); /* and s is gone */
}

/* Where the next bytes of the message go, and how many at once, when n of them are here; 0: it is refused. */
static size_t next_room(struct http2 *c, struct http2_stream *s, size_t n, uint8_t **to) {
  struct rpc_body *b = &s->body;
  bool asking = s->place && !b->compressed && s->want > PLACED;
  if (asking && b->size == HEAD) place(s);
  asking = asking && s->place;
  if (b->placed && b->size < b->placed_at + b->placed_size) {
    *to = b->placed + (b->size - b->placed_at);
    return b->placed_at + b->placed_size - b->size;
  }
  size_t elsewhere = b->placed ? b->placed_size : 0, here = b->size - elsewhere;
  size_t most = asking             ? HEAD
                : lacks_room(c, s) ? MIN(s->want, MAX(c->first_window, (size_t)HTTP2_USUAL_WINDOW))
                                   : s->want - elsewhere;
  if (here == b->room && (here == most || !rpc_body_grow(b, n, most))) {
    http2_refuse(
        c, s,
        STATUS(SHOAL_RESOURCE_EXHAUSTED,
               "there is no room for a message of %zu bytes beside those that wait (--max_held_bytes)", s->want));
    return 0;
  }
  *to = b->data + here;
  return MIN(b->room, s->want - elsewhere) - here;
}

/* n bytes of s's data. */
static void take_data(struct http2 *c, struct http2_stream *s, const uint8_t *p, size_t n) {
  while (n && !s->whole) {
    if (s->prefix_n < sizeof s->prefix) {
      s->prefix[s->prefix_n++] = *p++;
      n--;
      if (s->prefix_n == sizeof s->prefix && !start_message(c, s)) return;
      continue;
    }
    uint8_t *to;
    size_t here = next_room(c, s, n, &to);
    if (!here) return;
    here = MIN(here, n);
    if (p != to) memcpy(to, p, here);
    s->body.size += here;
    p += here;
    n -= here;
    s->whole = s->body.size == s->want;
  }
  if (s->whole) room_leave(c, s);
  else if (s->room == HTTP2_ROOM_NONE && lacks_room(c, s) && s->body.size >= c->first_window / 2 && !room_ask(c, s))
    http2_refuse(c, s,
                 STATUS(SHOAL_RESOURCE_EXHAUSTED, "too many requests wait for room for theirs (--max_held_bytes)"));
}

/* The peer has said all. */
static void end_remote(struct http2 *c, struct http2_stream *s) {
  s->remote_done = true;
  if (s->refused) return;
  if (s->prefix_n && !s->whole) {
    http2_refuse(c, s, INTERNAL("the peer ended the call in the middle of a message"));
    return;
  }
  if (!c->role->server) {
    if (s->local_done) http2_remove(c, s);
    else http2_reset(c, s, NGHTTP2_NO_ERROR);
  }
  c->role->ended(c, s);
}

/* ---- what costs us more than the peer ---- */

static bool spend(struct http2 *c, double cost) {
  int64_t now = clock_ns();
  double filled = c->patience + (double)(now - c->patience_at) * 1e-9 * REFILL;
  c->patience = (filled > PATIENCE ? PATIENCE : filled) - cost;
  c->patience_at = now;
  return c->patience >= 0;
}

/* A stream that is no more because the peer said so: whatever else comes on it is a mistake. */
static void note_over(struct http2 *c, int32_t id) { c->over[c->over_n++ % COUNT_OF(c->over)] = (uint32_t)id; }

static bool is_over(const struct http2 *c, uint32_t id) {
  for (size_t i = 0; i < COUNT_OF(c->over); i++)
    if (c->over[i] == id) return id != 0;
  return false;
}

static int begin_block(struct http2 *c, const nghttp2_frame_hd *h) {
  if (h->type == NGHTTP2_HEADERS) {
    c->block_frames = 0;
    c->block_bytes = 0;
    c->block_since = clock_ns();
  }
  c->block_bytes += h->length;
  c->in_block = !(h->flags & NGHTTP2_FLAG_END_HEADERS);
  if (c->block_bytes <= MAX_BLOCK && ++c->block_frames <= MAX_BLOCK_FRAMES) return 0;
  /* The call is told why. The table of fields is lost with those that are not read, and with it the connection. */
  http2_put_reset(c, (uint32_t)h->stream_id, NGHTTP2_ENHANCE_YOUR_CALM);
  return fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "header fields without end");
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *h, void *user) {
  struct http2 *c = user;
  double cost = h->type == NGHTTP2_SETTINGS                                                    ? 10 + c->streams / 16.0
                : h->type == NGHTTP2_HEADERS || h->type == NGHTTP2_WINDOW_UPDATE               ? 0
                : h->type == NGHTTP2_DATA && (h->length || h->flags & NGHTTP2_FLAG_END_STREAM) ? 0
                                                                                               : 1;
  if (cost > 0 && !spend(c, cost)) return fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "frames that only cost, without end");
  bool block = h->type == NGHTTP2_HEADERS || h->type == NGHTTP2_CONTINUATION;
  if (block && begin_block(c, h)) return NGHTTP2_ERR_CALLBACK_FAILURE;
  if (!c->role->server || h->type != NGHTTP2_HEADERS || h->stream_id % 2 == 0) return 0;
  bool new = (uint32_t)h->stream_id > c->last_id;
  if (new) c->last_id = (uint32_t)h->stream_id;
  if (new || nghttp2_session_find_stream(session, h->stream_id)) return 0;
  if (is_over(c, (uint32_t)h->stream_id)) return fail(c, NGHTTP2_STREAM_CLOSED, "headers after the end of a stream");
  return fail(c, NGHTTP2_PROTOCOL_ERROR, "a stream's number that is lower than one before");
}

/* ---- what nghttp2 tells ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  headers_release(&((struct http2 *)user)->others);
  return 0;
}

static bool opens(const struct http2 *c, const nghttp2_frame *frame) {
  return c->role->server && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n,
                     const uint8_t *value, size_t vn, uint8_t flags, void *user) {
  struct http2 *c = user;
  if (frame->hd.type != NGHTTP2_HEADERS) return 0;
  struct http2_stream *s = opens(c, frame) ? NULL : stream_of(c, frame->hd.stream_id);
  struct headers *to = s ? &s->headers : &c->others;
  headers_take(to, name, n, value, vn);
  /* A byte may name a field of kilobytes, and nghttp2 has looked at each of them. */
  bool dear = to->bytes > FEW_FIELDS && !spend(c, (double)(n + vn) / 1024);
  return dear || to->bytes > MOST_FIELDS ? fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "header fields without end") : 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n, void *user) {
  struct http2 *c = user;
  struct http2_stream *s = stream_of(c, id);
  if (s) {
    s->heard = clock_ns();
    take_data(c, s, p, n);
    if (c->held.parent) s = stream_of(c, id); /* it may be gone */
  }
  bool back = s && lacks_room(c, s);
  if (back) s->held_back += n;
  int err = back ? nghttp2_session_consume_connection(session, n) : nghttp2_session_consume(session, id, n);
  return err && nghttp2_is_fatal(err) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int open_stream(struct http2 *c, int32_t id) {
  struct http2_stream *s = c->draining ? NULL : c->role->open(c, &c->others);
  if (!s) {
    int err = nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
    return err || !spend(c, 1) ? fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "calls that were refused, without end") : 0;
  }
  http2_add(c, s, (uint32_t)id);
  return nghttp2_session_set_stream_user_data(c->session, id, s) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static void take_settings(struct http2 *c, const nghttp2_settings *settings) {
  for (size_t i = 0; i < settings->niv; i++)
    c->lifted |= settings->iv[i].settings_id == NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE;
  if (c->state != HTTP2_OPEN) {
    c->state = HTTP2_OPEN;
    atomic_store(&c->greeted, true);
    atomic_store(&c->quiet_since, clock_ns());
    http2_be_on_time(c);
    if (c->role->ready) c->role->ready(c);
  }
  if (c->role->changed) c->role->changed(c);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  struct http2 *c = user;
  const nghttp2_frame_hd *h = &frame->hd;
  int err = 0;
  switch (h->type) {
    case NGHTTP2_HEADERS:
      if (opens(c, frame)) err = open_stream(c, h->stream_id);
      break;
    case NGHTTP2_SETTINGS:
      if (!(h->flags & NGHTTP2_FLAG_ACK)) take_settings(c, &frame->settings);
      break;
    case NGHTTP2_RST_STREAM: note_over(c, h->stream_id); break;
    case NGHTTP2_GOAWAY:
      if (c->role->server) break;
      c->draining = c->close_when_empty = true;
      c->role->changed(c);
      break;
    default: break;
  }
  bool last = h->type <= NGHTTP2_HEADERS && h->flags & NGHTTP2_FLAG_END_STREAM;
  struct http2_stream *s = last && !err ? stream_of(c, h->stream_id) : NULL;
  if (s) end_remote(c, s);
  return c->dead ? NGHTTP2_ERR_CALLBACK_FAILURE : err;
}

static shoal_status lost(const struct http2 *c, uint32_t code) {
  if (code == NGHTTP2_REFUSED_STREAM && c->draining)
    return STATUS(SHOAL_UNAVAILABLE, "GOAWAY received: the server is stopping");
  shoal_code as = code == NGHTTP2_CANCEL                ? SHOAL_CANCELLED
                  : code == NGHTTP2_REFUSED_STREAM      ? SHOAL_UNAVAILABLE
                  : code == NGHTTP2_ENHANCE_YOUR_CALM   ? SHOAL_RESOURCE_EXHAUSTED
                  : code == NGHTTP2_INADEQUATE_SECURITY ? SHOAL_PERMISSION_DENIED
                                                        : SHOAL_INTERNAL;
  return STATUS(as, "RST_STREAM with error code %u", code);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
  struct http2 *c = user;
  if (c->role->server && nghttp2_session_get_stream_remote_close(session, id) == 1) note_over(c, id);
  struct http2_stream *s = stream_of(c, id);
  if (!s) return 0;
  http2_remove(c, s);
  c->role->lost(c, s, lost(c, code));
  return 0;
}

static int on_error(nghttp2_session *session, int code, const char *message, size_t n, void *user) {
  struct http2 *c = user;
  if (!c->cause.n) text_add(&c->cause, message, n);
  return 0;
}

void http2_input_callbacks(nghttp2_session_callbacks *k) {
  nghttp2_session_callbacks_set_on_begin_frame_callback(k, on_begin_frame);
  nghttp2_session_callbacks_set_on_begin_headers_callback(k, on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(k, on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(k, on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(k, on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(k, on_stream_close);
  nghttp2_session_callbacks_set_error_callback2(k, on_error);
}

/* ---- bytes ---- */

static bool feed(struct http2 *c, const uint8_t *p, size_t n) {
  if (!n) return !c->dead;
  ssize_t err = nghttp2_session_mem_recv(c->session, p, n);
  if (c->dead || err >= 0) return !c->dead;
  if (err == NGHTTP2_ERR_BAD_CLIENT_MAGIC) http2_kill(c, "the client does not speak HTTP/2");
  else if (err == NGHTTP2_ERR_FLOODED)
    http2_fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "the peer sends frames and does not read the answers");
  http2_end(c, nghttp2_strerror((int)err));
  return false;
}

/* A frame's first nine bytes. */
static void begin_frame(struct http2 *c, const uint8_t *h) {
  c->left = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | h[2];
  c->frame_id = ((uint32_t)h[5] << 24 | (uint32_t)h[6] << 16 | (uint32_t)h[7] << 8 | h[8]) & INT32_MAX;
  c->frame_type = h[3];
  c->plain_data = h[3] == NGHTTP2_DATA && !(h[4] & NGHTTP2_FLAG_PADDED);
  if (h[3] == NGHTTP2_HEADERS) c->seen_id = MAX(c->seen_id, c->frame_id);
}

/* gRPC resets streams, too, whose headers it has not sent yet (a call that is cancelled while it waits for its turn),
 * which HTTP/2 forbids and nghttp2 punishes: such a frame is passed over. */
static bool is_early_reset(const struct http2 *c) {
  return c->frame_type == NGHTTP2_RST_STREAM && c->role->server && c->left == 4 && c->seen_id &&
         c->frame_id > c->seen_id && c->frame_id % 2 == 1;
}

/* nghttp2 passes over data on a stream that is gone: it may be on its way since before. Not so when the peer itself has
 * ended the stream. All that came before the frame has been fed. */
static bool is_late_data(const struct http2 *c) {
  return c->frame_type == NGHTTP2_DATA && c->role->server && !stream_of(c, (int32_t)c->frame_id) &&
         is_over(c, c->frame_id);
}

/* A frame begins, and all that came before has been fed; false: the connection is dead. */
static bool check_frame(struct http2 *c) {
  if (is_early_reset(c)) {
    c->passed_over = c->left;
    c->left = 0;
  } else if (is_late_data(c)) {
    http2_fail(c, NGHTTP2_STREAM_CLOSED, "data after the end of a stream");
    http2_end(c, "Socket closed");
  }
  return !c->dead;
}

bool http2_input(struct http2 *c, const uint8_t *p, size_t n) {
  const uint8_t *from = p, *end = p + n; /* from: what nghttp2 has not seen */
  while (p < end) {
    size_t here = MIN((size_t)(end - p), c->passed_over ? c->passed_over : c->left);
    if (c->passed_over) {
      c->passed_over -= (uint32_t)here;
      from = p += here;
      continue;
    }
    if (here) {
      c->left -= (uint32_t)here;
      p += here;
      continue;
    }
    if (!c->head_n && end - p >= (ptrdiff_t)sizeof c->head) { /* mostly: all in one piece */
      begin_frame(c, p);
      if (c->role->server && (c->frame_type == NGHTTP2_DATA || c->frame_type == NGHTTP2_RST_STREAM)) {
        if (!feed(c, from, (size_t)(p - from)) || !check_frame(c)) return false;
        from = p;
      }
      p += sizeof c->head;
      if (c->passed_over) from = p;
      continue;
    }
    if (!c->head_n && !feed(c, from, (size_t)(p - from))) return false;
    here = MIN((size_t)(end - p), sizeof c->head - c->head_n);
    memcpy(c->head + c->head_n, p, here);
    c->head_n = (uint8_t)(c->head_n + here);
    from = p += here;
    if (c->head_n < sizeof c->head) break;
    c->head_n = 0;
    begin_frame(c, c->head);
    if (!check_frame(c) || (!c->passed_over && !feed(c, c->head, sizeof c->head))) return false;
  }
  return feed(c, from, (size_t)(p - from));
}

bool http2_input_direct(struct http2 *c, const uint8_t *p, size_t n) {
  c->left -= (uint32_t)n;
  return feed(c, p, n);
}

size_t http2_direct(struct http2 *c, uint8_t **to) {
  struct http2_stream *s = c->plain_data && c->left >= DIRECT ? stream_of(c, (int32_t)c->frame_id) : NULL;
  if (!s || s->prefix_n < sizeof s->prefix || s->whole) return 0;
  size_t n = MIN((size_t)c->left, next_room(c, s, DIRECT, to));
  return n >= DIRECT ? n : 0;
}

bool http2_input_late(struct http2 *c, int64_t now, int64_t ns) {
  if (c->in_block && now - c->block_since > ns) {
    http2_kill(c, "Timeout occurred: header fields that do not end");
    return false;
  }
  for (struct http2_stream *s = c->first, *next; s && !c->dead; s = next) {
    next = s->next;
    if (s->room == HTTP2_ROOM_WAITS) {
      if (now - s->room_since > rpc_limit_ns(RPC_ROOM_TIMEOUT))
        http2_refuse(c, s,
                     STATUS(SHOAL_RESOURCE_EXHAUSTED,
                            "there was no room in time for a message of %zu bytes beside those that are held "
                            "(--max_held_bytes, --room_timeout)",
                            s->want));
      continue;
    }
    int64_t enough = ns + (int64_t)(s->body.size / SLOWEST) * 1000000000;
    if (s->remote_done || s->refused || (now - s->heard <= ns && now - s->began <= enough)) continue;
    http2_refuse(c, s,
                 STATUS(SHOAL_DEADLINE_EXCEEDED, "the rest of the request did not come in time (--request_timeout)"));
  }
  return !c->dead;
}
