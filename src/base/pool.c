/* Thread pool: a ring of tasks behind one lock, and loops whose pieces are handed out by an atomic counter.
 *
 * A loop is offered to at most (pieces - 1) helpers by submitting the same stack-allocated object several
 * times; the caller works too and then waits only for helpers that have begun. A helper that comes too late
 * must not touch the object, so the offers not yet taken are withdrawn from the ring before the caller leaves.
 *
 * To wake a sleeping thread takes as long as a small product, and loops come in rows: a training step has one every few
 * tens of microseconds. So who has helped in a loop looks out for the next one for a moment before it sleeps, and a
 * caller looks out likewise for its helpers' end. (To yield the core meanwhile was tried: where many threads want one,
 * who yields comes last of all, and steps took several times as long.) Where cores are idle a few look out for longer.
 *
 * Where other processes want the cores (two workers and a parameter server on two of them), helpers come late, or take
 * turns with somebody else's caller, and a loop takes as long as without them, or longer. So it is measured what
 * helpers bring: the caller knows from its own share how long it would have taken alone. Where that was no gain they
 * are left asleep, but for a try now and then; a loop that turns out to be long has them all the same, since beside it
 * to wake them costs nothing. */
#include "base/pool.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/countdown.h"
#include "base/denormals.h"
#include "base/file_root.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/patience.h"

enum {
  SPIN_NANOS = 50000,  /* how long to look out: longer than the small nodes between two products take */
  SPIN_LONG = 400000,  /* where cores are idle: longer than a worker's way to its parameter server and back */
  SPIN_PAUSES = 32,    /* between two looks at the clock */
  HELP_LOOK = 4,       /* of so many loops one is measured */
  HELP_RETRY = 13,     /* of so many loops one has helpers all the same; odd, as steps have a few loops each */
  LONG_NANOS = 400000, /* a loop that computes for longer is long */
  REST_NANOS = 400000, /* what is left of it must be, to be worth a helper's waking up where cores are wanted */
};

struct pool_task {
  void (*fn)(void *);
  void *arg;
  const struct file_roots *files; /* the submitter's confinement holds for what it submits */
};

struct pool {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  struct pool_task *ring; /* lock: cap is a power of two; waiting are [head, tail) */
  size_t cap;
  _Atomic size_t head, tail; /* written under the lock; a thread that looks out for work reads them without */
  int idle;                  /* lock: threads asleep */
  int spinning;              /* lock: threads that look out for work */
  struct patience patience;  /* of looking out */
  atomic_llong help_gain;    /* nanoseconds that helpers spared of late; below 0: they are in the way */
  atomic_uint loops;
  atomic_int callers; /* threads that compute, or are in a loop of their own */
  bool stop;          /* lock */
  int n_threads;
  pthread_t *threads;
};

static _Thread_local const struct pool *mine;
static _Thread_local struct {
  struct pool *pool; /* that this thread counts as a caller of */
  int depth;
} computing;

static void loop_help(void *arg);

int cpu_count(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return 1;
}

static inline void pause_briefly(void) {
#if defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#elif defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* Looks for a moment whether it is time. That is in vain where loops are rare, long, or the cores wanted by others. */
static void spin_until(struct pool *p, int64_t nanos, bool (*is_time)(const void *), const void *arg) {
  if (!patience_allows(&p->patience)) return;
  bool came = false;
  for (int64_t end = 0; !came;) {
    for (int i = 0; !came && i < SPIN_PAUSES; i++) {
      came = is_time(arg);
      if (!came) pause_briefly();
    }
    if (came) break;
    int64_t now = clock_ns();
    if (!end) end = now + nanos;
    if (now >= end) break;
  }
  patience_learn(&p->patience, came);
}

static bool has_work(const void *pool) {
  const struct pool *p = pool;
  return atomic_load_explicit(&p->head, memory_order_relaxed) != atomic_load_explicit(&p->tail, memory_order_relaxed);
}

static void *work(void *arg) {
  struct pool *p = arg;
  mine = p;
  denormals_flush();
  bool after_loop = false;
  pthread_mutex_lock(&p->lock);
  for (;;) {
    if (after_loop && p->head == p->tail && !p->stop && p->spinning + 1 < p->n_threads) {
      p->spinning++; /* the next loop is often not far behind; the one who calls it works too */
      bool few = p->spinning <= p->n_threads / 4;
      pthread_mutex_unlock(&p->lock);
      spin_until(p, few && machine_has_idle_cores(clock_ns()) ? SPIN_LONG : SPIN_NANOS, has_work, p);
      pthread_mutex_lock(&p->lock);
      p->spinning--;
    }
    while (p->head == p->tail && !p->stop) {
      p->idle++;
      pthread_cond_wait(&p->wake, &p->lock);
      p->idle--;
    }
    if (p->head == p->tail) break;
    struct pool_task t = p->ring[p->head++ & (p->cap - 1)];
    if (!t.fn) continue; /* withdrawn */
    pthread_mutex_unlock(&p->lock);
    file_roots_use(t.files);
    t.fn(t.arg);
    after_loop = t.fn == loop_help;
    pthread_mutex_lock(&p->lock);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

struct pool *pool_new(int threads, const char *name) {
  struct pool *p = mem_zalloc(1, sizeof *p);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  p->cap = 256;
  p->ring = mem_zalloc(p->cap, sizeof *p->ring);
  int want = threads > 0 ? threads : cpu_count();
  p->threads = mem_zalloc((size_t)want, sizeof *p->threads);
  for (int i = 0; i < want; i++) {
    if (pthread_create(&p->threads[i], NULL, work, p) != 0) break;
    char label[32]; /* the system takes 15 characters */
    snprintf(label, sizeof label, "%.8s/%d", name, i);
    label[15] = 0;
    pthread_setname_np(p->threads[i], label);
    p->n_threads++;
  }
  return p;
}

void pool_free(struct pool *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
  for (int i = 0; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->wake);
  free(p->threads);
  free(p->ring);
  free(p);
}

int pool_threads(const struct pool *p) { return p ? p->n_threads : 0; }

bool pool_is_mine(const struct pool *p) { return mine == p; }

static void push(struct pool *p, struct pool_task t) {
  if (p->tail - p->head == p->cap) {
    struct pool_task *ring = mem_zalloc(p->cap * 2, sizeof *ring);
    for (size_t i = p->head; i < p->tail; i++) ring[i & (p->cap * 2 - 1)] = p->ring[i & (p->cap - 1)];
    free(p->ring);
    p->ring = ring;
    p->cap *= 2;
  }
  p->ring[p->tail++ & (p->cap - 1)] = t;
}

void pool_submit(struct pool *p, void (*fn)(void *), void *arg) {
  if (!p->n_threads) { /* no thread could be made */
    fn(arg);
    return;
  }
  pthread_mutex_lock(&p->lock);
  push(p, (struct pool_task){fn, arg, file_roots_current()});
  if (p->idle > 0) pthread_cond_signal(&p->wake); /* here: behind the lock fn may be over, and the pool freed */
  pthread_mutex_unlock(&p->lock);
}

/* What a loop does, and in which pieces. */
struct pool_work {
  void (*fn)(void *, int64_t, int64_t);
  void *arg;
  int64_t n, most, least; /* elements; of a piece */
  int threads;            /* at most */
};

struct pool_loop {
  const struct pool_work *work;
  int parts;                /* of what is left, a piece is one: twice as many as threads */
  _Atomic int64_t next;     /* the first element not yet handed out */
  struct countdown helpers; /* offers taken and not finished, plus offers still in the ring */
};

/* The next piece, from *begin on; 0: there is none. */
static int64_t loop_take(struct pool_loop *l, int64_t *begin) {
  const struct pool_work *w = l->work;
  int64_t size = w->most;
  if (w->least == w->most) {
    *begin = atomic_fetch_add(&l->next, size);
  } else {
    *begin = atomic_load(&l->next);
    do size = MAX(w->least, MIN(w->most, (w->n - *begin) / l->parts));
    while (*begin < w->n && !atomic_compare_exchange_weak(&l->next, begin, *begin + size));
  }
  return MAX(0, MIN(size, w->n - *begin));
}

/* Returns how many elements fell to this thread. */
static int64_t loop_run(struct pool_loop *l) {
  for (int64_t did = 0, begin, size;; did += size) {
    size = loop_take(l, &begin);
    if (!size) return did;
    l->work->fn(l->work->arg, begin, begin + size);
  }
}

static void loop_help(void *arg) {
  struct pool_loop *l = arg;
  loop_run(l);
  countdown_end(&l->helpers, 1);
}

static bool all_helped(const void *loop) { return countdown_is_over(&((const struct pool_loop *)loop)->helpers); }

/* Takes back the offers nobody has begun; returns how many. */
static int withdraw(struct pool *p, struct pool_loop *l) {
  int n = 0;
  pthread_mutex_lock(&p->lock);
  for (size_t i = p->head; i < p->tail; i++) {
    struct pool_task *t = &p->ring[i & (p->cap - 1)];
    if (t->fn != loop_help || t->arg != l) continue;
    t->fn = NULL;
    n++;
  }
  pthread_mutex_unlock(&p->lock);
  return n;
}

/* What this thread has computed so far. */
static int64_t thread_cpu_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* A fifth less than alone is the least gain: what helpers take, others may have wanted. */
static void judge_help(struct pool *p, int64_t took, int64_t alone) {
  int64_t before = atomic_load_explicit(&p->help_gain, memory_order_relaxed);
  atomic_store_explicit(&p->help_gain, before - before / 8 + (alone - alone / 5 - took), memory_order_relaxed);
}

/* Elements from `first` on. */
static void share(struct pool *p, const struct pool_work *w, int64_t first, int helpers, bool measured) {
  int64_t began = measured ? clock_ns() : 0, busy = measured ? thread_cpu_ns() : 0;
  struct pool_loop l = {.work = w, .parts = 2 * (helpers + 1), .next = first};
  countdown_init(&l.helpers, helpers);
  pthread_mutex_lock(&p->lock);
  for (int i = 0; i < helpers; i++) push(p, (struct pool_task){loop_help, &l, file_roots_current()});
  /* No more than there is work for. */
  int wake = MIN(MIN(p->idle, helpers), (int)(p->tail - p->head) - p->spinning);
  for (int i = 0; i < wake; i++) pthread_cond_signal(&p->wake);
  pthread_mutex_unlock(&p->lock);
  int64_t did = loop_run(&l);
  if (measured) busy = thread_cpu_ns() - busy;
  countdown_end(&l.helpers, withdraw(p, &l));
  if (!all_helped(&l)) spin_until(p, SPIN_NANOS, all_helped, &l);
  countdown_wait_until(&l.helpers, DEADLINE_NEVER);
  if (measured && did) judge_help(p, clock_ns() - began, (int64_t)((double)busy * (double)w->n / (double)did));
}

/* Threads that compute have cores of their own, and need them: replicas on devices of one process compute side by side.
 * The caller counts itself. */
static int helpers_for(const struct pool *p, const struct pool_work *w, int64_t n) {
  int64_t pieces = (n + w->least - 1) / w->least;
  int others = p->n_threads - (pool_is_mine(p) ? 1 : 0);
  int callers = atomic_load_explicit(&p->callers, memory_order_relaxed);
  return (int)MIN(MIN(pieces, w->threads) - 1, MIN(others, p->n_threads - callers));
}

/* So far it has taken so long for `done` of n: is there as much as that left? */
static bool much_is_left(int64_t took, int64_t done, int64_t n) {
  return (double)took * (double)(n - done) > (double)REST_NANOS * (double)done;
}

/* Piece by piece, until it is known to be long; then the rest with helpers. */
static void share_if_long(struct pool *p, const struct pool_work *w) {
  int64_t began = clock_ns(), busy = thread_cpu_ns();
  for (int64_t i = 0; i < w->n; i += w->most) {
    int helpers = i ? helpers_for(p, w, w->n - i) : 0;
    int64_t took = helpers > 0 ? clock_ns() - began : 0;
    if (took > LONG_NANOS && much_is_left(took, i, w->n) && thread_cpu_ns() - busy > LONG_NANOS) {
      share(p, w, i, helpers, false);
      return;
    }
    w->fn(w->arg, i, MIN(i + w->most, w->n));
  }
}

/* With helpers, if there are any and they are worth it; false: the caller is to do it all. */
static bool shared(struct pool *p, const struct pool_work *w) {
  int helpers = helpers_for(p, w, w->n);
  if (helpers <= 0) return false;
  bool in_the_way = atomic_load_explicit(&p->help_gain, memory_order_relaxed) < 0;
  unsigned count = atomic_fetch_add_explicit(&p->loops, 1, memory_order_relaxed);
  if (in_the_way && count % HELP_RETRY) share_if_long(p, w);
  else share(p, w, 0, helpers, in_the_way || count % HELP_LOOK == 0);
  return true;
}

/* alone: the pieces if the caller does it all. */
static void run_work(struct pool *p, const struct pool_work *w, int64_t alone) {
  bool several = p && w->n > w->least, counts = several && computing.pool != p;
  if (counts) atomic_fetch_add_explicit(&p->callers, 1, memory_order_relaxed);
  if (!several || !shared(p, w))
    for (int64_t i = 0; i < w->n; i += alone) w->fn(w->arg, i, MIN(i + alone, w->n));
  if (counts) atomic_fetch_sub_explicit(&p->callers, 1, memory_order_relaxed);
}

void pool_compute(struct pool *p) {
  if (computing.depth++ || !p) return;
  computing.pool = p;
  atomic_fetch_add_explicit(&p->callers, 1, memory_order_relaxed);
}

void pool_rest(void) {
  if (--computing.depth || !computing.pool) return;
  atomic_fetch_sub_explicit(&computing.pool->callers, 1, memory_order_relaxed);
  computing.pool = NULL;
}

void pool_for_tapered(struct pool *p, int64_t n, int64_t most, int64_t least, int threads,
                      void (*fn)(void *, int64_t, int64_t), void *arg) {
  least = MAX(1, least);
  run_work(p, &(struct pool_work){fn, arg, n, MAX(most, least), least, threads}, n);
}

void pool_for(struct pool *p, int64_t n, int64_t grain, void (*fn)(void *, int64_t, int64_t), void *arg) {
  pool_for_tapered(p, n, grain, grain, INT_MAX, fn, arg);
}

void pool_for_pieces(struct pool *p, int64_t n, int64_t grain, void (*fn)(void *, int64_t, int64_t), void *arg) {
  grain = MAX(1, grain);
  run_work(p, &(struct pool_work){fn, arg, n, grain, grain, INT_MAX}, grain);
}
