/* The fast path's threads; see fast_loop.h.
 *
 * Every registration is one-shot: the thread that gets an event has the connection for itself, reads all that is there,
 * lets the connection listen again, and only then does what the frames ask for. A frame's work may take long (it may
 * run the nodes that waited for a tensor), or wait for what a peer does; when the last waiting thread takes an event,
 * another is started first. There is an end to the number of threads, so work is done by at most MAX_WORKING of them:
 * the rest goes into a queue, and whoever ends his work takes it from there. So there are always threads that read and
 * write, and that cancel what waits.
 *
 * A listener that finds no descriptor free (EMFILE) is not asked again at once: its socket stays readable, and the
 * threads would spin. It listens again after a pause. */
#include "rpc/fast/fast_loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alarm.h"
#include "base/clock.h"
#include "base/handover.h"
#include "base/log.h"
#include "rpc/fast/fast.h"
#include "rpc/fast/fast_wire.h"

enum { MIN_THREADS = 2, MAX_WAITING = 4, MAX_THREADS = 128, MAX_WORKING = 112 };
static const int64_t PAUSE_NS = 100000000;

struct listener {
  atomic_int refs; /* its own, and who arms it: the descriptor is closed after both */
  int fd;
  void (*fn)(void *, int);
  void *arg;
  bool full; /* the last attempt found no descriptor */
  struct alarm again;
};

struct later {
  struct fast_conn *conn; /* a reference */
  void *work;
};

static struct {
  pthread_once_t once;
  int epoll;
  pthread_mutex_t lock;
  int threads; /* lock */
  atomic_int waiting, working;
  VEC(struct later) queue; /* lock: from head on */
  size_t head;             /* lock */
  atomic_int queued;
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

void fast_loop_arm(int fd, uint32_t events, void *p, enum fast_tag tag, int op) {
  pthread_once(&loop.once, start_loop);
  struct epoll_event e = {.events = events | EPOLLONESHOT, .data.u64 = (uint64_t)(uintptr_t)p | (uint64_t)tag};
  handover_give(p);
  epoll_ctl(loop.epoll, op, fd, &e);
}

void fast_loop_forget(int fd) { epoll_ctl(loop.epoll, EPOLL_CTL_DEL, fd, NULL); }

/* ---- work ---- */

/* May this thread do work that takes long? If so it says when it has ended. */
static bool begin_working(void) {
  if (atomic_fetch_add(&loop.working, 1) < MAX_WORKING) return true;
  atomic_fetch_sub(&loop.working, 1);
  return false;
}

static bool take_later(struct later *l) {
  if (!atomic_load(&loop.queued)) return false;
  pthread_mutex_lock(&loop.lock);
  bool any = loop.head < loop.queue.n;
  if (any) {
    *l = loop.queue.at[loop.head++];
    atomic_fetch_sub(&loop.queued, 1);
  }
  if (loop.head == loop.queue.n) loop.head = loop.queue.n = 0;
  pthread_mutex_unlock(&loop.lock);
  return any;
}

/* What was put off goes on, as far as there is room. Asked again after it has ended: somebody may have put work off
 * while this thread was the last one working. */
static void do_later(void) {
  struct later l = {0};
  while (atomic_load(&loop.queued) && begin_working()) {
    while (take_later(&l)) {
      fast_hold();
      l.conn->ops->run(l.conn, l.work);
      fast_release();
      fast_conn_unref(l.conn);
    }
    atomic_fetch_sub(&loop.working, 1);
  }
}

static void put_off(struct fast_conn *c, void *work) {
  fast_conn_ref(c);
  pthread_mutex_lock(&loop.lock);
  vec_push(&loop.queue, (struct later){c, work});
  atomic_fetch_add(&loop.queued, 1);
  pthread_mutex_unlock(&loop.lock);
}

void fast_loop_run(struct fast_conn *c, fast_work *todo) {
  if (!todo->n) return;
  bool mine = begin_working();
  fast_hold();
  for (size_t i = 0; i < todo->n; i++) {
    void *one = todo->at[i];
    if (mine || (c->ops->is_quick && c->ops->is_quick(one))) c->ops->run(c, one);
    else put_off(c, one);
  }
  fast_release();
  if (mine) atomic_fetch_sub(&loop.working, 1);
  vec_release(todo);
  do_later();
}

/* ---- listening ---- */

void fast_listen(int fd, void (*fn)(void *arg, int fd), void *arg) {
  struct listener *l = mem_zalloc(1, sizeof *l);
  atomic_init(&l->refs, 1);
  l->fd = fd;
  l->fn = fn;
  l->arg = arg;
  fast_loop_arm(fd, EPOLLIN, l, FAST_TAG_LISTEN, EPOLL_CTL_ADD);
}

static void listener_unref(struct listener *l) {
  if (atomic_fetch_sub(&l->refs, 1) != 1) return;
  close(l->fd);
  free(l);
}

static void listen_again(void *arg) {
  struct listener *l = arg;
  atomic_fetch_add(&l->refs, 1);
  fast_loop_arm(l->fd, EPOLLIN, l, FAST_TAG_LISTEN, EPOLL_CTL_MOD);
  listener_unref(l);
}

/* gone: the socket was shut down. A Unix socket then goes on to say that there is nobody to accept yet. */
static void on_connection(struct listener *l, bool gone) {
  for (;;) {
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      l->full = false;
      l->fn(l->arg, fd);
      continue;
    }
    int err = gone ? EINVAL : errno;
    if (err == EINTR || err == ECONNABORTED) continue;
    if (err == EAGAIN || err == EWOULDBLOCK) break;
    if (err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM) {
      if (!l->full) LOGW("the fast path takes no connections for now: %s", strerror(err));
      l->full = true;
      alarm_set(&l->again, clock_ns() + PAUSE_NS, listen_again, l);
      return;
    }
    l->fn(l->arg, -1);
    listener_unref(l);
    return;
  }
  listen_again(l);
}

static void *work(void *arg) {
  pthread_setname_np(pthread_self(), "shoal-fast");
  for (;;) {
    struct epoll_event e;
    int n = epoll_wait(loop.epoll, &e, 1, -1);
    if (n != 1) continue;
    if (atomic_fetch_sub(&loop.waiting, 1) == 1) start_thread();
    void *p = (void *)(uintptr_t)(e.data.u64 & ~(uint64_t)FAST_TAG_MASK);
    handover_take(p);
    switch (e.data.u64 & FAST_TAG_MASK) {
      case FAST_TAG_IN: fast_conn_input(p); break;
      case FAST_TAG_OUT: fast_conn_output(((struct fast_out_event *)p)->conn); break;
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
