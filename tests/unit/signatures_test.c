/* The table of compiled steps: one is made while others wait for it, the one that was not used for the longest time
 * goes, and what nobody waits for is found by nobody. */
#include "unit.h"

#include <stdlib.h>

#include "base/block.h"
#include "base/mem.h"
#include "runtime/signatures.h"

enum { MOST = 3 };

struct made {
  struct signature head;
  int number;
};

static int forgotten[100], n_forgotten;

static void unref(struct signature *s) {
  if (ref_drop(&s->refs)) free(s);
}

static void forget(void *owner, struct signature *s) {
  forgotten[n_forgotten++] = ((struct made *)s)->number;
  unref(s);
}

static struct signature *make(int number) {
  struct made *m = mem_zalloc(1, sizeof *m);
  ref_init(&m->head.refs, 1);
  m->number = number;
  return &m->head;
}

struct asked {
  struct signature_asker head;
  int told;
  shoal_status err;
  struct signature *s;
};

static void tell(struct signature_asker *a, shoal_status err, struct signature *s) {
  struct asked *k = (struct asked *)a;
  k->told++;
  k->err = err;
  k->s = s;
}

/* Makes it when it is absent, and lets go of it. */
static bool use(struct signatures *t, const char *key, int number) {
  struct signature *s = NULL;
  struct asked a = {.head.tell = tell};
  struct signature_work w;
  enum signature_state state = signatures_find(t, key, &w, &a.head, &s);
  if (state == SIGNATURE_ABSENT) {
    signatures_end(t, &w, make(number), NULL);
    assert_int_equal(a.told, 1);
    assert_null(a.err);
    s = a.s;
  }
  unref(s);
  return state == SIGNATURE_ABSENT;
}

static void setup(struct signatures *t) {
  n_forgotten = 0;
  signatures_init(t, MOST, forget, NULL);
}

static void least_recently_used_goes(void **state) {
  struct signatures t;
  setup(&t);
  assert_true(use(&t, "a", 1));
  assert_true(use(&t, "b", 2));
  assert_true(use(&t, "c", 3));
  assert_false(use(&t, "a", 0));
  assert_true(use(&t, "d", 4));
  assert_int_equal(n_forgotten, 1);
  assert_int_equal(forgotten[0], 2);
  assert_int_equal(signatures_count(&t), MOST);
  assert_true(signatures_make_room(&t));
  assert_int_equal(forgotten[1], 3);
  signatures_release(&t, unref);
}

static void what_is_used_stays(void **state) {
  struct signatures t;
  setup(&t);
  struct signature *held = NULL;
  use(&t, "a", 1);
  assert_int_equal(signatures_find(&t, "a", NULL, NULL, &held), SIGNATURE_KEPT);
  for (int i = 0; i < 10; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    assert_true(use(&t, key, 10 + i));
  }
  for (int i = 0; i < n_forgotten; i++) assert_int_not_equal(forgotten[i], 1);
  assert_false(use(&t, "a", 0));
  while (signatures_make_room(&t)) continue;
  assert_int_equal(signatures_count(&t), 1);
  unref(held);
  signatures_release(&t, unref);
}

static void others_get_the_outcome(void **state) {
  struct signatures t;
  setup(&t);
  struct signature *s = NULL;
  struct signature_work w, other;
  struct asked a = {.head.tell = tell}, b = a, c = a;
  assert_int_equal(signatures_find(&t, "x", NULL, NULL, &s), SIGNATURE_ABSENT);
  assert_int_equal(signatures_find(&t, "x", &w, &a.head, &s), SIGNATURE_ABSENT);
  assert_int_equal(signatures_find(&t, "x", &other, &b.head, &s), SIGNATURE_AWAITED);
  assert_int_equal(signatures_find(&t, "x", NULL, &c.head, &s), SIGNATURE_AWAITED);
  signatures_end(&t, &w, NULL, INVALID("no such thing"));
  struct asked *all[] = {&a, &b, &c};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(all[i]->told, 1);
    assert_string_equal(shoal_status_message(all[i]->err), "no such thing");
    shoal_status_free(all[i]->err);
  }
  assert_true(use(&t, "x", 1)); /* an error is not kept */
  signatures_release(&t, unref);
}

static void deserted_is_not_found(void **state) {
  struct signatures t;
  setup(&t);
  atomic_bool gone = false;
  struct signature *s = NULL;
  struct signature_work w, again;
  struct asked a = {.head = {.tell = tell, .gone = &gone}}, b = {.head.tell = tell};
  assert_int_equal(signatures_find(&t, "x", &w, &a.head, &s), SIGNATURE_ABSENT);
  assert_false(signatures_deserted(&t, &w, false));
  gone = true;
  assert_true(signatures_deserted(&t, &w, false));
  assert_int_equal(signatures_find(&t, "x", &again, &b.head, &s), SIGNATURE_ABSENT);
  assert_false(signatures_deserted(&t, &again, false));
  signatures_end(&t, &again, make(2), NULL);
  signatures_end(&t, &w, make(1), NULL); /* too late to be broken off: nobody keeps it */
  assert_int_equal(a.told + b.told, 2);
  assert_int_equal(((struct made *)b.s)->number, 2);
  assert_int_equal(n_forgotten, 1);
  assert_int_equal(forgotten[0], 1);
  unref(a.s);
  unref(b.s);
  assert_false(use(&t, "x", 0));
  signatures_release(&t, unref);
}

/* Numbers are never given twice, and those of long ago leave nothing. */
static void callables_come_and_go(void **state) {
  enum { EVER = 100000, AT_A_TIME = 100 };
  struct signatures t;
  setup(&t);
  for (int i = 0; i < EVER; i++) {
    assert_int_equal(signatures_hold(&t, make(i), &i, sizeof i), i);
    if (i < AT_A_TIME) continue;
    int old = i - AT_A_TIME;
    struct signature *s = signatures_let_go(&t, old);
    assert_int_equal(((struct made *)s)->number, old);
    unref(s);
    assert_null(signatures_held(&t, old, NULL));
    assert_null(signatures_let_go(&t, old));
  }
  int told = 0;
  struct signature *last = signatures_held(&t, EVER - 1, &told);
  assert_int_equal(((struct made *)last)->number, EVER - 1);
  assert_int_equal(told, EVER - 1); /* what was kept beside it */
  unref(last);
  assert_null(signatures_held(&t, EVER, NULL));
  assert_null(signatures_held(&t, -1, NULL));
  assert_true(t.callables.all.cap <= 8 * AT_A_TIME);
  signatures_release(&t, unref);
}

static void keys_differ(void **state) {
  static const char *ab[] = {"a;b"}, *a_b[] = {"a", "b"};
  struct step_signature all[] = {{ab, 1, NULL, 0, NULL, 0},    {a_b, 2, NULL, 0, NULL, 0},
                                 {a_b, 1, NULL, 0, NULL, 0},   {NULL, 0, a_b, 1, NULL, 0},
                                 {NULL, 0, NULL, 0, a_b, 1},   {a_b, 1, a_b + 1, 1, NULL, 0},
                                 {a_b, 1, NULL, 0, a_b + 1, 1}};
  enum { N = sizeof all / sizeof *all };
  char *keys[N + 1];
  for (int i = 0; i < N; i++) keys[i] = signature_key('a', &all[i]);
  keys[N] = signature_key('w', &all[0]);
  for (int i = 0; i <= N; i++)
    for (int k = 0; k < i; k++) assert_string_not_equal(keys[i], keys[k]);
  for (int i = 0; i <= N; i++) block_free(keys[i]);
}

RUN_TESTS(cmocka_unit_test(least_recently_used_goes), cmocka_unit_test(what_is_used_stays),
          cmocka_unit_test(others_get_the_outcome), cmocka_unit_test(deserted_is_not_found),
          cmocka_unit_test(callables_come_and_go), cmocka_unit_test(keys_differ))
