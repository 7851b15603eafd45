/* Threads that walk datasets, and lines of tasks on them. */
#include "data/data_thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/cond.h"
#include "base/file_root.h"
#include "base/mem.h"

enum { LINGER_SECONDS = 5 };

static atomic_int taken;

shoal_status data_threads_take(int n) {
  if (atomic_fetch_add(&taken, n) + n <= DATA_THREADS) return NULL;
  atomic_fetch_sub(&taken, n);
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "More than %d threads for datasets: fewer iterators or less parallelism",
                DATA_THREADS);
}

void data_threads_give(int n) { atomic_fetch_sub(&taken, n); }

int data_threads_taken(void) { return atomic_load(&taken); }

struct errand {
  void (*fn)(void *arg);
  void *arg;
  const struct file_roots *files;
};

static void *run_errand(void *arg) {
  struct errand e = *(struct errand *)arg;
  free(arg);
  file_roots_use(e.files);
  e.fn(e.arg);
  data_threads_give(1);
  return NULL;
}

shoal_status data_thread_start(void (*fn)(void *arg), void *arg) {
  TRY(data_threads_take(1));
  struct errand *e = mem_alloc(sizeof *e);
  *e = (struct errand){fn, arg, file_roots_current()};
  pthread_t t;
  int err = pthread_create(&t, NULL, run_errand, e);
  if (err) {
    free(e);
    data_threads_give(1);
    return ERRNO_STATUS(err, "a thread for a dataset");
  }
  pthread_detach(t);
  return NULL;
}

/* ---- lines ---- */

struct data_task {
  struct errand what;
  struct data_task *next;
};

struct task_line {
  pthread_mutex_t lock;
  pthread_cond_t change;
  struct data_task *first, *last; /* lock: from here on */
  bool running;                   /* there is a thread */
  bool over;                      /* freed: who goes last takes the memory with him */
};

struct task_line *task_line_new(void) {
  struct task_line *l = mem_zalloc(1, sizeof *l);
  pthread_mutex_init(&l->lock, NULL);
  cond_init(&l->change);
  return l;
}

static void release(struct task_line *l) {
  pthread_mutex_destroy(&l->lock);
  pthread_cond_destroy(&l->change);
  free(l);
}

static void run_line(void *arg) {
  struct task_line *l = arg;
  bool late = false;
  pthread_mutex_lock(&l->lock);
  for (;;) {
    struct data_task *t = l->first;
    if (t) {
      l->first = t->next;
      pthread_mutex_unlock(&l->lock);
      file_roots_use(t->what.files);
      t->what.fn(t->what.arg);
      free(t);
      pthread_mutex_lock(&l->lock);
      late = false;
      continue;
    }
    if (l->over || late) break;
    late = !cond_wait_until(&l->change, &l->lock, clock_ns() + LINGER_SECONDS * 1000000000ll);
  }
  l->running = false;
  bool over = l->over;
  pthread_mutex_unlock(&l->lock);
  if (over) release(l);
}

void task_line_free(struct task_line *l) {
  if (!l) return;
  pthread_mutex_lock(&l->lock);
  l->over = true;
  bool running = l->running;
  pthread_cond_signal(&l->change);
  pthread_mutex_unlock(&l->lock);
  if (!running) release(l);
}

shoal_status task_line_add(struct task_line *l, void (*fn)(void *arg), void *arg) {
  struct data_task *t = mem_zalloc(1, sizeof *t);
  t->what = (struct errand){fn, arg, file_roots_current()};
  pthread_mutex_lock(&l->lock);
  shoal_status s = NULL;
  if (!l->running) s = data_thread_start(run_line, l);
  if (!s) {
    l->running = true;
    if (l->first) l->last->next = t;
    else l->first = t;
    l->last = t;
    pthread_cond_signal(&l->change);
  }
  pthread_mutex_unlock(&l->lock);
  if (s) free(t);
  return s;
}
