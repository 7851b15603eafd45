/* One thread sleeps until the first of a list in order of time. Lists are short (waits with a time-out of their own),
 * so finding the place by walking from the end is as good as a heap. */
#include "base/alarm.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/going_on.h"
#include "base/status.h"

static struct {
  pthread_once_t once;
  pthread_mutex_t lock;
  pthread_cond_t earlier, idle; /* the first alarm changed; a call ended */
  struct alarm *first, *last;   /* lock */
  struct alarm *calling;        /* lock: whose fn runs now */
  pthread_t thread;
} clockwork = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};

static void unlink_alarm(struct alarm *a) {
  if (a->prev) a->prev->next = a->next;
  else clockwork.first = a->next;
  if (a->next) a->next->prev = a->prev;
  else clockwork.last = a->prev;
  a->linked = false;
}

static void *watch(void *unused) {
  going_on_forbid();
  pthread_mutex_lock(&clockwork.lock);
  for (;;) {
    struct alarm *a = clockwork.first;
    if (!a || a->at > clock_ns()) {
      cond_wait_until(&clockwork.earlier, &clockwork.lock, a ? a->at : DEADLINE_NEVER);
    } else {
      unlink_alarm(a);
      clockwork.calling = a;
      pthread_mutex_unlock(&clockwork.lock);
      a->fn(a->arg); /* a may be gone afterwards */
      pthread_mutex_lock(&clockwork.lock);
      clockwork.calling = NULL;
      pthread_cond_broadcast(&clockwork.idle);
    }
  }
  return NULL;
}

static void start(void) {
  cond_init(&clockwork.earlier);
  MUST(!pthread_create(&clockwork.thread, NULL, watch, NULL));
  pthread_detach(clockwork.thread);
}

void alarm_set(struct alarm *a, int64_t at, void (*fn)(void *), void *arg) {
  pthread_once(&clockwork.once, start);
  pthread_mutex_lock(&clockwork.lock);
  *a = (struct alarm){.fn = fn, .arg = arg, .at = at, .prev = clockwork.last, .linked = true};
  while (a->prev && a->prev->at > at) a->prev = a->prev->prev;
  a->next = a->prev ? a->prev->next : clockwork.first;
  if (a->prev) a->prev->next = a;
  else clockwork.first = a;
  if (a->next) a->next->prev = a;
  else clockwork.last = a;
  if (clockwork.first == a) pthread_cond_signal(&clockwork.earlier);
  pthread_mutex_unlock(&clockwork.lock);
}

void alarm_clear(struct alarm *a) {
  if (!a->fn) return;
  pthread_mutex_lock(&clockwork.lock);
  if (a->linked) unlink_alarm(a);
  while (clockwork.calling == a && !pthread_equal(clockwork.thread, pthread_self()))
    pthread_cond_wait(&clockwork.idle, &clockwork.lock);
  pthread_mutex_unlock(&clockwork.lock);
}
