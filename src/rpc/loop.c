/* One epoll set, one thread that leads: it polls the sockets and runs what it read itself, so a request is read,
 * handled and answered without changing threads, and nobody is woken for it.
 *
 * gRPC's own loop was here before, and was rejected for its cost (docs/design.md); so were several threads that poll at
 * once: each event then wakes another thread, which was a third of a step's time.
 *
 * The lead is one word: 0 (free), a thread's number (it polls), or that number with BUSY (it runs an event). Only a
 * busy leader can lose it: to its own rpc_loop_hand_over(), or to the watcher, which looks every millisecond while
 * there is traffic (where no cores are idle every third: whoever takes over would only push somebody off) and takes it
 * from a leader that is still busy with the same event. The watcher also reports a leader that neither turns nor
 * sleeps.
 *
 * Events wait in a list for each kind, or in a line for each connection (turns.h). In a turn the leader does all that
 * is quick, then at most one of everything else (a timer, something that takes turns, handshakes for GREET_NS, an event
 * that may block), so none starves another, and polls at the latest after FAIR turns. Whoever posts from another thread
 * wakes a leader that sleeps in epoll_wait by a write to an eventfd.
 *
 * Bounds (invariant 12): a request is begun only while fewer than --max_handlers are under way, or for a connection
 * that has none twice as many; what computes only while fewer than computers() are, other events that may block only
 * while fewer than RESERVE are. And none of these is begun unless another thread waits for the lead, or has been
 * started: so threads are bounded, and however many of them block there is one that polls. */
#include "rpc/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/going_on.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/patience.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/vec.h"
#include "rpc/limits.h"
#include "rpc/turns.h"

/* More spare threads than MAX_SPARES end. The watcher looks but once in DOZE_NS after QUIET looks without an event.
 * RETRY_NS: when no thread could be started, until it is tried again. STALL_NS: without a turn, until those speak who
 * are to, every SPEAK_NS. */
enum {
  MAX_SPARES = 4,
  RESERVE = 64,
  TICK_NS = 1000000,
  CROWDED_TICK_NS = 3000000,
  DOZE_NS = 1000000000,
  RETRY_NS = 50000000,
  SPEAK_NS = 50000000,
  GREET_NS = 2000000,
  QUIET = 50,
  FAIR = 16
};
static const uint64_t BUSY = (uint64_t)1 << 63;
static const int64_t STALL_NS = 3000000000;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t ended, freed, traffic;
  int users;         /* lock */
  int threads;       /* lock: the watcher included */
  atomic_int spares; /* changed with the lock held: those that wait for the lead, or were started to */
  bool ending;       /* lock */
  bool closing;      /* lock: the last user is on its way out */
  uint64_t closings; /* lock: how often it has ended */
  uint64_t next_number;
  atomic_ullong lead;
  atomic_ullong beat;                 /* events begun */
  atomic_bool dozing;                 /* the watcher sleeps until there is an event */
  atomic_ullong turns;                /* of the leader */
  atomic_bool polling;                /* it is in epoll_wait */
  atomic_llong stalled_since, stalls; /* 0: it turns */
  struct rpc_stall *speakers;         /* lock: of a leader that does not */
  int epoll;
  struct rpc_watch waker; /* an eventfd */
  uint8_t *scratch;

  pthread_mutex_t events_lock;
  struct event_list news, turn, greetings, quick; /* events_lock */
  atomic_int news_under_way;                      /* changed with events_lock held */
  struct turns requests, computing;               /* events_lock */
  bool sleeping;                                  /* events_lock: the leader is in epoll_wait, or on the way there */
  int64_t until;                                  /* events_lock: when it wakes up by itself */
  bool stop;                                      /* events_lock: end when there is nothing left to do */
  VEC(struct rpc_timer *) heap;                   /* events_lock: the soonest first */
} loop = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .ended = PTHREAD_COND_INITIALIZER,
          .freed = PTHREAD_COND_INITIALIZER,
          .events_lock = PTHREAD_MUTEX_INITIALIZER};

static __thread uint64_t my_number; /* of the lead, when this thread took it; 0: not a thread of the loop */

static void *work(void *arg);

/* Call with the lock held. */
static bool start_thread(void *(*fn)(void *), bool spare) {
  pthread_t t;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, 4u << 20);
  if (spare) atomic_fetch_add(&loop.spares, 1); /* before it begins to wait: it is counted, not begun again */
  bool ok = (errno = pthread_create(&t, &attr, fn, NULL)) == 0;
  if (ok) loop.threads++;
  else if (spare) atomic_fetch_sub(&loop.spares, 1);
  pthread_attr_destroy(&attr);
  return ok;
}

static void close_epoll(void);

/* Call with the lock held, and no threads left. */
static void close_loop(void) {
  pthread_cond_destroy(&loop.traffic);
  close_epoll();
  loop.closing = false;
  loop.closings++;
  pthread_cond_broadcast(&loop.ended);
}

/* Call with the lock held. The last one out closes the loop. */
static void end_thread(void) {
  if (--loop.threads == 0) close_loop();
}

/* The lead is free: somebody must take it. */
static void offer_lead(void) {
  pthread_mutex_lock(&loop.lock);
  pthread_cond_signal(&loop.freed); /* invariant 12: somebody is there */
  pthread_mutex_unlock(&loop.lock);
}

/* Invariant 12, for the leader. */
static bool has_successor(void) {
  if (atomic_load(&loop.spares)) return true;
  pthread_mutex_lock(&loop.lock);
  bool ok = atomic_load(&loop.spares) || start_thread(work, true);
  pthread_mutex_unlock(&loop.lock);
  return ok;
}

void rpc_loop_hand_over(void) {
  unsigned long long mine = my_number | BUSY;
  if (my_number && atomic_compare_exchange_strong(&loop.lead, &mine, 0)) offer_lead();
}

/* ---- what there is to do ---- */

/* How many may compute at a time, and of these, for one connection. */
static int computers(void) { return MAX(cpu_count() - 1, 2); }

static int each(enum rpc_event_kind k) {
  return k == RPC_EVENT_REQUEST ? (int)rpc_limit(RPC_MAX_CONNECTION_HANDLERS) : computers() / 2;
}

void rpc_line_free(struct rpc_line *l) {
  if (!l) return;
  pthread_mutex_lock(&loop.events_lock);
  line_leave(l);
  pthread_mutex_unlock(&loop.events_lock);
}

/* Call with events_lock held; the leader looks at everything again. */
static bool must_wake(int64_t when) {
  bool wake = loop.sleeping && when < loop.until;
  if (wake) loop.sleeping = false;
  return wake;
}

static void wake(bool must) {
  if (must && write(loop.waker.fd, &(uint64_t){1}, 8) < 0) LOGW("the network's thread cannot be woken: %m");
}

void rpc_loop_post(struct rpc_event *e) {
  pthread_mutex_lock(&loop.events_lock);
  switch (e->kind) {
    case RPC_EVENT_NEWS: event_list_add(&loop.news, e); break;
    case RPC_EVENT_TURN: event_list_add(&loop.turn, e); break;
    case RPC_EVENT_GREETING: event_list_add(&loop.greetings, e); break;
    case RPC_EVENT_QUICK: event_list_add(&loop.quick, e); break;
    case RPC_EVENT_REQUEST: turns_add(&loop.requests, e->line, e, each(e->kind)); break;
    case RPC_EVENT_COMPUTE: turns_add(&loop.computing, e->line, e, each(e->kind)); break;
  }
  bool must = must_wake(INT64_MIN);
  pthread_mutex_unlock(&loop.events_lock);
  wake(must);
}

static void place(struct rpc_timer *t, size_t i) {
  loop.heap.at[i] = t;
  t->place = i + 1;
}

static void sift(struct rpc_timer *t, size_t i) {
  for (; i && loop.heap.at[(i - 1) / 2]->when > t->when; i = (i - 1) / 2) place(loop.heap.at[(i - 1) / 2], i);
  for (size_t k; (k = 2 * i + 1) < loop.heap.n; i = k) {
    if (k + 1 < loop.heap.n && loop.heap.at[k + 1]->when < loop.heap.at[k]->when) k++;
    if (loop.heap.at[k]->when >= t->when) break;
    place(loop.heap.at[k], i);
  }
  place(t, i);
}

static void take_out(struct rpc_timer *t) {
  size_t i = t->place - 1;
  struct rpc_timer *last = vec_pop(&loop.heap);
  t->place = 0;
  if (last != t) sift(last, i);
}

void rpc_timer_set(struct rpc_timer *t, int64_t when) {
  pthread_mutex_lock(&loop.events_lock);
  if (t->place) take_out(t);
  t->when = when;
  vec_push(&loop.heap, t);
  sift(t, loop.heap.n - 1);
  bool must = must_wake(when);
  pthread_mutex_unlock(&loop.events_lock);
  wake(must);
}

bool rpc_timer_clear(struct rpc_timer *t) {
  pthread_mutex_lock(&loop.events_lock);
  bool was = t->place != 0;
  if (was) take_out(t);
  pthread_mutex_unlock(&loop.events_lock);
  return was;
}

bool rpc_loop_watch(struct rpc_watch *w, uint32_t events) {
  return epoll_ctl(loop.epoll, EPOLL_CTL_ADD, w->fd, &(struct epoll_event){events, {.ptr = w}}) == 0;
}

bool rpc_loop_rewatch(struct rpc_watch *w, uint32_t events) {
  return epoll_ctl(loop.epoll, EPOLL_CTL_MOD, w->fd, &(struct epoll_event){events, {.ptr = w}}) == 0;
}

void rpc_loop_unwatch(struct rpc_watch *w) { epoll_ctl(loop.epoll, EPOLL_CTL_DEL, w->fd, NULL); }

uint8_t *rpc_loop_scratch(void) { return loop.scratch; }

static void on_woken(struct rpc_watch *w, uint32_t events) {
  uint64_t n;
  if (read(w->fd, &n, sizeof n) < 0 && errno != EAGAIN) LOGW("the network's thread was woken by nobody: %m");
}

/* ---- the leader ---- */

static void run(struct rpc_event *e, uint64_t number) {
  INVARIANT(12, atomic_load(&loop.spares) > 0); /* nobody takes the lead, and stops waiting for it, before it is BUSY */
  atomic_store_explicit(&loop.lead, number | BUSY, memory_order_release);
  atomic_fetch_add(&loop.beat, 1);
  if (atomic_load(&loop.dozing)) {
    pthread_mutex_lock(&loop.lock);
    pthread_cond_signal(&loop.traffic);
    pthread_mutex_unlock(&loop.lock);
  }
  enum rpc_event_kind kind = e->kind;
  struct rpc_line *line = e->line;
  if (kind == RPC_EVENT_COMPUTE) rpc_loop_hand_over();
  bool crowded = kind == RPC_EVENT_NEWS && atomic_load(&loop.news_under_way) > RESERVE / 2;
  if (crowded) going_on_forbid(); /* steps compute: what is left is for those who bring news of others */
  e->fn(e);                       /* and e is gone */
  if (crowded) going_on_allow();
  pthread_mutex_lock(&loop.events_lock);
  bool more;
  if (kind == RPC_EVENT_NEWS) {
    atomic_fetch_sub(&loop.news_under_way, 1);
    more = loop.news.first;
  } else {
    struct turns *t = kind == RPC_EVENT_REQUEST ? &loop.requests : &loop.computing;
    turns_end(t, line, each(kind));
    more = t->first;
  }
  /* Those that wait for it were passed over: the leader looks again. */
  bool must = more && must_wake(INT64_MIN);
  pthread_mutex_unlock(&loop.events_lock);
  wake(must);
}

/* Where cores are idle, to look out for a while beats being woken, which takes 30 to 70 us: what a parameter server or
 * its worker waits for comes within some hundred. */
static int look_out(struct epoll_event *ready, int most) {
  enum { LOOK_OUT_NS = 300000 };
  static struct patience patience;
  int64_t now = clock_ns(), end = now + LOOK_OUT_NS;
  if (!machine_has_idle_cores(now) || !patience_allows(&patience)) return 0;
  int n = 0;
  for (; !n && now < end; now = clock_ns()) n = epoll_wait(loop.epoll, ready, most, 0);
  patience_learn(&patience, n != 0);
  return n;
}

static void poll_sockets(int64_t until) {
  struct epoll_event ready[64];
  int64_t now = until == INT64_MAX || until == INT64_MIN ? 0 : clock_ns();
  int64_t ms = until == INT64_MAX ? -1 : until <= now ? 0 : (until - now + 999999) / 1000000;
  atomic_store_explicit(&loop.polling, true, memory_order_relaxed);
  int n = ms ? look_out(ready, (int)COUNT_OF(ready)) : 0;
  if (!n) n = epoll_wait(loop.epoll, ready, (int)COUNT_OF(ready), (int)MIN(ms, 3600000));
  atomic_store_explicit(&loop.polling, false, memory_order_relaxed);
  pthread_mutex_lock(&loop.events_lock);
  loop.sleeping = false;
  pthread_mutex_unlock(&loop.events_lock);
  /* A watch is taken away by quick events, timers and its own function alone, so none of these is gone. */
  for (int i = 0; i < n; i++) {
    struct rpc_watch *w = ready[i].data.ptr;
    w->fn(w, ready[i].events);
  }
}

/* Call with events_lock held: an event that may block and may be begun. It is counted. */
static struct rpc_event *pop_blocking(bool successor) {
  if (!successor) return NULL;
  /* News first: it may be what handlers wait for. */
  if (loop.news.first && atomic_load(&loop.news_under_way) < RESERVE) {
    int before = atomic_fetch_add(&loop.news_under_way, 1);
    INVARIANT(12, before < RESERVE);
    return event_list_pop(&loop.news);
  }
  struct rpc_event *e = loop.computing.first ? turns_next(&loop.computing, computers(), each(RPC_EVENT_COMPUTE)) : NULL;
  return e ? e : turns_next(&loop.requests, (int)rpc_limit(RPC_MAX_HANDLERS), each(RPC_EVENT_REQUEST));
}

/* Handshakes, from e on: each costs some tenths of a millisecond, and whoever connects can ask for one. */
static void greet(struct rpc_event *e) {
  for (int64_t until = clock_ns() + GREET_NS; e;) {
    e->fn(e);
    if (clock_ns() >= until) return;
    pthread_mutex_lock(&loop.events_lock);
    e = event_list_pop(&loop.greetings);
    pthread_mutex_unlock(&loop.events_lock);
  }
}

/* Polls and runs until the lead is lost; false: the loop ends. */
static bool lead(uint64_t number) {
  for (int ran = 1;; ran++) {
    atomic_fetch_add_explicit(&loop.turns, 1, memory_order_relaxed);
    if (ran % FAIR == 0) poll_sockets(INT64_MIN);
    bool successor = has_successor();
    pthread_mutex_lock(&loop.events_lock);
    struct rpc_event *quick = event_list_pop(&loop.quick), *turn = NULL, *greeting = NULL, *e = NULL;
    struct rpc_timer *due = NULL;
    int64_t until = INT64_MAX;
    if (!quick) {
      if (loop.heap.n) until = loop.heap.at[0]->when;
      if (until < INT64_MAX && until <= clock_ns()) {
        due = loop.heap.at[0];
        take_out(due);
      }
      turn = event_list_pop(&loop.turn);
      greeting = event_list_pop(&loop.greetings);
      e = pop_blocking(successor);
      if (!successor && until == INT64_MAX) until = clock_ns() + RETRY_NS;
    }
    bool idle = !quick && !due && !turn && !greeting && !e;
    bool stop = idle && loop.stop && !loop.news.first && !loop.computing.first && !loop.requests.first;
    if (idle) {
      loop.sleeping = true;
      loop.until = until;
    }
    pthread_mutex_unlock(&loop.events_lock);
    if (stop) return false;
    if (quick) quick->fn(quick);
    if (due) due->fn(due);
    if (turn) turn->fn(turn);
    if (greeting) greet(greeting);
    if (idle) poll_sockets(until);
    if (idle) ran = 0;
    if (turn || greeting) ran = FAIR - 1; /* it took its time */
    if (!e) continue;
    run(e, number);
    unsigned long long mine = number | BUSY;
    if (!atomic_compare_exchange_strong(&loop.lead, &mine, number)) return true;
  }
}

static void *work(void *arg) {
  pthread_setname_np(pthread_self(), "shoal-net");
  pthread_mutex_lock(&loop.lock);
  for (bool counted = true; !loop.ending && (counted || atomic_load(&loop.spares) < MAX_SPARES); counted = false) {
    uint64_t number = ++loop.next_number;
    unsigned long long none = 0;
    if (!counted) atomic_fetch_add(&loop.spares, 1);
    while (!loop.ending && !atomic_compare_exchange_strong(&loop.lead, &none, number)) {
      none = 0;
      pthread_cond_wait(&loop.freed, &loop.lock);
    }
    atomic_fetch_sub(&loop.spares, 1);
    if (loop.ending) break;
    pthread_mutex_unlock(&loop.lock);
    my_number = number;
    bool on = lead(number);
    my_number = 0;
    pthread_mutex_lock(&loop.lock);
    if (!on) {
      loop.ending = true;
      pthread_cond_broadcast(&loop.freed);
      pthread_cond_broadcast(&loop.traffic);
    }
  }
  end_thread();
  pthread_mutex_unlock(&loop.lock);
  return NULL;
}

/* ---- the watcher ---- */

int64_t rpc_loop_stalled(void) {
  int64_t since = atomic_load(&loop.stalled_since);
  return since ? MAX((clock_ns() - since) / 1000000000, 1) : 0;
}

int64_t rpc_loop_stalls(void) { return atomic_load(&loop.stalls); }

/* A leader that neither turns nor sleeps has been caught in something that should not block, or there is none. */
static void look_for_stall(unsigned long long *turns, int64_t *since) {
  int64_t now = clock_ns();
  unsigned long long at = atomic_load(&loop.turns);
  if (at != *turns || atomic_load(&loop.polling)) {
    if (atomic_load(&loop.stalled_since))
      LOGW("the network's thread turns again, after %lld s", (long long)rpc_loop_stalled());
    atomic_store(&loop.stalled_since, 0);
    *turns = at;
    *since = now;
  } else if (!atomic_load(&loop.stalled_since) && now - *since > rpc_limit_ns(RPC_WATCHDOG)) {
    atomic_store(&loop.stalled_since, *since);
    atomic_fetch_add(&loop.stalls, 1);
    LOGW(
        "the network's thread has not turned for %lld s: nothing is read or answered (%d requests and %d other events "
        "are under way)",
        (long long)rpc_limit(RPC_WATCHDOG), atomic_load(&loop.requests.under_way), atomic_load(&loop.news_under_way));
  }
}

void rpc_loop_when_stalled(struct rpc_stall *s) {
  pthread_mutex_lock(&loop.lock);
  s->next = loop.speakers;
  loop.speakers = s;
  pthread_mutex_unlock(&loop.lock);
}

void rpc_loop_forget_stalled(struct rpc_stall *s) {
  pthread_mutex_lock(&loop.lock);
  struct rpc_stall **at = &loop.speakers;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  pthread_mutex_unlock(&loop.lock);
}

/* Call with the lock held; true: the leader has not turned for ns, which is long. */
static bool speak(int64_t ns) {
  bool stalled = ns > STALL_NS;
  for (struct rpc_stall *s = loop.speakers; s; s = s->next) {
    if (stalled || s->speaks) s->fn(s, stalled ? ns : 0);
    s->speaks = stalled;
  }
  return stalled;
}

static void sleep_for(int64_t ns) { cond_wait_until(&loop.traffic, &loop.lock, clock_ns() + ns); }

/* Takes the lead from a thread that stays busy. */
static void *watch(void *arg) {
  pthread_setname_np(pthread_self(), "shoal-net-watch");
  int quiet = 0;
  unsigned long long turns = 0;
  int64_t since = clock_ns();
  pthread_mutex_lock(&loop.lock);
  while (!loop.ending) {
    look_for_stall(&turns, &since);
    bool stalled = speak(clock_ns() - since);
    unsigned long long beat = atomic_load(&loop.beat), leader = atomic_load(&loop.lead);
    bool doze = quiet >= QUIET && !(leader & BUSY);
    if (stalled) {
      sleep_for(SPEAK_NS);
    } else if (doze) {
      atomic_store(&loop.dozing, true);
      if (atomic_load(&loop.beat) == beat) sleep_for(DOZE_NS);
      atomic_store(&loop.dozing, false);
    } else {
      sleep_for(machine_has_idle_cores(clock_ns()) ? TICK_NS : CROWDED_TICK_NS);
    }
    bool same = atomic_load(&loop.beat) == beat;
    quiet = same ? quiet + 1 : 0;
    if (doze || !same || !(leader & BUSY) || !atomic_compare_exchange_strong(&loop.lead, &leader, 0)) continue;
    pthread_cond_signal(&loop.freed);
  }
  end_thread();
  pthread_mutex_unlock(&loop.lock);
  return NULL;
}

static bool open_epoll(void) {
  loop.epoll = epoll_create1(EPOLL_CLOEXEC);
  loop.waker = (struct rpc_watch){.fn = on_woken, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  loop.scratch = mem_alloc(RPC_SCRATCH);
  event_list_init(&loop.news);
  event_list_init(&loop.turn);
  event_list_init(&loop.greetings);
  event_list_init(&loop.quick);
  turns_init(&loop.requests);
  turns_init(&loop.computing);
  loop.stop = loop.sleeping = false;
  return loop.epoll >= 0 && loop.waker.fd >= 0 && rpc_loop_watch(&loop.waker, EPOLLIN);
}

static void close_epoll(void) {
  if (loop.waker.fd >= 0) close(loop.waker.fd);
  if (loop.epoll >= 0) close(loop.epoll);
  free(loop.scratch);
  vec_release(&loop.heap);
}

/* Call with the lock held. Threads that were begun, and wait for the lock, find that it has ended. */
static void begun_in_vain(void) {
  loop.ending = loop.closing = true;
  if (!loop.threads) close_loop();
  else pthread_cond_broadcast(&loop.traffic);
  while (loop.threads) pthread_cond_wait(&loop.ended, &loop.lock);
}

/* Call with the lock held. */
static shoal_status begin_loop(void) {
  loop.ending = false;
  atomic_store(&loop.lead, 0);
  atomic_store(&loop.spares, 0);
  cond_init(&loop.traffic);
  const char *missing = !open_epoll() ? "descriptors" : NULL;
  if (!missing && !(start_thread(work, true) && start_thread(work, true) && start_thread(watch, false)))
    missing = "threads";
  if (!missing) return NULL;
  shoal_status s =
      STATUS(SHOAL_RESOURCE_EXHAUSTED,
             "no %s are left for the network: %m; raise the limits of this process (ulimit -n, -u, -v)", missing);
  begun_in_vain();
  return s;
}

shoal_status rpc_loop_acquire(void) {
  pthread_mutex_lock(&loop.lock);
  while (loop.closing) pthread_cond_wait(&loop.ended, &loop.lock);
  shoal_status s = loop.users ? NULL : begin_loop();
  if (!s) loop.users++;
  pthread_mutex_unlock(&loop.lock);
  return s;
}

void rpc_loop_hold(void) {
  pthread_mutex_lock(&loop.lock);
  MUST(loop.users > 0);
  loop.users++;
  pthread_mutex_unlock(&loop.lock);
}

void rpc_loop_release(void) {
  pthread_mutex_lock(&loop.lock);
  MUST(loop.users > 0);
  if (--loop.users == 0) {
    loop.closing = true;
    pthread_mutex_lock(&loop.events_lock);
    loop.stop = true;
    bool must = must_wake(INT64_MIN);
    pthread_mutex_unlock(&loop.events_lock);
    wake(must);
    /* A thread of the loop cannot wait for itself: the loop ends after what it runs now. */
    for (uint64_t n = loop.closings; !my_number && loop.closings == n;) pthread_cond_wait(&loop.ended, &loop.lock);
  }
  pthread_mutex_unlock(&loop.lock);
}
