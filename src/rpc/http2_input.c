/* What an HTTP/2 connection receives.
 *
 * Bytes come in pieces of any size. Payloads of DATA go where they belong as they come, mostly read from the socket
 * straight into the message (http2_direct); other frames are small and handled whole. Everything is a peer's word:
 * lengths, numbers and windows are checked before they are believed, and what a frame makes us keep or say is bounded.
 *
 *   frame   length (24 bits) type (8) flags (8) stream (32, the highest bit unused) payload */
#include <arpa/inet.h>
#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "rpc/http2.h"

/* MAX_BLOCK: bytes of a header block. MAX_OTHER: of a frame other than DATA. PLACED: a part of larger messages may go
 * to a place of its own, told by their first HEAD bytes. */
enum { MAX_BLOCK = 60 << 10, MAX_OTHER = 60 << 10, DIRECT = 4096, PLACED = 64 << 10, HEAD = 1024 };

static uint32_t read_u32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool fail(struct http2 *c, enum http2_error code, const char *why) {
  http2_fail(c, code, why);
  return false;
}

/* Header fields beyond all measure: their call is refused, and as the table of fields is lost with them, so is the
 * connection. */
static bool refuse_block(struct http2 *c, uint32_t id) {
  if (c->role->server && id) http2_frame_u32(c, FRAME_RST_STREAM, id, HTTP2_ENHANCE_YOUR_CALM);
  return fail(c, HTTP2_ENHANCE_YOUR_CALM, "header fields without end");
}

/* A frame of ours that answers one of the peer's: a flood of these is the peer's way of filling our memory. */
static bool answered(struct http2 *c) {
  return ++c->unasked <= HTTP2_MAX_UNASKED ||
         fail(c, HTTP2_ENHANCE_YOUR_CALM, "the peer sends frames and does not read the answers");
}

/* Has the stream ever been open? */
static bool was_open(const struct http2 *c, uint32_t id) { return id % 2 == 1 && id <= c->last_id; }

/* ---- messages ---- */

static void refuse(struct http2 *c, struct http2_stream *s, shoal_status why) {
  rpc_body_release(&s->body);
  s->whole = true; /* what else comes of it is of no interest */
  c->role->refuse(c, s, why);
}

/* The prefix of a message is complete; false: it is refused. */
static bool start_message(struct http2 *c, struct http2_stream *s) {
  s->want = read_u32(s->prefix + 1);
  s->body.tally = c->tally;
  shoal_status why = NULL;
  if (s->want > c->max_message)
    why = STATUS(SHOAL_RESOURCE_EXHAUSTED, "Received message larger than max (%zu vs. %zu)", s->want, c->max_message);
  else if (s->prefix[0] > 1 || (s->prefix[0] && s->headers.identity))
    why = INTERNAL("a message is marked as compressed in an unknown way");
  else if (s->prefix[0] && !s->headers.compression)
    why = UNIMPLEMENTED("the message's compression is not supported: identity, deflate and gzip are");
  if (why) {
    refuse(c, s, why);
    return false;
  }
  s->body.compressed = s->prefix[0];
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

/* Where the next bytes of the message go, and how many at once; 0: it is refused. */
static size_t next_room(struct http2 *c, struct http2_stream *s, uint8_t **to) {
  struct rpc_body *b = &s->body;
  bool asking = s->place && !b->compressed && s->want > PLACED;
  if (asking && b->size == HEAD) place(s);
  asking = asking && s->place;
  if (b->placed && b->size < b->placed_at + b->placed_size) {
    *to = b->placed + (b->size - b->placed_at);
    return b->placed_at + b->placed_size - b->size;
  }
  size_t elsewhere = b->placed ? b->placed_size : 0, here = b->size - elsewhere;
  if (here == b->room && !rpc_body_grow(b, asking ? HEAD : s->want - elsewhere)) {
    refuse(c, s,
           STATUS(SHOAL_RESOURCE_EXHAUSTED, "there is no memory for a message of %zu bytes beside those that wait",
                  s->want));
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
    size_t here = MIN(n, next_room(c, s, &to));
    if (!here) return;
    if (p != to) memcpy(to, p, here);
    s->body.size += here;
    p += here;
    n -= here;
    s->whole = s->body.size == s->want;
  }
}

/* The peer has said all. */
static void end_remote(struct http2 *c, struct http2_stream *s) {
  s->remote_done = true;
  if (s->prefix_n && !s->whole) {
    refuse(c, s, INTERNAL("the peer ended the call in the middle of a message"));
    return;
  }
  if (!c->role->server) {
    if (s->local_done) http2_remove(c, s);
    else http2_reset(c, s, HTTP2_NO_ERROR);
  }
  c->role->ended(c, s);
}

/* ---- DATA ---- */

static bool begin_data(struct http2 *c) {
  if (c->id == 0 || !was_open(c, c->id)) return fail(c, HTTP2_PROTOCOL_ERROR, "data on a stream that was never open");
  c->receive_window -= c->left;
  if (c->receive_window < 0) return fail(c, HTTP2_FLOW_CONTROL_ERROR, "the peer sends more than it may");
  if (c->receive_window < HTTP2_CONNECTION_WINDOW / 2) {
    http2_frame_u32(c, FRAME_WINDOW_UPDATE, 0, (uint32_t)(HTTP2_CONNECTION_WINDOW - c->receive_window));
    c->receive_window = HTTP2_CONNECTION_WINDOW;
  }
  struct http2_stream *s = c->to = http2_find(c, c->id);
  c->need_padding = c->flags & FLAG_PADDED;
  c->padding = 0;
  if (c->need_padding && !c->left) return fail(c, HTTP2_FRAME_SIZE_ERROR, "a frame without its padding's length");
  if (!s) return true;
  if (s->remote_done) return fail(c, HTTP2_STREAM_CLOSED, "data after the end of a stream");
  s->receive_window -= c->left;
  if (s->receive_window < 0) return fail(c, HTTP2_FLOW_CONTROL_ERROR, "the peer sends more than it may");
  if (s->receive_window < HTTP2_WINDOW / 2 && !(c->flags & FLAG_END_STREAM)) {
    http2_frame_u32(c, FRAME_WINDOW_UPDATE, c->id, (uint32_t)(HTTP2_WINDOW - s->receive_window));
    s->receive_window = HTTP2_WINDOW;
  }
  return true;
}

static void end_data(struct http2 *c) {
  struct http2_stream *s = c->to;
  c->to = NULL;
  if (s && c->flags & FLAG_END_STREAM) end_remote(c, s);
}

bool http2_data(struct http2 *c, const uint8_t *p, size_t n) {
  if (c->need_padding && n) {
    c->need_padding = false;
    c->padding = *p++;
    c->left--;
    n--;
    if (c->padding > c->left) return fail(c, HTTP2_PROTOCOL_ERROR, "more padding than frame");
  }
  size_t data = MIN(n, c->left - c->padding);
  if (c->to && data) take_data(c, c->to, p, data);
  c->left -= (uint32_t)n;
  c->padding -= (uint32_t)(n - data);
  if (!c->left) {
    c->head_n = 0;
    end_data(c);
  }
  return !c->dead;
}

size_t http2_direct(struct http2 *c, uint8_t **to) {
  struct http2_stream *s = c->to;
  if (!s || c->need_padding || s->prefix_n < sizeof s->prefix || s->whole) return 0;
  size_t n = MIN((size_t)(c->left - c->padding), next_room(c, s, to));
  return n >= DIRECT ? n : 0;
}

/* ---- headers ---- */

static bool inflate_block(struct http2 *c, const uint8_t *p, size_t n, bool last) {
  c->block_bytes += n;
  if (c->block_bytes > MAX_BLOCK) return refuse_block(c, c->block_id);
  for (;;) {
    nghttp2_nv field;
    int flags = 0;
    ssize_t used = nghttp2_hd_inflate_hd2(c->inflater, &field, &flags, p, n, last);
    if (used < 0) return fail(c, HTTP2_COMPRESSION_ERROR, "a header block cannot be read");
    p += used;
    n -= (size_t)used;
    if (flags & NGHTTP2_HD_INFLATE_EMIT) {
      headers_take(c->block, field.name, field.namelen, field.value, field.valuelen);
      if (c->block->bytes > 64 * HTTP2_HEADERS) return refuse_block(c, c->block_id);
    }
    if (flags & NGHTTP2_HD_INFLATE_FINAL) {
      nghttp2_hd_inflate_end_headers(c->inflater);
      return true;
    }
    if (!n && !(flags & NGHTTP2_HD_INFLATE_EMIT)) return true;
  }
}

/* A client's first headers. */
static bool open_stream(struct http2 *c, uint32_t id) {
  c->last_id = id;
  struct http2_stream *s = c->draining ? NULL : c->role->open(c, &c->others);
  if (!s) {
    http2_frame_u32(c, FRAME_RST_STREAM, id, HTTP2_REFUSED_STREAM);
    return answered(c);
  }
  http2_add(c, s, id);
  if (c->block_ends) end_remote(c, s);
  return true;
}

static bool end_block(struct http2 *c) {
  uint32_t id = c->block_id;
  c->block_id = 0;
  c->block = &c->others;
  struct http2_stream *s = http2_find(c, id);
  bool fine = true;
  if (s && c->block_ends) end_remote(c, s);
  else if (!s && c->role->server && id > c->last_id) fine = open_stream(c, id);
  headers_release(&c->others);
  return fine && !c->dead;
}

static bool take_headers(struct http2 *c, const uint8_t *p, size_t n) {
  size_t padding = 0;
  if (c->flags & FLAG_PADDED) {
    if (!n) return fail(c, HTTP2_FRAME_SIZE_ERROR, "a frame without its padding's length");
    padding = *p++;
    n--;
  }
  size_t priority = c->flags & FLAG_PRIORITY ? 5 : 0;
  if (n < padding + priority) return fail(c, HTTP2_PROTOCOL_ERROR, "more padding than frame");
  p += priority;
  n -= padding + priority;
  struct http2_stream *s = http2_find(c, c->id);
  bool new = c->role->server && c->id > c->last_id;
  if (c->id % 2 == 0 || (!new && !was_open(c, c->id)))
    return fail(c, HTTP2_PROTOCOL_ERROR, "headers of a stream that cannot be");
  if (s && s->remote_done) return fail(c, HTTP2_STREAM_CLOSED, "headers after the end of a stream");
  c->block_id = c->id;
  c->block_ends = c->flags & FLAG_END_STREAM;
  c->block_bytes = 0;
  c->block = s ? &s->headers : &c->others;
  bool last = c->flags & FLAG_END_HEADERS;
  return inflate_block(c, p, n, last) && (!last || end_block(c));
}

static bool take_continuation(struct http2 *c, const uint8_t *p, size_t n) {
  bool last = c->flags & FLAG_END_HEADERS;
  if (!n && !last && !answered(c)) return false; /* a flood of nothing */
  return inflate_block(c, p, n, last) && (!last || end_block(c));
}

/* ---- the connection's frames ---- */

static bool set_window(struct http2 *c, uint32_t window) {
  if (window > INT_MAX) return fail(c, HTTP2_FLOW_CONTROL_ERROR, "a window too large");
  int64_t more = (int64_t)window - c->peer_window;
  c->peer_window = window;
  for (uint32_t i = 0; more && i < c->table_size; i++)
    for (struct http2_stream *s = c->table[i]; s; s = s->next) {
      s->send_window += more;
      http2_resume(c, s);
    }
  return true;
}

static bool take_settings(struct http2 *c, const uint8_t *p, size_t n) {
  if (c->flags & FLAG_ACK) return true;
  if (n % 6) return fail(c, HTTP2_FRAME_SIZE_ERROR, "SETTINGS of an odd size");
  uint32_t window = (uint32_t)c->peer_window; /* the last one counts: each would be a walk over all streams */
  for (; n; p += 6, n -= 6) {
    uint32_t id = (uint32_t)p[0] << 8 | p[1], v = read_u32(p + 2);
    if (id == SETTING_WINDOW) window = v;
    if (id == SETTING_FRAME) {
      if (v < 16384 || v > 16777215) return fail(c, HTTP2_PROTOCOL_ERROR, "a frame size that cannot be");
      c->peer_frame = v;
    }
    if (id == SETTING_STREAMS && !c->role->server) {
      c->peer_streams = v;
      c->role->changed(c);
    }
  }
  if (!set_window(c, window)) return false;
  http2_frame(c, FRAME_SETTINGS, FLAG_ACK, 0, NULL, 0);
  if (c->state != HTTP2_OPEN) {
    c->state = HTTP2_OPEN;
    rpc_timer_clear(&c->timer);
    if (c->role->ready) c->role->ready(c);
  }
  return answered(c);
}

static bool take_window(struct http2 *c, const uint8_t *p) {
  int64_t more = read_u32(p) & INT_MAX;
  struct http2_stream *s = c->id ? http2_find(c, c->id) : NULL;
  if (c->id && !s)
    return was_open(c, c->id) || fail(c, HTTP2_PROTOCOL_ERROR, "a window of a stream that was never open");
  int64_t *window = s ? &s->send_window : &c->send_window;
  if (!more || *window + more > INT_MAX) {
    if (!s) return fail(c, HTTP2_FLOW_CONTROL_ERROR, "a window that cannot be");
    http2_reset(c, s, more ? HTTP2_FLOW_CONTROL_ERROR : HTTP2_PROTOCOL_ERROR);
    c->role->lost(c, s, INTERNAL("the peer opened a window that cannot be"));
    return answered(c);
  }
  *window += more;
  if (s) http2_resume(c, s);
  return true;
}

static bool take_reset(struct http2 *c, const uint8_t *p) {
  struct http2_stream *s = http2_find(c, c->id);
  /* gRPC resets streams, too, whose headers it has not sent yet: a call that is cancelled while it waits for its turn.
   */
  if (!s) return true;
  uint32_t code = read_u32(p);
  http2_remove(c, s);
  shoal_code as = code == HTTP2_CANCEL                ? SHOAL_CANCELLED
                  : code == HTTP2_REFUSED_STREAM      ? SHOAL_UNAVAILABLE
                  : code == HTTP2_ENHANCE_YOUR_CALM   ? SHOAL_RESOURCE_EXHAUSTED
                  : code == HTTP2_INADEQUATE_SECURITY ? SHOAL_PERMISSION_DENIED
                                                      : SHOAL_INTERNAL;
  c->role->lost(c, s, STATUS(as, "RST_STREAM with error code %u", code));
  return true;
}

static bool take_goaway(struct http2 *c, const uint8_t *p, size_t n) {
  uint32_t last = read_u32(p) & INT_MAX;
  if (c->role->server) return true;
  c->draining = c->close_when_empty = true;
  for (uint32_t i = 0; i < c->table_size; i++)
    for (struct http2_stream **at = &c->table[i], *s; (s = *at);) {
      if (s->id <= last) {
        at = &s->next;
        continue;
      }
      http2_remove(c, s);
      c->role->lost(c, s, STATUS(SHOAL_UNAVAILABLE, "GOAWAY received: the server is stopping"));
    }
  c->role->changed(c);
  return true;
}

/* A frame's payload is all here. */
static bool take_frame(struct http2 *c, const uint8_t *p, size_t n) {
  static const struct {
    uint8_t least, most; /* bytes; most 0: any */
    bool connection;     /* belongs to the connection, or to a stream */
    bool either;
  } rules[] = {
      [FRAME_PRIORITY] = {5, 5},   [FRAME_RST_STREAM] = {4, 4},   [FRAME_SETTINGS] = {.connection = true},
      [FRAME_PING] = {8, 8, true}, [FRAME_GOAWAY] = {8, 0, true}, [FRAME_WINDOW_UPDATE] = {4, 4, .either = true},
      [FRAME_CONTINUATION] = {0}};
  if (c->type >= COUNT_OF(rules)) return true; /* of an extension */
  if (n < rules[c->type].least || (rules[c->type].most && n > rules[c->type].most))
    return fail(c, HTTP2_FRAME_SIZE_ERROR, "a frame of a size that cannot be");
  if (!rules[c->type].either && rules[c->type].connection != (c->id == 0))
    return fail(c, HTTP2_PROTOCOL_ERROR, "a frame on a stream where it cannot be");
  switch ((enum http2_type)c->type) {
    case FRAME_HEADERS: return take_headers(c, p, n);
    case FRAME_CONTINUATION: return take_continuation(c, p, n);
    case FRAME_RST_STREAM: return take_reset(c, p);
    case FRAME_SETTINGS: return take_settings(c, p, n);
    case FRAME_GOAWAY: return take_goaway(c, p, n);
    case FRAME_WINDOW_UPDATE: return take_window(c, p);
    case FRAME_PING:
      if (c->flags & FLAG_ACK) return true;
      http2_frame(c, FRAME_PING, FLAG_ACK, 0, p, n);
      return answered(c);
    case FRAME_PUSH_PROMISE: return fail(c, HTTP2_PROTOCOL_ERROR, "a push");
    case FRAME_DATA:
    case FRAME_PRIORITY: break;
  }
  return true;
}

/* A frame's first nine bytes are here. */
static bool begin_frame(struct http2 *c) {
  const uint8_t *h = c->head;
  c->left = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | h[2];
  c->type = h[3];
  c->flags = h[4];
  c->id = read_u32(h + 5) & INT_MAX;
  if (c->state != HTTP2_OPEN && c->type != FRAME_SETTINGS)
    return fail(c, HTTP2_PROTOCOL_ERROR, "Socket closed (what it sent is not HTTP/2)");
  if (c->type == FRAME_HEADERS && c->left > MAX_OTHER) return refuse_block(c, c->id);
  if (c->left > (c->type == FRAME_DATA ? (uint32_t)HTTP2_FRAME : (uint32_t)MAX_OTHER))
    return fail(c, HTTP2_FRAME_SIZE_ERROR, "a frame too large");
  if ((c->block_id != 0) != (c->type == FRAME_CONTINUATION) || (c->block_id && c->block_id != c->id))
    return fail(c, HTTP2_PROTOCOL_ERROR, "a header block that is interrupted, or continued by another's");
  if (c->type != FRAME_DATA) return true;
  if (!begin_data(c)) return false;
  if (!c->left) end_data(c);
  return !c->dead;
}

/* The first bytes of a client's connection; how many were taken, or -1. */
static ssize_t take_preface(struct http2 *c, const uint8_t *p, size_t n) {
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  size_t here = MIN(n, sizeof preface - 1 - c->preface_n);
  if (memcmp(p, preface + c->preface_n, here) != 0) {
    http2_kill(c, "the client does not speak HTTP/2");
    return -1;
  }
  c->preface_n = (uint8_t)(c->preface_n + here);
  return (ssize_t)here;
}

bool http2_input(struct http2 *c, const uint8_t *p, size_t n) {
  if (c->role->server && c->preface_n < 24) {
    ssize_t taken = take_preface(c, p, n);
    if (taken < 0) return false;
    p += taken;
    n -= (size_t)taken;
  }
  while (n) {
    if (c->head_n < sizeof c->head) {
      size_t here = MIN(n, sizeof c->head - c->head_n);
      memcpy(c->head + c->head_n, p, here);
      c->head_n = (uint8_t)(c->head_n + here);
      p += here;
      n -= here;
      if (c->head_n < sizeof c->head) break;
      if (!begin_frame(c)) return false;
      if (c->left) continue;
      c->head_n = 0;
      if (c->type != FRAME_DATA && !take_frame(c, p, 0)) return false;
      continue;
    }
    size_t here = MIN(n, c->left);
    if (c->type == FRAME_DATA) {
      if (!http2_data(c, p, here)) return false;
    } else if (c->part.n || here < c->left) {
      text_add(&c->part, (const char *)p, here);
      c->left -= (uint32_t)here;
      if (!c->left && !take_frame(c, (const uint8_t *)c->part.at, c->part.n)) return false;
      if (!c->left) text_release(&c->part);
    } else {
      c->left = 0;
      if (!take_frame(c, p, here)) return false;
    }
    if (!c->left) c->head_n = 0;
    p += here;
    n -= here;
  }
  return true;
}
