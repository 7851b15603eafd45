/* Places for the values of a step, planned from a run of it (src/device/memory_plan.c). */
#include "unit.h"

#include <stdlib.h>

#include "device/memory_plan.h"

static const struct device *const here = (const struct device *)8; /* nobody looks into it */

enum { MOST = 64 };
struct held {
  struct memory_note note;
  size_t span;
};

static uint32_t next_random(uint32_t *x) {
  *x = *x * 1664525u + 1013904223u;
  return *x >> 8;
}

/* A run of takes and gives that follows from the seed: of each take the size, of each give which one. */
static void run(uint32_t seed, int events, void (*take)(struct held *h, size_t size, void *arg),
                void (*give)(struct held *h, void *arg), void *arg) {
  struct held held[MOST];
  int n = 0;
  for (int i = 0; i < events; i++) {
    uint32_t r = next_random(&seed);
    if (n < MOST && (!n || r % 2)) {
      take(&held[n++], 1 + next_random(&seed) % (r % 5 ? 5000 : 500000), arg);
    } else {
      int k = (int)(r / 2 % (uint32_t)n);
      give(&held[k], arg);
      held[k] = held[--n];
    }
  }
}

static void note_take(struct held *h, size_t size, void *arg) { h->note = memory_note_take(here, size); }
static void note_give(struct held *h, void *arg) { memory_note_give(h->note); }

static void plan_of(struct memory_plan *p, uint32_t seed, int events) {
  memory_plan_begin(p, here);
  run(seed, events, note_take, note_give, NULL);
  memory_plan_end();
}

/* No two that are somebody's at once overlap, and all take no less than what is in use at the most. */
static void places_do_not_overlap(void **state) {
  for (uint32_t seed = 1; seed < 30; seed++) {
    struct memory_plan p = {0};
    plan_of(&p, seed, 600);
    assert_true(p.total >= p.most && p.total < p.most + p.most / 2);
    for (size_t i = 0; i < p.spans.n; i++) {
      const struct memory_span *a = &p.spans.at[i];
      assert_true(a->at % MEMORY_PLAN_ALIGN == 0 && a->at + a->size <= p.total);
      for (size_t k = 0; k < i; k++) {
        const struct memory_span *b = &p.spans.at[k];
        bool at_once = a->from < b->to && b->from < a->to;
        assert_true(!at_once || a->at + a->size <= b->at || b->at + b->size <= a->at);
      }
    }
    memory_plan_release(&p);
  }
}

/* A chain of layers, each of which reads what the one before it made: two values at once, however long it is. */
static void a_chain_takes_two(void **state) {
  enum { LAYERS = 100, SIZE = 4096 };
  struct memory_plan p = {0};
  memory_plan_begin(&p, here);
  struct memory_note before = memory_note_take(here, SIZE);
  for (int i = 0; i < LAYERS; i++) {
    struct memory_note made = memory_note_take(here, SIZE);
    memory_note_give(before);
    before = made;
  }
  memory_note_give(before);
  memory_plan_end();
  assert_int_equal(p.most, 2 * SIZE);
  assert_int_equal(p.total, 2 * SIZE);
  memory_plan_release(&p);
}

struct served {
  struct memory_serving s;
  int placed, refused;
};

static void serve_take(struct held *h, size_t size, void *arg) {
  struct served *x = arg;
  bool placed = memory_serving_take(&x->s, size, &h->span);
  if (!placed) h->span = SIZE_MAX;
  *(placed ? &x->placed : &x->refused) += 1;
}
static void serve_give(struct held *h, void *arg) {
  struct served *x = arg;
  if (h->span != SIZE_MAX) memory_serving_give(&x->s, h->span);
}

/* The same run again: every piece has its place. Another one: some are refused, and none overlaps what is out. */
static void what_differs_is_refused(void **state) {
  struct memory_plan p = {0};
  plan_of(&p, 7, 600);
  for (uint32_t seed = 7; seed < 12; seed++) {
    struct served x = {0};
    memory_serving_init(&x.s, &p);
    run(seed, 600, serve_take, serve_give, &x);
    assert_int_equal(seed == 7, x.refused == 0);
    for (size_t i = 0; i < x.s.out.n; i++)
      for (size_t k = 0; k < i; k++) {
        const struct memory_span *a = &p.spans.at[x.s.out.at[i]], *b = &p.spans.at[x.s.out.at[k]];
        assert_true(a->at + a->size <= b->at || b->at + b->size <= a->at);
      }
    memory_serving_release(&x.s);
  }
  memory_plan_release(&p);
}

/* A piece that is still somebody's though the notes had it back: its place is not given again. */
static void who_keeps_a_piece_longer_keeps_it(void **state) {
  struct memory_plan p = {0};
  struct memory_serving s;
  size_t first, second;
  memory_plan_begin(&p, here);
  memory_note_give(memory_note_take(here, 1000));
  memory_note_give(memory_note_take(here, 1000));
  memory_plan_end();
  assert_int_equal(p.total, 1024);
  memory_serving_init(&s, &p);
  assert_true(memory_serving_take(&s, 1000, &first));
  assert_false(memory_serving_take(&s, 1000, &second));
  memory_serving_give(&s, first);
  assert_true(memory_serving_take(&s, 1000, &second));
  memory_serving_release(&s);
  memory_plan_release(&p);
}

/* What was taken before the notes, or of another device, is not in them. */
static void notes_are_of_one_run(void **state) {
  struct memory_plan first = {0}, p = {0};
  memory_plan_begin(&first, here);
  struct memory_note old = memory_note_take(here, 100);
  memory_plan_end();
  memory_plan_begin(&p, here);
  memory_note_give(old);
  memory_note_take((const struct device *)16, 5000);
  memory_note_take(here, 300);
  memory_plan_end();
  assert_int_equal(p.spans.n, 1);
  assert_int_equal(p.total, 512);
  assert_int_equal(memory_note_take(here, 1).of, 0);
  memory_plan_release(&first);
  memory_plan_release(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(places_do_not_overlap),   cmocka_unit_test(a_chain_takes_two),
      cmocka_unit_test(what_differs_is_refused), cmocka_unit_test(who_keeps_a_piece_longer_keeps_it),
      cmocka_unit_test(notes_are_of_one_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
