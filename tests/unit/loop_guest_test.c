/* Clients' threads that wait for their steps lead the network meanwhile (rpc_loop_wait): they are told, whoever ends
 * what they wait for, and in time; others' requests are not theirs to work on; the network goes on without them. */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "rpc/loop.h"
#include "rpc/turns.h"

struct told {
  struct rpc_event event;
  struct latch latch;
  pthread_t by; /* who ran the event */
};

static void tell(struct rpc_event *e) {
  struct told *t = (struct told *)((char *)e - offsetof(struct told, event));
  t->by = pthread_self();
  rpc_loop_done(&t->latch, NULL);
}

static void begin(struct told *t, enum rpc_event_kind kind, struct rpc_line *line) {
  *t = (struct told){.event = {.fn = tell, .kind = kind, .line = line}};
  latch_init(&t->latch, 1);
}

static void pause_us(int64_t us) {
  nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* Ends one after another, by an event of the loop or on this thread, some time after it was given. */
struct teller {
  pthread_mutex_t lock;
  pthread_cond_t given;
  struct told *told;
  int64_t after_us;
  bool itself, over;
};

static void *be_teller(void *arg) {
  struct teller *r = arg;
  pthread_mutex_lock(&r->lock);
  for (;;) {
    while (!r->told && !r->over) pthread_cond_wait(&r->given, &r->lock);
    struct told *t = r->told;
    r->told = NULL;
    if (!t) break;
    pthread_mutex_unlock(&r->lock);
    if (r->after_us) pause_us(r->after_us);
    if (r->itself) rpc_loop_done(&t->latch, NULL);
    else rpc_loop_post(&t->event);
    pthread_mutex_lock(&r->lock);
  }
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

static void give(struct teller *r, struct told *t) {
  pthread_mutex_lock(&r->lock);
  r->told = t;
  pthread_cond_signal(&r->given);
  pthread_mutex_unlock(&r->lock);
}

static pthread_t start(struct teller *r) {
  pthread_t thread;
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->given, NULL);
  assert_int_equal(pthread_create(&thread, NULL, be_teller, r), 0);
  return thread;
}

static void end(struct teller *r, pthread_t thread) {
  pthread_mutex_lock(&r->lock);
  r->over = true;
  pthread_cond_signal(&r->given);
  pthread_mutex_unlock(&r->lock);
  pthread_join(thread, NULL);
  pthread_mutex_destroy(&r->lock);
  pthread_cond_destroy(&r->given);
}

/* Rounds of a client; how many events it ran itself. pause: between some of them, longer than it is waited for. */
static int rounds(struct teller *r, int n, bool pause) {
  int mine = 0;
  for (int i = 0; i < n; i++) {
    struct told t;
    begin(&t, RPC_EVENT_NEWS, NULL);
    give(r, &t);
    assert_true(rpc_loop_wait(&t.latch, deadline_after_ms(60000)));
    assert_null(latch_release(&t.latch));
    mine += !r->itself && pthread_equal(t.by, pthread_self());
    if (pause && i % 16 == 15) pause_us(20000);
  }
  return mine;
}

static void told_by_events(void **state) {
  ASSERT_OK(rpc_loop_acquire());
  for (int pause = 0; pause < 2; pause++)
    for (int after = 0; after <= 200; after += 100) {
      struct teller r = {.after_us = after};
      pthread_t thread = start(&r);
      int mine = rounds(&r, 300, pause);
      print_message("%d of 300 events, %d us later%s, ran on the thread that waits\n", mine, after,
                    pause ? ", with pauses" : "");
      if (!pause && after) assert_true(mine > 0);
      end(&r, thread);
    }
  rpc_loop_release();
}

static void told_by_another_thread(void **state) {
  ASSERT_OK(rpc_loop_acquire());
  struct teller by_event = {0}, itself = {.after_us = 300, .itself = true};
  pthread_t first = start(&by_event), second = start(&itself);
  for (int i = 0; i < 50; i++) {
    rounds(&by_event, 3, false); /* after which it leads */
    rounds(&itself, 2, false);
  }
  end(&by_event, first);
  end(&itself, second);
  rpc_loop_release();
}

static void deadline_passes(void **state) {
  ASSERT_OK(rpc_loop_acquire());
  struct teller r = {0};
  pthread_t thread = start(&r);
  for (int i = 0; i < 5; i++) {
    rounds(&r, 20, false);
    struct told t;
    begin(&t, RPC_EVENT_NEWS, NULL);
    assert_false(rpc_loop_wait(&t.latch, deadline_after_ms(30)));
    rpc_loop_post(&t.event); /* a thread of the loop leads again */
    assert_null(latch_finish(&t.latch));
  }
  end(&r, thread);
  rpc_loop_release();
}

/* A request of others comes while a client leads. */
static void requests_are_for_others(void **state) {
  ASSERT_OK(rpc_loop_acquire());
  struct rpc_line *line = rpc_line_new(0);
  struct teller r = {0};
  pthread_t thread = start(&r);
  for (int i = 0; i < 20; i++) {
    rounds(&r, 20, false);
    struct told t;
    begin(&t, RPC_EVENT_REQUEST, line);
    give(&r, &t);
    assert_true(rpc_loop_wait(&t.latch, deadline_after_ms(60000)));
    assert_false(pthread_equal(t.by, pthread_self()));
    latch_release(&t.latch);
  }
  end(&r, thread);
  rpc_line_free(line);
  rpc_loop_release();
}

static void *be_client(void *arg) {
  struct teller r = {.after_us = *(int *)arg};
  pthread_t thread = start(&r);
  rounds(&r, 400, true);
  end(&r, thread);
  return NULL;
}

static void several_clients(void **state) {
  ASSERT_OK(rpc_loop_acquire());
  pthread_t clients[4];
  int after[4] = {0, 50, 100, 500};
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&clients[i], NULL, be_client, &after[i]), 0);
  for (int i = 0; i < 4; i++) pthread_join(clients[i], NULL);
  rpc_loop_release();
}

RUN_TESTS(cmocka_unit_test(told_by_events), cmocka_unit_test(told_by_another_thread), cmocka_unit_test(deadline_passes),
          cmocka_unit_test(requests_are_for_others), cmocka_unit_test(several_clients))
