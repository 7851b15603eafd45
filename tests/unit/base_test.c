/* Statuses, texts, maps, vectors, alarms. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/suggest.h"
#include "base/alarm.h"
#include "base/clock.h"
#include "base/keyed_hash.h"
#include "base/latch.h"
#include "base/outcome.h"
#include "base/strmap.h"
#include "base/text.h"
#include "base/vec.h"

static shoal_status inner(void) { return INVALID("axis %d is out of range", 7); }
static shoal_status outer(void) {
  TRY(inner());
  return NULL;
}

static void status_keeps_code_message_and_places(void **state) {
  shoal_status s = outer();
  assert_int_equal(shoal_status_code(s), SHOAL_INVALID_ARGUMENT);
  assert_string_equal(shoal_status_message(s), "axis 7 is out of range");
  const char *places = shoal_status_places(s);
  assert_non_null(strstr(places, "inner"));
  assert_non_null(strstr(places, "outer"));
  assert_true(strstr(places, "inner") < strstr(places, "outer"));
  shoal_status_free(s);
  assert_int_equal(shoal_status_code(NULL), SHOAL_OK);
  assert_string_equal(shoal_status_message(NULL), "");
  shoal_status_free(NULL);
}

static void status_prefix_and_suffix(void **state) {
  shoal_status s = status_suffix(status_prefix(INVALID("bad"), "node %s: ", "a"), " [%d]", 3);
  assert_string_equal(shoal_status_message(s), "node a: bad [3]");
  shoal_status c = status_copy(s);
  shoal_status_free(s);
  assert_string_equal(shoal_status_message(c), "node a: bad [3]");
  shoal_status_free(c);
  assert_null(status_prefix(NULL, "x"));
}

static void status_merge_prefers_the_cause(void **state) {
  shoal_status kept = NULL;
  status_merge(&kept, NULL);
  assert_null(kept);
  status_merge(&kept, status_mark_derived(STATUS(SHOAL_CANCELLED, "a neighbour failed")));
  status_merge(&kept, INVALID("the cause"));
  status_merge(&kept, status_mark_derived(STATUS(SHOAL_ABORTED, "too")));
  assert_int_equal(shoal_status_code(kept), SHOAL_INVALID_ARGUMENT);
  assert_false(status_is_derived(kept));
  shoal_status_free(kept);
}

static void status_from_errno(void **state) {
  ASSERT_FAILS(ERRNO_STATUS(ENOENT, "%s", "/no/such"), SHOAL_NOT_FOUND, "/no/such");
  ASSERT_FAILS(ERRNO_STATUS(EACCES, "x"), SHOAL_PERMISSION_DENIED, "ermission");
}

static void text_grows(void **state) {
  struct text t = {0};
  assert_string_equal(text_cstr(&t), "");
  for (int i = 0; i < 1000; i++) text_addf(&t, "%d,", i);
  assert_int_equal(t.n, strlen(text_cstr(&t)));
  assert_true(str_starts(text_cstr(&t), "0,1,2,"));
  assert_true(str_ends(text_cstr(&t), "998,999,"));
  char *taken = text_take(&t);
  assert_null(t.at);
  free(taken);
  text_release(&t);
}

static void integers_from_text(void **state) {
  int64_t v;
  assert_true(str_to_int64("-9223372036854775808", &v) && v == INT64_MIN);
  assert_true(str_to_int64("42", &v) && v == 42);
  assert_false(str_to_int64("9223372036854775808", &v));
  assert_false(str_to_int64("", &v));
  assert_false(str_to_int64("12x", &v));
  assert_false(str_to_int64("x", &v));
}

static void strmap_against_a_plain_model(void **state) {
  /* 4,000 random puts and removes over 500 keys, mirrored in an array. */
  struct strmap m = {0};
  void *model[500] = {0};
  unsigned seed = 1;
  for (int step = 0; step < 4000; step++) {
    seed = seed * 1103515245 + 12345;
    int k = (int)(seed >> 16) % 500;
    char key[16];
    snprintf(key, sizeof key, "key%d", k);
    void *before;
    if (seed >> 8 & 1) {
      before = strmap_put(&m, key, &model[step % 500]);
      assert_ptr_equal(before, model[k]);
      model[k] = &model[step % 500];
    } else {
      before = strmap_remove(&m, key);
      assert_ptr_equal(before, model[k]);
      model[k] = NULL;
    }
  }
  size_t n = 0;
  for (int k = 0; k < 500; k++) {
    char key[16];
    snprintf(key, sizeof key, "key%d", k);
    assert_ptr_equal(strmap_get(&m, key), model[k]);
    assert_ptr_equal(strmap_getn(&m, key, strlen(key)), model[k]);
    n += model[k] != NULL;
  }
  assert_int_equal(m.n, n);
  const char *key;
  void *value;
  size_t seen = 0;
  for (size_t i = 0; strmap_next(&m, &i, &key, &value);) seen++;
  assert_int_equal(seen, n);
  strmap_release(&m);
}

static void strmap_keeps_the_order(void **state) {
  struct strmap m = {0};
  char key[16];
  for (int i = 0; i < 100; i++) {
    snprintf(key, sizeof key, "key%d", i);
    strmap_put(&m, key, &m);
  }
  for (int i = 1; i < 100; i += 2) {
    snprintf(key, sizeof key, "key%d", i);
    assert_ptr_equal(strmap_remove(&m, key), &m);
  }
  for (int i = 100; i < 300; i++) { /* the holes go */
    snprintf(key, sizeof key, "key%d", i);
    strmap_put(&m, key, &m);
  }
  const char *got;
  int next = 0;
  for (size_t i = 0; strmap_next(&m, &i, &got, NULL); next += next < 100 ? 2 : 1) {
    snprintf(key, sizeof key, "key%d", next);
    assert_string_equal(got, key);
  }
  assert_int_equal(next, 300);
  strmap_release(&m);
}

/* Where a name lies in a table nobody outside can know: each process has a key of its own. */
static void hashes_are_secret(void **state) {
  static const char variable[] = "SHOAL_TEST_PRINT_HASH";
  if (getenv(variable)) {
    printf("hash %016llx %016llx\n", (unsigned long long)hash_keyed("a name", 6, 0),
           (unsigned long long)hash_keyed_number(1));
    fflush(stdout);
    _exit(0);
  }
  char self[4096], command[5000], line[3][256] = {0};
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  assert_true(n > 0);
  self[n] = 0;
  snprintf(command, sizeof command, "%s=1 %s '%s' 2>&1", variable, unit_emulator(), self);
  for (int i = 0; i < 2; i++) {
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line[2], sizeof line[2], f))
      if (str_starts(line[2], "hash ")) memcpy(line[i], line[2], sizeof line[i]);
    pclose(f);
    assert_true(str_starts(line[i], "hash "));
  }
  assert_string_not_equal(line[0], line[1]);
  assert_memory_not_equal(line[0] + 22, line[1] + 22, 16);
  assert_true(hash_keyed("ab", 2, 0) != hash_keyed("ab", 2, 1) && hash_keyed("ab", 2, 0) != hash_keyed("ab", 1, 0));
}

static void vectors_grow(void **state) {
  VEC(int) v = {0};
  for (int i = 0; i < 1000; i++) vec_push(&v, i);
  assert_int_equal(v.n, 1000);
  assert_int_equal(vec_pop(&v), 999);
  assert_int_equal(vec_last(&v), 998);
  vec_release(&v);
  assert_null(v.at);
}

struct ring {
  struct alarm alarm;
  int64_t due;
  atomic_int *order;
  int place; /* in the order of calls; 0 before */
  pthread_mutex_t *lock;
  pthread_cond_t *rang;
};

static void on_ring(void *arg) {
  struct ring *r = arg;
  alarm_clear(&r->alarm); /* from the call itself: does not wait */
  pthread_mutex_lock(r->lock);
  assert_true(clock_ns() >= r->due);
  r->place = atomic_fetch_add(r->order, 1) + 1;
  pthread_cond_signal(r->rang);
  pthread_mutex_unlock(r->lock);
}

static sem_t caught, released;

static void catch_clockwork(void *arg) {
  sem_post(&caught);
  while (sem_wait(&released)) continue;
}

/* Their thread is held while they are set, so that none rings before all are there, however slow this thread is. */
static void hold_clockwork(struct alarm *gate) {
  sem_init(&caught, 0, 0);
  sem_init(&released, 0, 0);
  alarm_set(gate, clock_ns(), catch_clockwork, NULL);
  while (sem_wait(&caught)) continue;
}

static void alarms_ring_in_order(void **state) {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t rang = PTHREAD_COND_INITIALIZER;
  atomic_int order = 0;
  enum { N = 8 };
  static const int rank[N] = {5, 1, 4, 8, 2, 7, 3, 6}; /* when each is due */
  struct ring rings[N];
  struct alarm never = {NULL};
  alarm_clear(&never); /* was never set */
  alarm_set(&never, clock_ns() + (int64_t)3600 * 1000000000, on_ring, NULL);
  struct alarm gate;
  hold_clockwork(&gate);
  int64_t now = clock_ns();
  for (int i = 0; i < N; i++) {
    rings[i] = (struct ring){.due = now + rank[i] * 5000000, .order = &order, .lock = &lock, .rang = &rang};
    alarm_set(&rings[i].alarm, rings[i].due, on_ring, &rings[i]);
  }
  alarm_clear(&rings[3].alarm); /* the last of them */
  sem_post(&released);
  pthread_mutex_lock(&lock);
  while (order < N - 1) pthread_cond_wait(&rang, &lock);
  for (int i = 0; i < N; i++) assert_int_equal(rings[i].place, i == 3 ? 0 : rank[i]);
  pthread_mutex_unlock(&lock);
  alarm_clear(&never);
  alarm_clear(&gate);
  for (int i = 0; i < N; i++) alarm_clear(&rings[i].alarm);
  sem_destroy(&caught);
  sem_destroy(&released);
}

static void ring_again(void *arg) {
  catch_clockwork(NULL);
  alarm_set(arg, clock_ns() + (int64_t)3600 * 1000000000, ring_again, arg);
}

static void *release_soon(void *arg) {
  usleep(20000);
  sem_post(&released);
  return NULL;
}

/* Cleared while its call runs, which sets it again: it does not ring again. */
static void an_alarm_that_sets_itself(void **state) {
  static struct alarm a;
  pthread_t other;
  sem_init(&caught, 0, 0);
  sem_init(&released, 0, 0);
  alarm_set(&a, clock_ns(), ring_again, &a);
  while (sem_wait(&caught)) continue;
  pthread_create(&other, NULL, release_soon, NULL);
  alarm_clear(&a);
  assert_false(a.linked);
  pthread_join(other, NULL);
  sem_destroy(&caught);
  sem_destroy(&released);
}

enum { CROWD = 300000 };
static struct alarm crowd[CROWD];
static int crowd_rang, crowd_last; /* the clockwork's until the last has rung */
static sem_t crowd_over;

static void on_crowd(void *arg) {
  int rank = CROWD - 1 - (int)((struct alarm *)arg - crowd); /* falling times: the last that was set is the first */
  crowd_last = rank > crowd_last ? rank : CROWD;             /* once out of order, it stays so */
  crowd_rang++;
  if (arg == &crowd[0]) sem_post(&crowd_over);
}

/* Each earlier than those before it, some of which go again: a list in order of time would be walked for an hour. */
static void a_crowd_of_alarms(void **state) {
  struct alarm gate;
  hold_clockwork(&gate);
  sem_init(&crowd_over, 0, 0);
  int64_t now = clock_ns();
  int cleared = 0;
  crowd_last = -1;
  for (int i = 0; i < CROWD; i++) alarm_set(&crowd[i], now - i, on_crowd, &crowd[i]);
  for (int i = 1; i < CROWD; i += 3) {
    alarm_clear(&crowd[i]);
    cleared++;
  }
  sem_post(&released);
  while (sem_wait(&crowd_over)) continue;
  assert_int_equal(crowd_rang, CROWD - cleared);
  assert_int_equal(crowd_last, CROWD - 1);
  alarm_clear(&gate);
  sem_destroy(&crowd_over);
  sem_destroy(&caught);
  sem_destroy(&released);
}

static void strangers_words(void **state) {
  static const struct {
    const char *in, *out, *json;
  } cases[] = {{"plain \"text\"", "plain \"text\"", "\"plain \\\"text\\\"\""},
               {"\033[2J\a\177", "\\x1b[2J\\x07\\x7f", "\"\\u001b[2J\\u0007\\u007f\""},
               {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\""},
               {"\xc2\x9b!", "\\xc2\\x9b!", "\"\\u00c2\\u009b!\""},              /* CSI in one character */
               {"\xe2\x80\xae", "\\xe2\\x80\\xae", "\"\\u00e2\\u0080\\u00ae\""}, /* right to left */
               {"\xff\xc3", "\\xff\\xc3", "\"\\u00ff\\u00c3\""},
               {"\xc0\x80\xed\xa0\x80", "\\xc0\\x80\\xed\\xa0\\x80",
                "\"\\u00c0\\u0080\\u00ed\\u00a0\\u0080\""}, /* too long, a surrogate */
               {"\xf0\x9f\x90\x9f", "\xf0\x9f\x90\x9f", "\"\xf0\x9f\x90\x9f\""}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct text t = {0};
    text_add_shown(&t, cases[i].in, strlen(cases[i].in), false);
    assert_string_equal(text_cstr(&t), cases[i].out);
    t.n = 0;
    text_add_json(&t, cases[i].in);
    assert_string_equal(text_cstr(&t), cases[i].json);
    text_release(&t);
  }
  struct text t = {0};
  text_add_shown(&t, "a\n\tb", 4, true);
  text_add_shown(&t, "a\n\tb\0c", 6, false);
  assert_string_equal(text_cstr(&t), "a\n\tba\\x0a\\x09b\\x00c");
  t.n = 0;
  text_add_utf8(&t, "a\n\x7f\xff\xc3\xa4\xe2\x80\xae\xed\xa0\x80\xc3", 13);
  assert_string_equal(text_cstr(&t), "a\n\x7f\\xff\xc3\xa4\xe2\x80\xae\\xed\\xa0\\x80\\xc3");
  text_release(&t);
}

static void near_misses(void **state) {
  static const struct {
    const char *name;
    int other;
  } rows[] = {{"workers", 1}, {"job_name", 2}, {"task_index", 3}, {"ps", 4}, {"worker_hosts", 5}};
  static const struct {
    const char *typed, *meant;
  } cases[] = {{"wrokers", "workers"},
               {"worker", "workers"},
               {"job-name", "job_name"},
               {"Job_Name", "job_name"},
               {"task_idx", "task_index"},
               {"task", "task_index"},
               {"xs", "ps"},
               {"foo", NULL},
               {"", NULL},
               {"worker_host=a", "worker_hosts"}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    const char *got =
        suggest_name(cases[i].typed, strcspn(cases[i].typed, "="), &rows->name, COUNT_OF(rows), sizeof *rows);
    if (!cases[i].meant) assert_null(got);
    else assert_string_equal(got ? got : "nothing", cases[i].meant);
  }
  char longer[1000];
  memset(longer, 'w', sizeof longer);
  assert_null(suggest_name(longer, sizeof longer, &rows->name, COUNT_OF(rows), sizeof *rows));
}

struct asked {
  struct outcome_asker asker;
  int told;
  shoal_code code;
};

static void tell_asked(struct outcome_asker *a, shoal_status s) {
  struct asked *k = (struct asked *)a;
  k->told++;
  k->code = shoal_status_code(s);
  shoal_status_free(s);
}

/* Whoever asks before the end is told at the end, whoever asks after it at once, each by a copy. */
static void an_end_for_all_who_ask(void **state) {
  for (int failed = 0; failed < 2; failed++) {
    struct outcome o;
    struct asked asked[3];
    shoal_code code = failed ? SHOAL_INVALID_ARGUMENT : SHOAL_OK;
    outcome_init(&o);
    for (int i = 0; i < 3; i++) asked[i] = (struct asked){.asker.tell = tell_asked, .code = SHOAL_UNKNOWN};
    for (int i = 0; i < 2; i++) outcome_await(&o, &asked[i].asker);
    assert_int_equal(asked[0].told + asked[1].told, 0);
    outcome_end(&o, failed ? INVALID("so") : NULL);
    outcome_await(&o, &asked[2].asker);
    for (int i = 0; i < 3; i++) {
      assert_int_equal(asked[i].told, 1);
      assert_int_equal(asked[i].code, code);
    }
    outcome_release(&o);
  }
}

static void *end_some(void *latch) {
  for (int i = 0; i < 100; i++) {
    if (i % 30 == 0) usleep(300); /* sometimes it sleeps already */
    latch_done(latch, i == 50 ? INVALID("so") : NULL);
  }
  return NULL;
}

/* The one who waits is told once all have ended, with the error, and the memory is its own at once. */
static void latches_wait_for_all(void **state) {
  enum { THREADS = 3 };
  for (int round = 0; round < 20; round++) {
    struct latch *l = malloc(sizeof *l);
    pthread_t t[THREADS];
    latch_init(l, THREADS * 100 + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, end_some, l);
    assert_false(latch_wait_until(l, clock_ns() + 100000));
    assert_false(latch_wait_until(l, 0)); /* long ago */
    latch_done(l, NULL);
    shoal_status s = latch_finish(l);
    memset(l, 0x55, sizeof *l);
    assert_int_equal(shoal_status_code(s), SHOAL_INVALID_ARGUMENT);
    shoal_status_free(s);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    for (size_t i = 0; i < sizeof *l; i++) assert_int_equal(((uint8_t *)l)[i], 0x55); /* nobody came late */
    free(l);
  }
}

static void *wait_long(void *latch) {
  assert_true(latch_wait_until(latch, deadline_after_ms(60000)));
  return NULL;
}

/* Several may wait, and those who come when all is over do not. */
static void latches_wake_all(void **state) {
  struct latch l;
  pthread_t t[3];
  latch_init(&l, 1);
  for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, wait_long, &l);
  usleep(2000);
  latch_done(&l, NULL);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  assert_true(latch_wait_until(&l, DEADLINE_NEVER));
  assert_true(latch_wait_until(&l, 0));
  assert_null(latch_release(&l));
}

RUN_TESTS(cmocka_unit_test(status_keeps_code_message_and_places), cmocka_unit_test(status_prefix_and_suffix),
          cmocka_unit_test(status_merge_prefers_the_cause), cmocka_unit_test(status_from_errno),
          cmocka_unit_test(text_grows), cmocka_unit_test(integers_from_text),
          cmocka_unit_test(strmap_against_a_plain_model), cmocka_unit_test(strmap_keeps_the_order),
          cmocka_unit_test(hashes_are_secret), cmocka_unit_test(vectors_grow), cmocka_unit_test(alarms_ring_in_order),
          cmocka_unit_test(an_alarm_that_sets_itself), cmocka_unit_test(a_crowd_of_alarms),
          cmocka_unit_test(near_misses), cmocka_unit_test(strangers_words), cmocka_unit_test(an_end_for_all_who_ask),
          cmocka_unit_test(latches_wait_for_all), cmocka_unit_test(latches_wake_all))
