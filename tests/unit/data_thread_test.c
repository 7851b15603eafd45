/* Threads of datasets: one budget, lines of tasks in order, and everything given back. */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "data/data_thread.h"

/* Threads that nobody waits for end when they end: looks until there are none, for a minute at most. */
static bool all_given_back(void) {
  for (int i = 0; i < 6000 && data_threads_taken(); i++) usleep(10000);
  return data_threads_taken() == 0;
}

static void a_budget_is_not_passed(void **state) {
  assert_null(data_threads_take(DATA_THREADS - 1));
  assert_null(data_threads_take(1));
  ASSERT_FAILS(data_threads_take(1), SHOAL_RESOURCE_EXHAUSTED, "threads for datasets");
  struct task_line *l = task_line_new();
  /* No thread to run it: refused, not kept. */
  ASSERT_FAILS(task_line_add(l, NULL, NULL), SHOAL_RESOURCE_EXHAUSTED, "threads for datasets");
  task_line_free(l);
  data_threads_give(DATA_THREADS);
  assert_int_equal(data_threads_taken(), 0);
}

enum { TASKS = 1000 };

struct seen {
  atomic_int n, wrong, inside;
  pthread_mutex_t gate; /* held: the first task waits */
};

static void look(void *arg) {
  struct seen *s = arg;
  if (atomic_fetch_add(&s->inside, 1)) atomic_fetch_add(&s->wrong, 1);
  if (atomic_load(&s->n) == 0) {
    pthread_mutex_lock(&s->gate);
    pthread_mutex_unlock(&s->gate);
  }
  atomic_fetch_sub(&s->inside, 1);
  atomic_fetch_add(&s->n, 1);
}

static void a_line_runs_one_after_another(void **state) {
  struct seen s = {.gate = PTHREAD_MUTEX_INITIALIZER};
  struct task_line *l = task_line_new();
  pthread_mutex_lock(&s.gate);
  for (int i = 0; i < TASKS; i++) assert_null(task_line_add(l, look, &s));
  assert_int_equal(data_threads_taken(), 1);
  task_line_free(l); /* what was added still runs */
  pthread_mutex_unlock(&s.gate);
  assert_true(all_given_back());
  assert_int_equal(atomic_load(&s.n), TASKS);
  assert_int_equal(atomic_load(&s.wrong), 0);
}

static void an_idle_line_gives_its_thread_back(void **state) {
  struct seen s = {.n = 1, .gate = PTHREAD_MUTEX_INITIALIZER};
  struct task_line *l = task_line_new();
  assert_null(task_line_add(l, look, &s));
  assert_true(all_given_back()); /* though the line is there */
  assert_null(task_line_add(l, look, &s));
  task_line_free(l);
  assert_true(all_given_back());
  assert_int_equal(atomic_load(&s.n), 3);
}

RUN_TESTS(cmocka_unit_test(a_budget_is_not_passed), cmocka_unit_test(a_line_runs_one_after_another),
          cmocka_unit_test(an_idle_line_gives_its_thread_back))
