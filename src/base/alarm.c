/* One thread sleeps until the first of a heap. Deadlines of steps are clients' to choose, and there are tens of
 * thousands of them where somebody wants it so: a list in order of time was walked past all of them, with the lock
 * held, for every step with a shorter one.
 *
 * It is a pairing heap: its links are in the alarms, so that nothing is allocated. Setting one compares it with the
 * first; taking one out melds its children two by two, and then the pairs, which costs log n in the long run. */
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
  struct alarm *first;          /* lock: the root */
  struct alarm *calling;        /* lock: whose fn runs now */
  pthread_t thread;
} clockwork = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};

/* ---- the heap; call with the lock held ---- */

/* Of two roots, either may be NULL, one. */
static struct alarm *meld(struct alarm *a, struct alarm *b) {
  if (!a || !b) return a ? a : b;
  struct alarm *top = b->at < a->at ? b : a, *under = top == a ? b : a;
  under->next = top->child;
  if (under->next) under->next->prev = under;
  under->prev = top;
  top->child = under;
  return top;
}

/* Of siblings one root. */
static struct alarm *meld_all(struct alarm *a) {
  struct alarm *pairs = NULL; /* linked by next, the last first */
  while (a) {
    struct alarm *b = a->next, *rest = b ? b->next : NULL;
    a->next = a->prev = NULL;
    if (b) b->next = b->prev = NULL;
    struct alarm *pair = meld(a, b);
    pair->next = pairs;
    pairs = pair;
    a = rest;
  }
  struct alarm *root = NULL;
  while (pairs) {
    struct alarm *rest = pairs->next;
    pairs->next = NULL;
    root = meld(root, pairs);
    pairs = rest;
  }
  return root;
}

static void unlink_alarm(struct alarm *a) {
  struct alarm *children = meld_all(a->child);
  if (a == clockwork.first) {
    clockwork.first = children;
  } else {
    if (a->prev->child == a) a->prev->child = a->next;
    else a->prev->next = a->next;
    if (a->next) a->next->prev = a->prev;
    clockwork.first = meld(clockwork.first, children);
  }
  a->child = a->prev = a->next = NULL;
  a->linked = false;
}

/* ---- the thread ---- */

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
      atomic_load_explicit(&a->fn, memory_order_relaxed)(a->arg); /* a may be gone afterwards */
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
  a->arg = arg;
  a->at = at;
  a->child = a->next = a->prev = NULL;
  a->linked = true;
  atomic_store_explicit(&a->fn, fn, memory_order_relaxed);
  clockwork.first = meld(clockwork.first, a);
  if (clockwork.first == a) pthread_cond_signal(&clockwork.earlier);
  pthread_mutex_unlock(&clockwork.lock);
}

void alarm_clear(struct alarm *a) {
  if (!atomic_load_explicit(&a->fn, memory_order_relaxed)) return;
  pthread_mutex_lock(&clockwork.lock);
  if (a->linked) unlink_alarm(a);
  while (clockwork.calling == a && !pthread_equal(clockwork.thread, pthread_self()))
    pthread_cond_wait(&clockwork.idle, &clockwork.lock);
  if (a->linked) unlink_alarm(a); /* by the call itself, meanwhile */
  pthread_mutex_unlock(&clockwork.lock);
}
