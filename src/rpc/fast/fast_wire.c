/* Reading of connections of the fast path, and their life; see fast_wire.h.
 *
 * No length in a frame is believed. A body for which there is no room, in memory or in the budgets, is read away, and
 * the call it answers ends with RESOURCE_EXHAUSTED; the connection goes on. A frame that makes no sense ends it.
 *
 * The leader reads no more than ROUNDS times what a socket has, then others are served. What the frames ask for is
 * posted: as requests, which take turns with all others (turns.h), or as news of calls. It is begun on the leader's own
 * thread, which nobody is woken for; a connection whose work took long the last time begins with the lead handed over,
 * so that others are not read only when the watcher has noticed. Where no cores are idle that is not done for less than
 * what the watcher takes: whoever is woken takes a core from those who work, and what a step's calls are made of is
 * then in the wrong cache each time.
 *
 * Every connection is looked at now and then: has it never shown the secret, stopped in the middle of a frame, taken
 * nothing of what waits for it? */
#include "rpc/fast/fast_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "rpc/fast/fast.h"
#include "rpc/fast/fast_address.h"
#include "rpc/limits.h"
#include "rpc/turns.h"

enum { IN_ROOM = 256 << 10, ROUNDS = 8, SLOW_NS = 200000, SLOW_CROWDED_NS = 3000000 };

atomic_llong fast_received, fast_sent;

void fast_bytes(int64_t *in, int64_t *out) {
  *in = atomic_load_explicit(&fast_received, memory_order_relaxed);
  *out = atomic_load_explicit(&fast_sent, memory_order_relaxed);
}

/* ---- what is overdue ---- */

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

static int64_t check_period(void) {
  int64_t least = MIN(rpc_limit_ns(RPC_REQUEST_TIMEOUT), rpc_limit_ns(RPC_FAST_UNREAD_TIMEOUT));
  return MIN(least, rpc_limit_ns(RPC_FAST_GREETING_TIMEOUT)) / 4;
}

static void on_check(struct rpc_timer *t) {
  struct fast_conn *c = (struct fast_conn *)((char *)t - offsetof(struct fast_conn, check));
  int64_t now = clock_ns();
  const char *why = atomic_load(&c->is_open) ? overdue(c, now) : NULL;
  if (why) {
    LOGW("the fast path hangs up on a peer that %s", why);
    fast_conn_shut(c);
  }
  rpc_timer_set(t, now + check_period());
}

/* ---- reading ---- */

static bool has_body(const struct fast_frame *f) {
  return (f->kind == FAST_VALUE || f->kind == FAST_RESULT) && f->size > 0;
}

struct work_list {
  struct fast_work *first, *last;
  unsigned kinds; /* bits: of the frames that asked for it */
};

static void deliver(struct fast_conn *c, const struct fast_frame *f, const void *head, struct buffer *body,
                    struct work_list *todo) {
  struct fast_work *w = c->ops->frame(c, f, head, body);
  if (!w) return;
  w->next = NULL;
  if (todo->last) todo->last->next = w;
  else todo->first = w;
  todo->last = w;
  todo->kinds |= 1u << f->kind;
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
static void deliver_refusal(struct fast_conn *c, const struct fast_frame *f, struct work_list *todo) {
  char text[128];
  int n = snprintf(text, sizeof text, "OOM when receiving a tensor of %llu bytes on the fast path",
                   (unsigned long long)f->size);
  struct fast_frame e = {.kind = FAST_ERROR, .dtype = SHOAL_RESOURCE_EXHAUSTED, .id = f->id, .head = (uint32_t)n};
  deliver(c, &e, text, NULL, todo);
}

/* Of one that is poured. */
static bool keep_frame(struct fast_conn *c, const struct fast_frame *f, const uint8_t *head) {
  c->frame = *f;
  c->frame_head = mem_try_alloc(f->head + 1);
  if (!c->frame_head) return false;
  memcpy(c->frame_head, head, f->head);
  return true;
}

/* A frame with a body, of which `there` bytes have come with the head. False: no memory for its head. */
static bool begin_body(struct fast_conn *c, const struct fast_frame *f, const uint8_t *head, size_t there,
                       struct work_list *todo) {
  if (there < f->size && c->ops->pours && c->ops->pours(c, f, head)) {
    c->pours = true;
    fast_pour_bytes(&c->pour, head + f->head, there);
    return keep_frame(c, f, head);
  }
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
  c->body_have = there;
  return keep_frame(c, f, head);
}

static void finish_body(struct fast_conn *c, struct work_list *todo) {
  uint8_t *head = c->frame_head;
  struct buffer *body = c->body;
  if (body) budget_give(&c->held, c->frame.size);
  c->frame_head = NULL;
  c->body = NULL;
  c->pours = false;
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
static bool parse(struct fast_conn *c, struct work_list *todo) {
  size_t at = 0;
  if (atomic_load_explicit(&c->needs_secret, memory_order_relaxed)) {
    if (c->have < FAST_SECRET) return true;
    uint8_t wrong = 0;
    for (int i = 0; i < FAST_SECRET; i++) wrong |= c->in[i] ^ c->secret[i];
    if (wrong) return false;
    atomic_store(&c->needs_secret, false);
    at = FAST_SECRET;
  }
  while (!c->body && !c->pours && !c->skip && c->have - at >= sizeof(struct fast_frame)) {
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

/* The next part of a body that is poured; as recv answers. What comes of one that was given up is read away. */
static ssize_t pour(struct fast_conn *c, struct work_list *todo) {
  ssize_t n = 0;
  enum fast_poured is = fast_pour_read(&c->pour, c->watch.fd, &n);
  if (is == FAST_GIVEN_UP) {
    c->skip = c->frame.size - c->pour.at;
    c->pours = false;
    free(c->frame_head);
    c->frame_head = NULL;
    errno = EINTR;
    return -1;
  }
  if (is == FAST_POURED) finish_body(c, todo);
  return n;
}

/* Reads what is there. False: the connection is over. */
static bool drain(struct fast_conn *c, struct work_list *todo) {
  for (int rounds = 0; rounds < ROUNDS; rounds++) {
    if (c->pours) {
      ssize_t n = pour(c, todo);
      if (n > 0) fast_count(&fast_received, (uint64_t)n);
      else if (n == 0 || errno != EINTR) return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      continue;
    }
    bool straight = c->body != NULL;
    void *to = straight ? (uint8_t *)c->body->data + c->body_have : c->in + c->have;
    size_t want = straight ? c->frame.size - c->body_have : c->room - c->have;
    if (c->skip) want = (size_t)MIN(c->skip, (uint64_t)c->room); /* nothing else is in the input */
    ssize_t n = recv(c->watch.fd, c->skip ? c->in : to, want, MSG_DONTWAIT);
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
    if ((size_t)n < want && !c->body && !c->pours) return true; /* most likely all there was */
  }
  return true;
}

static void on_work(struct rpc_event *e) {
  struct fast_work *w = (struct fast_work *)((char *)e - offsetof(struct fast_work, event)), *next;
  struct fast_conn *c = w->conn;
  unsigned kinds = w->kinds; /* values that a step waited for take long, the answer that another has ended does not */
  if (atomic_load_explicit(&c->slow, memory_order_relaxed) & kinds) rpc_loop_hand_over();
  int64_t began = clock_ns();
  fast_hold();
  for (; w; w = next) {
    next = w->next;
    c->ops->run(c, w);
  }
  fast_release();
  int64_t now = clock_ns(), slow = machine_has_idle_cores(now) ? SLOW_NS : SLOW_CROWDED_NS;
  if (now - began > slow) atomic_fetch_or_explicit(&c->slow, kinds, memory_order_relaxed);
  else if (atomic_load_explicit(&c->slow, memory_order_relaxed) & kinds)
    atomic_fetch_and_explicit(&c->slow, ~kinds, memory_order_relaxed);
  fast_conn_unref(c);
}

static void on_gone(struct rpc_event *e) {
  struct fast_conn *c = (struct fast_conn *)((char *)e - offsetof(struct fast_conn, gone));
  fast_conn_shut(c);
  c->ops->closed(c);
  fast_conn_unref(c); /* the loop's */
  rpc_loop_release();
}

static void input(struct fast_conn *c) {
  struct work_list todo = {0};
  bool ok = drain(c, &todo);
  atomic_store_explicit(&c->last_in, clock_ns(), memory_order_relaxed);
  atomic_store_explicit(&c->is_half, c->have || c->body || c->pours || c->skip, memory_order_relaxed);
  if (todo.first) {
    fast_conn_ref(c);
    todo.first->conn = c;
    todo.first->kinds = todo.kinds;
    todo.first->event = (struct rpc_event){.fn = on_work, .line = c->line, .kind = c->ops->work};
    rpc_loop_post(&todo.first->event);
  }
  if (ok) return;
  pthread_mutex_lock(&c->lock);
  c->watched = false;
  pthread_mutex_unlock(&c->lock);
  rpc_loop_unwatch(&c->watch);
  rpc_timer_clear(&c->check);
  rpc_loop_post(&c->gone);
}

static void on_ready(struct rpc_watch *w, uint32_t events) {
  struct fast_conn *c = (struct fast_conn *)((char *)w - offsetof(struct fast_conn, watch));
  if (events & EPOLLOUT) fast_conn_output(c);
  if (events & ~(uint32_t)EPOLLOUT) input(c);
}

/* ---- life ---- */

void fast_conn_start(struct fast_conn *c, const struct fast_conn_ops *ops, int fd, const uint8_t *secret,
                     struct rpc_address *from) {
  fast_tune_sending(fd, false);
  rpc_loop_hold();
  c->ops = ops;
  ref_init(&c->refs, 2);
  c->watch = (struct rpc_watch){.fn = on_ready, .fd = fd};
  c->check.fn = on_check;
  c->gone = (struct rpc_event){.fn = on_gone, .kind = RPC_EVENT_NEWS};
  c->line = ops->work == RPC_EVENT_REQUEST ? rpc_line_new(0) : NULL;
  atomic_init(&c->slow, 0);
  atomic_init(&c->is_open, true);
  atomic_init(&c->needs_secret, from != NULL);
  memcpy(c->secret, secret, FAST_SECRET);
  c->from = from;
  budget_init(&c->held, (size_t)rpc_limit(RPC_MAX_CONNECTION_HELD_BYTES),
              from ? &from->held : rpc_budget(RPC_MAX_HELD_BYTES));
  budget_init(&c->copied, (size_t)rpc_limit(RPC_MAX_FAST_UNREAD_BYTES),
              from ? &from->unread : rpc_budget(RPC_MAX_UNREAD_BYTES));
  c->began = clock_ns();
  atomic_init(&c->last_in, c->began);
  atomic_init(&c->last_out, c->began);
  c->in = mem_alloc(c->room = IN_ROOM);
  pthread_mutex_init(&c->lock, NULL);
  fast_pour_init(&c->pour);
  c->watched = true;
  rpc_timer_set(&c->check, c->began + check_period());
  if (rpc_loop_watch(&c->watch, EPOLLIN)) return;
  LOGW("the network cannot watch a connection of the fast path: %m");
  c->watched = false; /* nobody else has it yet */
  rpc_timer_clear(&c->check);
  rpc_loop_post(&c->gone);
}

void fast_conn_unref(struct fast_conn *c) {
  if (!ref_drop(&c->refs)) return;
  fast_conn_drop_output(c);
  close(c->watch.fd);
  if (c->body) budget_give(&c->held, c->frame.size);
  if (c->room > IN_ROOM) budget_give(&c->held, c->room);
  buffer_unref(c->body);
  free(c->frame_head);
  free(c->in);
  rpc_line_free(c->line);
  pthread_mutex_destroy(&c->lock);
  fast_pour_release(&c->pour);
  rpc_address_unref(c->from);
  c->ops->free(c);
}

void fast_conn_shut(struct fast_conn *c) {
  if (atomic_exchange(&c->is_open, false)) shutdown(c->watch.fd, SHUT_RDWR);
}
