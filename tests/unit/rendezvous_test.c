/* The local rendezvous: who gets which value, in what order, and what cancelling and aborting leave. */
#include "runtime/rendezvous.h"

#include "base/mem.h"
#include "unit.h"

struct got {
  int n;
  float values[16];
  shoal_code codes[16];
};

static void done(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct got *g = arg;
  g->codes[g->n] = shoal_status_code(s);
  g->values[g->n++] = s ? 0 : *(const float *)value->data;
  if (!s) tensor_release(value);
  shoal_status_free(s);
}

static void send(struct rendezvous *r, const char *key, float v) {
  struct tensor t;
  ASSERT_OK(tensor_new_dims(&t, SHOAL_FLOAT32, 0, NULL));
  *(float *)t.data = v;
  ASSERT_OK(rendezvous_send(r, key, rendezvous_hash(key), &t, false));
}

static void recv(struct rendezvous *r, const char *key, struct cancel *cancel, struct got *g) {
  rendezvous_recv(r, key, rendezvous_hash(key), cancel, done, g);
}

/* Values wait for receivers and receivers for values, each in the order in which they came, whatever else there is. */
static void in_order(void **state) {
  struct rendezvous *r = rendezvous_local_new();
  struct got a = {0}, b = {0};
  for (int i = 1; i <= 3; i++) send(r, "a", (float)i);
  for (int i = 0; i < 4; i++) recv(r, "a", NULL, &a);
  recv(r, "b", NULL, &b);
  assert_int_equal(a.n, 3);
  send(r, "a", 4);
  send(r, "b", 5);
  assert_true(rendezvous_local_is_empty(r));
  for (int i = 0; i < 4; i++) assert_true(a.codes[i] == SHOAL_OK && a.values[i] == (float)(i + 1));
  assert_true(b.n == 1 && b.values[0] == 5);
  rendezvous_unref(r);
}

/* More keys than any table begins with; each has two values, which stay in order when the table grows. */
static void many(void **state) {
  enum { KEYS = 5000 };
  struct rendezvous *r = rendezvous_local_new();
  char key[32];
  for (int v = 0; v < 2; v++)
    for (int i = 0; i < KEYS; i++) {
      snprintf(key, sizeof key, "key %d", i);
      send(r, key, (float)(2 * i + v));
    }
  for (int i = KEYS - 1; i >= 0; i--) {
    struct got g = {0};
    snprintf(key, sizeof key, "key %d", i);
    for (int v = 0; v < 2; v++) recv(r, key, NULL, &g);
    assert_true(g.n == 2 && g.values[0] == (float)(2 * i) && g.values[1] == (float)(2 * i + 1));
  }
  assert_true(rendezvous_local_is_empty(r));
  rendezvous_unref(r);
}

static bool count_key(void *arg, const char *key) {
  ++*(int *)arg;
  return true;
}

/* Who was cancelled is passed over; an abort ends those that wait, and those that come later. Values go with it. */
static void cancelled_and_aborted(void **state) {
  struct rendezvous *r = rendezvous_local_new();
  struct cancel c[3];
  struct got g[3] = {0}, late = {0};
  for (int i = 0; i < 3; i++) {
    cancel_init(&c[i]);
    recv(r, "a", &c[i], &g[i]);
  }
  cancel_start(&c[1], STATUS(SHOAL_CANCELLED, "not wanted"));
  assert_true(g[1].n == 1 && g[1].codes[0] == SHOAL_CANCELLED);
  send(r, "a", 1);
  send(r, "b", 2);
  assert_true(g[0].n == 1 && g[0].codes[0] == SHOAL_OK && g[2].n == 0);
  int waiting = 0;
  rendezvous_local_waiting(r, count_key, &waiting);
  assert_int_equal(waiting, 1);
  rendezvous_abort(r, STATUS(SHOAL_ABORTED, "over"));
  assert_true(g[2].n == 1 && g[2].codes[0] == SHOAL_ABORTED);
  recv(r, "b", NULL, &late);
  assert_true(late.n == 1 && late.codes[0] == SHOAL_ABORTED && rendezvous_local_is_empty(r));
  cancel_start(&c[2], STATUS(SHOAL_CANCELLED, "too late"));
  assert_int_equal(g[2].n, 1);
  for (int i = 0; i < 3; i++) cancel_release(&c[i]);
  rendezvous_unref(r);
}

RUN_TESTS(cmocka_unit_test(in_order), cmocka_unit_test(many), cmocka_unit_test(cancelled_and_aborted))
