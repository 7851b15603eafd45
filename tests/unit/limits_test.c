/* The two tables of limits, row by row: what the help says is the default is what is in force, what is held counts for
 * a connection, for its address and for the server, each refusal names the flag that would allow more, and all of it is
 * given back. */
#include "unit.h"

#include "base/machine.h"
#include "cluster/limits.h"
#include "rpc/limits.h"

/* The default that a flag's help ends with. */
static int64_t said(const char *help) {
  const char *at = strstr(help, "(default");
  assert_non_null(at);
  if (strstr(at, "half the memory")) return (int64_t)(machine_memory() / 2);
  if (strstr(at, "a third of the memory")) return (int64_t)(machine_memory() / 3);
  char *unit;
  int64_t n = strtoll(at + strlen("(default"), &unit, 10);
  return strcmp(unit, " MiB)") == 0 ? n << 20 : n;
}

/* Do sessions hold it? Only then is there a reason to close some. */
static bool holds(enum limit which) { return which != LIMIT_COORDINATION_BYTES; }

static struct rpc_origin connection(uint64_t number) { return (struct rpc_origin){.connection = number}; }

static void defaults_are_those_of_the_help(void **state) {
  for (int i = 0; i < RPC_LIMITS; i++) assert_int_equal(rpc_limit((enum rpc_limit)i), said(rpc_limit_rows[i].meaning));
  struct limits *l = limits_new("/job:a/task:0");
  struct account *one = account_get(l, connection(1));
  for (int i = 0; i < LIMITS; i++) {
    assert_int_equal(limits_most(l, (enum limit)i), said(limit_rows[i].help));
    assert_int_equal(account_room(one, (enum limit)i), said(limit_rows[i].connection_help));
  }
  account_unref(one);
  limits_free(l);
}

static void each_is_counted_twice(void **state) {
  enum { ALL = 100, ONE = 60 };
  for (int i = 0; i < LIMITS; i++) limit_set((enum limit)i, ALL, ONE);
  struct limits *l = limits_new("/job:a/task:0");
  struct account *nobody = account_get(l, connection(0)), *one = account_get(l, connection(1)),
                 *two = account_get(l, connection(2));
  for (int i = 0; i < LIMITS; i++) {
    enum limit which = (enum limit)i;
    char own[64], all[64];
    snprintf(own, sizeof own, "as many as --%s allows", limit_rows[i].connection_name);
    snprintf(all, sizeof all, "as many as --%s allows", limit_rows[i].name);
    ASSERT_OK(account_take(one, which, ONE));
    ASSERT_FAILS(account_take(one, which, 1), SHOAL_RESOURCE_EXHAUSTED, own);
    ASSERT_FAILS(account_take(two, which, ALL - ONE + 1), SHOAL_RESOURCE_EXHAUSTED, all);
    assert_int_equal(account_room(two, which), ALL - ONE);
    ASSERT_OK(account_take(nobody, which, ALL - ONE)); /* a server of its own has no share of a connection's */
    ASSERT_FAILS(account_take(two, which, 1), SHOAL_RESOURCE_EXHAUSTED, all);
    assert_int_equal(limits_are_near(l), holds(which));
    account_give(one, which, ONE);
    account_give(nobody, which, ALL - ONE);
    assert_int_equal(limits_used(l, which), 0);
    assert_false(limits_are_near(l));
    limit_set(which, 0, 0);
  }
  struct account *again = account_get(l, connection(1)); /* found, not made anew with other bounds */
  assert_ptr_equal(again, one);
  account_unref(again);
  account_unref(nobody);
  account_unref(one);
  account_unref(two);
  limits_free(l);
}

/* Connections of one address have three quarters together, and who comes from elsewhere finds the rest. */
static void an_address_has_a_share(void **state) {
  enum { ALL = 100, ONE = 50, SHARE = 75 };
  for (int i = 0; i < LIMITS; i++) limit_set((enum limit)i, ALL, ONE);
  struct limits *l = limits_new("/job:a/task:0");
  struct account *one = account_get(l, (struct rpc_origin){1, 9}), *two = account_get(l, (struct rpc_origin){2, 9});
  struct account *other = account_get(l, (struct rpc_origin){3, 8});
  for (int i = 0; i < LIMITS; i++) {
    enum limit which = (enum limit)i;
    char share[96];
    snprintf(share, sizeof share, "75 %s of one address, three quarters of what --%s", limit_rows[i].what,
             limit_rows[i].name);
    ASSERT_OK(account_take(one, which, ONE));
    assert_false(limits_are_near(l));
    assert_int_equal(account_room(two, which), SHARE - ONE);
    ASSERT_OK(account_take(two, which, SHARE - ONE));
    assert_int_equal(limits_are_near(l), holds(which)); /* of its share, though not of all */
    ASSERT_FAILS(account_take(two, which, 1), SHOAL_RESOURCE_EXHAUSTED, share);
    ASSERT_OK(account_take(other, which, ALL - SHARE));
    account_give(other, which, ALL - SHARE);
    account_give(one, which, ONE);
    account_give(two, which, SHARE - ONE);
    assert_int_equal(limits_used(l, which), 0);
    limit_set(which, 0, 0);
  }
  account_unref(one);
  account_unref(other);
  ASSERT_OK(account_take(two, LIMIT_SESSIONS, 1)); /* its address stays as long as one of its connections does */
  account_give(two, LIMIT_SESSIONS, 1);
  account_unref(two);
  limits_free(l);
}

RUN_TESTS(cmocka_unit_test(defaults_are_those_of_the_help), cmocka_unit_test(each_is_counted_twice),
          cmocka_unit_test(an_address_has_a_share))
