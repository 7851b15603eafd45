/* Reading of connections of the fast path, and their life; see fast_wire.h.
 *
 * No length in a frame is believed. A body for which there is no room, in memory or in the budgets, is read away, and
 * the call it answers ends with RESOURCE_EXHAUSTED; the connection goes on. A frame that makes no sense ends it.
 *
 * A sweep looks at all connections now and then, for those who never show the secret, who stop in the middle of a frame
 * and who take nothing of what waits for them. */
#include "rpc/fast/fast_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alarm.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/fast/fast.h"
#include "rpc/fast/fast_loop.h"
#include "rpc/limits.h"

enum { IN_ROOM = 256 << 10, ROUNDS = 64 };

atomic_llong fast_received, fast_sent;

void fast_bytes(int64_t *in, int64_t *out) {
  *in = atomic_load_explicit(&fast_received, memory_order_relaxed);
  *out = atomic_load_explicit(&fast_sent, memory_order_relaxed);
}

/* ---- the sweep ---- */

static struct {
  pthread_mutex_t lock;
  struct fast_conn *first; /* lock */
  struct alarm alarm;
  bool set; /* lock */
} sweep = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *overdue(struct fast_conn *c, int64_t now) {
  int64_t stall = rpc_limit_ns(RPC_FAST_UNREAD_TIMEOUT);
  if (atomic_load(&c->needs_secret))
    return now - c->began > rpc_limit_ns(RPC_FAST_GREETING_TIMEOUT) ? "does not say who it is" : NULL;
  if (atomic_load(&c->is_half) && now - atomic_load(&c->last_in) > rpc_limit_ns(RPC_REQUEST_TIMEOUT))
    return "stopped in the middle of a frame";
  if (atomic_load(&c->waits) && now - atomic_load(&c->last_out) > stall) return "does not read";
  int64_t last = MAX(atomic_load(&c->last_in), atomic_load(&c->last_out));
  if (atomic_load(&c->lent) > 0 && now - last > stall) return "does not take what it asked for";
  return NULL;
}

static int64_t sweep_period(void) {
  int64_t least = MIN(rpc_limit_ns(RPC_REQUEST_TIMEOUT), rpc_limit_ns(RPC_FAST_UNREAD_TIMEOUT));
  return MIN(least, rpc_limit_ns(RPC_FAST_GREETING_TIMEOUT)) / 4;
}

static void on_sweep(void *unused) {
  int64_t now = clock_ns();
  pthread_mutex_lock(&sweep.lock);
  for (struct fast_conn *c = sweep.first; c; c = c->next) {
    const char *why = atomic_load(&c->is_open) ? overdue(c, now) : NULL;
    if (!why) continue;
    LOGW("the fast path hangs up on a peer that %s", why);
    fast_conn_shut(c);
  }
  sweep.set = sweep.first;
  if (sweep.set) alarm_set(&sweep.alarm, now + sweep_period(), on_sweep, NULL);
  pthread_mutex_unlock(&sweep.lock);
}

static void watch(struct fast_conn *c) {
  pthread_mutex_lock(&sweep.lock);
  c->next = sweep.first;
  if (c->next) c->next->prev = c;
  sweep.first = c;
  if (!sweep.set) alarm_set(&sweep.alarm, clock_ns() + sweep_period(), on_sweep, NULL);
  sweep.set = true;
  pthread_mutex_unlock(&sweep.lock);
}

static void unwatch(struct fast_conn *c) {
  pthread_mutex_lock(&sweep.lock);
  if (c->prev) c->prev->next = c->next;
  else sweep.first = c->next;
  if (c->next) c->next->prev = c->prev;
  pthread_mutex_unlock(&sweep.lock);
}

/* ---- reading ---- */

static bool has_body(const struct fast_frame *f) {
  return (f->kind == FAST_VALUE || f->kind == FAST_RESULT) && f->size > 0;
}

static void deliver(struct fast_conn *c, const struct fast_frame *f, const void *head, struct buffer *body,
                    fast_work *todo) {
  void *w = c->ops->frame(c, f, head, body);
  if (w) vec_push(todo, w);
}

/* The body's memory and its share of the budgets; false when there is none. */
static bool take_body(struct fast_conn *c, const struct fast_frame *f) {
  if (!budget_take(&c->held, f->size)) return false;
  shoal_status s = buffer_new(f->size, &c->body);
  if (!s) return true;
  shoal_status_free(s);
  c->body = NULL;
  budget_give(&c->held, f->size);
  return false;
}

/* Whoever waits for the body learns that it cannot be had. */
static void deliver_refusal(struct fast_conn *c, const struct fast_frame *f, fast_work *todo) {
  char text[128];
  int n = snprintf(text, sizeof text, "OOM when receiving a tensor of %llu bytes on the fast path",
                   (unsigned long long)f->size);
  struct fast_frame e = {.kind = FAST_ERROR, .dtype = SHOAL_RESOURCE_EXHAUSTED, .id = f->id, .head = (uint32_t)n};
  deliver(c, &e, text, NULL, todo);
}

/* A frame with a body, of which `there` bytes have come with the head. False: no memory for its head. */
static bool begin_body(struct fast_conn *c, const struct fast_frame *f, const uint8_t *head, size_t there,
                       fast_work *todo) {
  if (!take_body(c, f)) {
    deliver_refusal(c, f, todo);
    c->skip = f->size - there;
    return true;
  }
  memcpy(c->body->data, head + f->head, there);
  if (there == f->size) {
    struct buffer *body = c->body;
    c->body = NULL;
    budget_give(&c->held, f->size);
    deliver(c, f, head, body, todo);
    return true;
  }
  c->frame = *f;
  c->body_have = there;
  c->frame_head = mem_try_alloc(f->head + 1);
  if (!c->frame_head) return false;
  memcpy(c->frame_head, head, f->head);
  return true;
}

static void finish_body(struct fast_conn *c, fast_work *todo) {
  uint8_t *head = c->frame_head;
  struct buffer *body = c->body;
  c->frame_head = NULL;
  c->body = NULL;
  budget_give(&c->held, c->frame.size);
  deliver(c, &c->frame, head, body, todo);
  free(head);
}

/* Room for a frame's head that is larger than usual; it stays for the next. */
static bool grow_input(struct fast_conn *c, size_t whole) {
  size_t more = whole + IN_ROOM;
  if (!budget_take(&c->held, more)) return false;
  uint8_t *in = mem_try_realloc(c->in, more, 1);
  if (!in) {
    budget_give(&c->held, more);
    return false;
  }
  budget_give(&c->held, c->room == IN_ROOM ? 0 : c->room);
  c->in = in;
  c->room = more;
  return true;
}

/* Takes whole frames out of the input; a large body is left to be read straight into its buffer. False: it makes no
 * sense. */
static bool parse(struct fast_conn *c, fast_work *todo) {
  size_t at = 0;
  if (atomic_load_explicit(&c->needs_secret, memory_order_relaxed)) {
    if (c->have < FAST_SECRET) return true;
    uint8_t wrong = 0;
    for (int i = 0; i < FAST_SECRET; i++) wrong |= c->in[i] ^ c->secret[i];
    if (wrong) return false;
    atomic_store(&c->needs_secret, false);
    at = FAST_SECRET;
  }
  while (!c->body && !c->skip && c->have - at >= sizeof(struct fast_frame)) {
    struct fast_frame f;
    memcpy(&f, c->in + at, sizeof f);
    if (f.kind >= 32 || !(c->ops->kinds >> f.kind & 1) || f.head > FAST_MAX_HEAD) return false;
    size_t whole = sizeof f + f.head;
    if (c->have - at < whole) {
      if (whole > c->room && !grow_input(c, whole)) return false;
      break;
    }
    const uint8_t *head = c->in + at + sizeof f;
    size_t there = has_body(&f) ? (size_t)MIN((uint64_t)(c->have - at - whole), f.size) : 0;
    if (!has_body(&f)) deliver(c, &f, head, NULL, todo);
    else if (!begin_body(c, &f, head, there, todo)) return false;
    at += whole + there;
  }
  memmove(c->in, c->in + at, c->have - at);
  c->have -= at;
  return true;
}

/* Reads what is there. False: the connection is over. */
static bool drain(struct fast_conn *c, fast_work *todo) {
  for (int rounds = 0; rounds < ROUNDS; rounds++) {
    bool straight = c->body != NULL;
    void *to = straight ? (uint8_t *)c->body->data + c->body_have : c->in + c->have;
    size_t want = straight ? c->frame.size - c->body_have : c->room - c->have;
    if (c->skip) want = (size_t)MIN(c->skip, (uint64_t)c->room); /* nothing else is in the input */
    ssize_t n = recv(c->fd, c->skip ? c->in : to, want, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (n == 0) return false;
    fast_count(&fast_received, (uint64_t)n);
    if (c->skip) {
      c->skip -= (uint64_t)n;
      continue;
    }
    if (straight) {
      c->body_have += (size_t)n;
      if (c->body_have == c->frame.size) finish_body(c, todo);
    } else {
      c->have += (size_t)n;
    }
    if (!c->body && !parse(c, todo)) return false;
    if ((size_t)n < want && !c->body) return true; /* most likely all there was */
  }
  return true;
}

void fast_conn_input(struct fast_conn *c) {
  fast_work todo = {0};
  bool ok = drain(c, &todo);
  atomic_store_explicit(&c->last_in, clock_ns(), memory_order_relaxed);
  atomic_store_explicit(&c->is_half, c->have || c->body || c->skip, memory_order_relaxed);
  fast_conn_ref(c);
  if (ok) fast_loop_arm(c->fd, EPOLLIN, c, FAST_TAG_IN, EPOLL_CTL_MOD);
  fast_loop_run(c, &todo);
  if (!ok) {
    fast_conn_shut(c);
    c->ops->closed(c);
    fast_conn_unref(c); /* the threads' */
  }
  fast_conn_unref(c);
}

/* ---- life ---- */

void fast_conn_start(struct fast_conn *c, const struct fast_conn_ops *ops, int fd, const uint8_t *secret,
                     bool needs_secret) {
  int size = 1 << 20;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  c->ops = ops;
  atomic_init(&c->refs, 2);
  c->fd = fd;
  c->out_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  atomic_init(&c->is_open, true);
  atomic_init(&c->needs_secret, needs_secret);
  memcpy(c->secret, secret, FAST_SECRET);
  budget_init(&c->held, (size_t)rpc_limit(RPC_MAX_CONNECTION_HELD_BYTES), rpc_budget(RPC_MAX_HELD_BYTES));
  budget_init(&c->copied, (size_t)rpc_limit(RPC_MAX_FAST_UNREAD_BYTES), rpc_budget(RPC_MAX_UNREAD_BYTES));
  c->began = clock_ns();
  atomic_init(&c->last_in, c->began);
  atomic_init(&c->last_out, c->began);
  c->in = mem_alloc(c->room = IN_ROOM);
  c->out_event.conn = c;
  pthread_mutex_init(&c->lock, NULL);
  if (c->out_fd < 0) fast_conn_shut(c); /* no descriptor is free: it ends as one that was hung up on */
  watch(c);
  fast_loop_arm(c->fd, EPOLLIN, c, FAST_TAG_IN, EPOLL_CTL_ADD);
}

void fast_conn_unref(struct fast_conn *c) {
  if (atomic_fetch_sub(&c->refs, 1) != 1) return;
  unwatch(c);
  fast_conn_drop_output(c);
  close(c->fd);
  if (c->out_fd >= 0) close(c->out_fd);
  if (c->body) budget_give(&c->held, c->frame.size);
  if (c->room > IN_ROOM) budget_give(&c->held, c->room);
  buffer_unref(c->body);
  free(c->frame_head);
  free(c->in);
  pthread_mutex_destroy(&c->lock);
  c->ops->free(c);
}

void fast_conn_shut(struct fast_conn *c) {
  if (atomic_exchange(&c->is_open, false)) shutdown(c->fd, SHUT_RDWR);
}
