/* The coordination service's tables: all tasks are told of all devices when the last has come; who fails is told to
 * those who were told of it, and may come again; values are waited for and found by directory; barriers pass once, and
 * fail where a task does; what strangers put there is counted and given back. */
#include "unit.h"
#include "ports.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/coordination.h"
#include "shoal/shoal.h"

#define TASK(n) "/job:worker/replica:0/task:" #n
static const int64_t SECOND = 1000000000;

static struct cluster_spec spec;
static struct coordination *service;
static struct text reported; /* "TO<-SOURCE:CODE " */

static void report(void *arg, const char *const *tasks, size_t n, const char *source, shoal_status error,
                   bool by_source) {
  for (size_t i = 0; i < n; i++)
    text_addf(&reported, "%c<-%c:%d%s ", tasks[i][strlen(tasks[i]) - 1], source[strlen(source) - 1],
              (int)shoal_status_code(error), by_source ? "!" : "");
}

static void assert_reported(const char *wanted) {
  assert_string_equal(text_cstr(&reported), wanted);
  text_release(&reported);
}

static int begin(void **state) {
  ASSERT_OK(cluster_spec_add_hosts(&spec, "worker", "worker", "a:1,b:2,c:3"));
  ASSERT_OK(cluster_spec_add_hosts(&spec, "ps", "ps", "d:4"));
  service = coordination_new(&(struct coordination_options){
      .spec = &spec, .self = TASK(0), .incarnation = 7, .devices = "A", .devices_size = 1, .report = report});
  return 0;
}

static int end(void **state) {
  coordination_free(service);
  cluster_spec_release(&spec);
  text_release(&reported);
  return 0;
}

struct waiter {
  struct coordination_wait wait;
  int answers;
  shoal_status status;
  char text[64];
};

static void told(struct coordination_wait *w, shoal_status s, struct coordination_value *v) {
  struct waiter *waiter = (struct waiter *)w;
  waiter->answers++;
  waiter->status = s;
  if (v) snprintf(waiter->text, sizeof waiter->text, "%.*s", (int)v->n, v->bytes);
  coordination_value_unref(v);
}

static struct coordination_wait *waits(struct waiter *w) {
  *w = (struct waiter){.wait.done = told};
  return &w->wait;
}

static void assert_waits(const struct waiter *w) { assert_int_equal(w->answers, 0); }

static void assert_told(struct waiter *w, shoal_code code, const char *text) {
  assert_int_equal(w->answers, 1);
  assert_int_equal(shoal_status_code(w->status), code);
  assert_non_null(strstr(code == SHOAL_OK ? w->text : shoal_status_message(w->status), text));
  shoal_status_free(w->status);
}

static struct wire bytes(const char *s) { return wire_from(s, strlen(s)); }

/* Tasks 1 and 2 come, with these incarnations. */
static void all_come(uint64_t one, uint64_t two) {
  struct waiter a, b;
  ASSERT_OK(coordination_register(service, TASK(1), one));
  coordination_gather(service, TASK(1), bytes("B"), NULL, waits(&a));
  assert_waits(&a);
  ASSERT_OK(coordination_register(service, TASK(2), two));
  coordination_gather(service, TASK(2), bytes("C"), NULL, waits(&b));
  assert_told(&a, SHOAL_OK, "ABC");
  assert_told(&b, SHOAL_OK, "ABC");
}

static void all_are_told_of_all(void **state) {
  struct waiter w;
  all_come(1, 2);
  coordination_gather(service, TASK(1), bytes("B"), NULL, waits(&w)); /* it did not hear the answer */
  assert_told(&w, SHOAL_OK, "ABC");
  ASSERT_OK(coordination_register(service, TASK(1), 1));
  ASSERT_OK(coordination_beat(service, TASK(1), 1));
  ASSERT_FAILS(coordination_beat(service, TASK(1), 9), SHOAL_ABORTED, "Incarnation ID mismatch");
  ASSERT_FAILS(coordination_register(service, "/job:ps/replica:0/task:0", 1), SHOAL_INVALID_ARGUMENT, "Unexpected");
  ASSERT_FAILS(coordination_register(service, TASK(0), 1), SHOAL_INVALID_ARGUMENT, "Unexpected");
  assert_reported("");
}

static void who_is_silent_has_failed(void **state) {
  struct waiter w;
  all_come(1, 2);
  coordination_look(service, clock_ns() + 9 * SECOND);
  assert_reported("");
  coordination_barrier(service, "b", 100000, TASK(1), NULL, 0, NULL, waits(&w));
  service->tasks.at[1].last_beat += 5 * SECOND; /* task 1 has beaten */
  coordination_look(service, clock_ns() + 11 * SECOND);
  assert_reported("0<-2:14 1<-2:14 ");
  assert_told(&w, SHOAL_INTERNAL, "Barrier failed from a task error");
  ASSERT_FAILS(coordination_beat(service, TASK(2), 2), SHOAL_UNAVAILABLE, "heartbeat timeout");
}

/* The others come again, too, and hear nothing of what was before. */
static void a_task_comes_again(void **state) {
  struct waiter a, b;
  all_come(1, 2);
  ASSERT_OK(coordination_register(service, TASK(2), 3));
  assert_reported("0<-2:10 1<-2:10 ");
  coordination_gather(service, TASK(2), bytes("c"), NULL, waits(&a));
  assert_waits(&a); /* for task 1, which has been told */
  ASSERT_OK(coordination_register(service, TASK(1), 4));
  assert_reported("");
  coordination_gather(service, TASK(1), bytes("b"), NULL, waits(&b));
  assert_told(&a, SHOAL_OK, "Abc");
  assert_told(&b, SHOAL_OK, "Abc");
  assert_reported("");
}

static void a_task_leaves_or_says_that_it_failed(void **state) {
  struct text state_text = {0};
  all_come(1, 2);
  ASSERT_OK(coordination_fail(service, TASK(2), coordination_error_read(SHOAL_DATA_LOSS, "lost it")));
  assert_reported("0<-2:15! 1<-2:15! ");
  ASSERT_FAILS(coordination_fail(service, TASK(2), coordination_error_read(1, "")), SHOAL_FAILED_PRECONDITION, "");
  ASSERT_OK(coordination_state(service, TASK(2), &state_text));
  assert_non_null(memmem(state_text.at, state_text.n, "lost it", 7));
  text_release(&state_text);
  ASSERT_FAILS(coordination_state(service, TASK(9), &state_text), SHOAL_INVALID_ARGUMENT, "task:9");
  ASSERT_OK(coordination_disconnect(service, TASK(2)));
  ASSERT_FAILS(coordination_disconnect(service, TASK(2)), SHOAL_FAILED_PRECONDITION, "already");
  ASSERT_OK(coordination_disconnect(service, TASK(1)));
  coordination_look(service, clock_ns() + 20 * SECOND);
  assert_reported("");
  ASSERT_OK(coordination_beat(service, TASK(1), 1)); /* one that was on its way */
}

/* One that was here before all were may come again; who waits for it is told when it does not, once. */
static void who_does_not_come_again_is_told_of(void **state) {
  struct waiter w;
  ASSERT_OK(coordination_register(service, TASK(1), 1));
  coordination_gather(service, TASK(1), bytes("B"), NULL, waits(&w));
  ASSERT_OK(coordination_register(service, TASK(2), 2));
  service->tasks.at[1].last_beat += 1000 * SECOND;
  int64_t now = clock_ns();
  coordination_look(service, now + 11 * SECOND);
  ASSERT_FAILS(coordination_beat(service, TASK(2), 2), SHOAL_UNAVAILABLE, "heartbeat timeout");
  assert_waits(&w);
  ASSERT_OK(coordination_register(service, TASK(2), 2));
  service->tasks.at[2].last_beat = service->tasks.at[1].last_beat;
  coordination_look(service, now + 100 * SECOND);
  assert_waits(&w);
  assert_reported("");
  ASSERT_OK(coordination_disconnect(service, TASK(2)));
  coordination_look(service, now + 100 * SECOND);
  assert_told(&w, SHOAL_UNAVAILABLE, TASK(2) " was here, has gone and has not come again in 60 s: It has left.");
  assert_reported("0<-2:14 ");
  coordination_look(service, now + 300 * SECOND);
  assert_reported("");
}

/* Who was told in vain hears it with its next beat. */
static void who_did_not_hear_is_told_again(void **state) {
  struct waiter w;
  all_come(1, 2);
  coordination_unheard(service, TASK(1), STATUS(SHOAL_INTERNAL, "of before")); /* it knows of all: nothing is wrong */
  ASSERT_OK(coordination_beat(service, TASK(1), 1));
  ASSERT_OK(coordination_fail(service, TASK(2), coordination_error_read(SHOAL_DATA_LOSS, "lost it")));
  assert_reported("0<-2:15! 1<-2:15! ");
  coordination_unheard(service, TASK(1), STATUS(SHOAL_DATA_LOSS, "lost it"));
  coordination_unheard(service, TASK(1), STATUS(SHOAL_DATA_LOSS, "lost it"));
  ASSERT_FAILS(coordination_beat(service, TASK(1), 1), SHOAL_DATA_LOSS, "lost it");
  ASSERT_OK(coordination_beat(service, TASK(1), 1));
  coordination_gather(service, TASK(1), bytes("B"), NULL, waits(&w));
  coordination_unheard(service, TASK(1), STATUS(SHOAL_DATA_LOSS, "late"));
  ASSERT_OK(coordination_beat(service, TASK(1), 1));
  assert_true(coordination_give_up(service, &w.wait));
}

/* Time in which the service itself did not run makes nobody late. */
static void who_stood_still_blames_nobody(void **state) {
  all_come(1, 2);
  coordination_stood_still(service, 30 * SECOND);
  coordination_look(service, clock_ns() + 30 * SECOND);
  assert_reported("");
  coordination_look(service, clock_ns() + 41 * SECOND);
  assert_reported("0<-1:14 2<-1:14 ");
}

static void nobody_waits_for_ever(void **state) {
  struct waiter w;
  ASSERT_OK(coordination_register(service, TASK(1), 1));
  coordination_gather(service, TASK(1), bytes("B"), NULL, waits(&w));
  service->tasks.at[1].last_beat += 4000 * SECOND;
  coordination_look(service, clock_ns() + 3601 * SECOND);
  assert_told(&w, SHOAL_DEADLINE_EXCEEDED, TASK(2));
  coordination_gather(service, TASK(1), bytes("B"), NULL, waits(&w));
  assert_true(coordination_give_up(service, &w.wait));
  assert_waits(&w);
  assert_false(coordination_give_up(service, &w.wait));
  coordination_gather(service, TASK(1), bytes("B"), NULL, &w.wait); /* gone before it waits */
  assert_told(&w, SHOAL_CANCELLED, "gone");
}

static void values_are_found(void **state) {
  struct waiter w, other;
  struct coordination_value *v;
  coordination_list found = {0};
  coordination_get(service, "a//b/", waits(&w));
  coordination_get(service, "a/b", waits(&other));
  assert_true(coordination_give_up(service, &other.wait));
  ASSERT_FAILS(coordination_try_get(service, "a/b", &v), SHOAL_NOT_FOUND, "a/b");
  ASSERT_OK(coordination_insert(service, "/a/b", "one", 3, NULL));
  assert_told(&w, SHOAL_OK, "one");
  assert_waits(&other);
  coordination_get(service, "a/b", waits(&w));
  assert_told(&w, SHOAL_OK, "one");
  ASSERT_FAILS(coordination_insert(service, "a/b", "two", 3, NULL), SHOAL_ALREADY_EXISTS, "a/b");
  ASSERT_OK(coordination_insert(service, "a/b/d", "2", 1, NULL));
  ASSERT_OK(coordination_insert(service, "a/b/c", "3", 1, NULL));
  ASSERT_OK(coordination_insert(service, "a/bc", "4", 1, NULL));
  coordination_directory(service, "/a/b/", &found);
  assert_int_equal(found.n, 2);
  assert_string_equal(found.at[0]->key, "a/b/c");
  assert_string_equal(found.at[1]->key, "a/b/d");
  for (size_t i = 0; i < found.n; i++) coordination_value_unref(found.at[i]);
  vec_release(&found);
  coordination_delete(service, "a/b");
  ASSERT_FAILS(coordination_try_get(service, "a/b", &v), SHOAL_NOT_FOUND, "");
  ASSERT_FAILS(coordination_try_get(service, "a/b/c", &v), SHOAL_NOT_FOUND, "");
  ASSERT_OK(coordination_try_get(service, "a/bc", &v));
  coordination_value_unref(v);
  coordination_get(service, "never", waits(&w));
  coordination_stop(service);
  assert_told(&w, SHOAL_CANCELLED, "shutting down");
  ASSERT_FAILS(coordination_insert(service, "late", "", 0, NULL), SHOAL_CANCELLED, "shutting down");
}

static void barriers_pass_once(void **state) {
  struct waiter a, b, c;
  char *two[] = {(char *)TASK(1), (char *)TASK(2)}, *odd[] = {(char *)TASK(1), (char *)TASK(7)};
  all_come(1, 2);
  coordination_barrier(service, "x", 1000, TASK(1), two, 2, NULL, waits(&a));
  coordination_barrier(service, "x", 1000, TASK(1), two, 2, NULL, waits(&b)); /* the same once more */
  assert_waits(&a);
  coordination_barrier(service, "x", 1000, TASK(2), two, 2, NULL, waits(&c));
  assert_told(&a, SHOAL_OK, "");
  assert_told(&b, SHOAL_OK, "");
  assert_told(&c, SHOAL_OK, "");
  coordination_barrier(service, "x", 1000, TASK(2), two, 2, NULL, waits(&c));
  assert_told(&c, SHOAL_OK, "");
  ASSERT_FAILS(coordination_cancel_barrier(service, "x", TASK(1)), SHOAL_FAILED_PRECONDITION, "already been passed");

  coordination_barrier(service, "late", 1000, TASK(1), NULL, 0, NULL, waits(&a));
  coordination_look(service, clock_ns() + 2 * SECOND);
  assert_told(&a, SHOAL_DEADLINE_EXCEEDED, TASK(2));
  coordination_barrier(service, "off", 1000, TASK(1), NULL, 0, NULL, waits(&a));
  ASSERT_OK(coordination_cancel_barrier(service, "off", TASK(2)));
  assert_told(&a, SHOAL_CANCELLED, "cancelled by task: " TASK(2));
  coordination_barrier(service, "odd", 1000, TASK(1), odd, 2, NULL, waits(&a));
  assert_told(&a, SHOAL_INVALID_ARGUMENT, "task:7");
  coordination_barrier(service, "two", 1000, TASK(1), two, 2, NULL, waits(&a));
  coordination_barrier(service, "two", 1000, TASK(2), NULL, 0, NULL, waits(&b));
  assert_told(&a, SHOAL_INVALID_ARGUMENT, "Conflicting");
  assert_told(&b, SHOAL_INVALID_ARGUMENT, "Conflicting");
  coordination_barrier(service, "not mine", 1000, TASK(0), two, 2, NULL, waits(&a));
  assert_told(&a, SHOAL_INVALID_ARGUMENT, "non-participating");
  coordination_barrier(service, "end", 1000, TASK(0), NULL, 0, NULL, waits(&a));
  coordination_stop(service);
  assert_told(&a, SHOAL_ABORTED, "shutting down");
}

/* Nobody can say in its name that the leader's task has failed, has left, or has other devices: it could not come
 * again. */
static void the_leader_stays(void **state) {
  struct waiter w;
  ASSERT_FAILS(coordination_disconnect(service, TASK(0)), SHOAL_INVALID_ARGUMENT, "Unexpected");
  ASSERT_FAILS(coordination_fail(service, TASK(0), INTERNAL("boo")), SHOAL_INVALID_ARGUMENT, "Unexpected");
  ASSERT_FAILS(coordination_fail_self(service, INTERNAL("too early")), SHOAL_FAILED_PRECONDITION, "Not all tasks");
  coordination_gather(service, TASK(0), bytes("X"), NULL, waits(&w));
  assert_told(&w, SHOAL_INVALID_ARGUMENT, "must be registered");
  all_come(1, 2);
}

/* It says so itself: the others hear of it and barriers end, and it goes on when all have come again. */
static void the_leader_fails(void **state) {
  struct waiter at_barrier, a, b;
  all_come(1, 2);
  coordination_barrier(service, "b", 100000, TASK(1), NULL, 0, NULL, waits(&at_barrier));
  ASSERT_OK(coordination_fail_self(service, coordination_error_read(SHOAL_DATA_LOSS, "lost it")));
  assert_told(&at_barrier, SHOAL_INTERNAL, "Barrier failed from a task error");
  assert_reported("1<-0:15! 2<-0:15! ");
  ASSERT_FAILS(coordination_fail_self(service, INTERNAL("again")), SHOAL_FAILED_PRECONDITION, "Not all tasks");
  coordination_gather(service, TASK(1), bytes("B"), NULL, waits(&a));
  coordination_gather(service, TASK(2), bytes("C"), NULL, waits(&b));
  assert_told(&a, SHOAL_OK, "ABC");
  assert_told(&b, SHOAL_OK, "ABC");
}

/* Who comes to a barrier alone and goes leaves nothing there; who comes beside others stays counted. */
static void barriers_without_callers(void **state) {
  struct waiter a, b, c;
  char *two[] = {(char *)TASK(1), (char *)TASK(2)};
  all_come(1, 2);
  coordination_barrier(service, "x", 1000, TASK(1), two, 2, NULL, waits(&a));
  assert_true(coordination_give_up(service, &a.wait));
  assert_int_equal(service->barriers.n, 0);
  coordination_barrier(service, "x", 1000, TASK(1), two, 2, NULL, &a.wait); /* gone before it came */
  assert_told(&a, SHOAL_CANCELLED, "gone");
  assert_int_equal(service->barriers.n, 0);
  coordination_barrier(service, "x", 1000, TASK(1), two, 2, NULL, waits(&a));
  coordination_barrier(service, "x", 1000, TASK(1), two, 2, NULL, waits(&b));
  assert_true(coordination_give_up(service, &a.wait));
  coordination_barrier(service, "x", 1000, TASK(2), two, 2, NULL, waits(&c));
  assert_told(&b, SHOAL_OK, "");
  assert_told(&c, SHOAL_OK, "");
}

/* Many values, in any order of coming and going, are found by key and by directory as a plain list has them. */
static void many_values(void **state) {
  enum { DIRECTORIES = 7, EACH = 300, TURNS = 20000 };
  static bool has[DIRECTORIES][EACH];
  char key[32];
  uint64_t random = 1;
  for (int i = 0; i < TURNS; i++) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    int d = (int)(random >> 33) % DIRECTORIES, k = (int)(random >> 40) % EACH;
    bool goes = i % 3 == 2;
    snprintf(key, sizeof key, "d%d/%03d", d, k);
    if (goes) coordination_delete(service, key);
    else shoal_status_free(coordination_insert(service, key, key, strlen(key), NULL));
    has[d][k] = !goes;
  }
  for (int d = 0; d < DIRECTORIES; d++) {
    coordination_list found = {0};
    size_t n = 0;
    snprintf(key, sizeof key, "d%d", d);
    coordination_directory(service, key, &found);
    for (int k = 0; k < EACH; k++) {
      struct coordination_value *v = NULL;
      snprintf(key, sizeof key, "d%d/%03d", d, k);
      shoal_status s = coordination_try_get(service, key, &v);
      assert_int_equal(!s, has[d][k]);
      shoal_status_free(s);
      coordination_value_unref(v);
      if (!has[d][k]) continue;
      assert_true(n < found.n);
      assert_string_equal(found.at[n]->key, key);
      assert_memory_equal(found.at[n]->bytes, key, strlen(key));
      n++;
    }
    assert_int_equal(n, found.n);
    for (size_t i = 0; i < found.n; i++) coordination_value_unref(found.at[i]);
    vec_release(&found);
    snprintf(key, sizeof key, "d%d", d);
    coordination_delete(service, key);
  }
  assert_null(service->values);
}

static atomic_bool listed;

enum { VALUES = 400000, LISTINGS = 20 };

/* How long it takes, in ns. */
static int64_t list_all(void) {
  coordination_list found = {0};
  int64_t began = clock_ns();
  coordination_directory(service, "large", &found);
  int64_t took = clock_ns() - began;
  assert_int_equal(found.n, VALUES);
  for (size_t k = 1; k < found.n; k++) assert_true(strcmp(found.at[k - 1]->key, found.at[k]->key) < 0);
  for (size_t k = 0; k < found.n; k++) coordination_value_unref(found.at[k]);
  vec_release(&found);
  return took;
}

static void *list_often(void *arg) {
  for (int i = 0; i < LISTINGS; i++) list_all();
  atomic_store(&listed, true);
  return NULL;
}

/* A directory of hundreds of thousands is all there, in order, and who lists it does not keep beats waiting meanwhile.
 */
static void beats_go_on(void **state) {
  int late = 0;
  char key[32];
  pthread_t lister;
  for (int i = 0; i < VALUES; i++) {
    snprintf(key, sizeof key, "large/%d", i);
    ASSERT_OK(coordination_insert(service, key, NULL, 0, NULL));
  }
  ASSERT_OK(coordination_register(service, TASK(1), 5));
  int64_t too_long = list_all() / 2;
  atomic_store(&listed, false);
  assert_int_equal(pthread_create(&lister, NULL, list_often, NULL), 0);
  while (!atomic_load(&listed)) {
    int64_t began = clock_ns();
    ASSERT_OK(coordination_beat(service, TASK(1), 5));
    late += clock_ns() - began > too_long;
  }
  pthread_join(lister, NULL);
  assert_true(late < LISTINGS / 2);
}

/* Those that passed long ago are not remembered. */
static void barriers_are_forgotten(void **state) {
  struct waiter w;
  char *one[] = {(char *)TASK(0)}, name[32];
  for (int i = 0; i < 3 * MOST_PASSED; i++) {
    snprintf(name, sizeof name, "b%d", i);
    coordination_barrier(service, name, 1000, TASK(0), one, 1, NULL, waits(&w));
    assert_told(&w, SHOAL_OK, "");
  }
  assert_int_equal(service->n_passed, MOST_PASSED);
  assert_int_equal(service->barriers.n, MOST_PASSED);
}

static void what_is_held_is_counted(void **state) {
  struct limits *l = limits_new("me");
  limits_change(l, LIMIT_COORDINATION_BYTES, 10000);
  struct account *a = account_get(l, (struct rpc_origin){.connection = 5});
  static char big[8000];
  struct waiter w;
  ASSERT_OK(coordination_insert(service, "big", big, sizeof big, a));
  ASSERT_FAILS(coordination_insert(service, "more", big, sizeof big, a), SHOAL_RESOURCE_EXHAUSTED,
               "--max_coordination_bytes");
  ASSERT_FAILS(coordination_insert(service, "big", big, 10, a), SHOAL_ALREADY_EXISTS, "");
  coordination_delete(service, "big");
  assert_int_equal(limits_used(l, LIMIT_COORDINATION_BYTES), 0);
  static struct waiter many[1000];
  int made = 0;
  do {
    char name[32];
    snprintf(name, sizeof name, "%d", made);
    coordination_barrier(service, name, 1000, TASK(0), NULL, 0, a, waits(&many[made]));
  } while (!many[made].answers && ++made < 1000);
  assert_in_range(made, 10, 999);
  assert_told(&many[made], SHOAL_RESOURCE_EXHAUSTED, "--max_coordination_bytes");
  while (made) assert_true(coordination_give_up(service, &many[--made].wait));
  assert_int_equal(service->barriers.n, 0); /* nobody waits there any more */
  assert_int_equal(limits_used(l, LIMIT_COORDINATION_BYTES), 0);
  for (int leaves = 0; leaves < 2; leaves++) { /* what a task has told of its devices goes with it */
    ASSERT_OK(coordination_register(service, TASK(1), 1));
    coordination_gather(service, TASK(1), wire_from(big, sizeof big), a, waits(&w));
    assert_true(limits_used(l, LIMIT_COORDINATION_BYTES) > (int64_t)sizeof big);
    if (leaves) ASSERT_OK(coordination_disconnect(service, TASK(1)));
    else ASSERT_OK(coordination_fail(service, TASK(1), INTERNAL("it broke")));
    assert_int_equal(limits_used(l, LIMIT_COORDINATION_BYTES), 0);
    assert_true(coordination_give_up(service, &w.wait));
  }
  ASSERT_OK(coordination_insert(service, "last", big, 10, a));
  coordination_free(service);
  service = NULL;
  assert_int_equal(limits_used(l, LIMIT_COORDINATION_BYTES), 0);
  account_unref(a);
  limits_free(l);
}

/* The service knows only tasks that train. */
static void a_server_of_another_job(void **state) {
  char cluster[96];
  snprintf(cluster, sizeof cluster, "{\"ps\": [\"127.0.0.1:%d\"], \"worker\": [\"127.0.0.1:1\"]}", free_port());
  shoal_server *server = NULL;
  shoal_server_options o = {.size = sizeof o, .cluster = cluster, .job = "ps", .coordination_service = 1};
  ASSERT_FAILS(shoal_server_start(&o, &server), SHOAL_INVALID_ARGUMENT, "is for tasks of the jobs");
  assert_null(server);
}

/* Mistakes of programs: a server that has no part in it, what is NULL, times before now. */
static void programs_are_told(void **state) {
  char cluster[96];
  snprintf(cluster, sizeof cluster, "{\"worker\": [\"127.0.0.1:%d\"]}", free_port());
  shoal_server *server;
  shoal_server_options o = {.size = sizeof o, .cluster = cluster, .job = "worker"};
  shoal_bytes value;
  ASSERT_OK(shoal_server_start(&o, &server));
  ASSERT_FAILS(shoal_coordination_set(server, "a", "b", 1), SHOAL_FAILED_PRECONDITION, "has no part in coordination");
  ASSERT_FAILS(shoal_coordination_report_error(server, SHOAL_INTERNAL, "a"), SHOAL_FAILED_PRECONDITION, "no part");
  ASSERT_FAILS(shoal_coordination_report_error(server, SHOAL_OK, "a"), SHOAL_INVALID_ARGUMENT, "is not 0");
  ASSERT_FAILS(shoal_coordination_get(server, "a", -1, &value), SHOAL_INVALID_ARGUMENT, "timeout_ms is -1");
  ASSERT_FAILS(shoal_coordination_get(server, NULL, 1, &value), SHOAL_INVALID_ARGUMENT, "key is NULL");
  ASSERT_FAILS(shoal_coordination_get(server, "/", 1, &value), SHOAL_INVALID_ARGUMENT, "the key \"/\" is empty");
  ASSERT_FAILS(shoal_coordination_try_get(server, "", &value), SHOAL_INVALID_ARGUMENT, "the key \"\" is empty");
  ASSERT_FAILS(shoal_coordination_set(server, "", "b", 1), SHOAL_INVALID_ARGUMENT, "the key \"\" is empty");
  ASSERT_FAILS(shoal_coordination_set(server, "///", "b", 1), SHOAL_INVALID_ARGUMENT, "the key \"///\" is empty");
  ASSERT_FAILS(shoal_coordination_barrier(server, "b", 1, NULL, 2), SHOAL_INVALID_ARGUMENT, "tasks is NULL");
  assert_null(shoal_coordination_error(server));
  shoal_server_stop(server);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
RUN_TESTS(TEST(programs_are_told), TEST(a_server_of_another_job), TEST(all_are_told_of_all),
          TEST(who_is_silent_has_failed), TEST(a_task_comes_again), TEST(a_task_leaves_or_says_that_it_failed),
          TEST(who_does_not_come_again_is_told_of), TEST(who_did_not_hear_is_told_again),
          TEST(who_stood_still_blames_nobody), TEST(nobody_waits_for_ever), TEST(values_are_found),
          TEST(barriers_pass_once), TEST(barriers_are_forgotten), TEST(what_is_held_is_counted), TEST(the_leader_stays),
          TEST(the_leader_fails), TEST(barriers_without_callers), TEST(many_values), TEST(beats_go_on))
