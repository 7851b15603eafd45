/* One completion queue, one thread that leads: it polls the sockets and runs what it read itself, so a request is read,
 * handled and answered without changing threads, and nobody is woken for it.
 *
 * Several threads that wait in gRPC at once were measured and rejected: each event makes gRPC wake another of them to
 * poll in its place, which was four futex calls a step and a third of its time. A queue for each thread likewise: gRPC
 * deals incoming calls out to queues in turn, whichever thread read them.
 *
 * The lead is one word: 0 (free), a thread's number (it polls), or that number with BUSY (it runs a handler). Only a
 * busy leader can lose it: to its own rpc_loop_hand_over(), or to the watcher, which looks every millisecond while
 * there is traffic and takes it from a leader that is still busy with the same event. */
#include "rpc/loop.h"

#include <dlfcn.h>
#include <grpc/support/log.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/handover.h"
#include "base/log.h"
#include "base/status.h"
#include "base/vec.h"

/* More spare threads than MAX_SPARES end; MAX_THREADS bounds a flood of handlers that block. The watcher goes to sleep
 * after QUIET looks without an event. */
enum { MAX_SPARES = 4, MAX_THREADS = 256, TICK_NS = 1000000, QUIET = 50 };
static const uint64_t BUSY = (uint64_t)1 << 63;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t ended, freed, traffic;
  int users;   /* lock */
  int threads; /* lock: the watcher included */
  bool ever;   /* lock: gRPC is initialised */
  int spares;  /* lock: those that wait for the lead */
  bool ending; /* lock */
  uint64_t next_number;
  atomic_ullong lead;
  atomic_ullong beat; /* events begun */
  atomic_bool dozing; /* the watcher sleeps until there is an event */
  grpc_completion_queue *queue;
} loop = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER};

static __thread uint64_t my_number; /* of the lead, when this thread took it; 0: not a thread of the loop */

static void *work(void *arg);

/* Call with the lock held. */
static bool start_thread(void *(*fn)(void *)) {
  pthread_t t;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, 4u << 20);
  bool ok = loop.threads < MAX_THREADS && pthread_create(&t, &attr, fn, NULL) == 0;
  if (ok) loop.threads++;
  else LOGW("cannot start another network thread (%d are running)", loop.threads);
  pthread_attr_destroy(&attr);
  return ok;
}

static void end_thread(void) {
  loop.threads--;
  pthread_cond_broadcast(&loop.ended);
}

/* The lead is free: somebody must take it. */
static void offer_lead(void) {
  pthread_mutex_lock(&loop.lock);
  if (loop.spares) pthread_cond_signal(&loop.freed);
  else if (!loop.ending) start_thread(work);
  pthread_mutex_unlock(&loop.lock);
}

void rpc_loop_hand_over(void) {
  unsigned long long mine = my_number | BUSY;
  if (my_number && atomic_compare_exchange_strong(&loop.lead, &mine, 0)) offer_lead();
}

/* Polls and runs until the lead is lost; false: the queue is shut down. */
static bool lead(uint64_t number) {
  for (;;) {
    grpc_event ev = grpc_completion_queue_next(loop.queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    if (ev.type == GRPC_QUEUE_SHUTDOWN) return false;
    atomic_store_explicit(&loop.lead, number | BUSY, memory_order_relaxed);
    atomic_fetch_add(&loop.beat, 1);
    if (atomic_load(&loop.dozing)) {
      pthread_mutex_lock(&loop.lock);
      pthread_cond_signal(&loop.traffic);
      pthread_mutex_unlock(&loop.lock);
    }
    struct rpc_event *e = ev.tag;
    handover_take(e);
    e->fn(e, ev.success != 0);
    unsigned long long mine = number | BUSY;
    if (!atomic_compare_exchange_strong(&loop.lead, &mine, number)) return true;
  }
}

static void *work(void *arg) {
  pthread_setname_np(pthread_self(), "shoal-net");
  pthread_mutex_lock(&loop.lock);
  while (!loop.ending && loop.spares < MAX_SPARES) {
    uint64_t number = ++loop.next_number;
    unsigned long long none = 0;
    loop.spares++;
    while (!loop.ending && !atomic_compare_exchange_strong(&loop.lead, &none, number)) {
      none = 0;
      pthread_cond_wait(&loop.freed, &loop.lock);
    }
    loop.spares--;
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

/* Takes the lead from a thread that stays busy. */
static void *watch(void *arg) {
  pthread_setname_np(pthread_self(), "shoal-net-watch");
  int quiet = 0;
  pthread_mutex_lock(&loop.lock);
  while (!loop.ending) {
    unsigned long long beat = atomic_load(&loop.beat);
    if (quiet >= QUIET) {
      atomic_store(&loop.dozing, true);
      while (!loop.ending && atomic_load(&loop.beat) == beat) pthread_cond_wait(&loop.traffic, &loop.lock);
      atomic_store(&loop.dozing, false);
      quiet = 0;
    }
    beat = atomic_load(&loop.beat);
    unsigned long long leader = atomic_load(&loop.lead);
    int64_t until_ns = clock_ns() + TICK_NS;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    pthread_cond_timedwait(&loop.traffic, &loop.lock, &until);
    bool same = atomic_load(&loop.beat) == beat;
    quiet = same ? quiet + 1 : 0;
    if (!same || !(leader & BUSY) || !atomic_compare_exchange_strong(&loop.lead, &leader, 0)) continue;
    pthread_mutex_unlock(&loop.lock);
    offer_lead();
    pthread_mutex_lock(&loop.lock);
  }
  end_thread();
  pthread_mutex_unlock(&loop.lock);
  return NULL;
}

/* gRPC's own notes are for those who look for trouble in it; what matters comes back as a status. */
static void take_note(gpr_log_func_args *note) {
  if (note->severity == GPR_LOG_SEVERITY_ERROR) LOGD("gRPC: %s (%s:%d)", note->message, note->file, note->line);
}

/* Debian's Abseil looks for deadlocks at each lock that gRPC takes, in one table for the whole process: a twentieth of
 * a step's time, more with many clients. */
static void stop_deadlock_search(void) {
  enum { IGNORE = 0 };
  void *found = dlsym(RTLD_DEFAULT, "_ZN4absl7debian329SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE");
  void (*set_mode)(int);
  memcpy(&set_mode, &found, sizeof set_mode);
  if (set_mode) set_mode(IGNORE);
}

void rpc_loop_acquire(void) {
  pthread_mutex_lock(&loop.lock);
  bool first = loop.users++ == 0;
  if (first) {
    if (!getenv("GRPC_VERBOSITY")) gpr_set_log_function(take_note);
    if (!loop.ever) {
      stop_deadlock_search();
      grpc_init();
    }
    loop.ever = true;
    loop.queue = grpc_completion_queue_create_for_next(NULL);
    loop.ending = false;
    atomic_store(&loop.lead, 0);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&loop.traffic, &attr);
    pthread_condattr_destroy(&attr);
    start_thread(work);
    start_thread(watch);
  }
  pthread_mutex_unlock(&loop.lock);
}

void rpc_loop_release(void) {
  pthread_mutex_lock(&loop.lock);
  MUST(loop.users > 0);
  if (--loop.users == 0) {
    grpc_completion_queue_shutdown(loop.queue);
    while (loop.threads) pthread_cond_wait(&loop.ended, &loop.lock);
    pthread_cond_destroy(&loop.traffic);
    grpc_completion_queue_destroy(loop.queue);
    /* gRPC itself stays: grpc_shutdown() joins a thread of its own that may be polling, and then takes ten seconds. */
    loop.queue = NULL;
  }
  pthread_mutex_unlock(&loop.lock);
}

grpc_completion_queue *rpc_loop_queue(void) { return loop.queue; }

gpr_timespec rpc_deadline(int64_t deadline_ns) {
  if (deadline_ns == DEADLINE_NEVER) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(deadline_ns - clock_ns(), GPR_TIMESPAN));
}

int64_t rpc_deadline_from(gpr_timespec t) {
  if (gpr_time_cmp(t, gpr_inf_future(t.clock_type)) == 0) return DEADLINE_NEVER;
  gpr_timespec left = gpr_time_sub(t, gpr_now(t.clock_type));
  if (left.tv_sec > 4000000000) return DEADLINE_NEVER;
  return clock_ns() + left.tv_sec * 1000000000 + left.tv_nsec;
}
