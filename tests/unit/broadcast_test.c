/* Broadcasting plans: what is merged, and that any split of the walk visits the same elements. */
#include "unit.h"

#include "ops/math/broadcast.h"

#define SHAPE(...) ((struct shape){.rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = {__VA_ARGS__}})

static struct broadcast plan(struct shape a, struct shape b) {
  struct broadcast p;
  ASSERT_OK(broadcast_plan_shapes(&p, (struct shape[]){a, b}, 2));
  return p;
}

static void equal_shapes_are_one_run(void **state) {
  struct broadcast p = plan(SHAPE(2, 3, 4), SHAPE(2, 3, 4));
  assert_int_equal(p.rank, 1);
  assert_int_equal(p.dims[0], 24);
  assert_true(broadcast_inner(&p, 0) && broadcast_inner(&p, 1));
}

static void a_scalar_is_one_run(void **state) {
  struct broadcast p = plan(SHAPE(2, 3, 4), shape_scalar());
  assert_int_equal(p.rank, 1);
  assert_true(broadcast_inner(&p, 0) && !broadcast_inner(&p, 1));
}

static void rows_are_two_dimensions(void **state) {
  struct broadcast p = plan(SHAPE(2, 3, 4), SHAPE(4));
  assert_int_equal(p.rank, 2);
  assert_int_equal(p.dims[0], 6);
  assert_int_equal(p.step[1][0], 0);
  p = plan(SHAPE(2, 3, 4), SHAPE(2, 3, 1));
  assert_int_equal(p.rank, 2);
  assert_false(broadcast_inner(&p, 1));
}

static void clashes_are_named(void **state) {
  struct broadcast p;
  ASSERT_FAILS(broadcast_plan_shapes(&p, (struct shape[]){SHAPE(2, 3), SHAPE(4)}, 2), SHOAL_INVALID_ARGUMENT,
               "Incompatible shapes: [2,3] vs. [4]");
}

struct seen {
  const struct broadcast *p;
  int64_t *a, *b;
  int64_t next;
};

static void note(void *arg, int64_t at, const int64_t *in_at, int64_t n) {
  struct seen *s = arg;
  assert_int_equal(at, s->next);
  for (int64_t i = 0; i < n; i++) {
    s->a[at + i] = in_at[0] + (broadcast_inner(s->p, 0) ? i : 0);
    s->b[at + i] = in_at[1] + (broadcast_inner(s->p, 1) ? i : 0);
  }
  s->next = at + n;
}

static void any_split_visits_the_same(void **state) {
  struct broadcast p = plan(SHAPE(2, 1, 3, 1, 5), SHAPE(4, 1, 2, 5));
  int64_t n = p.n, a[240], b[240], a2[240], b2[240];
  assert_int_equal(n, 240);
  struct seen whole = {&p, a, b, 0};
  broadcast_each(&p, 0, n, note, &whole);
  for (int64_t cut = 1; cut < n; cut++) {
    struct seen parts = {&p, a2, b2, 0};
    broadcast_each(&p, 0, cut, note, &parts);
    broadcast_each(&p, cut, n, note, &parts);
    assert_memory_equal(a, a2, sizeof a);
    assert_memory_equal(b, b2, sizeof b);
  }
  /* By hand: output [1][2][1][0][3] of [2,4,3,2,5]. */
  int64_t at = (((1 * 4 + 2) * 3 + 1) * 2 + 0) * 5 + 3;
  assert_int_equal(a[at], (1 * 3 + 1) * 5 + 3);
  assert_int_equal(b[at], (2 * 2 + 0) * 5 + 3);
}

static void empty_outputs_have_no_runs(void **state) {
  struct broadcast p = plan(SHAPE(0, 3), SHAPE(3));
  assert_int_equal(p.n, 0);
  struct seen s = {&p, NULL, NULL, 0};
  broadcast_each(&p, 0, p.n, note, &s);
  assert_int_equal(s.next, 0);
}

RUN_TESTS(cmocka_unit_test(equal_shapes_are_one_run), cmocka_unit_test(a_scalar_is_one_run),
          cmocka_unit_test(rows_are_two_dimensions), cmocka_unit_test(clashes_are_named),
          cmocka_unit_test(any_split_visits_the_same), cmocka_unit_test(empty_outputs_have_no_runs))
