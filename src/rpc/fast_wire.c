/* Sockets of the fast path, served by a few threads on one epoll set.
 *
 * Every registration is one-shot: the thread that gets an event has the connection for itself, reads all that is there,
 * lets the connection listen again, and only then does what the frames ask for. A frame's work may take long (it may
 * run the nodes that waited for a tensor); when the last waiting thread takes an event, another thread is started
 * first.
 *
 * Small frames are gathered in chunks and leave together. A thread between fast_hold() and fast_release() sends nothing
 * until it has done all that it has at hand (runtime/outbox.h says when that would be too long): the hundreds of values
 * and requests of one step between two tasks then are a few system calls. */
#include "rpc/fast_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/handover.h"
#include "base/mem.h"
#include "base/vec.h"
#include "rpc/fast.h"
#include "runtime/outbox.h"

enum {
  MIN_THREADS = 2,
  MAX_WAITING = 4,
  MAX_THREADS = 128,
  IN_ROOM = 256 << 10,
  MAX_SPARE = 8,    /* chunks kept for the next frames */
  CHUNK = 32 << 10, /* small frames that leave together */
  COPIED = 8 << 10  /* bodies up to this are copied into the chunk: cheaper than a piece of their own */
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

struct listener {
  int fd;
  void (*fn)(void *, int);
  void *arg;
};

/* What an event's pointer is, in its low bits. */
enum tag { TAG_IN = 0, TAG_OUT = 1, TAG_LISTEN = 2, TAG_MASK = 3 };

static struct {
  pthread_once_t once;
  int epoll;
  pthread_mutex_t lock;
  int threads; /* lock */
  atomic_int waiting;
} loop = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void *work(void *arg);

static void start_thread(void) {
  pthread_t t;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_mutex_lock(&loop.lock);
  if (loop.threads < MAX_THREADS) {
    atomic_fetch_add(&loop.waiting, 1);
    if (pthread_create(&t, &attr, work, NULL) == 0) loop.threads++;
    else atomic_fetch_sub(&loop.waiting, 1);
  }
  pthread_mutex_unlock(&loop.lock);
  pthread_attr_destroy(&attr);
}

static void start_loop(void) {
  loop.epoll = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < MIN_THREADS; i++) start_thread();
}

static void arm(int fd, uint32_t events, void *p, enum tag tag, int op) {
  struct epoll_event e = {.events = events | EPOLLONESHOT, .data.u64 = (uint64_t)(uintptr_t)p | (uint64_t)tag};
  handover_give(p);
  epoll_ctl(loop.epoll, op, fd, &e);
}

/* ---- writing ---- */

static void out_free(struct fast_conn *c, struct fast_out *o) {
  buffer_unref(o->body);
  if (o->room == CHUNK && c->n_spare < MAX_SPARE) {
    o->next = c->spare;
    c->spare = o;
    c->n_spare++;
  } else {
    free(o);
  }
}

/* Sends as much as the socket takes; false when the connection is broken. Call with the lock held. */
static bool flush(struct fast_conn *c) {
  while (c->first) {
    struct iovec v[64];
    int n = 0;
    for (struct fast_out *o = c->first; o && n + 2 <= (int)COUNT_OF(v); o = o->next) {
      size_t sent = o == c->first ? o->sent : 0;
      if (sent < o->head_size) v[n++] = (struct iovec){o->head + sent, o->head_size - sent};
      size_t done = sent > o->head_size ? sent - o->head_size : 0;
      if (o->size > done) v[n++] = (struct iovec){(void *)(uintptr_t)(o->data + done), o->size - done};
    }
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
    ssize_t k = sendmsg(c->out_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    size_t sent = (size_t)k;
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
struct held {
  struct outbox box;
  int depth;
  VEC(struct fast_conn *) conns; /* each with a reference */
};
static __thread struct held held;

static void send_now(struct fast_conn *c) {
  pthread_mutex_lock(&c->lock);
  bool ok = atomic_load(&c->is_open);
  if (ok && !c->armed) ok = flush(c);
  if (ok && c->first && !c->armed) {
    c->armed = true;
    fast_conn_ref(c);
    arm(c->out_fd, EPOLLOUT, &c->out_event, TAG_OUT, EPOLL_CTL_ADD);
  }
  pthread_mutex_unlock(&c->lock);
  if (!ok) fast_conn_shut(c);
}

static void flush_held(struct outbox *o) {
  o->since = 0;
  while (held.conns.n) {
    struct fast_conn *c = vec_pop(&held.conns);
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
  vec_release(&held.conns); /* this thread may never come here again */
}

/* Room for n bytes at the end of what waits. */
static uint8_t *append(struct fast_conn *c, size_t n) {
  struct fast_out *o = c->last;
  if (!o || o->body || o->room - o->head_size < n) {
    if (n <= CHUNK && c->spare) {
      o = c->spare;
      c->spare = o->next;
      c->n_spare--;
    } else {
      o = mem_alloc(sizeof *o + MAX(n, (size_t)CHUNK));
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

void fast_conn_send(struct fast_conn *c, const struct fast_frame *f, const void *head, struct buffer *body,
                    const void *data) {
  bool copied = body && f->size <= COPIED;
  pthread_mutex_lock(&c->lock);
  uint8_t *to = append(c, sizeof *f + f->head + (copied ? f->size : 0));
  memcpy(to, f, sizeof *f);
  if (f->head) memcpy(to + sizeof *f, head, f->head);
  if (copied) {
    memcpy(to + sizeof *f + f->head, data, f->size);
  } else if (body) {
    c->last->body = buffer_ref(body);
    c->last->data = data;
    c->last->size = f->size;
  }
  pthread_mutex_unlock(&c->lock);
  if (!held.depth) {
    send_now(c);
    return;
  }
  for (size_t i = 0; i < held.conns.n; i++)
    if (held.conns.at[i] == c) return;
  if (!held.conns.n) held.box.since = clock_ns();
  fast_conn_ref(c);
  vec_push(&held.conns, c);
}

void fast_conn_queue(struct fast_conn *c, const struct fast_frame *f) {
  pthread_mutex_lock(&c->lock);
  if (atomic_load(&c->is_open)) memcpy(append(c, sizeof *f), f, sizeof *f);
  pthread_mutex_unlock(&c->lock);
}

void fast_flush(void) {
  if (held.box.since) flush_held(&held.box);
}

static void on_room(struct fast_conn *c) {
  pthread_mutex_lock(&c->lock);
  c->armed = false;
  epoll_ctl(loop.epoll, EPOLL_CTL_DEL, c->out_fd,
            NULL); /* registered only while needed: a hang-up is told to readers */
  bool ok = atomic_load(&c->is_open) && flush(c), again = ok && c->first;
  if (again) {
    c->armed = true;
    arm(c->out_fd, EPOLLOUT, &c->out_event, TAG_OUT, EPOLL_CTL_ADD);
  }
  pthread_mutex_unlock(&c->lock);
  if (!ok) fast_conn_shut(c);
  if (!again) fast_conn_unref(c);
}

/* ---- reading ---- */

typedef VEC(void *) work_list;

/* A frame is whole. False: it makes no sense. */
static bool deliver(struct fast_conn *c, const struct fast_frame *f, const uint8_t *head, struct buffer *body,
                    work_list *todo) {
  void *w = c->ops->frame(c, f, head, body);
  if (w) vec_push(todo, w);
  return true;
}

static bool has_body(const struct fast_frame *f) {
  return (f->kind == FAST_VALUE || f->kind == FAST_RESULT) && f->size > 0;
}

/* Takes whole frames out of the input; a large body is left to be read straight into its buffer. */
static bool parse(struct fast_conn *c, work_list *todo) {
  size_t at = 0;
  bool ok = true;
  if (atomic_load_explicit(&c->needs_secret, memory_order_relaxed)) {
    if (c->have < FAST_SECRET) return true;
    uint8_t wrong = 0;
    for (int i = 0; i < FAST_SECRET; i++) wrong |= c->in[i] ^ c->secret[i];
    if (wrong) return false;
    atomic_store(&c->needs_secret, false);
    at = FAST_SECRET;
  }
  while (ok && !c->body && c->have - at >= sizeof(struct fast_frame)) {
    struct fast_frame f;
    memcpy(&f, c->in + at, sizeof f);
    if (f.head > FAST_MAX_HEAD || (has_body(&f) && f.size > (uint64_t)1 << 42)) return false;
    size_t whole = sizeof f + f.head;
    if (c->have - at < whole) {
      if (whole > c->room) c->in = mem_realloc(c->in, c->room = whole + IN_ROOM, 1);
      break;
    }
    const uint8_t *head = c->in + at + sizeof f;
    if (!has_body(&f)) {
      ok = deliver(c, &f, head, NULL, todo);
      at += whole;
      continue;
    }
    struct buffer *body;
    shoal_status s = buffer_new(f.size, &body);
    shoal_status_free(s);
    if (s) return false;
    size_t there = MIN(c->have - at - whole, f.size);
    memcpy(body->data, c->in + at + whole, there);
    at += whole + there;
    if (there == f.size) {
      ok = deliver(c, &f, head, body, todo);
    } else {
      c->frame = f;
      c->frame_head = mem_alloc(f.head + 1);
      memcpy(c->frame_head, head, f.head);
      c->body = body;
      c->body_have = there;
    }
  }
  memmove(c->in, c->in + at, c->have - at);
  c->have -= at;
  return ok;
}

static bool finish_body(struct fast_conn *c, work_list *todo) {
  uint8_t *head = c->frame_head;
  struct buffer *body = c->body;
  c->frame_head = NULL;
  c->body = NULL;
  bool ok = deliver(c, &c->frame, head, body, todo);
  free(head);
  return ok;
}

/* Reads what is there. False: the connection is over. */
static bool drain(struct fast_conn *c, work_list *todo) {
  for (int rounds = 0; rounds < 64; rounds++) {
    bool straight = c->body != NULL;
    void *to = straight ? (uint8_t *)c->body->data + c->body_have : c->in + c->have;
    size_t want = straight ? c->frame.size - c->body_have : c->room - c->have;
    ssize_t n = recv(c->fd, to, want, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (n == 0) return false;
    if (straight) {
      c->body_have += (size_t)n;
      if (c->body_have == c->frame.size && !finish_body(c, todo)) return false;
    } else {
      c->have += (size_t)n;
    }
    if (!c->body && !parse(c, todo)) return false;
    if ((size_t)n < want && !c->body) return true; /* most likely all there was */
  }
  return true;
}

static void on_input(struct fast_conn *c) {
  work_list todo = {0};
  bool ok = drain(c, &todo);
  fast_conn_ref(c);
  if (ok) arm(c->fd, EPOLLIN, c, TAG_IN, EPOLL_CTL_MOD);
  if (todo.n) {
    fast_hold();
    for (size_t i = 0; i < todo.n; i++) c->ops->run(c, todo.at[i]);
    fast_release();
  }
  vec_release(&todo);
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
  pthread_once(&loop.once, start_loop);
  int size = 1 << 20;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  c->ops = ops;
  atomic_init(&c->refs, 2);
  c->fd = fd;
  c->out_fd = dup(fd);
  atomic_init(&c->is_open, true);
  atomic_init(&c->needs_secret, needs_secret);
  memcpy(c->secret, secret, FAST_SECRET);
  c->in = mem_alloc(c->room = IN_ROOM);
  c->out_event.conn = c;
  pthread_mutex_init(&c->lock, NULL);
  arm(c->fd, EPOLLIN, c, TAG_IN, EPOLL_CTL_ADD);
}

void fast_conn_unref(struct fast_conn *c) {
  if (atomic_fetch_sub(&c->refs, 1) != 1) return;
  for (struct fast_out *o = c->first, *next; o; o = next) {
    next = o->next;
    buffer_unref(o->body);
    free(o);
  }
  for (struct fast_out *o = c->spare, *next; o; o = next) {
    next = o->next;
    free(o);
  }
  close(c->fd);
  close(c->out_fd);
  buffer_unref(c->body);
  free(c->frame_head);
  free(c->in);
  pthread_mutex_destroy(&c->lock);
  c->ops->free(c);
}

void fast_conn_shut(struct fast_conn *c) {
  if (atomic_exchange(&c->is_open, false)) shutdown(c->fd, SHUT_RDWR);
}

void fast_listen(int fd, void (*fn)(void *arg, int fd), void *arg) {
  pthread_once(&loop.once, start_loop);
  struct listener *l = mem_alloc(sizeof *l);
  *l = (struct listener){fd, fn, arg};
  arm(fd, EPOLLIN, l, TAG_LISTEN, EPOLL_CTL_ADD);
}

/* gone: the socket was shut down. A Unix socket then goes on to say that there is nobody to accept yet. */
static void on_connection(struct listener *l, bool gone) {
  for (;;) {
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      l->fn(l->arg, fd);
      continue;
    }
    if (gone) errno = EINVAL;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == EMFILE || errno == ENFILE ||
        errno == ECONNABORTED)
      break;
    l->fn(l->arg, -1);
    close(l->fd);
    free(l);
    return;
  }
  arm(l->fd, EPOLLIN, l, TAG_LISTEN, EPOLL_CTL_MOD);
}

static void *work(void *arg) {
  pthread_setname_np(pthread_self(), "shoal-fast");
  for (;;) {
    struct epoll_event e;
    int n = epoll_wait(loop.epoll, &e, 1, -1);
    if (n != 1) continue;
    if (atomic_fetch_sub(&loop.waiting, 1) == 1) start_thread();
    void *p = (void *)(uintptr_t)(e.data.u64 & ~(uint64_t)TAG_MASK);
    handover_take(p);
    switch (e.data.u64 & TAG_MASK) {
      case TAG_IN: on_input(p); break;
      case TAG_OUT: on_room(((struct fast_out_event *)p)->conn); break;
      default: on_connection(p, e.events & EPOLLHUP);
    }
    if (atomic_fetch_add(&loop.waiting, 1) >= MAX_WAITING) break;
  }
  atomic_fetch_sub(&loop.waiting, 1);
  pthread_mutex_lock(&loop.lock);
  loop.threads--;
  pthread_mutex_unlock(&loop.lock);
  return NULL;
}
