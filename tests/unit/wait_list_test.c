/* Who waits for a resource's state (ops/state/wait_list.h): tried in order of arrival, told once, by a change or by the
 * end of its step; where order is promised nobody gets ahead, and who gives up is in nobody's way. */
#include "unit.h"

#include "ops/state/wait_list.h"

struct store {
  struct resource head;
  struct wait_list waits;
  int has; /* its lock */
};

static void free_store(struct resource *r) { wait_list_release(&((struct store *)r)->waits); }

static const struct resource_type store_type = {"store", "store", free_store};

/* A step with one kernel that waits until there are so many, and takes them. */
struct taker {
  struct kernel_ctx ctx; /* first */
  struct cancel cancel;
  struct step step;
  int wants, told;
  shoal_status said;
};

static const struct op take_op = {.name = "Take"};
static const struct kernel take_kernel = {.op = &take_op};

static void told(struct kernel_ctx *ctx, shoal_status s) {
  struct taker *t = (struct taker *)ctx;
  t->told++;
  t->said = s;
}

static bool try_take(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct store *store = (struct store *)r;
  int wants = ((struct taker *)ctx)->wants;
  if (store->has < wants) return false;
  store->has -= wants;
  *s = NULL;
  return true;
}

static void taker_start(struct taker *t, struct store *s, int wants) {
  *t = (struct taker){.ctx = {.kernel = &take_kernel, .done = told}, .wants = wants};
  cancel_init(&t->cancel);
  t->step.cancel = &t->cancel;
  t->ctx.step = &t->step;
  wait_start(&s->waits, &s->head, &t->ctx, try_take);
}

static void put(struct store *s, int n) {
  pthread_mutex_lock(&s->waits.lock);
  s->has += n;
  wait_changed_and_unlock(&s->waits);
}

static void store_init(struct store *s, bool in_order) {
  resource_init(&s->head, &store_type);
  s->has = 0;
  wait_list_init(&s->waits);
  s->waits.in_order = in_order;
}

static void end(struct taker *t, const char *error) {
  assert_int_equal(t->told, 1);
  if (error) ASSERT_FAILS(t->said, SHOAL_CANCELLED, error);
  else assert_null(t->said);
  cancel_release(&t->cancel);
}

static void any_order(void **state) {
  struct store s;
  struct taker many, one, late;
  store_init(&s, false);
  taker_start(&many, &s, 3);
  taker_start(&one, &s, 1);
  put(&s, 1);
  assert_int_equal(many.told, 0);
  end(&one, NULL); /* there was enough for it */
  put(&s, 3);
  end(&many, NULL);
  taker_start(&late, &s, 1);
  cancel_start(&late.cancel, NULL);
  end(&late, "Take operation was cancelled");
  resource_unref(&s.head);
}

static void in_order(void **state) {
  struct store s;
  struct taker many, one, next;
  store_init(&s, true);
  s.waits.what = "Taking";
  taker_start(&many, &s, 3);
  taker_start(&one, &s, 1);
  put(&s, 2);
  assert_int_equal(many.told + one.told, 0); /* one would have enough, and came later */
  cancel_start(&many.cancel, NULL);
  end(&many, "Taking operation was cancelled");
  end(&one, NULL); /* nobody is before it any more */
  assert_int_equal(s.has, 1);
  taker_start(&next, &s, 1);
  end(&next, NULL);
  resource_unref(&s.head);
}

static void of_a_step_that_was_cancelled(void **state) {
  struct store s;
  struct taker t = {0};
  store_init(&s, true);
  s.has = 1;
  t = (struct taker){.ctx = {.kernel = &take_kernel, .done = told}, .wants = 1};
  cancel_init(&t.cancel);
  t.step.cancel = &t.cancel;
  t.ctx.step = &t.step;
  cancel_start(&t.cancel, NULL);
  wait_start(&s.waits, &s.head, &t.ctx, try_take);
  end(&t, "cancelled");
  assert_int_equal(s.has, 1);
  resource_unref(&s.head);
}

RUN_TESTS(cmocka_unit_test(any_order), cmocka_unit_test(in_order), cmocka_unit_test(of_a_step_that_was_cancelled))
