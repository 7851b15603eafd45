/* Queues under many threads: what goes in comes out once, in order where order is promised; closing and cancelling end
 * every attempt exactly once. Variables: a value that was read never changes. */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/cancel.h"
#include "ops/state/queue.h"
#include "runtime/variable.h"

enum { THREADS = 4, EACH = 500 };

static struct queue *make(enum queue_kind kind, int64_t capacity) {
  struct queue_spec s = {.kind = kind, .n = 1, .capacity = capacity};
  s.types = mem_zalloc(1, sizeof *s.types);
  s.shapes = mem_zalloc(1, sizeof *s.shapes);
  s.types[0] = SHOAL_INT64;
  return queue_new("q", &s, 7);
}

/* A callback that can be waited for. */
struct answer {
  pthread_mutex_t lock;
  pthread_cond_t done;
  int calls;
  shoal_code code;
  int64_t first, n;
};

static void answer_init(struct answer *a) {
  *a = (struct answer){.code = SHOAL_OK};
  pthread_mutex_init(&a->lock, NULL);
  pthread_cond_init(&a->done, NULL);
}

static void on_done(void *arg, shoal_status s, struct tensor *tuple) {
  struct answer *a = arg;
  pthread_mutex_lock(&a->lock);
  a->calls++;
  a->code = shoal_status_code(s);
  if (tuple) {
    a->first = tuple->n ? *T_DATA(tuple, int64_t) : 0;
    a->n = tuple->n;
    tensor_release(tuple);
  }
  pthread_cond_signal(&a->done);
  pthread_mutex_unlock(&a->lock);
  shoal_status_free(s);
}

static void wait_for(struct answer *a) {
  pthread_mutex_lock(&a->lock);
  while (!a->calls) pthread_cond_wait(&a->done, &a->lock);
  assert_int_equal(a->calls, 1);
  pthread_mutex_unlock(&a->lock);
}

static void put(struct queue *q, int64_t v, struct answer *a) {
  struct tensor t;
  assert_null(tensor_new_scalar(&t, SHOAL_INT64));
  *T_DATA(&t, int64_t) = v;
  queue_enqueue(q, (const struct tensor *[]){&t}, 1, false, NULL, on_done, a);
  tensor_release(&t);
}

struct work {
  struct queue *q;
  int id;
  _Atomic int64_t *sum;
};

static void *producer(void *arg) {
  struct work *w = arg;
  for (int i = 0; i < EACH; i++) {
    struct answer a;
    answer_init(&a);
    put(w->q, w->id * EACH + i, &a);
    wait_for(&a);
    assert_int_equal(a.code, SHOAL_OK);
  }
  return NULL;
}

static void *consumer(void *arg) {
  struct work *w = arg;
  for (int i = 0; i < EACH; i++) {
    struct answer a;
    answer_init(&a);
    queue_dequeue(w->q, NULL, on_done, &a);
    wait_for(&a);
    assert_int_equal(a.code, SHOAL_OK);
    atomic_fetch_add(w->sum, a.first);
  }
  return NULL;
}

static void many_threads(enum queue_kind kind) {
  struct queue *q = make(kind, 3);
  _Atomic int64_t sum = 0;
  pthread_t threads[2 * THREADS];
  struct work work[2 * THREADS];
  for (int i = 0; i < 2 * THREADS; i++) {
    work[i] = (struct work){q, i / 2, &sum};
    pthread_create(&threads[i], NULL, i % 2 ? producer : consumer, &work[i]);
  }
  for (int i = 0; i < 2 * THREADS; i++) pthread_join(threads[i], NULL);
  int64_t n = THREADS * EACH;
  assert_int_equal(sum, n * (n - 1) / 2);
  assert_int_equal(queue_size(q), 0);
  resource_unref((struct resource *)q);
}

static void test_threads(void **state) {
  many_threads(QUEUE_FIFO);
  many_threads(QUEUE_SHUFFLE);
}

static void test_order_and_batches(void **state) {
  struct queue *q = make(QUEUE_FIFO, 2);
  struct answer batch, in[5], rest;
  answer_init(&batch);
  queue_dequeue_many(q, 4, false, NULL, on_done, &batch); /* more than the capacity */
  for (int i = 0; i < 5; i++) {
    answer_init(&in[i]);
    put(q, 10 + i, &in[i]);
    wait_for(&in[i]);
  }
  wait_for(&batch);
  assert_int_equal(batch.first, 10);
  assert_int_equal(batch.n, 4);
  answer_init(&rest);
  queue_dequeue_many(q, 9, true, NULL, on_done, &rest);
  struct answer closed;
  answer_init(&closed);
  queue_close(q, false, on_done, &closed);
  wait_for(&closed);
  wait_for(&rest); /* what there is */
  assert_int_equal(rest.code, SHOAL_OK);
  assert_int_equal(rest.n, 1);
  assert_int_equal(rest.first, 14);
  resource_unref((struct resource *)q);
}

static void test_close_cancels(void **state) {
  struct queue *q = make(QUEUE_FIFO, 1);
  struct answer in[3], closed;
  for (int i = 0; i < 3; i++) {
    answer_init(&in[i]);
    put(q, i, &in[i]);
  }
  assert_int_equal(queue_waiting(q), 2);
  answer_init(&closed);
  queue_close(q, true, on_done, &closed);
  for (int i = 0; i < 3; i++) {
    wait_for(&in[i]);
    assert_int_equal(in[i].code, i ? SHOAL_CANCELLED : SHOAL_OK);
  }
  assert_int_equal(queue_size(q), 1);
  resource_unref((struct resource *)q);
}

static void *cancel_soon(void *arg) {
  usleep(100);
  cancel_start(arg, NULL);
  return NULL;
}

/* A cancel races with the enqueue that would meet the attempt: one of them wins, and nothing is lost. */
static void test_cancel_race(void **state) {
  for (int i = 0; i < 200; i++) {
    struct queue *q = make(QUEUE_FIFO, 2);
    struct cancel c;
    cancel_init(&c);
    struct answer a, in;
    answer_init(&a);
    answer_init(&in);
    queue_dequeue(q, &c, on_done, &a);
    pthread_t t;
    pthread_create(&t, NULL, cancel_soon, &c);
    if (i % 2) usleep(100);
    put(q, 5, &in);
    wait_for(&a);
    pthread_join(t, NULL);
    assert_true(a.code == SHOAL_OK || a.code == SHOAL_CANCELLED);
    assert_int_equal(queue_size(q), a.code == SHOAL_OK ? 0 : 1);
    assert_int_equal(queue_waiting(q), 0);
    cancel_release(&c);
    resource_unref((struct resource *)q);
  }
}

static void *writer(void *arg) {
  struct variable *v = arg;
  for (int64_t i = 1; i <= 2000; i++) {
    pthread_rwlock_wrlock(&v->lock);
    assert_null(variable_make_writable(v));
    for (int64_t k = 0; k < v->value.n; k++) T_DATA(&v->value, int64_t)[k] = i;
    pthread_rwlock_unlock(&v->lock);
  }
  return NULL;
}

static void *reader(void *arg) {
  struct variable *v = arg;
  for (int i = 0; i < 2000; i++) {
    struct tensor t;
    variable_read(v, &t);
    int64_t first = T_DATA(&t, int64_t)[0];
    for (int64_t k = 1; k < t.n; k++) assert_int_equal(T_DATA(&t, int64_t)[k], first);
    tensor_release(&t);
  }
  return NULL;
}

static void test_variable_reads_stay(void **state) {
  struct shape shape = shape_vector(64);
  for (int copies = 0; copies < 2; copies++) {
    struct variable *v = variable_new("v", SHOAL_INT64, &shape);
    assert_null(tensor_new(&v->value, SHOAL_INT64, &shape));
    tensor_zero(&v->value);
    atomic_store(&v->copy_on_read, copies != 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i ? reader : writer, v);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    variable_unref(v);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_order_and_batches),
      cmocka_unit_test(test_close_cancels),
      cmocka_unit_test(test_cancel_race),
      cmocka_unit_test(test_variable_reads_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
