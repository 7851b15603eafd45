/* Writing to connections of the fast path; see fast_wire.h.
 *
 * Small frames are gathered in chunks and leave together. A thread between fast_hold() and fast_release() sends nothing
 * until it has done all that it has at hand (base/outbox.h says when that would be too long): the hundreds of values
 * and requests of one step between two tasks then are a few system calls.
 *
 * What waits for a peer that does not read is bounded: what is copied by a budget of the connection and one of the
 * process, bodies by reference (which are somebody's tensors, perhaps the same for many peers) by the machine's memory
 * for each connection. Who lets more wait is hung up on; so is, after a while, who takes nothing at all (fast_wire.c).
 *
 * A connection's lock is held while its socket is written, for AT_ONCE bytes at most: the leader may wait for it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/outbox.h"
#include "rpc/fast/fast.h"
#include "rpc/fast/fast_address.h"
#include "rpc/fast/fast_wire.h"

enum {
  MAX_SPARES = 128,  /* chunks kept for the next frames, of all connections: 4 MB */
  CHUNK = 32 << 10,  /* small frames that leave together */
  COPIED = 8 << 10,  /* bodies up to this are copied into the chunk: cheaper than a piece of their own */
  AT_ONCE = 4 << 20, /* bytes written before others are served */
  LARGE = 1 << 20,   /* a body before which the socket is looked at */
  MOST_HELD = 64     /* connections that a thread holds frames back from; then those leave */
};

/* Bytes of frames, then perhaps one large body by reference. */
struct fast_out {
  struct fast_out *next;
  struct buffer *body;
  const uint8_t *data;
  size_t size;                  /* of data */
  size_t head_size, room, sent; /* head, then data */
  uint8_t head[];
};

/* Chunks for reuse. The values of one step may fill dozens on one connection and none on others: a few for each
 * connection went back to the system in every step, and the next one had a page fault for each 4 KB. */
static struct {
  pthread_mutex_t lock;
  struct fast_out *first; /* lock */
  int n;                  /* lock */
} spares = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct fast_out *take_spare(void) {
  pthread_mutex_lock(&spares.lock);
  struct fast_out *o = spares.first;
  if (o) {
    spares.first = o->next;
    spares.n--;
  }
  pthread_mutex_unlock(&spares.lock);
  return o;
}

static void give_spare(struct fast_out *o) {
  pthread_mutex_lock(&spares.lock);
  bool kept = spares.n < MAX_SPARES;
  if (kept) {
    o->next = spares.first;
    spares.first = o;
    spares.n++;
  }
  pthread_mutex_unlock(&spares.lock);
  if (!kept) free(o);
}

static void out_free(struct fast_conn *c, struct fast_out *o) {
  buffer_unref(o->body);
  budget_give(&c->copied, o->head_size);
  c->referred -= o->size;
  if (o->room == CHUNK) give_spare(o);
  else free(o);
}

/* Sends as much as the socket takes, or AT_ONCE; false when the connection is broken. Call with the lock held. */
static bool flush(struct fast_conn *c) {
  for (size_t all = 0; c->first && all < AT_ONCE;) {
    struct iovec v[64];
    int n = 0;
    for (struct fast_out *o = c->first; o && n + 2 <= (int)COUNT_OF(v); o = o->next) {
      size_t sent = o == c->first ? o->sent : 0;
      if (sent < o->head_size) v[n++] = (struct iovec){o->head + sent, o->head_size - sent};
      size_t done = sent > o->head_size ? sent - o->head_size : 0;
      if (o->size > done) v[n++] = (struct iovec){(void *)(uintptr_t)(o->data + done), o->size - done};
    }
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
    ssize_t k = sendmsg(c->watch.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    size_t sent = (size_t)k;
    all += sent;
    fast_count(&fast_sent, sent);
    atomic_store_explicit(&c->last_out, clock_ns(), memory_order_relaxed);
    while (c->first && sent) {
      struct fast_out *o = c->first;
      size_t left = o->head_size + o->size - o->sent, here = MIN(left, sent);
      o->sent += here;
      sent -= here;
      if (here < left) break;
      c->first = o->next;
      if (!c->first) c->last = NULL;
      out_free(c, o);
    }
  }
  return true;
}

/* What this thread holds back. */
struct held_back {
  struct outbox box;
  int depth;
  struct fast_conn *conns[MOST_HELD]; /* each with a reference */
  int n;
};
static __thread struct held_back held;

static void send_now(struct fast_conn *c) {
  pthread_mutex_lock(&c->lock);
  bool ok = atomic_load(&c->is_open);
  if (ok && !c->armed) ok = flush(c);
  if (ok && c->first && !c->armed) {
    atomic_store(&c->last_out, clock_ns());
    atomic_store(&c->waits, true);
    c->armed = c->watched && rpc_loop_rewatch(&c->watch, EPOLLIN | EPOLLOUT);
  }
  pthread_mutex_unlock(&c->lock);
  if (!ok) fast_conn_shut(c);
}

static void flush_held(struct outbox *o) {
  o->since = 0;
  while (held.n) {
    struct fast_conn *c = held.conns[--held.n];
    send_now(c);
    fast_conn_unref(c);
  }
}

void fast_hold(void) {
  if (held.depth++) return;
  held.box.flush = flush_held;
  outbox = &held.box;
}

void fast_release(void) {
  if (--held.depth) return;
  outbox = NULL;
  if (held.box.since) flush_held(&held.box);
}

/* Room for n bytes at the end of what waits; NULL when too much does already, or there is no memory. */
static uint8_t *append(struct fast_conn *c, size_t n) {
  struct fast_out *o = c->last;
  if (!budget_take(&c->copied, n)) return NULL;
  if (!o || o->body || o->room - o->head_size < n) {
    o = n <= CHUNK ? take_spare() : NULL;
    if (!o) o = mem_try_alloc(sizeof *o + MAX(n, (size_t)CHUNK));
    if (!o) {
      budget_give(&c->copied, n);
      return NULL;
    }
    *o = (struct fast_out){.room = MAX(n, (size_t)CHUNK)};
    if (c->last) c->last->next = o;
    else c->first = o;
    c->last = o;
  }
  uint8_t *at = o->head + o->head_size;
  o->head_size += n;
  return at;
}

/* Is there more for the peer than it may let wait? Whatever its size, one body passes. */
static bool too_much(const struct fast_conn *c, size_t body) {
  return c->referred && (c->referred > machine_memory() || body > machine_memory() - c->referred);
}

static bool add_frame(struct fast_conn *c, const struct fast_frame *f, const void *head, struct buffer *body,
                      const void *data) {
  bool copied = body && f->size <= COPIED;
  if (body && !copied && too_much(c, f->size)) return false;
  uint8_t *to = append(c, sizeof *f + f->head + (copied ? f->size : 0));
  if (!to) return false;
  memcpy(to, f, sizeof *f);
  if (f->head) memcpy(to + sizeof *f, head, f->head);
  if (copied) {
    memcpy(to + sizeof *f + f->head, data, f->size);
  } else if (body) {
    c->last->body = buffer_ref(body);
    c->last->data = data;
    c->last->size = f->size;
    c->referred += f->size;
    if (c->tuned != (f->size >= LARGE)) fast_tune_sending(c->watch.fd, c->tuned = !c->tuned);
  }
  return true;
}

void fast_conn_send(struct fast_conn *c, const struct fast_frame *f, const void *head, struct buffer *body,
                    const void *data) {
  pthread_mutex_lock(&c->lock);
  bool open = atomic_load(&c->is_open), added = open && add_frame(c, f, head, body, data);
  pthread_mutex_unlock(&c->lock);
  if (open && !added) {
    LOGW("the fast path hangs up: %zu bytes wait for the peer, and there is no room for more", budget_used(&c->copied));
    fast_conn_shut(c);
  }
  if (!added) return;
  if (!held.depth) {
    send_now(c);
    return;
  }
  for (int i = 0; i < held.n; i++)
    if (held.conns[i] == c) return;
  if (held.n == MOST_HELD) flush_held(&held.box);
  if (!held.n) held.box.since = held.box.now = clock_ns();
  fast_conn_ref(c);
  held.conns[held.n++] = c;
}

void fast_conn_queue(struct fast_conn *c, const struct fast_frame *f) {
  pthread_mutex_lock(&c->lock);
  bool open = atomic_load(&c->is_open);
  uint8_t *to = open ? append(c, sizeof *f) : NULL;
  if (to) memcpy(to, f, sizeof *f);
  pthread_mutex_unlock(&c->lock);
  if (open && !to) fast_conn_shut(c);
}

void fast_flush(void) {
  if (held.box.since) flush_held(&held.box);
}

void fast_conn_output(struct fast_conn *c) {
  pthread_mutex_lock(&c->lock);
  bool ok = atomic_load(&c->is_open) && flush(c);
  if (!ok || !c->first) {
    c->armed = false;
    atomic_store(&c->waits, false);
    if (c->watched) rpc_loop_rewatch(&c->watch, EPOLLIN);
  }
  pthread_mutex_unlock(&c->lock);
  if (!ok) fast_conn_shut(c);
}

void fast_conn_drop_output(struct fast_conn *c) {
  for (struct fast_out *o; (o = c->first);) {
    c->first = o->next;
    out_free(c, o);
  }
}
