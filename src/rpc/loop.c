/* One completion queue, several threads, leader and followers: of those that wait in gRPC one polls the sockets, and
 * runs what it read itself, so a request is read, handled and answered without changing threads.
 *
 * A queue for each thread was rejected: gRPC deals incoming calls out to queues in turn, whichever thread read them,
 * and each then pays for waking another thread. */
#include "rpc/loop.h"

#include <grpc/support/log.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/handover.h"
#include "base/log.h"
#include "base/status.h"
#include "base/vec.h"

/* Waiting threads beyond MAX_WAITING end; MAX_THREADS bounds a flood of handlers that block. */
enum { MIN_THREADS = 2, MAX_WAITING = 6, MAX_THREADS = 256 };

static struct {
  pthread_mutex_t lock;
  pthread_cond_t ended;
  int users;   /* lock */
  int threads; /* lock */
  bool ever;   /* lock; gRPC is initialised */
  atomic_int waiting;
  grpc_completion_queue *queue;
} loop = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void *work(void *arg);

static void start_thread(void) {
  pthread_t t;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, 4u << 20);
  pthread_mutex_lock(&loop.lock);
  if (loop.threads < MAX_THREADS) {
    atomic_fetch_add(&loop.waiting, 1);
    if (pthread_create(&t, &attr, work, NULL) == 0) loop.threads++;
    else {
      atomic_fetch_sub(&loop.waiting, 1);
      LOGW("cannot start another network thread (%d are running)", loop.threads);
    }
  }
  pthread_mutex_unlock(&loop.lock);
  pthread_attr_destroy(&attr);
}

static void *work(void *arg) {
  pthread_setname_np(pthread_self(), "shoal-net");
  for (;;) {
    grpc_event ev = grpc_completion_queue_next(loop.queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    if (ev.type == GRPC_QUEUE_SHUTDOWN) break;
    if (atomic_fetch_sub(&loop.waiting, 1) == 1) start_thread();
    struct rpc_event *e = ev.tag;
    handover_take(e);
    e->fn(e, ev.success != 0);
    if (atomic_fetch_add(&loop.waiting, 1) >= MAX_WAITING) break;
  }
  atomic_fetch_sub(&loop.waiting, 1);
  pthread_mutex_lock(&loop.lock);
  loop.threads--;
  pthread_cond_broadcast(&loop.ended);
  pthread_mutex_unlock(&loop.lock);
  return NULL;
}

/* gRPC's own notes are for those who look for trouble in it; what matters comes back as a status. */
static void take_note(gpr_log_func_args *note) {
  if (note->severity == GPR_LOG_SEVERITY_ERROR) LOGD("gRPC: %s (%s:%d)", note->message, note->file, note->line);
}

void rpc_loop_acquire(void) {
  pthread_mutex_lock(&loop.lock);
  bool first = loop.users++ == 0;
  if (first) {
    if (!getenv("GRPC_VERBOSITY")) gpr_set_log_function(take_note);
    if (!loop.ever) grpc_init();
    loop.ever = true;
    loop.queue = grpc_completion_queue_create_for_next(NULL);
    atomic_store(&loop.waiting, 0);
  }
  pthread_mutex_unlock(&loop.lock);
  for (int i = 0; first && i < MIN_THREADS; i++) start_thread();
}

void rpc_loop_release(void) {
  pthread_mutex_lock(&loop.lock);
  MUST(loop.users > 0);
  if (--loop.users == 0) {
    grpc_completion_queue_shutdown(loop.queue);
    while (loop.threads) pthread_cond_wait(&loop.ended, &loop.lock);
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
